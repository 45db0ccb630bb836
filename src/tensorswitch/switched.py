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
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from tensorswitch._checks import autocast_dtype, check_dtype_device, check_floating, check_shape
from tensorswitch._memory import empty, empty_like, workspace
from tensorswitch._plans import PAD_WORK, Chunk, make_plan, pattern_sums, unit_sums
from tensorswitch.switches import Routes

__all__ = ["choose_group", "switched_linear", "switched_outer"]

MAX_GROUP = 6
TINY = 5_000_000  # multiply-adds up to which looking for the best strategy costs more than it saves
ROW_BLOCK = 8192  # rows taken at a time, so that gathered copies stay in cache and off fresh pages
DENSE_BYTES = 1 << 20  # the slice of Z that the dense strategy keeps in cache
DENSE_ROWS = 512  # rows taken at a time where it expands on the output side


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
    Under autocast the products run in the autocast type and are accumulated in float32. A row with NaN or infinity in ``x`` has no defined
    result, not even where its gates are closed; neither has a batch with such weights.

    >>> x, gates = torch.tensor([[1.0, 2.0]]), torch.tensor([[True, False, True]])
    >>> switched_linear(x, gates, torch.ones(3, 2, 1))
    tensor([[6.]])
    """
    routes = gates if isinstance(gates, Routes) else Routes(gates)
    _check(x, routes, weight, bias)
    if group is not None and (not isinstance(group, int) or group not in range(MAX_GROUP + 1)):
        raise ValueError(f"group must be None or an integer from 0 to {MAX_GROUP}, got {group!r}")

    if (dtype := autocast_dtype(x.device)) is not None and x.dtype != torch.float64:
        x, weight = x.to(dtype), weight.to(dtype)
        bias = None if bias is None else bias.to(dtype)
    if routes.source is not None:
        x = x.index_select(0, routes.source)
    if 0 in weight.shape:  # nothing to add up
        return x.new_zeros(len(x) if routes.rows is None else routes.rows, weight.shape[2]) + 0 * (x.sum() + weight.sum())
    if group is None:
        training = torch.is_grad_enabled() and (x.requires_grad or weight.requires_grad)
        group = _choose(x, routes.gates, weight.shape[2], training)
    y: Tensor = _Switched.apply(x, routes.gates, weight, group)
    if routes.target is not None and routes.rows is not None:
        y = y.new_zeros(routes.rows, y.shape[1]).index_add(0, routes.target, y)
    return y if bias is None else y + bias


@torch.no_grad()
def switched_outer(x: Tensor, gates: Tensor, errors: Tensor, *, group: int | None = None) -> Tensor:
    """``Σ_b gates_bj x_b errors_bᵀ``: (gates, in_features, out_features). The adjoint of :func:`switched_linear` in its weight."""
    check_floating("x", x)
    check_shape("gates", gates, (len(x), None), "(rows, gates)")
    check_shape("errors", errors, (len(x), None), "(rows, out_features)")
    check_dtype_device("errors", errors, "x", x)
    units, n_in, n_out = gates.shape[1], x.shape[1], errors.shape[1]
    if group is None:
        group = _choose(x, gates, n_out, True)
    shape = (units, n_in, n_out)
    total = x.new_zeros(shape)
    weight = x.new_empty(1).expand(shape)  # only its shape matters
    for part_x, part_gates, part_errors in _cut(ROW_BLOCK, x.contiguous(), gates, errors.contiguous()):
        part = empty(shape, x.dtype, x.device)
        if group:
            _grouped_backward(part_x, make_plan(part_gates, group, n_in, n_out), group, weight, part_errors, False, part)
        else:
            _dense_backward(part_x, part_gates.to(x.dtype), weight, part_errors, False, part)
        total += part
    return total


def _check(x: Tensor, routes: Routes, weight: Tensor, bias: Tensor | None) -> None:
    check_floating("x", x)
    check_shape("x", x, (None, None), "(rows, in_features)")
    check_shape("weight", weight, (routes.gates.shape[1], x.shape[1], None), "(gates, in_features, out_features)")
    check_dtype_device("weight", weight, "x", x)
    if bias is not None:
        check_shape("bias", bias, (weight.shape[2],), "(out_features,)")
        check_dtype_device("bias", bias, "x", x)
    routes.check_source(x)


def _choose(x: Tensor, gates: Tensor, n_out: int, backward: bool) -> int:
    units, n_in = gates.shape[1], x.shape[1]
    tiny = len(x) * units * n_in * n_out <= TINY  # then counting the open gates would cost more than it saves
    return 0 if tiny else choose_group(len(x), n_in, units, n_out, int(gates.sum()) / gates.numel(), backward)


def choose_group(rows: int, in_features: int, gates: int, out_features: int, open_fraction: float, backward: bool = True) -> int:
    """The group size with the least estimated cost (0 for dense).

    Costs are counted in multiply-adds of a batched product. In a group of g units ``1 − (1 − p)^g`` of the rows open something, spread over
    ``2^g − 1`` patterns, which are padded to the length of the commonest or multiplied one by one. Their products, the sums of each pattern's
    matrices (``SUM`` an entry), moving rows (``MOVE`` an entry), sorting routes
    (``ROUTE``) and a fixed price (``PLAN``) stand against the dense product, which is faster forward, and backward too where the output is
    narrow (``DENSE``). Small products of fewer than ``NARROW`` columns take as long as if they had as many. The constants are fitted to timings on
    two cores;
    ``benchmarks/strategies.py`` measures what the choice costs beyond the best one.
    """
    if rows * gates * in_features * out_features <= TINY:
        return 0
    SUM, MOVE, ROUTE, PLAN = 32, 2, 330, 7e6
    DENSE, NARROW = (0.6, 48) if out_features < in_features else (1.4 if backward else 0.6, 32)
    area, width = in_features * out_features, in_features + out_features
    cost = [gates * rows * (DENSE * area + MOVE / 2 * width) + PLAN / 3]
    area = in_features * max(out_features, NARROW)
    for g in range(1, MAX_GROUP + 1):
        groups, patterns, sort = math.ceil(gates / g), 2**g - 1, 1 if g == 1 else 2
        used = rows * (1 - (1 - open_fraction) ** g)
        commonest = open_fraction**g if open_fraction >= 0.5 else open_fraction * (1 - open_fraction) ** (g - 1)
        slots = min(patterns * rows * commonest, used + patterns * PAD_WORK / area)
        sums = SUM * patterns * area if g > 1 else 0
        cost.append(groups * (slots * area + used * MOVE * width + sums + sort * ROUTE * (used + rows / 4)) + sort * PLAN)
    return cost.index(min(cost))


class _Switched(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, gates: Tensor, weight: Tensor, group: int) -> Tensor:
        _, n_in, n_out = weight.shape
        x, weight = x.contiguous(), weight.contiguous()
        if group == 0:
            gates = gates.to(x.dtype)
        plans, parts = [], []
        for part_x, part_gates in _cut(ROW_BLOCK, x, gates):
            plans.append(make_plan(part_gates, group, n_in, n_out) if group else [])
            parts.append(_grouped_forward(part_x, plans[-1], group, weight) if group else _dense_forward(part_x, part_gates, weight))
        if any(ctx.needs_input_grad):
            ctx.group, ctx.plans = group, plans
            ctx.save_for_backward(x, gates, weight)
        return _joined(parts).to(x.dtype)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, delta: Tensor) -> tuple[Tensor | None, ...]:
        x, gates, weight = ctx.saved_tensors
        need_x, _, need_weight, _ = ctx.needs_input_grad
        parts, grad_weight = [], None
        for part_x, part_gates, part_delta in _cut(ROW_BLOCK, x, gates, delta.contiguous()):
            part_weight = empty_like(weight) if need_weight else None
            if ctx.group:  # a second backward makes its plans again, so that they need not be kept
                plan = ctx.plans.pop(0) if ctx.plans else make_plan(part_gates, ctx.group, *weight.shape[1:])
                parts.append(_grouped_backward(part_x, plan, ctx.group, weight, part_delta, need_x, part_weight))
            else:
                parts.append(_dense_backward(part_x, part_gates, weight, part_delta, need_x, part_weight))
            grad_weight = part_weight if grad_weight is None or part_weight is None else grad_weight.add_(part_weight)
        grad_x = _joined(parts).to(x.dtype) if need_x else None
        return grad_x, None, grad_weight, None


def _joined(parts: list[Tensor]) -> Tensor:
    return parts[0] if len(parts) == 1 else torch.cat(parts)


def _cut(step: int, *tensors: Tensor) -> Iterator[tuple[Tensor, ...]]:
    """The tensors ``step`` rows at a time; whole if that is all of them, and once if they have no rows."""
    rows = len(tensors[0])
    if rows <= step:
        yield tensors
        return
    for start in range(0, rows, step):
        yield tuple(t[start : start + step] for t in tensors)


def _accumulator(x: Tensor) -> torch.dtype:
    return torch.promote_types(x.dtype, torch.float32)


# Dense: a few units at a time, expanded on the narrower side. Where the output is narrower than the input, ``x V_j`` is formed for all units and
# then gated, rather than the gated input multiplied.


def _dense_forward(x: Tensor, gates: Tensor, weight: Tensor) -> Tensor:
    """``gates`` are ones and zeros of the type of ``x``."""
    narrow = weight.shape[2] < weight.shape[1]
    if not narrow and x.numel() * len(weight) * x.element_size() <= DENSE_BYTES:  # the shortest way, since here it is calls that cost
        return (gates.unsqueeze(2) * x.unsqueeze(1)).flatten(1) @ weight.flatten(0, 1)
    parts = []
    for part_x, h in _cut(DENSE_ROWS if narrow else len(x), x, gates):
        y = torch.zeros(0)
        for ht, w in _cut(_units_in_cache(len(part_x) * min(weight.shape[1:]), x), h.t(), weight):
            if narrow:
                products = (part_x @ _side_by_side(w)).view(len(part_x), len(w), w.shape[2])
                part = torch.bmm(ht.t().unsqueeze(1), products).squeeze(1).clone()  # not a view, which could not be changed in place
            else:
                part = (ht.t().unsqueeze(2) * part_x.unsqueeze(1)).flatten(1) @ w.flatten(0, 1)
            y = y.add_(part) if len(y) else part.to(_accumulator(x))
        parts.append(y)
    return _joined(parts)


def _dense_backward(x: Tensor, gates: Tensor, weight: Tensor, delta: Tensor, need_x: bool, grad_weight: Tensor | None) -> Tensor:
    """Returns the gradient of x if needed, and writes that of the weight if there is room for it."""
    if weight.shape[2] < weight.shape[1]:
        return _narrow_backward(x, gates, weight, delta, need_x, grad_weight)
    step = _units_in_cache(len(x) * (weight.shape[1] + weight.shape[2]), x)
    grad_x = torch.zeros(0)
    for h, w, grad_w in _cut(step, gates.t(), weight, weight if grad_weight is None else grad_weight):
        errors = h.unsqueeze(2) * delta
        if need_x:
            part = torch.bmm(errors, w.transpose(1, 2)).sum(0)
            grad_x = grad_x.add_(part) if len(grad_x) else part.to(_accumulator(x))
        if grad_weight is not None:
            torch.bmm(x.t().expand(len(h), -1, -1), errors, out=grad_w)
    return grad_x


def _narrow_backward(x: Tensor, gates: Tensor, weight: Tensor, delta: Tensor, need_x: bool, grad_weight: Tensor | None) -> Tensor:
    """The same with the errors expanded, ``h ⊗ ∂y``: both gradients are then one product of many columns."""
    n_in, n_out = weight.shape[1:]
    grad_x = torch.zeros(x.shape if need_x else 0, dtype=_accumulator(x), device=x.device)
    for h, w, grad_w in _cut(_units_in_cache(DENSE_ROWS * n_out, x), gates.t(), weight, weight if grad_weight is None else grad_weight):
        flat = _side_by_side(w) if need_x else w
        total = torch.zeros(0)
        for part_x, ht, part_delta, part_grad in _cut(DENSE_ROWS, x, h.t(), delta, grad_x if need_x else x):
            errors = (ht.unsqueeze(2) * part_delta.unsqueeze(1)).flatten(1)
            if need_x:
                part_grad += errors @ flat.t()
            if grad_weight is not None:
                total = torch.addmm(total, part_x.t(), errors, out=total) if len(total) else part_x.t() @ errors
        if grad_weight is not None:
            grad_w.copy_(total.view(n_in, len(w), n_out).transpose(0, 1) if len(total) else torch.zeros_like(grad_w))
    return grad_x


def _side_by_side(weight: Tensor) -> Tensor:
    """(units, in, out) as (in, units · out)."""
    return weight.transpose(0, 1).flatten(1)


def _units_in_cache(numbers: int, x: Tensor) -> int:
    """How many units fit if each takes so many numbers."""
    return max(1, DENSE_BYTES // max(1, numbers * x.element_size()))


# Grouped: rows sorted by gate pattern, one matrix product for each pattern.


def _grouped_forward(x: Tensor, plan: list[Chunk], group: int, weight: Tensor) -> Tensor:
    y = torch.zeros(len(x), weight.shape[2], dtype=_accumulator(x), device=x.device)
    x = _with_zero_row(x)
    for chunk in plan:
        matrices = _pattern_weights(weight[chunk.units], group)
        _scatter_add(y, _products(_gather("inputs", x, chunk), matrices, chunk), chunk)
    return y


def _grouped_backward(x: Tensor, plan: list[Chunk], group: int, weight: Tensor, delta: Tensor, need_x: bool, grad_weight: Tensor | None) -> Tensor:
    """Returns the gradient of x if needed, and writes that of the weight if there is room for it."""
    grad_x = torch.zeros(x.shape, dtype=_accumulator(x), device=x.device)
    x, delta = _with_zero_row(x), _with_zero_row(delta)
    done = 0
    for chunk in plan:
        errors = _gather("errors", delta, chunk)
        if need_x:
            matrices = _pattern_weights(weight[chunk.units], group)
            _scatter_add(grad_x, _products(errors, matrices.transpose(1, 2), chunk), chunk)
        if grad_weight is not None:
            grad_weight[done : chunk.units.start] = 0  # units that no row opens
            done = chunk.units.stop
            _pattern_gradients(_gather("inputs", x, chunk), errors, group, chunk, grad_weight[chunk.units])
    if grad_weight is not None:
        grad_weight[done:] = 0
    return grad_x


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
    sums = workspace.empty("sums", (len(weight) // group, 2**group - 1, n_in * n_out), weight)
    return pattern_sums(weight.view(-1, group, n_in * n_out), sums).view(-1, n_in, n_out)


def _pattern_gradients(inputs: Tensor, errors: Tensor, group: int, chunk: Chunk, grad_weight: Tensor) -> None:
    """``Σ x ∂yᵀ`` over each segment, then for each unit the sum over the patterns that open it."""
    if group == 1:
        _outer_products(inputs, errors, chunk, grad_weight)
        return
    units, n_in, n_out = grad_weight.shape
    sums = workspace.empty("sums", (len(chunk.lengths), n_in, n_out), grad_weight)
    _outer_products(inputs, errors, chunk, sums)
    per_unit = unit_sums(sums.view(-1, 2**group - 1, n_in * n_out), group)
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
