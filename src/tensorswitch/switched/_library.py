"""The operators registered with torch, and their rules for tracing, autograd, vmap and autocast.

    switched_linear       F(x, V)_b = Σ_j h_bj V_jᵀ x_b
    switched_outer        O(x, δ)_j = Σ_b h_bj x_b δ_bᵀ
    switched_gradients    F(δ, Vᵀ) and O(x, δ), the gradients of F(x, V)

All are bilinear, and their gradients are the same maps:

    ∂F:  x ← F(δ, Vᵀ),  V ← O(x, δ)            ∂O:  x ← F(δ, Gᵀ),  δ ← F(x, G)

The strategy depends on how many gates are open. It is chosen inside the operators, so that a
compiled graph contains one node whatever the gates are. ``group`` is the strategy, or None to
choose it; ``training`` says that gradients will follow.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from tensorswitch.switched import _choice, _compute, _gpu
from tensorswitch.switched._checking import check_map, check_outer
from tensorswitch.switched._plain import plain_outer

SCHEMAS = {
    "switched_linear": (
        "(Tensor x, Tensor gates, Tensor weight, int? group=None, bool training=False) -> Tensor"
    ),
    "switched_outer": "(Tensor x, Tensor gates, Tensor errors, int? group=None) -> Tensor",
    "switched_gradients": (
        "(Tensor errors, Tensor x, Tensor gates, Tensor weight, int? group=None)"
        " -> (Tensor, Tensor)"
    ),
}
LINEAR, OUTER, GRADIENTS = (f"tensorswitch::{name}" for name in SCHEMAS)

# Not by torch.library.custom_op, whose first call imports the compiler: a second and 100 MB.
for name, schema in SCHEMAS.items():
    torch.library.define(f"tensorswitch::{name}", schema, tags=torch.Tag.pt2_compliant_tag)

linear_op = torch.ops.tensorswitch.switched_linear.default
outer_op = torch.ops.tensorswitch.switched_outer.default
gradients_op = torch.ops.tensorswitch.switched_gradients.default


def _linear(
    x: Tensor, gates: Tensor, weight: Tensor, group: int | None = None, training: bool = False
) -> Tensor:
    if x.device.type != "cpu":
        return _gpu.map_rows(x, gates, weight)
    group, known = _choice.choose(x, gates, weight.shape[2], group, training)
    return _compute.map_rows(x, gates, weight, group, known)


def _outer(x: Tensor, gates: Tensor, errors: Tensor, group: int | None = None) -> Tensor:
    if x.device.type != "cpu":
        return _gpu.outer(x, gates, errors)
    group, known = _choice.choose(x, gates, errors.shape[1], group, True)
    return _compute.outer(x, gates, errors, group, known)


def _gradients(
    errors: Tensor, x: Tensor, gates: Tensor, weight: Tensor, group: int | None = None
) -> tuple[Tensor, Tensor]:
    if x.device.type != "cpu":
        return _gpu.map_rows(errors, gates, weight.mT), _gpu.outer(x, gates, errors)
    group, known = _choice.choose(x, gates, weight.shape[2], group, True)
    return _compute.gradients(x, gates, weight, errors, group, known)


def _linear_fake(
    x: Tensor, gates: Tensor, weight: Tensor, group: int | None = None, training: bool = False
) -> Tensor:
    check_map(x, gates, weight)
    return x.new_empty(x.shape[0], weight.shape[2])


def _outer_fake(x: Tensor, gates: Tensor, errors: Tensor, group: int | None = None) -> Tensor:
    check_outer(x, gates, errors)
    return x.new_empty(gates.shape[1], x.shape[1], errors.shape[1])


def _gradients_fake(
    errors: Tensor, x: Tensor, gates: Tensor, weight: Tensor, group: int | None = None
) -> tuple[Tensor, Tensor]:
    check_map(x, gates, weight)
    check_outer(x, gates, errors)
    return x.new_empty(x.shape), weight.new_empty(weight.shape)


def _save_linear(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    x, gates, weight, ctx.group, _ = inputs
    # Not read from ctx.needs_input_grad, which torch modifies during the backward pass: threads
    # may share a graph.
    ctx.needed = (x.requires_grad, weight.requires_grad)
    ctx.save_for_backward(x, gates, weight)


def linear_gradients(
    delta: Tensor,
    x: Tensor,
    gates: Tensor,
    weight: Tensor,
    group: int | None,
    need_x: bool,
    need_weight: bool,
) -> tuple[Tensor | None, Tensor | None]:
    """Return the gradients of ``F(x, V)``, None for one not needed, by the operators."""
    if need_x and need_weight:
        both: tuple[Tensor, Tensor] = gradients_op(delta, x, gates, weight, group)
        return both
    grad_x = linear_op(delta, gates, weight.mT, group) if need_x else None
    grad_weight = outer_op(x, gates, delta, group) if need_weight else None
    return grad_x, grad_weight


def _linear_backward(ctx: Any, delta: Tensor) -> tuple[Any, ...]:
    x, gates, weight = ctx.saved_tensors
    grad_x, grad_weight = linear_gradients(delta, x, gates, weight, ctx.group, *ctx.needed)
    return grad_x, None, grad_weight, None, None


def _save_outer(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    x, gates, errors, ctx.group = inputs
    ctx.needed = (x.requires_grad, errors.requires_grad)
    ctx.save_for_backward(x, gates, errors)


def _outer_backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
    x, gates, errors = ctx.saved_tensors
    need_x, need_errors = ctx.needed
    grad_x = linear_op(errors, gates, grad.mT, ctx.group) if need_x else None
    grad_errors = linear_op(x, gates, grad, ctx.group) if need_errors else None
    return grad_x, None, grad_errors, None


def _save_gradients(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    errors, x, gates, weight, ctx.group = inputs
    ctx.needed = (errors.requires_grad, x.requires_grad, weight.requires_grad)
    ctx.save_for_backward(errors, x, gates, weight)


def _gradients_backward(ctx: Any, back_x: Tensor, back_weight: Tensor) -> tuple[Any, ...]:
    errors, x, gates, weight = ctx.saved_tensors
    need_errors, need_x, need_weight = ctx.needed
    group = ctx.group
    grad_errors = grad_x = grad_weight = None
    if need_errors:
        grad_errors = linear_op(back_x, gates, weight, group)
        grad_errors = grad_errors + linear_op(x, gates, back_weight, group)
    if need_x:
        grad_x = linear_op(errors, gates, back_weight.mT, group)
    if need_weight:
        grad_weight = outer_op(back_x, gates, errors, group)
    return grad_errors, grad_x, None, grad_weight, None


def _batched(size: int, tensor: Tensor, dim: int | None) -> Tensor:
    """Return the tensor with the batch as its first axis."""
    return tensor.expand(size, *tensor.shape) if dim is None else tensor.movedim(dim, 0)


def _one_by_one(size: int, op: Any, *tensors: Tensor, **options: Any) -> Tensor:
    return torch.stack([op(*(t[i] for t in tensors), **options) for i in range(size)])


def _linear_vmap(
    info: Any,
    in_dims: tuple[int | None, ...],
    x: Tensor,
    gates: Tensor,
    weight: Tensor,
    group: int | None = None,
    training: bool = False,
) -> tuple[Tensor, int]:
    size = info.batch_size
    x, gates = _batched(size, x, in_dims[0]), _batched(size, gates, in_dims[1])
    if in_dims[2] is None:  # the batch is more rows
        y = linear_op(x.flatten(0, 1), gates.flatten(0, 1), weight, group, training)
        return y.unflatten(0, (size, -1)), 0
    weight = weight.movedim(in_dims[2], 0)
    return _one_by_one(size, linear_op, x, gates, weight, group=group, training=training), 0


def _outer_vmap(
    info: Any,
    in_dims: tuple[int | None, ...],
    x: Tensor,
    gates: Tensor,
    errors: Tensor,
    group: int | None = None,
) -> tuple[Tensor, int]:
    tensors = zip((x, gates, errors), in_dims, strict=False)
    x, gates, errors = (_batched(info.batch_size, *pair) for pair in tensors)
    if x.shape[1] <= max(x.shape[2], errors.shape[2]):  # as for the gradients of single rows
        return plain_outer(x, gates, errors), 0  # expands to no more numbers than the result has
    return _one_by_one(info.batch_size, outer_op, x, gates, errors, group=group), 0


def _gradients_vmap(
    info: Any,
    in_dims: tuple[int | None, ...],
    errors: Tensor,
    x: Tensor,
    gates: Tensor,
    weight: Tensor,
    group: int | None = None,
) -> tuple[tuple[Tensor, Tensor], tuple[int, int]]:
    size, (errors_dim, x_dim, gates_dim, weight_dim, *_) = info.batch_size, in_dims
    map_dims = (errors_dim, gates_dim, None if weight_dim is None else 0)
    back = weight.mT if weight_dim is None else weight.movedim(weight_dim, 0).mT
    call = torch.vmap(linear_op, in_dims=(*map_dims, None), out_dims=0)
    grad_x = call(errors, gates, back, group)
    grad_weight = torch.vmap(outer_op, in_dims=(x_dim, gates_dim, errors_dim, None), out_dims=0)(
        x, gates, errors, group
    )
    assert len(grad_x) == size
    return (grad_x, grad_weight), (0, 0)


def _autocast_rule(op: Any, key: str, device: str) -> Any:
    """Return a kernel that converts floating-point arguments to the autocast dtype."""
    keys = torch._C.DispatchKeySet(getattr(torch._C.DispatchKey, key))

    def convert(value: Any) -> Any:
        kind = getattr(value, "dtype", None)
        if kind is None or not kind.is_floating_point or kind == torch.float64:
            return value
        return value.to(torch.get_autocast_dtype(device))

    def rule(*arguments: Any) -> Any:
        with torch._C._ExcludeDispatchKeyGuard(keys):
            return op(*(convert(value) for value in arguments))

    return rule


def _register(
    name: str, kernel: Any, fake: Any, backward: Any, save: Any, vmap: Any, op: Any
) -> None:
    torch.library.impl(name, "default", kernel)
    torch.library.register_fake(name, fake)
    torch.library.register_autograd(name, backward, setup_context=save)
    torch.library.register_vmap(name, vmap)
    for key, device in (("AutocastCPU", "cpu"), ("AutocastCUDA", "cuda")):
        torch.library.impl(name, key, _autocast_rule(op, key, device))


_register(LINEAR, _linear, _linear_fake, _linear_backward, _save_linear, _linear_vmap, linear_op)
_register(OUTER, _outer, _outer_fake, _outer_backward, _save_outer, _outer_vmap, outer_op)
_register(
    GRADIENTS,
    _gradients,
    _gradients_fake,
    _gradients_backward,
    _save_gradients,
    _gradients_vmap,
    gradients_op,
)
