"""The torch operators, and one definition of derivatives and transforms for all strategies.

    switched_linear       F(x, V)_b = Σ_j h_bj V_jᵀ x_b
    switched_outer        O(x, δ)_j = Σ_b h_bj x_b δ_bᵀ
    switched_gradients    F(δ, Vᵀ) and O(x, δ), which share the rows that they gather

F and O are bilinear, and their derivatives are the same maps:

    reverse    ∂F:  x ← F(δ, Vᵀ),  V ← O(x, δ)            ∂O:  x ← F(δ, Gᵀ),  δ ← F(x, G)
    forward    dF = F(dx, V) + F(x, dV)                   dO = O(dx, δ) + O(x, dδ)

:class:`Linear` and :class:`Outer` state them. Eager code and ``torch.func`` transforms apply these
classes; a compiled graph has the operators, which are registered with the same ``backward``. The
strategy depends on the gates and is chosen inside the operators, unless ``group`` is given.
``training`` says that gradients will follow.
"""

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeAlias, TypeVar

import torch
from torch import Tensor

from tensorswitch._checks import autocast_dtype, check_dtype_device, check_floating, check_shape
from tensorswitch.switched import _compute
from tensorswitch.switched._plain import plain_outer
from tensorswitch.switches import Routes

LINEAR, OUTER = "tensorswitch::switched_linear", "tensorswitch::switched_outer"
GRADIENTS = "tensorswitch::switched_gradients"
# Not by torch.library.custom_op, whose first call imports the compiler: a second and 100 MB.
SCHEMAS = {
    LINEAR: "(Tensor x, Tensor gates, Tensor weight, int? group=None, bool training=False)"
    " -> Tensor",
    OUTER: "(Tensor x, Tensor gates, Tensor errors, int? group=None) -> Tensor",
    GRADIENTS: "(Tensor errors, Tensor x, Tensor gates, Tensor weight, int? group=None,"
    " bool need_x=True, bool need_weight=True) -> (Tensor, Tensor)",
}
for name, schema in SCHEMAS.items():
    torch.library.define(name, schema, tags=torch.Tag.pt2_compliant_tag)

linear_op = torch.ops.tensorswitch.switched_linear.default
outer_op = torch.ops.tensorswitch.switched_outer.default
gradients_op = torch.ops.tensorswitch.switched_gradients.default


Context: TypeAlias = Any  # torch has no public types for the contexts it passes
Batch: TypeAlias = Any  # nor for what it tells the rules of vmap
Gradients: TypeAlias = tuple[Tensor | None, ...]
Dims: TypeAlias = tuple[int | None, ...]
Result = TypeVar("Result")


class Linear(torch.autograd.Function):
    """``F(x, V)``; ``V`` may have a wider dtype than ``x``, and then so has its gradient."""

    generate_vmap_rule = True  # by that of the operator which it calls

    @staticmethod
    def forward(
        x: Tensor, gates: Tensor, weight: Tensor, group: int | None, training: bool
    ) -> Tensor:
        return linear_op(x, gates, weight, group, training)

    @staticmethod
    def setup_context(ctx: Context, inputs: tuple[Any, ...], output: Tensor) -> None:
        *tensors, ctx.group = inputs[:4]
        ctx.save_for_backward(*tensors)
        ctx.save_for_forward(*tensors)

    @staticmethod
    def backward(ctx: Context, delta: Tensor) -> Gradients:
        x, gates, weight = ctx.saved_tensors
        need_x, _, need_weight, *_ = ctx.needs_input_grad
        if torch.is_grad_enabled():  # there will be a derivative of this, so it needs its own rules
            grad_x = linear(delta, gates, weight.mT, ctx.group) if need_x else None
            grad_weight = outer(x, gates, delta, ctx.group) if need_weight else None
            grad_weight = None if grad_weight is None else grad_weight.to(weight.dtype)
        else:
            needed = need_x, need_weight
            grad_x, grad_weight = gradients_op(delta, x, gates, weight, ctx.group, *needed)
        return grad_x if need_x else None, None, grad_weight if need_weight else None, None, None

    @staticmethod
    def jvp(ctx: Context, dx: Tensor | None, _: None, dweight: Tensor | None, *__: None) -> Tensor:
        return _product_rule(linear, ctx, dx, dweight)


class Outer(torch.autograd.Function):
    """``O(x, δ)``."""

    generate_vmap_rule = True
    setup_context = Linear.setup_context

    @staticmethod
    def forward(x: Tensor, gates: Tensor, errors: Tensor, group: int | None) -> Tensor:
        return outer_op(x, gates, errors, group)

    @staticmethod
    def backward(ctx: Context, grad: Tensor) -> Gradients:
        x, gates, errors = ctx.saved_tensors
        need_x, _, need_errors, *_ = ctx.needs_input_grad
        grad_x = linear(errors, gates, grad.mT, ctx.group) if need_x else None
        grad_errors = linear(x, gates, grad, ctx.group) if need_errors else None
        return grad_x, None, grad_errors, None

    @staticmethod
    def jvp(ctx: Context, dx: Tensor | None, _: None, derrors: Tensor | None, *__: None) -> Tensor:
        return _product_rule(outer, ctx, dx, derrors)


def _product_rule(
    bilinear: Callable[..., Tensor], ctx: Context, dx: Tensor | None, dother: Tensor | None
) -> Tensor:
    """Return ``f(dx, other) + f(x, dother)``; a derivative that is zero is None."""
    x, gates, other = ctx.saved_tensors
    pairs = (dx, other), (x, dother)
    terms = [bilinear(a, gates, b, ctx.group) for a, b in pairs if a is not None and b is not None]
    return terms[0] if len(terms) == 1 else terms[0] + terms[1]


def linear(
    x: Tensor, gates: Tensor, weight: Tensor, group: int | None, training: bool = False
) -> Tensor:
    """Return ``F(x, V)`` with derivatives, where compilers do not see :class:`Linear`."""
    # The operator alone is as fast, but transforms and graphs shared by threads need the class.
    apply: Callable[..., Tensor] = linear_op if torch.compiler.is_compiling() else Linear.apply
    return apply(x, gates, weight, group, training)


def outer(x: Tensor, gates: Tensor, errors: Tensor, group: int | None) -> Tensor:
    """Return ``O(x, δ)`` with derivatives, where compilers do not see :class:`Outer`."""
    apply: Callable[..., Tensor] = outer_op if torch.compiler.is_compiling() else Outer.apply
    return apply(x, gates, errors, group)


def check_map(x: Tensor, gates: Tensor | Routes, weight: Tensor) -> Routes:
    """Return the gates as routes; raise unless the sizes of all three agree."""
    routes = gates if isinstance(gates, Routes) else Routes(gates)
    check_floating("x", x)
    routes.check_source(x)
    check_floating("weight", weight)
    expected = (routes.gates.shape[1], x.shape[1], None)
    check_shape("weight", weight, expected, "(gates, in_features, out_features)")
    return routes


def check_outer(x: Tensor, gates: Tensor, errors: Tensor) -> None:
    """Raise unless ``x``, gates and errors are compatible."""
    check_floating("x", x)
    Routes(gates).check_source(x)
    check_floating("errors", errors)
    check_shape("errors", errors, (x.shape[0], None), "(rows, out_features)")
    check_dtype_device("errors", errors, "x", x)


def _linear_fake(x: Tensor, gates: Tensor, weight: Tensor, *_: object) -> Tensor:
    check_map(x, gates, weight)
    return x.new_empty(x.shape[0], weight.shape[2])


def _outer_fake(x: Tensor, gates: Tensor, errors: Tensor, *_: object) -> Tensor:
    check_outer(x, gates, errors)
    return x.new_empty(gates.shape[1], x.shape[1], errors.shape[1])


def _gradients_fake(
    errors: Tensor,
    x: Tensor,
    gates: Tensor,
    weight: Tensor,
    group: int | None = None,
    need_x: bool = True,
    need_weight: bool = True,
) -> tuple[Tensor, Tensor]:
    check_map(x, gates, weight)
    check_outer(x, gates, errors)
    grad_x = x.new_empty(x.shape if need_x else (0,))
    return grad_x, weight.new_empty(weight.shape if need_weight else (0,))


def _batched(size: int, tensor: Tensor, dim: int | None) -> Tensor:
    return tensor.expand(size, *tensor.shape) if dim is None else tensor.movedim(dim, 0)


def _linear_vmap(
    info: Batch, dims: Dims, x: Tensor, gates: Tensor, weight: Tensor, *options: object
) -> tuple[Tensor, int]:
    size = info.batch_size
    x, gates = _batched(size, x, dims[0]), _batched(size, gates, dims[1])
    if dims[2] is None:  # the batch is more rows
        y = linear_op(x.flatten(0, 1), gates.flatten(0, 1), weight, *options)
        return y.unflatten(0, (size, -1)), 0
    each = zip(x, gates, weight.movedim(dims[2], 0), strict=True)
    return torch.stack([linear_op(*arguments, *options) for arguments in each]), 0


def _outer_vmap(
    info: Batch, dims: Dims, x: Tensor, gates: Tensor, errors: Tensor, *options: object
) -> tuple[Tensor, int]:
    tensors = zip((x, gates, errors), dims, strict=False)
    x, gates, errors = (_batched(info.batch_size, *pair) for pair in tensors)
    if x.shape[1] <= max(x.shape[2], errors.shape[2]):  # as for the gradients of single rows
        return plain_outer(x, gates, errors), 0  # expands to no more numbers than the result has
    each = zip(x, gates, errors, strict=True)
    return torch.stack([outer_op(*arguments, *options) for arguments in each]), 0


def _gradients_vmap(
    info: Batch,
    dims: Dims,
    errors: Tensor,
    x: Tensor,
    gates: Tensor,
    weight: Tensor,
    group: int | None = None,
    *needed: bool,
) -> tuple[tuple[Tensor, Tensor], tuple[int, int]]:
    of_errors, of_x, of_gates, of_weight, *_ = dims
    back = weight.mT if of_weight is None else weight.movedim(of_weight, 0).mT
    back_dims = (of_errors, of_gates, None if of_weight is None else 0)
    grad_x = _linear_vmap(info, back_dims, errors, gates, back, group)
    grad_weight = _outer_vmap(info, (of_x, of_gates, of_errors), x, gates, errors, group)
    return (grad_x[0], grad_weight[0].to(weight.dtype)), (0, 0)


def _without_autocast(kernel: Callable[..., Result]) -> Callable[..., Result]:
    """Compute in the given dtypes: autocast has been applied, and may be on in a backward pass."""

    @wraps(kernel)
    def run(x: Tensor, *arguments: object) -> Result:
        if autocast_dtype(x.device) is None:
            return kernel(x, *arguments)
        with torch.autocast(x.device.type, enabled=False):
            return kernel(x, *arguments)

    return run


for name, kernel, fake, vmap in (
    (LINEAR, _compute.map_rows, _linear_fake, _linear_vmap),
    (OUTER, _compute.outer, _outer_fake, _outer_vmap),
    (GRADIENTS, _compute.gradients, _gradients_fake, _gradients_vmap),
):
    torch.library.impl(name, "default", _without_autocast(kernel))
    torch.library.register_fake(name, fake)
    torch.library.register_vmap(name, vmap)
for name, rules in ((LINEAR, Linear), (OUTER, Outer)):
    torch.library.register_autograd(name, rules.backward, setup_context=rules.setup_context)
