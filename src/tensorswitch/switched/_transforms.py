"""The operators under ``torch.func`` transforms and forward-mode differentiation.

The autograd rules of registered operators do not support them. These functions do, and they compute
everything with the same operators:

    ∂F:  F(dx, V) + F(x, dV)            ∂O:  O(dx, δ) + O(x, dδ)
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from tensorswitch.switched._library import linear_op, outer_op


def transforms_active() -> bool:
    """Return whether a ``torch.func`` transform or forward-mode differentiation is active."""
    return (
        torch._C._are_functorch_transforms_active() or torch.autograd.forward_ad._current_level >= 0
    )


class Linear(torch.autograd.Function):
    """``F(x, V)``."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, gates: Tensor, weight: Tensor, group: int | None) -> Tensor:
        result: Tensor = linear_op(x, gates, weight, group)
        return result

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        *tensors, ctx.group = inputs
        ctx.save_for_backward(*tensors)
        ctx.save_for_forward(*tensors)

    @staticmethod
    def backward(ctx: Any, delta: Tensor) -> tuple[Any, ...]:
        x, gates, weight = ctx.saved_tensors
        need_x, _, need_weight, _ = ctx.needs_input_grad
        grad_x = Linear.apply(delta, gates, weight.mT, ctx.group) if need_x else None
        grad_weight = Outer.apply(x, gates, delta, ctx.group) if need_weight else None
        return grad_x, None, grad_weight, None

    @staticmethod
    def jvp(ctx: Any, dx: Tensor | None, _: Any, dweight: Tensor | None, __: Any) -> Tensor:
        x, gates, weight = ctx.saved_tensors
        first = None if dx is None else Linear.apply(dx, gates, weight, ctx.group)
        second = None if dweight is None else Linear.apply(x, gates, dweight, ctx.group)
        return _sum(first, second)


class Outer(torch.autograd.Function):
    """``O(x, δ)``."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, gates: Tensor, errors: Tensor, group: int | None) -> Tensor:
        result: Tensor = outer_op(x, gates, errors, group)
        return result

    setup_context = Linear.setup_context

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
        x, gates, errors = ctx.saved_tensors
        need_x, _, need_errors, _ = ctx.needs_input_grad
        grad_x = Linear.apply(errors, gates, grad.mT, ctx.group) if need_x else None
        grad_errors = Linear.apply(x, gates, grad, ctx.group) if need_errors else None
        return grad_x, None, grad_errors, None

    @staticmethod
    def jvp(ctx: Any, dx: Tensor | None, _: Any, derrors: Tensor | None, __: Any) -> Tensor:
        x, gates, errors = ctx.saved_tensors
        first = None if dx is None else Outer.apply(dx, gates, errors, ctx.group)
        second = None if derrors is None else Outer.apply(x, gates, derrors, ctx.group)
        return _sum(first, second)


def _sum(first: Tensor | None, second: Tensor | None) -> Tensor:
    if first is None or second is None:
        result = second if first is None else first
        assert result is not None
        return result
    return first + second
