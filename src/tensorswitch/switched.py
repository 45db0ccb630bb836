"""The switched linear map: the one hot operation everything else is made of.

    y_b = Σ_j h_bj V_jᵀ x_b          h_bj ∈ {0, 1},  V_j ∈ R^{in × out}

The expanded tensor ``Z = h ⊗ x`` is never built. Two strategies compute the same sum and its two adjoints:

- *dense*: ``Z`` a few units at a time, small enough to stay in cache, thrown away after use. Least overhead: small sizes.
- *grouped by g*: units are taken g at a time. Among g units there are 2^g − 1 gate patterns that open anything, and the rows that show one
  pattern all need the same matrix, the sum of the pattern's ``V_j``. So rows are sorted by pattern, every pattern costs one matrix product,
  and a row costs one product row per *group* in place of one per open unit. ``g = 1`` is the plain gather: each unit meets only the rows
  that open it. Larger g ("four Russians") pays once there are enough rows for each pattern.

:func:`choose_group` picks by a small cost model of the sizes and of how open the gates are.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from tensorswitch._checks import autocast_dtype, check_dtype_device, check_floating, check_shape
from tensorswitch._memory import empty_like, workspace
from tensorswitch._plans import Chunk, make_plan, membership
from tensorswitch.switches import Routes

__all__ = ["choose_group", "switched_linear"]

MAX_GROUP = 6
ROW_BLOCK = 8192  # rows taken at a time, so that gathered copies stay in cache and off fresh pages
DENSE_BYTES = 1 << 20  # the slice of Z that the dense strategy keeps in cache


def switched_linear(x: Tensor, gates: Tensor | Routes, weight: Tensor, bias: Tensor | None = None, *, group: int | None = None) -> Tensor:
    """``y_b = Σ_j gates_bj · (x_b @ weight_j) + bias`` without building the expanded tensor.

    Parameters
    ----------
    x : (rows, in_features)
    gates : boolean (rows, gates), or :class:`~tensorswitch.Routes` where a copy of one row goes to another
    weight : (gates, in_features, out_features)
    bias : (out_features,), optional
    group : units taken together: 0 is dense, 1 gathers the open rows of each unit, 2 to 6 share work between the rows of one gate
        pattern. By default chosen from the sizes and how many gates are open.

    Differentiable once in ``x``, ``weight`` and ``bias``; gates have no gradient (see :mod:`tensorswitch.inverted` for theirs).
    Under autocast the products run in the autocast type and are accumulated in float32.

    >>> x, gates = torch.tensor([[1.0, 2.0]]), torch.tensor([[True, False, True]])
    >>> switched_linear(x, gates, torch.ones(3, 2, 1))
    tensor([[6.]])
    """
    routes = gates if isinstance(gates, Routes) else Routes(gates)
    check_floating("x", x)
    check_shape("x", x, (None, None), "(rows, in_features)")
    check_shape("weight", weight, (routes.gates.shape[1], x.shape[1], None), "(gates, in_features, out_features)")
    check_dtype_device("weight", weight, "x", x)
    if bias is not None:
        check_shape("bias", bias, (weight.shape[2],), "(out_features,)")
        check_dtype_device("bias", bias, "x", x)
    routes.check_source(x)
    if group is not None and group not in range(MAX_GROUP + 1):
        raise ValueError(f"group must be None or an integer from 0 to {MAX_GROUP}, got {group!r}")

    if (dtype := autocast_dtype(x.device)) is not None:
        x, weight = x.to(dtype), weight.to(dtype)
        bias = None if bias is None else bias.to(dtype)
    if routes.source is not None:
        x = x.index_select(0, routes.source)
    y: Tensor = _Switched.apply(x, routes.gates, weight, group)
    if routes.target is not None and routes.rows is not None:
        y = y.new_zeros(routes.rows, y.shape[1]).index_add(0, routes.target, y)
    return y if bias is None else y + bias


def choose_group(rows: int, in_features: int, gates: int, out_features: int, open_fraction: float) -> int:
    """The group size with the least estimated cost (0 for dense).

    Costs are counted in multiply-adds of the batched products. In a group of g units ``1 − (1 − p)^g`` of the rows open something, spread over
    ``2^g − 1`` patterns. To their products come: a fixed cost for each product (``SHORT`` rows), summing the matrices of a pattern (``SUM`` for
    each entry), moving rows (``MOVE`` for each entry), and sorting (``PLAN``, and ``GROUP`` for each group). The dense product is one large one and
    faster by ``DENSE``. The constants are the best fit to 412 timings on two cores; the choice costs 7 % more than the best one on average.
    """
    DENSE, SHORT, SUM, MOVE, PLAN, GROUP = 0.65, 4, 80, 8, 1e6, 1.5e5
    area, width = in_features * out_features, in_features + out_features
    cost = [gates * rows * (DENSE * area + MOVE / 2 * width) + PLAN]
    for g in range(1, MAX_GROUP + 1):
        groups, patterns = math.ceil(gates / g), 2**g - 1
        used = rows * (1 - (1 - open_fraction) ** g)
        products = (used + SHORT * min(patterns, used)) * area
        sums = SUM * patterns * area if g > 1 else 0
        cost.append(groups * (products + sums + MOVE * used * width + GROUP) + (3 if g == 1 else 5) * PLAN)
    return cost.index(min(cost))


class _Switched(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, gates: Tensor, weight: Tensor, group: int | None) -> Tensor:
        rows, (units, n_in, n_out) = len(x), weight.shape
        if group is None:
            opened = int(gates.sum()) / gates.numel() if gates.numel() else 0.0
            group = choose_group(rows, n_in, units, n_out, opened)
        x, weight = x.contiguous(), weight.contiguous()
        y = torch.zeros(rows, n_out, dtype=_accumulator(x), device=x.device)
        plans = []
        for block in _blocks(rows):
            if group == 0:
                _dense_forward(x[block], gates[block], weight, y[block])
            else:
                plans.append(make_plan(gates[block], group, n_in + n_out))
                _grouped_forward(x[block], plans[-1], group, weight, y[block])
        if any(ctx.needs_input_grad):
            ctx.group, ctx.plans = group, plans
            ctx.save_for_backward(x, gates, weight)
        return y.to(x.dtype)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, delta: Tensor) -> tuple[Tensor | None, ...]:
        x, gates, weight = ctx.saved_tensors
        need_x, _, need_weight, _ = ctx.needs_input_grad
        delta = delta.contiguous()
        grad_x = torch.zeros(x.shape, dtype=_accumulator(x), device=x.device) if need_x else None
        grad_weight = None
        for number, block in enumerate(_blocks(len(x))):
            part_x = None if grad_x is None else grad_x[block]
            part_weight = empty_like(weight) if need_weight else None
            if ctx.group == 0:
                _dense_backward(x[block], gates[block], weight, delta[block], part_x, part_weight)
            else:
                _grouped_backward(x[block], ctx.plans[number], ctx.group, weight, delta[block], part_x, part_weight)
            grad_weight = part_weight if grad_weight is None or part_weight is None else grad_weight.add_(part_weight)
        if need_weight and grad_weight is None:  # no rows
            grad_weight = torch.zeros_like(weight)
        return None if grad_x is None else grad_x.to(x.dtype), None, grad_weight, None


def _blocks(rows: int) -> list[slice]:
    return [slice(start, min(start + ROW_BLOCK, rows)) for start in range(0, rows, ROW_BLOCK)]


def _accumulator(x: Tensor) -> torch.dtype:
    return torch.promote_types(x.dtype, torch.float32)


# Dense: a few units at a time.


def _dense_forward(x: Tensor, gates: Tensor, weight: Tensor, y: Tensor) -> None:
    opened = gates.to(x.dtype)
    for units in _unit_slices(len(x) * x.shape[1] * x.element_size(), len(weight)):
        h = opened[:, units]
        z = workspace.empty("expanded", (*h.shape, x.shape[1]), x)
        torch.mul(h.unsqueeze(2), x.unsqueeze(1), out=z)
        _add_product(y, z.flatten(1), weight[units].flatten(0, 1))


def _dense_backward(x: Tensor, gates: Tensor, weight: Tensor, delta: Tensor, grad_x: Tensor | None, grad_weight: Tensor | None) -> None:
    opened = gates.t().to(x.dtype)
    for units in _unit_slices(len(x) * (x.shape[1] + delta.shape[1]) * x.element_size(), len(weight)):
        h = opened[units]
        errors = workspace.empty("expanded", (*h.shape, delta.shape[1]), x)  # h_j ∘ ∂y for each unit
        torch.mul(h.unsqueeze(2), delta, out=errors)
        if grad_x is not None:
            products = workspace.empty("products", (*h.shape, x.shape[1]), x)
            grad_x += torch.bmm(errors, weight[units].transpose(1, 2), out=products).sum(0)
        if grad_weight is not None:
            torch.bmm(x.t().expand(len(h), -1, -1), errors, out=grad_weight[units])


def _unit_slices(bytes_per_unit: int, units: int) -> list[slice]:
    step = max(1, DENSE_BYTES // max(1, bytes_per_unit))
    return [slice(j, min(j + step, units)) for j in range(0, units, step)]


def _add_product(y: Tensor, a: Tensor, b: Tensor) -> None:
    if y.dtype == a.dtype:
        y.addmm_(a, b)
    else:
        y += a @ b


# Grouped: rows sorted by gate pattern, one matrix product for each pattern.


def _grouped_forward(x: Tensor, plan: list[Chunk], group: int, weight: Tensor, y: Tensor) -> None:
    x = _with_zero_row(x)
    for chunk in plan:
        matrices = _pattern_weights(weight[chunk.units], group)
        _scatter_add(y, _products(_gather("inputs", x, chunk), matrices, chunk), chunk)


def _grouped_backward(
    x: Tensor, plan: list[Chunk], group: int, weight: Tensor, delta: Tensor, grad_x: Tensor | None, grad_weight: Tensor | None
) -> None:
    x, delta = _with_zero_row(x), _with_zero_row(delta)
    done = 0
    for chunk in plan:
        errors = _gather("errors", delta, chunk)
        if grad_x is not None:
            matrices = _pattern_weights(weight[chunk.units], group)
            _scatter_add(grad_x, _products(errors, matrices.transpose(1, 2), chunk), chunk)
        if grad_weight is not None:
            grad_weight[done : chunk.units.start] = 0  # units that no row opens
            done = chunk.units.stop
            _pattern_gradients(_gather("inputs", x, chunk), errors, group, chunk, grad_weight[chunk.units])
    if grad_weight is not None:
        grad_weight[done:] = 0


def _with_zero_row(x: Tensor) -> Tensor:
    """The padding slots of a chunk point past the last row."""
    return F.pad(x, (0, 0, 0, 1))


def _gather(name: str, padded: Tensor, chunk: Chunk) -> Tensor:
    out = workspace.empty(name, (len(chunk.index), padded.shape[1]), padded)
    return torch.index_select(padded, 0, chunk.index, out=out)


def _scatter_add(y: Tensor, slots: Tensor, chunk: Chunk) -> None:
    """Every row takes the sum of its slots; far faster on the CPU than ``index_add_``."""
    y += F.embedding_bag(chunk.bag, slots, chunk.offsets, mode="sum", include_last_offset=True)


def _pattern_weights(weight: Tensor, group: int) -> Tensor:
    """The sum of the open units' weights for each pattern of each group: (segments, in, out)."""
    if group == 1:
        return weight
    units, n_in, n_out = weight.shape
    if units % group:
        weight = F.pad(weight, (0, 0, 0, 0, 0, -units % group))
    member = membership(group, weight)
    sums = workspace.empty("sums", (len(weight) // group, len(member), n_in * n_out), weight)
    return torch.matmul(member, weight.view(-1, group, n_in * n_out), out=sums).view(-1, n_in, n_out)


def _pattern_gradients(inputs: Tensor, errors: Tensor, group: int, chunk: Chunk, grad_weight: Tensor) -> None:
    """``Σ x ∂yᵀ`` over each segment, then for each unit the sum over the patterns that open it."""
    if group == 1:
        _outer_products(inputs, errors, chunk, grad_weight)
        return
    units, n_in, n_out = grad_weight.shape
    sums = workspace.empty("sums", (len(chunk.lengths), n_in, n_out), grad_weight)
    _outer_products(inputs, errors, chunk, sums)
    member = membership(group, sums)
    per_unit = member.t() @ sums.view(-1, len(member), n_in * n_out)
    grad_weight.copy_(per_unit.view(-1, n_in, n_out)[:units])


def _products(a: Tensor, b: Tensor, chunk: Chunk) -> Tensor:
    """The slots of each segment in ``a`` times the segment's matrix in ``b``."""
    out = workspace.empty("products", (len(a), b.shape[2]), a)
    if chunk.even:
        shape = (len(b), chunk.lengths[0], -1)
        torch.bmm(a.view(shape), b, out=out.view(shape))
    else:
        for part, matrix, result in zip(a.split(chunk.lengths), b.unbind(), out.split(chunk.lengths), strict=True):
            torch.mm(part, matrix, out=result)
    return out


def _outer_products(a: Tensor, b: Tensor, chunk: Chunk, out: Tensor) -> None:
    """``aᵀ b`` over the slots of each segment."""
    if chunk.even:
        shape = (len(out), chunk.lengths[0], -1)
        torch.bmm(a.view(shape).transpose(1, 2), b.view(shape), out=out)
    else:
        for part, other, result in zip(a.split(chunk.lengths), b.split(chunk.lengths), out.unbind(), strict=True):
            torch.mm(part.t(), other, out=result)
