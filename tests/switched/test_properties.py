"""Any sizes, types, strides, gates and routes: every strategy is the expanded tensor's map."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from tensorswitch import Routes, switched_linear
from tensorswitch.switched import MAX_GROUP, switched_outer
from tests.conftest import bfloat16_problem

SIZES = st.integers(0, 9)
DTYPES = [torch.float32, torch.float64]
if bfloat16_problem() is None:  # products in float16 use the same units of the processor
    DTYPES += [torch.float16, torch.bfloat16]


@st.composite
def problems(draw):
    """Inputs, routes and weights, perhaps not contiguous and perhaps with empty axes."""
    rows, n_in, units, n_out = draw(st.integers(0, 70)), *(draw(SIZES) for _ in range(3))
    dtype = draw(st.sampled_from(DTYPES))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**32)))
    opened = draw(st.sampled_from([0.0, 0.1, 0.5, 1.0]))

    def numbers(*shape):
        if draw(st.booleans()):  # every second entry, the axes the other way round
            large = torch.randn(*(2 * n for n in reversed(shape)), generator=generator).to(dtype)
            return large.permute(*reversed(range(len(shape))))[
                tuple(slice(None, None, 2) for _ in shape)
            ]
        return torch.randn(*shape, generator=generator).to(dtype)

    x, weight, bias = numbers(rows, n_in), numbers(units, n_in, n_out), numbers(n_out)
    pairs, source, target, results = rows, None, None, None
    if rows and draw(st.booleans()):
        pairs, results = draw(st.integers(0, 40)), draw(st.integers(1, 20))
        source = torch.randint(0, rows, (pairs,), generator=generator)
        target = torch.randint(0, results, (pairs,), generator=generator)
    gates = torch.rand(pairs, units, generator=generator) < opened
    return x, Routes(gates, source, target, results), weight, bias


def expanded(x, routes, weight, bias):
    """The same with ``Z`` in full."""
    x = x if routes.source is None else x[routes.source]
    z = (routes.gates.to(x.dtype)[:, :, None] * x[:, None, :]).flatten(1)
    y = z @ weight.reshape(z.shape[1], weight.shape[2])
    if routes.target is not None:
        y = y.new_zeros(routes.rows, y.shape[1]).index_add(0, routes.target, y)
    return y + bias


def assert_rounded(found, exact, size):
    """Demand the result up to a few roundings of terms whose absolute values sum to ``size``."""
    assert found.shape == exact.shape
    assert ((found.double() - exact).abs() <= 16 * torch.finfo(found.dtype).eps * size).all()


@given(problems(), st.sampled_from([None, *range(MAX_GROUP + 1)]))
def test_every_strategy_is_the_expanded_map(problem, group):
    x, routes, weight, bias = problem
    leaves = [t.detach().requires_grad_() for t in (x, weight, bias)]
    y = switched_linear(leaves[0], routes, leaves[1], leaves[2], group=group)
    error = torch.randn(y.shape).to(x.dtype)
    found = [y, *torch.autograd.grad(y, leaves, error)]
    exact, size = [], []
    for results, tensors in (
        (exact, (x, weight, bias, error)),
        (size, (x.abs(), weight.abs(), bias.abs(), error.abs())),
    ):
        *wide, delta = (t.double() for t in tensors)
        wide = [t.requires_grad_() for t in wide]
        y = expanded(wide[0], routes, wide[1], wide[2])
        results += [y, *torch.autograd.grad(y, wide, delta)]
    for a, b, c in zip(found, exact, size, strict=True):
        assert_rounded(a, b, c)


@given(problems(), st.sampled_from([None, *range(MAX_GROUP + 1)]))
def test_the_outer_sum_is_the_expanded_one(problem, group):
    x, routes, weight, _ = problem
    gates = routes.gates if routes.source is None else torch.ones(len(x), weight.shape[0]) > 0
    errors = torch.randn(len(x), weight.shape[2]).to(x.dtype)
    exact, size = (
        torch.einsum("bj,bi,bo->jio", gates.double(), a.double(), b.double())
        for a, b in ((x, errors), (x.abs(), errors.abs()))
    )
    assert_rounded(switched_outer(x, gates, errors, group=group), exact, size)
