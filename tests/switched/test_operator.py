import copy

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from benchmarks import switched_linear as benchmark
from tensorswitch import Routes, switched_linear
from tensorswitch.switched import MAX_GROUP, switched_outer

GROUPS = range(MAX_GROUP + 1)
SHAPES = [(1, 1, 1, 1), (5, 3, 4, 2), (300, 7, 13, 5), (64, 9, 8, 1)]


def example(rows, n_in, units, n_out, opened=0.5, dtype=torch.float64):
    x = torch.randn(rows, n_in, dtype=dtype, requires_grad=True)
    weight = torch.randn(units, n_in, n_out, dtype=dtype, requires_grad=True)
    return x, torch.rand(rows, units) < opened, weight


def assert_same(fast, slow, inputs, **tolerance):
    """The same values and the same gradients."""
    error = torch.randn_like(slow)
    assert_close(fast, slow, **tolerance)
    for a, b in zip(
        torch.autograd.grad(fast, inputs, error),
        torch.autograd.grad(slow, inputs, error),
        strict=True,
    ):
        assert_close(a, b, **tolerance)


@pytest.mark.parametrize("group", GROUPS)
@pytest.mark.parametrize("opened", [0.0, 0.05, 0.5, 0.9, 1.0])
@pytest.mark.parametrize("shape", SHAPES)
def test_every_strategy_equals_the_expanded_tensor(naive, shape, opened, group):
    x, gates, weight = example(*shape, opened=opened)
    assert_same(
        switched_linear(x, gates, weight, group=group), naive(x, gates, weight), (x, weight)
    )


@pytest.mark.parametrize("group", [None, 0, 1, 3])
def test_gradcheck(group):
    x, gates, weight = example(6, 3, 5, 2)
    bias = torch.randn(2, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(
        lambda x, w, b: switched_linear(x, gates, w, b, group=group), (x, weight, bias)
    )


@pytest.mark.parametrize("group", [0, 1, 4])
def test_more_rows_than_a_block(naive, group):
    x, gates, weight = example(20_000, 3, 5, 2)
    assert_same(
        switched_linear(x, gates, weight, group=group), naive(x, gates, weight), (x, weight)
    )


@pytest.mark.parametrize("group", GROUPS)
def test_a_unit_that_never_opens_gets_no_gradient(group):
    x, gates, weight = example(50, 4, 9, 3)
    gates[:, [0, 4, 8]] = False
    switched_linear(x, gates, weight, group=group).sum().backward()
    assert (weight.grad[[0, 4, 8]] == 0).all()
    assert (weight.grad[[1, 2, 3]] != 0).any()


@pytest.mark.parametrize("group", GROUPS)
def test_no_rows(group):
    x, gates, weight = example(0, 3, 4, 2)
    y = switched_linear(x, gates, weight, group=group)
    y.sum().backward()
    assert y.shape == (0, 2)
    assert x.grad.shape == (0, 3)
    assert (weight.grad == 0).all()


@pytest.mark.parametrize("group", [0, 1, 2])
def test_non_contiguous_and_expanded_inputs(naive, group):
    _, gates, _ = example(10, 3, 8, 4)
    x = torch.randn(3, 10, dtype=torch.float64).t()
    weight = torch.randn(4, 3, 16, dtype=torch.float64).permute(2, 1, 0)[::2]
    for rows in (x, x[:1].expand(10, 3)):
        inputs = (rows.requires_grad_(), weight.requires_grad_())
        assert_same(
            switched_linear(rows, gates.t().contiguous().t(), weight, group=group),
            naive(rows, gates, weight),
            inputs,
        )
    y = switched_linear(x, gates, weight, group=group)
    y.sum().backward()  # the error is an expanded scalar


@pytest.mark.parametrize("group", [0, 1, 3])
def test_float32(naive, group):
    x, gates, weight = example(200, 20, 30, 10, dtype=torch.float32)
    assert_same(
        switched_linear(x, gates, weight, group=group),
        naive(x, gates, weight),
        (x, weight),
        rtol=1e-4,
        atol=1e-4,
    )


@pytest.mark.usefixtures("bfloat16")
@pytest.mark.parametrize("group", [0, 1, 3])
def test_autocast_to_bfloat16(naive, group):
    x, gates, weight = example(64, 16, 24, 8, dtype=torch.float32)
    bias = torch.zeros(8)
    exact = naive(x, gates, weight)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = switched_linear(x, gates, weight, bias, group=group)
    assert y.dtype == torch.bfloat16
    assert not torch.equal(y, exact.bfloat16())
    assert_close(y.float(), exact, rtol=0.03, atol=0.5)
    error = torch.randn_like(exact)
    for a, b in zip(
        torch.autograd.grad(y, (x, weight), error.bfloat16()),
        torch.autograd.grad(exact, (x, weight), error),
        strict=True,
    ):
        assert a.dtype == torch.float32
        assert_close(a, b, rtol=0.05, atol=0.5)


@pytest.mark.usefixtures("bfloat16")
@pytest.mark.parametrize("opened", [0.1, 0.5, 0.95])
@pytest.mark.parametrize("n_out", [8, 24])
def test_autocast_converts_weights_chunk_by_chunk_as_if_all_at_once(opened, n_out):
    x, _, weight = example(96, 16, 24, n_out, dtype=torch.float32)
    gates = torch.rand(96, 24) < opened
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = switched_linear(x, gates, weight, group=1)
    narrow = switched_linear(x.bfloat16(), gates, weight.bfloat16(), group=1)
    error = torch.randn_like(y)
    found = (y, *torch.autograd.grad(y, (x, weight), error))
    expected = (narrow, *torch.autograd.grad(narrow, (x, weight), error))
    if opened < 0.5:  # weights of flipped units are rounded once more before they are added
        assert all(map(torch.equal, found, expected))
    assert_close(found, expected, rtol=0.02, atol=0.2)


@pytest.mark.usefixtures("bfloat16")
@pytest.mark.parametrize("group", [1, 3])
def test_gradients_under_autocast_are_differentiable(naive, group):
    x, gates, weight = example(64, 16, 24, 8, dtype=torch.float32)
    exact, penalty = naive(x, gates, weight), []
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = switched_linear(x, gates, weight, group=group)
        inside = torch.autograd.grad(y.float().square().sum(), weight, retain_graph=True)[0]
    for result in (y.float(), exact):
        (slope,) = torch.autograd.grad(result.square().mean(), x, create_graph=True)
        penalty.append(torch.autograd.grad(slope.square().sum(), weight)[0])
    assert_close(penalty[0], penalty[1], rtol=0.1, atol=0.02 * float(penalty[1].abs().max()))
    expected = torch.autograd.grad(naive(x, gates, weight).square().sum(), weight)[0]
    assert inside.dtype == torch.float32
    assert_close(inside, expected, rtol=0.1, atol=0.02 * float(expected.abs().max()))


def test_autocast_of_the_dense_strategy_does_not_convert_many_weights_for_few_rows():
    x, gates, weight = example(200, 128, 520, 128, dtype=torch.float32)
    x = x.bfloat16()  # as other operations give it under autocast
    exact = switched_linear(x.float(), gates, weight, group=0)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = switched_linear(x, gates, weight, group=0)
    assert torch.equal(y, exact.bfloat16())
    error = torch.randn_like(y)
    found = torch.autograd.grad(y, (x, weight), error)
    expected = torch.autograd.grad(exact, (x, weight), error.float())
    assert all(map(torch.equal, found, expected))


@pytest.mark.parametrize("group", [None, *GROUPS])
@pytest.mark.parametrize("shape", [(7, 4, 0, 3), (7, 0, 4, 3), (7, 4, 3, 0)])
def test_an_empty_sum_is_zero_and_leaves_the_bias(shape, group):
    x, gates, weight = example(*shape)
    with torch.no_grad():
        x.fill_(1e308)  # whose sum overflows
    bias = torch.randn(shape[3], dtype=torch.float64, requires_grad=True)
    y = switched_linear(x, gates, weight, bias, group=group)
    y.sum().backward()
    assert torch.equal(y, bias.expand(7, shape[3]))
    assert torch.equal(bias.grad, torch.full_like(bias, 7))
    assert (x.grad == 0).all()
    assert weight.grad.shape == weight.shape


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (
            {"gates": torch.ones(5, 4, dtype=torch.int64)},
            TypeError,
            "gates must be a boolean tensor, got torch.int64",
        ),
        (
            {"gates": torch.ones(6, 4) > 0},
            ValueError,
            r"x has size 5 on axis 0 \(rows\), expected 6",
        ),
        (
            {"errors": torch.ones(6, 2)},
            ValueError,
            r"errors has size 6 on axis 0 \(rows\), expected 5",
        ),
        (
            {"errors": torch.ones(5, 2).double()},
            TypeError,
            "errors is torch.float64 but x is torch.float32",
        ),
        ({"group": 9}, ValueError, "group must be None or an integer from 0 to 6, got 9"),
    ],
)
def test_wrong_arguments_of_the_outer_sum_are_named(change, error, message):
    arguments = {
        "x": torch.ones(5, 3),
        "gates": torch.ones(5, 4) > 0,
        "errors": torch.ones(5, 2),
        **change,
    }
    with pytest.raises(error, match=message):
        switched_outer(**arguments)


@pytest.mark.parametrize("group", [0, 1, 3])
def test_inference_mode_leaves_nothing_behind(group):
    x, gates, weight = example(30, 17, 19, 23)
    with torch.inference_mode():
        expected = switched_linear(x, gates, weight, group=group)
    y = switched_linear(x, gates, weight, group=group)
    y.sum().backward()
    assert torch.equal(y, expected)


def test_the_outer_sum_is_the_gradient_of_the_weight():
    for rows in (0, 40, 9_000):
        x, gates, weight = example(rows, 4, 7, 3)
        errors = torch.randn(rows, 3, dtype=torch.float64)
        y = switched_linear(x, gates, weight, group=0)
        (expected,) = torch.autograd.grad(y, weight, errors)
        for group in (None, 0, 1, 3):
            assert_close(switched_outer(x.detach(), gates, errors, group=group), expected)


def test_routes_copy_one_row_to_another(naive):
    x, _, weight = example(6, 3, 4, 2)
    gates = torch.rand(15, 4) < 0.5
    source, target = torch.randint(0, 6, (15,)), torch.randint(0, 8, (15,))
    slow = torch.zeros(8, 2, dtype=torch.float64).index_add(
        0, target, naive(x[source], gates, weight)
    )
    assert_same(switched_linear(x, Routes(gates, source, target, 8), weight), slow, (x, weight))


@pytest.mark.parametrize(
    ("source", "target", "message"),
    [
        ([0, 6], [0, 1], "source must have entries between 0 and 5, got 0 to 6"),
        ([0, -1], [0, 1], "source must have entries at least 0, got -1 to 0"),
        ([0, 1], [0, 2], "target must have entries between 0 and 1, got 0 to 2"),
    ],
)
def test_routes_to_nowhere_are_refused(source, target, message):
    x, _, weight = example(6, 3, 4, 2)
    with pytest.raises(ValueError, match=message):
        switched_linear(
            x, Routes(torch.ones(2, 4) > 0, torch.tensor(source), torch.tensor(target), 2), weight
        )


def test_the_bias_is_added_once():
    x, gates, weight = example(6, 3, 4, 2)
    bias = torch.randn(2, dtype=torch.float64)
    assert_close(switched_linear(x, gates, weight, bias), switched_linear(x, gates, weight) + bias)


def test_results_do_not_share_scratch_memory():
    x, gates, weight = example(40, 4, 6, 3)
    first = switched_linear(x, gates, weight, group=1)
    kept = first.clone()
    switched_linear(-x, gates, 2 * weight, group=1)
    assert torch.equal(first, kept)


def test_a_large_gradient_is_an_ordinary_tensor(naive):
    # 35 MB, which takes huge pages if there are any.
    x, gates, weight = example(8, 260, 130, 260, dtype=torch.float32)
    switched_linear(x, gates, weight).sum().backward()
    grad = copy.deepcopy(weight.grad)
    weight.grad = None
    naive(x, gates, weight).sum().backward()
    assert_close(grad, weight.grad, rtol=1e-4, atol=1e-4)


def test_the_expanded_tensor_is_never_stored():
    expanded = benchmark.working_memory(benchmark.naive)
    assert benchmark.working_memory(switched_linear) <= expanded / 6


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (
            {"x": torch.ones(5, 3, dtype=torch.int64)},
            TypeError,
            "x must be a floating-point tensor, got torch.int64",
        ),
        ({"x": [[1.0]]}, TypeError, "x must be a torch tensor, got list"),
        (
            {"x": torch.ones(3)},
            ValueError,
            r"x must have 2 axes \(rows, in_features\), got shape \(3,\)",
        ),
        ({"x": torch.ones(6, 3)}, ValueError, r"x has size 6 on axis 0 \(rows\), expected 5"),
        (
            {"x": torch.ones(5, 2)},
            ValueError,
            r"weight has size 3 on axis 1 \(in_features\), expected 2",
        ),
        (
            {"gates": torch.ones(5, 7, dtype=torch.bool)},
            ValueError,
            r"weight has size 4 on axis 0 \(gates\), expected 7",
        ),
        ({"gates": torch.ones(5, 4)}, TypeError, "gates must be a boolean tensor"),
        (
            {"weight": torch.ones(4, 3)},
            ValueError,
            r"weight must have 3 axes \(gates, in_features, out_features\)",
        ),
        (
            {"weight": torch.ones(4, 3, 2, dtype=torch.float64)},
            TypeError,
            "weight is torch.float64 but x is torch.float32",
        ),
        (
            {"weight": torch.ones(4, 3, 2, device="meta")},
            ValueError,
            "weight is on meta but x is on cpu",
        ),
        (
            {"gates": torch.ones(5, 4, dtype=torch.bool, device="meta")},
            ValueError,
            "gates are on meta but x is on cpu",
        ),
        (
            {"bias": torch.ones(3)},
            ValueError,
            r"bias has size 3 on axis 0 \(out_features\), expected 2",
        ),
        (
            {"bias": torch.ones(2, dtype=torch.float64)},
            TypeError,
            "bias is torch.float64 but x is torch.float32",
        ),
        ({"weight": np.ones((4, 3, 2))}, TypeError, "weight must be a torch tensor, got ndarray"),
        ({"group": 2.0}, ValueError, "group must be None or an integer from 0 to 6, got 2.0"),
        ({"group": 7}, ValueError, "group must be None or an integer from 0 to 6, got 7"),
    ],
)
def test_wrong_arguments_are_named(change, error, message):
    arguments = {
        "x": torch.ones(5, 3),
        "gates": torch.ones(5, 4, dtype=torch.bool),
        "weight": torch.ones(4, 3, 2),
        **change,
    }
    with pytest.raises(error, match=message):
        switched_linear(**arguments)


@pytest.mark.parametrize("group", [None, *range(MAX_GROUP + 1)])
@pytest.mark.parametrize(
    "shape", [(0, 2, 3, 4), (5, 0, 3, 4), (5, 2, 0, 4), (5, 2, 3, 0), (5,) + 3 * (0,)]
)
def test_an_outer_sum_with_empty_axes_is_zero(shape, group):
    rows, units, n_in, n_out = shape
    x, errors = torch.ones(rows, n_in, requires_grad=True), torch.ones(rows, n_out)
    total = switched_outer(x, torch.ones(rows, units) > 0, errors, group=group)
    assert torch.equal(total, torch.zeros(units, n_in, n_out))
    total.sum().backward()
    assert torch.equal(x.grad, torch.zeros_like(x))
