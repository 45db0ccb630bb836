"""Autograd functions of the switched linear map and the outer sum, computed in blocks of rows.

    map      F(x, V)_b = Σ_j h_bj V_jᵀ x_b
    outer    O(x, δ)_j = Σ_b h_bj x_b δ_bᵀ

Both are bilinear, and their gradients are the same two maps:

    ∂F:  x ← F(δ, Vᵀ),   V ← O(x, δ)            ∂O:  x ← F(δ, Gᵀ),   δ ← F(x, G)
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from tensorswitch._memory import empty
from tensorswitch.switched._blocks import accumulator, cut, joined
from tensorswitch.switched._dense import dense_backward, dense_forward
from tensorswitch.switched._grouped import grouped_backward, grouped_forward
from tensorswitch.switched._plans import Plan, make_plan

ROW_BLOCK = 8192  # rows per block, so that gathered copies stay in cache and buffers are reused


class SwitchedMap(torch.autograd.Function):
    """``F(x, V)`` for gates that are boolean, or ones and zeros of the dtype of ``x``."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, gates: Tensor, weight: Tensor, group: int) -> Tensor:
        x, weight = x.contiguous(), weight.contiguous()
        gates = gates if group else gates.to(x.dtype)
        plans: list[Plan] = []
        parts = []
        for part_x, part_gates in cut(ROW_BLOCK, x, gates):
            if group:
                plans.append(make_plan(part_gates, group, *weight.shape[1:]))
                parts.append(grouped_forward(part_x, plans[-1], group, weight))
            else:
                parts.append(dense_forward(part_x, part_gates, weight))
        if any(ctx.needs_input_grad):
            ctx.group, ctx.plans = group, plans
            ctx.save_for_backward(x, gates, weight)
        return joined(parts).to(x.dtype)

    @staticmethod
    def backward(ctx: Any, delta: Tensor) -> tuple[Tensor | None, ...]:
        x, gates, weight = ctx.saved_tensors
        group = ctx.group
        need_x, _, need_weight, _ = ctx.needs_input_grad
        if torch.is_grad_enabled():  # create_graph=True: the gradients must be differentiable
            back = (delta, gates, weight.transpose(1, 2), group)
            grad_x = SwitchedMap.apply(*back) if need_x else None
            grad_weight = OuterSum.apply(x, gates, delta, group) if need_weight else None
            return grad_x, None, grad_weight, None
        # Read the plans once, since another thread may run through the same graph. They are
        # dropped after the first backward pass to save memory, but kept if it is interrupted.
        plans = ctx.plans
        grad_x, grad_weight = _gradients(x, gates, weight, delta, group, need_x, need_weight, plans)
        ctx.plans = None
        return grad_x, None, grad_weight, None


class OuterSum(torch.autograd.Function):
    """``O(x, δ)`` for gates that are boolean, or ones and zeros of the dtype of ``x``."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, gates: Tensor, delta: Tensor, group: int) -> Tensor:
        gates = gates if group else gates.to(x.dtype)
        ctx.group = group
        ctx.save_for_backward(x, gates, delta)
        shape = (gates.shape[1], x.shape[1], delta.shape[1])
        weight = x.new_empty(1).expand(shape)  # only its shape and dtype are used
        result = _gradients(x, gates, weight, delta, group, False, True, None)[1]
        assert result is not None
        return result

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, gates, delta = ctx.saved_tensors
        need_x, _, need_delta, _ = ctx.needs_input_grad
        back = (delta, gates, grad.transpose(1, 2), ctx.group)
        grad_x = SwitchedMap.apply(*back) if need_x else None
        grad_delta = SwitchedMap.apply(x, gates, grad, ctx.group) if need_delta else None
        return grad_x, None, grad_delta, None


def _gradients(
    x: Tensor,
    gates: Tensor,
    weight: Tensor,
    delta: Tensor,
    group: int,
    need_x: bool,
    need_weight: bool,
    plans: list[Plan] | None,
) -> tuple[Tensor | None, Tensor | None]:
    """Return both gradients of the map, computed together to share the gathered rows."""
    parts, total = [], None
    shape, sums = weight.shape, accumulator(x)  # sums over rows need float32 at least
    blocks = cut(ROW_BLOCK, x.contiguous(), gates, delta.contiguous())
    for number, (part_x, part_gates, part_delta) in enumerate(blocks):
        part = empty(shape, sums, x.device) if need_weight else None
        if group:
            plan = plans[number] if plans else make_plan(part_gates, group, *shape[1:])
            parts.append(grouped_backward(part_x, plan, group, weight, part_delta, need_x, part))
        else:
            parts.append(dense_backward(part_x, part_gates, weight, part_delta, need_x, part))
        total = part if total is None or part is None else total.add_(part)
    grad_x = joined(parts).to(x.dtype) if need_x else None
    return grad_x, None if total is None else total.to(weight.dtype)
