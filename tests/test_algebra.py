import itertools

import pytest
import torch
from torch.testing import assert_close

from tensorswitch import SwitchedLinear, algebra

ROWS = 6
SIZES = [(5, 4), (5, 4, 3), (5, 4, 3, 2)]


def network(sizes, rows=ROWS):
    x = torch.randn(rows, sizes[0], dtype=torch.float64)
    return x, [torch.randn(n, below, dtype=torch.float64) for below, n in itertools.pairwise(sizes)]


def relu_network(x, weights):
    for w in weights:
        x = (x @ w.T).relu()
    return x


def test_expansion_copies_the_input_to_open_units_only():
    x, (w,) = network((5, 4))
    z = algebra.expand(x, w)
    for b, j in itertools.product(range(ROWS), range(4)):
        assert_close(z[b, j], x[b] if w[j] @ x[b] > 0 else torch.zeros_like(x[b]))


def test_a_score_of_exactly_zero_keeps_the_unit_closed():
    assert algebra.gates(torch.tensor([[1.0, 1.0]]), torch.tensor([[1.0, -1.0]])).item() == 0


@pytest.mark.parametrize("sizes", SIZES)
def test_scalar_switching_is_expansion_then_contraction(sizes):
    x, weights = network(sizes)
    assert_close(algebra.scalar_switching(x, weights)[-1], relu_network(x, weights))


@pytest.mark.parametrize("sizes", SIZES)
def test_a_chain_of_open_units_decides_where_the_input_is_copied(sizes):
    x, weights = network(sizes)
    z = algebra.tensor_switching(x, weights)[-1]
    activities = algebra.scalar_switching(x, weights)
    for place in itertools.product(range(ROWS), *map(range, sizes[:0:-1])):
        b, units = place[0], place[:0:-1]  # first layer first
        is_open = all(activity[b, j] > 0 for activity, j in zip(activities[1:], units, strict=True))
        assert_close(z[place], x[b] * is_open)


@pytest.mark.parametrize("sizes", SIZES)
def test_representation_sizes(sizes):
    x, weights = network(sizes)
    for depth, z in enumerate(algebra.tensor_switching(x, weights)):
        assert z.shape == (ROWS, *sizes[depth::-1])
    for depth, a in enumerate(algebra.auxiliary(x, weights)):
        assert a.shape == (ROWS, *sizes[: depth - 1 if depth else None : -1])


@pytest.mark.parametrize("sizes", SIZES)
def test_contracting_the_tensor_gives_the_scalar_activity(sizes):
    x, weights = network(sizes)
    assert_close(algebra.auxiliary(x, weights)[-1], relu_network(x, weights))


@pytest.mark.parametrize("sizes", SIZES)
def test_a_ts_network_represents_any_ss_network(sizes):
    x, weights = network(sizes)
    readout = torch.randn(3, sizes[-1], dtype=torch.float64)
    analysis = readout  # (out, n_L), then the product of all weights along each chain of units
    for w in reversed(weights):
        analysis = analysis.unsqueeze(-1) * w
    z = algebra.tensor_switching(x, weights)[-1]
    assert_close(z.flatten(1) @ analysis.flatten(1).T, relu_network(x, weights) @ readout.T)


def test_one_ts_unit_has_full_rank_where_one_ss_unit_has_rank_one():
    n = 5
    w = torch.randn(1, n, dtype=torch.float64)
    x = torch.randn(100, n, dtype=torch.float64)
    x = x[(x @ w.T > 0)[:, 0]]
    wanted = x @ torch.randn(n, n, dtype=torch.float64)
    ts = algebra.expand(x, w).flatten(1)
    ss = algebra.scalar_switching(x, [w])[-1]
    assert_close(ts @ torch.linalg.lstsq(ts, wanted).solution, wanted)
    best = ss @ torch.linalg.lstsq(ss, wanted).solution
    assert torch.linalg.matrix_rank(best) == 1
    assert (wanted - best).norm() > 0.5 * wanted.norm()


def test_analysis_corrects_for_bad_gates_where_scalar_units_cannot():
    """Random gates that are not those of the target network: TS fits it far better than SS."""
    x = torch.randn(2000, 4, dtype=torch.float64)
    wanted = (x @ torch.randn(4, 6, dtype=torch.float64)).relu().sum(1, keepdim=True)
    gate_weights = torch.randn(12, 4, dtype=torch.float64)
    left = {}
    for name, z in (
        ("ts", algebra.expand(x, gate_weights).flatten(1)),
        ("ss", algebra.scalar_switching(x, [gate_weights])[-1]),
    ):
        left[name] = (wanted - z @ torch.linalg.lstsq(z, wanted).solution).norm()
    assert left["ts"] < 0.6 * left["ss"]


@pytest.mark.parametrize("sizes", SIZES)
def test_the_pseudo_gradient_uses_the_pseudoinverse_of_each_contraction(sizes):
    x, weights = network(sizes)
    error = torch.randn(ROWS, *sizes[::-1], dtype=torch.float64)
    tensors = algebra.auxiliary(x, weights)
    flowing = error.flatten(1)
    for level, (w, result) in enumerate(
        zip(weights, algebra.pseudo_gradients(x, weights, error), strict=True)
    ):
        below, above = tensors[level][0], tensors[level + 1][0]
        jacobian = torch.autograd.functional.jacobian(
            lambda a, w=w: algebra.contract(a[None], w)[0], below
        )
        flowing = flowing @ torch.linalg.pinv(jacobian.reshape(above.numel(), below.numel()))
        by_weight = torch.autograd.functional.jacobian(
            lambda w, a=tensors[level]: algebra.contract(a, w), w
        )
        by_weight = by_weight.reshape(ROWS, above.numel(), *w.shape)
        assert_close(result, torch.einsum("bu,buji->ji", flowing, by_weight))


@pytest.mark.parametrize("sizes", SIZES)
def test_inverted_backpropagation_of_the_scalar_error_is_backpropagation(sizes):
    x, weights = network(sizes)
    for w in weights:
        w.requires_grad_()
    error = torch.randn(ROWS, sizes[-1], dtype=torch.float64)
    expected = torch.autograd.grad(relu_network(x, weights), weights, error)
    found = algebra.pseudo_gradients(x, weights, algebra.backpropagate(weights, error))
    for a, b in zip(found, expected, strict=True):
        assert_close(a, b)


def test_rotation_compression_is_the_switched_linear_layer():
    layer = SwitchedLinear(5, 4, 3, bias=False, dtype=torch.float64)
    x = torch.randn(ROWS, 5, dtype=torch.float64)
    w_star = layer.weight.flatten(0, 1).T  # (n*, n_1 · n_0)
    assert_close(algebra.rotate_compress(x, layer.gate_weight, w_star), layer(x))
