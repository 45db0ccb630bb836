"""The registered operators, as torch's own tools see them."""

import gc
import weakref

import pytest
import torch
from torch.testing import assert_close

from tensorswitch import switched_linear
from tensorswitch.switched import switched_outer

GROUPS = [None, 0, 1, 3]
operators = torch.ops.tensorswitch
linear_op = operators.switched_linear.default
outer_op = operators.switched_outer.default
gradients_op = operators.switched_gradients.default


def example(rows=6, n_in=3, units=5, n_out=2, opened=0.5):
    x = torch.randn(rows, n_in, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(units, n_in, n_out, dtype=torch.float64, requires_grad=True)
    errors = torch.randn(rows, n_out, dtype=torch.float64, requires_grad=True)
    return x, torch.rand(rows, units) < opened, weight, errors


@pytest.mark.parametrize("group", GROUPS)
def test_opcheck(group):
    x, gates, weight, errors = example()
    torch.library.opcheck(linear_op, (x, gates, weight, group, True))
    torch.library.opcheck(outer_op, (x, gates, errors, group))
    tensors = (errors.detach(), x.detach(), gates, weight.detach())
    for needed in ((True, True), (True, False), (False, True)):
        torch.library.opcheck(gradients_op, (*tensors, group, *needed))


@pytest.mark.parametrize("opened", [0.5, 0.95])
@pytest.mark.parametrize("group", GROUPS)
def test_every_operator_is_differentiable_twice(group, opened):
    x, gates, weight, errors = example(rows=24, opened=opened)
    for function, inputs in (
        (lambda x, w: linear_op(x, gates, w, group), (x, weight)),
        (lambda x, e: outer_op(x, gates, e, group), (x, errors)),
    ):
        assert torch.autograd.gradcheck(function, inputs, fast_mode=True)
        assert torch.autograd.gradgradcheck(function, inputs, fast_mode=True)


@pytest.mark.parametrize("group", [1, 2, 5])
def test_units_that_are_mostly_open(naive, group):
    x, gates, weight, errors = example(rows=200, units=9, opened=0.9)
    gates[:, 2], gates[:, 5] = False, True
    fast, slow = switched_linear(x, gates, weight, group=group), naive(x, gates, weight)
    assert_close(fast, slow)
    grads = [torch.autograd.grad(y, (x, weight), errors.detach()) for y in (fast, slow)]
    for a, b in zip(*grads, strict=True):
        assert_close(a, b)
    assert (grads[0][1][2] == 0).all()


def test_plans_are_freed_with_their_gates():
    x, gates, weight, _ = example(rows=64)
    y = switched_linear(x, gates, weight, group=1)
    y.sum().backward()
    gone = weakref.ref(gates)
    del y, gates
    gc.collect()
    assert gone() is None


@pytest.mark.parametrize("group", [1, 3])
def test_gates_that_change_between_calls(naive, group):
    x, gates, weight, _ = example(rows=64)
    switched_linear(x, gates, weight, group=group)
    gates[0] = ~gates[0]
    assert_close(switched_linear(x, gates, weight, group=group), naive(x, gates, weight))


@pytest.mark.parametrize("operator", [switched_linear, lambda *a: linear_op(*a, None, True)])
def test_gates_may_be_overwritten_without_a_new_version(operator):
    """As in compiled graphs, which write the gates of several layers into one buffer."""
    x, gates, weight, _ = example(rows=512, n_in=64, units=64, n_out=64)
    assert operator(x, gates, weight).any()
    version = gates._version
    gates.numpy()[:] = False
    assert gates._version == version
    assert not operator(x, gates, weight).any()


@pytest.mark.parametrize("group", GROUPS)
@pytest.mark.parametrize("dims", [(0, 0, None), (0, None, None), (None, 0, 0), (1, 0, 2)])
def test_vmap_is_a_loop(dims, group):
    shapes = [(6, 3), (6, 5), (5, 3, 2)]
    x, scores, weight = (
        torch.randn(*shape[: d or 0], 4, *shape[d or 0 :]) if d is not None else torch.randn(shape)
        for shape, d in zip(shapes, dims, strict=True)
    )
    gates = scores > 0
    found = torch.vmap(lambda x, g, w: switched_linear(x, g, w, group=group), dims)(
        x, gates, weight
    )
    pick = lambda t, d, i: t if d is None else t.select(d, i)  # noqa: E731
    tensors = list(zip((x, gates, weight), dims, strict=True))
    slow = [switched_linear(*(pick(t, d, i) for t, d in tensors)) for i in range(4)]
    assert_close(found, torch.stack(slow))
    errors = torch.randn(6, 2)
    found = torch.vmap(lambda x, g: switched_outer(x, g, errors, group=group), dims[:2])(x, gates)
    slow = [switched_outer(*(pick(t, d, i) for t, d in tensors[:2]), errors) for i in range(4)]
    assert_close(found, torch.stack(slow))


@pytest.mark.filterwarnings("ignore:.torch.jit.script:DeprecationWarning")
@pytest.mark.parametrize("rows", [20, 400])
def test_func_transforms_agree_with_autograd(rows):
    """Below and above the size up to which the plain formula is used."""
    x, weight = torch.randn(rows, 32).double(), torch.randn(32, 32, 32).double()
    gates = torch.randn(rows, 32) > 0
    function = lambda x, w: switched_linear(x, gates, w).sin()  # noqa: E731
    tangents = torch.randn_like(x), torch.randn_like(weight)
    _, forward = torch.func.jvp(function, (x, weight), tangents)
    inputs = x.clone().requires_grad_(), weight.clone().requires_grad_()
    error = torch.randn(rows, 32).double()
    backward = torch.autograd.grad(function(*inputs), inputs, error)
    pairs = zip(backward, tangents, strict=True)
    assert_close((forward * error).sum(), sum((g * t).sum() for g, t in pairs))
    _, pull = torch.func.vjp(function, x, weight)
    for a, b in zip(pull(error), backward, strict=True):
        assert_close(a, b)


@pytest.mark.usefixtures("bfloat16")
@pytest.mark.parametrize("group", GROUPS)
def test_the_outer_sum_under_autocast(group):
    x, gates, _, errors = (t.float() if t.is_floating_point() else t for t in example())
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = switched_outer(x, gates, errors, group=group)
    assert found.dtype == torch.bfloat16
    assert_close(found.float(), switched_outer(x, gates, errors), rtol=0.03, atol=0.1)


def test_meta_tensors_have_shapes_and_errors():
    x, gates, weight, errors = (t.detach().to("meta") for t in example())
    for group in GROUPS:
        assert switched_linear(x, gates, weight, group=group).shape == (6, 2)
        assert switched_outer(x, gates, errors, group=group).shape == (5, 3, 2)
    with pytest.raises(
        ValueError, match=r"weight has size 3 on axis 1 \(in_features\), expected 2"
    ):
        linear_op(x[:, :2], gates, weight)
    with pytest.raises(ValueError, match=r"errors has size 4 on axis 0 \(rows\), expected 6"):
        outer_op(x, gates, errors[:4])
    with pytest.raises(TypeError, match="gates must be a boolean tensor"):
        linear_op(x, gates.float(), weight)


@pytest.mark.parametrize("rows", [1, 6, 40])
def test_batched_outer_sums_are_a_loop(rows):
    x, gates, _, errors = example(rows=3 * rows)
    x, gates, errors = (t.unflatten(0, (3, rows)) for t in (x, gates, errors))
    batched = torch.vmap(outer_op)(x, gates, errors)
    assert_close(batched, torch.stack([outer_op(*t) for t in zip(x, gates, errors, strict=True)]))
