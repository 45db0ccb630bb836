"""The map, the outer sum and the gradients of the map, for a given strategy, in blocks of rows.

    map      F(x, V)_b = Σ_j h_bj V_jᵀ x_b
    outer    O(x, δ)_j = Σ_b h_bj x_b δ_bᵀ

The gradients of the map are ``F(δ, Vᵀ)`` and ``O(x, δ)``, computed together to share the gathered
rows. Nothing here is recorded by autograd.

The weight may have a wider dtype than ``x`` and ``δ``: products are computed in the narrow one, and
the gradient of the weight has the wide one.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from tensorswitch._memory import empty_gradient
from tensorswitch.switched._blocks import accumulator, cut, joined
from tensorswitch.switched._dense import dense_backward, dense_forward
from tensorswitch.switched._grouped import grouped_backward, grouped_forward
from tensorswitch.switched._plans import Plan, flipped_units, make_plan

FEW_ROWS, LARGE = 256, 1 << 23  # rows and weights for which narrow types do not pay
ROW_BLOCK = 8192  # rows per block, so that gathered copies stay in cache and buffers are reused


@dataclass
class Census:
    """What is known about a tensor of gates.

    ``flipped`` marks the flipped units, or is None if there are none; ``routed`` is the fraction
    of gates that take part in routing after that; ``share`` is the fraction of flipped units.
    Plans are added when they are made. It is passed on with the gates and never looked up by them:
    compiled code writes new gates into the same tensor without raising its version.
    """

    flipped: Tensor | None
    routed: float
    share: float
    plans: dict[tuple[int, int, int, bool], list[Plan]] = field(default_factory=dict)


def census(gates: Tensor) -> Census:
    """Return the census of the gates."""
    opened = gates.view(torch.uint8).sum(0, dtype=torch.int32)
    return Census(*flipped_units(opened, len(gates)))


def map_rows(
    x: Tensor, gates: Tensor, weight: Tensor, group: int, known: Census | None = None
) -> Tensor:
    """Return ``F(x, V)``; ``known`` is the census of the gates, if there is one."""
    if not weight.is_contiguous() and weight.mT.is_contiguous():
        nothing = weight.new_empty(0)
        return gradients(nothing, gates, weight.mT, x, group, known, need_weight=False)[0]
    x, weight = x.contiguous(), weight.contiguous()
    if not group:
        dtype, kind = x.dtype, dense_dtype(x, weight)
        x, h, weight = (t.to(kind) for t in (x, gates, weight))
        parts = [dense_forward(part, part_h, weight) for part, part_h in cut(ROW_BLOCK, x, h)]
        return joined(parts).to(dtype)
    known = known or census(gates)
    signs = _signs(known, x)
    plans = _plans(known, gates, group, x.dtype, *weight.shape[1:])
    parts = [
        grouped_forward(part, plan, group, weight, signs)
        for (part,), plan in zip(cut(ROW_BLOCK, x), plans, strict=True)
    ]
    y = joined(parts)
    if known.flipped is not None:
        y += x @ _total(known.flipped, weight).to(x.dtype)
    return y.to(x.dtype)


def gradients(
    x: Tensor,
    gates: Tensor,
    weight: Tensor,
    delta: Tensor,
    group: int,
    known: Census | None = None,
    need_x: bool = True,
    need_weight: bool = True,
) -> tuple[Tensor, Tensor]:
    """Return the gradients of ``x`` and of the weight; an empty tensor for one not needed."""
    narrow, wide, given = delta.dtype, weight.dtype, weight
    if not group:
        kind = dense_dtype(delta, weight)
        x, delta, weight = x.to(kind), delta.to(kind), weight.to(kind) if need_x else weight
    delta = delta.contiguous()
    x = x.contiguous() if need_weight else delta
    weight = weight.contiguous() if need_x else weight
    shape, sums = weight.shape, accumulator(x)  # sums over rows need float32 at least
    known = (known or census(gates)) if group else None
    signs = None if known is None else _signs(known, delta)
    plans = None if known is None else _plans(known, gates, group, delta.dtype, *shape[1:])
    h = gates if group else gates.to(delta.dtype)
    parts, total = [], None
    for number, (part_x, part_h, part_delta) in enumerate(cut(ROW_BLOCK, x, h, delta)):
        part = empty_gradient(given, sums, x.device) if need_weight else None
        if plans is not None:
            parts.append(
                grouped_backward(
                    part_x, plans[number], group, weight, part_delta, need_x, part, signs
                )
            )
        else:
            parts.append(dense_backward(part_x, part_h, weight, part_delta, need_x, part))
        total = part if total is None or part is None else total.add_(part)
    grad_x = joined(parts) if need_x else delta.new_empty(0)
    if known is not None and known.flipped is not None:
        if need_x:
            grad_x += delta @ _total(known.flipped, weight).to(delta.dtype).t()
        if total is not None:
            common = (x.t() @ delta).to(sums)
            # Five times faster than ``index_add_``, which reads an index for every number.
            for unit in known.flipped.nonzero().squeeze(1).tolist():
                total[unit] += common
    return grad_x.to(narrow), delta.new_empty(0) if total is None else total.to(wide)


def dense_dtype(x: Tensor, weight: Tensor) -> torch.dtype:
    """Return the dtype for products if all weights are converted, by the faster way.

    Conversions of more weights than the cache holds wait for the memory, and so do those of their
    gradients, so that few rows take longer than without.
    """
    narrows = x.dtype.itemsize < weight.dtype.itemsize
    if narrows and x.is_cpu and weight.numel() >= LARGE and len(x) < FEW_ROWS:
        return weight.dtype
    return x.dtype


def outer(
    x: Tensor, gates: Tensor, delta: Tensor, group: int, known: Census | None = None
) -> Tensor:
    """Return ``O(x, δ)``."""
    shape = (gates.shape[1], x.shape[1], delta.shape[1])
    weight = x.new_empty(1).expand(shape)  # only its shape and dtype are used
    return gradients(x, gates, weight, delta, group, known, need_x=False)[1]


def _plans(
    known: Census, gates: Tensor, group: int, dtype: torch.dtype, n_in: int, n_out: int
) -> list[Plan]:
    narrow = dtype.itemsize < torch.float32.itemsize
    key = (group, n_in, n_out, narrow)
    plans = known.plans.get(key)
    if plans is None:
        routed = gates if known.flipped is None else gates ^ known.flipped
        plans = [make_plan(part, group, n_in, n_out, narrow) for (part,) in cut(ROW_BLOCK, routed)]
        known.plans[key] = plans
    return plans


def _signs(known: Census, x: Tensor) -> Tensor | None:
    return None if known.flipped is None else 1 - 2 * known.flipped.to(x.dtype)


def _total(flipped: Tensor, weight: Tensor) -> Tensor:
    """Return the sum of the weights of the flipped units."""
    return (flipped.to(weight.dtype) @ weight.flatten(1)).view(weight.shape[1:])
