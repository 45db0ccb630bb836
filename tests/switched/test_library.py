"""The registered operators, as torch's own tools see them."""

import gc

import pytest
import torch
from torch.testing import assert_close

from tensorswitch import switched_linear
from tensorswitch.switched import _compute, _eager, switched_outer
from tensorswitch.switched._cost import TINY
from tensorswitch.switched._library import gradients_op, linear_op, outer_op

GROUPS = [None, 0, 1, 3]


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
    torch.library.opcheck(gradients_op, (errors, x, gates, weight, group))


@pytest.mark.parametrize("opened", [0.5, 0.95])
@pytest.mark.parametrize("group", GROUPS)
def test_every_operator_is_differentiable_twice(group, opened, monkeypatch):
    monkeypatch.setattr("tensorswitch.switched._plans.FLIP_ROWS", 0)  # flip units of few rows, too
    x, gates, weight, errors = example(opened=opened)
    for function, inputs in (
        (lambda x, w: linear_op(x, gates, w, group), (x, weight)),
        (lambda x, e: outer_op(x, gates, e, group), (x, errors)),
        (lambda e, x, w: gradients_op(e, x, gates, w, group), (errors, x, weight)),
    ):
        assert torch.autograd.gradcheck(function, inputs, fast_mode=True)
        assert torch.autograd.gradgradcheck(function, inputs, fast_mode=True)


@pytest.mark.parametrize("group", [1, 2, 5])
def test_units_that_are_mostly_open_are_flipped(naive, group):
    x, gates, weight, errors = example(rows=200, units=9, opened=0.9)
    gates[:, 2], gates[:, 5] = False, True
    known = _compute.census(gates)
    assert known.flipped.tolist() == [j != 2 for j in range(9)]
    assert known.routed < 0.2
    fast, slow = switched_linear(x, gates, weight, group=group), naive(x, gates, weight)
    assert_close(fast, slow)
    grads = [torch.autograd.grad(y, (x, weight), errors.detach()) for y in (fast, slow)]
    for a, b in zip(*grads, strict=True):
        assert_close(a, b)
    assert (grads[0][1][2] == 0).all()


def test_plans_are_made_once_for_forward_and_backward(monkeypatch):
    made, make_plan = [], _compute.make_plan
    monkeypatch.setattr(_compute, "make_plan", lambda *a: made.append(a) or make_plan(*a))
    x, gates, weight, _ = example(rows=64)
    before = len(_eager._known)
    y = switched_linear(x, gates, weight, group=1)
    y.sum().backward()
    assert len(made) == 1
    assert len(_eager._known) == before + 1
    gates[0] = ~gates[0]  # what is known of the gates is out of date
    assert_close(switched_linear(x, gates, weight, group=1), switched_linear(x, gates, weight))
    assert len(made) == 2
    del y, gates, made[:]
    gc.collect()
    assert len(_eager._known) == before


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
    assert (rows * 32**3 > TINY) == (rows == 400)
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
def test_operators_under_autocast():
    x, gates, weight, errors = (t.float() if t.is_floating_point() else t for t in example())
    with torch.autocast("cpu", dtype=torch.bfloat16):
        results = [
            linear_op(x, gates, weight),
            outer_op(x, gates, errors),
            *gradients_op(errors, x, gates, weight),
        ]
    assert all(r.dtype == torch.bfloat16 for r in results)


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
