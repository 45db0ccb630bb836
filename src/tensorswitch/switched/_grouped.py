"""The grouped strategy: sorts rows by gate pattern, with one matrix product per pattern.

y_b = Σ_g (Σ_{j ∈ p_bg} V_j)ᵀ x_b,    p_bg the open units of group g, alike for many rows b

The part of the flipped units that is common to all rows is added by the caller.
"""

import torch
from torch import Tensor
from torch.nn import functional as F

from tensorswitch._memory import workspace
from tensorswitch.switched._dense import accumulator, product_into
from tensorswitch.switched._plans import Chunk, Plan, Routing, pattern_sums, unit_sums


def grouped_forward(x: Tensor, plan: Plan, routing: Routing, weight: Tensor) -> Tensor:
    """Return ``Σ_j s_j h_bj V_jᵀ x_b`` in the accumulator dtype."""
    y = torch.zeros(len(x), weight.shape[2], dtype=accumulator(x), device=x.device)
    x = _with_zero_row(x)
    for chunk in plan:
        matrices = _pattern_weights(weight, routing, chunk)
        inputs = _signed(_gather("inputs", x, chunk), routing, chunk)
        _scatter_add(y, _products(inputs, matrices, chunk), chunk)
    return y


def grouped_backward(
    x: Tensor,
    plan: Plan,
    routing: Routing,
    weight: Tensor,
    delta: Tensor,
    need_x: bool,
    grad_weight: Tensor | None,
) -> Tensor:
    """Return the gradient of ``x`` if needed, and write that of the weight if it is given."""
    shape = (len(x), weight.shape[1]) if need_x else (0,)
    grad_x = torch.zeros(shape, dtype=accumulator(x), device=x.device)
    delta = _with_zero_row(delta)
    if grad_weight is not None:
        x = _with_zero_row(x)
    done = 0
    for chunk in plan:
        errors = _signed(_gather("errors", delta, chunk), routing, chunk)
        if need_x:
            matrices = _pattern_weights(weight, routing, chunk)
            _scatter_add(grad_x, _products(errors, matrices, chunk, transposed=True), chunk)
        if grad_weight is not None:
            if done < chunk.units.start:
                grad_weight[done : chunk.units.start] = 0  # units that are closed in all rows
            done = chunk.units.stop
            inputs = _gather("inputs", x, chunk)
            _pattern_gradients(inputs, errors, routing, chunk, grad_weight[chunk.units])
    if grad_weight is not None and done < len(grad_weight):
        grad_weight[done:] = 0
    return grad_x


def _with_zero_row(x: Tensor) -> Tensor:
    """Append a row of zeros, to which the padding slots of a chunk point."""
    return F.pad(x, (0, 0, 0, 1))


def _gather(name: str, padded: Tensor, chunk: Chunk) -> Tensor:
    out = workspace.empty(name, (len(chunk.index), padded.shape[1]), padded)
    return torch.index_select(padded, 0, chunk.index, out=out)


def _signed(slots: Tensor, routing: Routing, chunk: Chunk) -> Tensor:
    """Multiply the slots by the signs of their units, in place; only if a segment is a unit."""
    if routing.signs is None or routing.group > 1:  # sums over patterns have signs of their own
        return slots
    signs = routing.signs[chunk.units]
    if chunk.even:
        slots.view(len(signs), -1, slots.shape[1]).mul_(signs.view(-1, 1, 1))
        return slots
    lengths = torch.tensor(chunk.lengths, device=slots.device)
    return slots.mul_(signs.repeat_interleave(lengths).unsqueeze(1))


def _scatter_add(y: Tensor, slots: Tensor, chunk: Chunk) -> None:
    """Add the sum of its slots to every row, on the CPU far faster than ``index_add_``."""
    y += torch.embedding_bag(
        slots, chunk.bag, chunk.offsets, False, 0, False, None, include_last_offset=True
    )[0]


def _pattern_weights(weight: Tensor, routing: Routing, chunk: Chunk) -> Tensor:
    """Return the sum of the weights of each pattern's open units, (segments, in, out)."""
    weight, group = weight[chunk.units], routing.group
    if group == 1:
        return weight
    units, n_in, n_out = weight.shape
    if units % group:
        weight = F.pad(weight, (0, 0, 0, 0, 0, -units % group))
    shape = (len(weight) // group, 2**group - 1, n_in * n_out)
    sums = workspace.empty("sums", shape, weight)
    values = weight.view(-1, group, n_in * n_out)
    return pattern_sums(values, sums, _signs_by_group(routing, chunk)).view(-1, n_in, n_out)


def _signs_by_group(routing: Routing, chunk: Chunk) -> Tensor | None:
    """Return the signs of the units of a chunk, (groups, g, 1)."""
    if routing.signs is None:
        return None
    part = routing.signs[chunk.units]
    return F.pad(part, (0, -len(part) % routing.group)).view(-1, routing.group, 1)


def _pattern_gradients(
    inputs: Tensor, errors: Tensor, routing: Routing, chunk: Chunk, grad_weight: Tensor
) -> None:
    """Compute ``Σ x ∂yᵀ`` over each segment, then sum over the patterns of each unit."""
    if routing.group == 1:
        _outer_products(inputs, errors, chunk, grad_weight)
        return
    units, n_in, n_out = grad_weight.shape
    sums = workspace.empty("sums", (len(chunk.lengths), n_in, n_out), grad_weight)
    _outer_products(inputs, errors, chunk, sums)
    per_unit = unit_sums(sums.view(-1, 2**routing.group - 1, n_in * n_out), routing.group)
    if (signs := _signs_by_group(routing, chunk)) is not None:
        per_unit *= signs
    grad_weight.copy_(per_unit.view(-1, n_in, n_out)[:units])


def _products(a: Tensor, b: Tensor, chunk: Chunk, transposed: bool = False) -> Tensor:
    """Multiply the slots of each segment in ``a`` by the segment's matrix in ``b``."""
    out = workspace.empty("products", (len(a), b.shape[1 if transposed else 2]), a)
    if chunk.even:
        shape = (len(b), chunk.lengths[0], -1)
        b = _narrowed(b, a)
        torch.bmm(a.view(shape), b.mT if transposed else b, out=out.view(shape))
    else:
        rows = zip(a.split(chunk.lengths), b.unbind(), out.split(chunk.lengths), strict=True)
        for part, matrix, result in rows:
            if len(part):
                matrix = _narrowed(matrix, a)
                torch.mm(part, matrix.t() if transposed else matrix, out=result)
    return out


def _narrowed(matrices: Tensor, rows: Tensor) -> Tensor:
    """Convert matrices to the dtype of the rows when they are in cache, not all in one pass."""
    if matrices.dtype == rows.dtype:
        return matrices
    return workspace.empty("matrices", matrices.shape, rows).copy_(matrices)


def _outer_products(a: Tensor, b: Tensor, chunk: Chunk, out: Tensor) -> None:
    """Write ``aᵀ b`` over the slots of each segment to ``out``."""
    if chunk.even:
        shape = (len(out), chunk.lengths[0], -1)
        product_into(out, a.view(shape).transpose(1, 2), b.view(shape))
    else:
        rows = zip(a.split(chunk.lengths), b.split(chunk.lengths), out.unbind(), strict=True)
        for part, other, result in rows:
            product_into(result, part.t(), other)
