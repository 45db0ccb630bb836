"""Every solver agrees with the dense formula for any sizes, depths, weights and penalties."""

import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from torch.testing import assert_close

from tensorswitch import algebra
from tensorswitch.linear import Copies, Sums, solve


@st.composite
def problems(draw):
    rows, n_in, out = draw(st.integers(1, 40)), draw(st.integers(1, 5)), draw(st.integers(1, 3))
    gates = draw(st.lists(st.integers(1, 5), min_size=1, max_size=3))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**32)))

    def numbers(*shape):
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    sizes = [n_in, *gates]
    gate_weights = [numbers(n, below) for below, n in zip(sizes, gates, strict=False)]
    weight = None
    if draw(st.booleans()):
        weight = torch.randint(0, 3, (rows,), generator=generator).double()
    return numbers(rows, n_in), numbers(rows, out), gate_weights, weight


def dense(x, targets, gate_weights, weight, alpha):
    z = algebra.tensor_switching(x, gate_weights)[-1].flatten(1)
    s = torch.ones(len(x), 1).double() if weight is None else weight[:, None]
    gram = z.T @ (s * z) + alpha * torch.eye(z.shape[1], dtype=torch.float64)
    return torch.linalg.solve(gram, z.T @ (s * targets))


@given(
    problems(),
    st.sampled_from([1e-3, 0.1, 10.0]),
    st.sampled_from(["streaming", "matrix-free", "dual"]),
)
def test_every_solver_agrees_with_the_dense_formula(problem, alpha, solver):
    x, targets, gate_weights, weight = problem
    assume(weight is None or weight.sum() > 0)
    options = {"solver": solver, "sample_weight": weight, "tol": 1e-13, "max_iter": 5000}
    found = solve(x, targets, gate_weights, alpha, **options).weight.flatten(0, -2)
    assert_close(found, dense(x, targets, gate_weights, weight, alpha), rtol=1e-6, atol=1e-8)


@given(problems(), st.integers(1, 7), st.randoms(use_true_random=False))
def test_chunks_merged_in_any_order_equal_the_whole(problem, chunk, random):
    x, targets, gate_weights, weight = problem
    copies = Copies(gate_weights)
    whole = Sums(copies, targets.shape[1], dtype=torch.float64)
    whole.update(x, targets, weight)
    parts = []
    for rows in torch.arange(len(x)).split(chunk):
        part = Sums(copies, targets.shape[1], dtype=torch.float64)
        parts.append(part.update(x[rows], targets[rows], None if weight is None else weight[rows]))
    random.shuffle(parts)
    while len(parts) > 1:
        parts.append(parts.pop(0).merge(parts.pop(0)))
    assert_close(parts[0].gram, whole.gram)
    assert_close(parts[0].cross, whole.cross)
    assert abs(parts[0].rows - whole.rows) < 1e-9
