"""The map, the outer sum and the gradients of the map, by the cheapest strategy, in blocks of rows.

    map      F(x, V)_b = Σ_j h_bj V_jᵀ x_b
    outer    O(x, δ)_j = Σ_b h_bj x_b δ_bᵀ

The gradients of the map are ``F(δ, Vᵀ)`` and ``O(x, δ)``, computed together to share the gathered
rows. Nothing here is recorded by autograd. GPUs have a kernel for both products, or use the dense
strategy: no sort, no count of open gates, no synchronisation.

The weight may have a wider dtype than ``x`` and ``δ``: products are computed in the narrow one, and
the gradient of the weight has the wide one.
"""

import importlib.util
from dataclasses import dataclass, field
from functools import cache
from types import ModuleType

import torch
from torch import Tensor
from torch.utils.weak import WeakIdKeyDictionary

from tensorswitch._memory import empty_gradient
from tensorswitch.switched._cost import BLOCKS, COSTS, choose_group
from tensorswitch.switched._dense import accumulator, cut, dense_backward, dense_forward, joined
from tensorswitch.switched._grouped import grouped_backward, grouped_forward
from tensorswitch.switched._plans import Plan, Routing, flipped_units, make_plan


@dataclass
class Census:
    """What is known about a tensor of gates."""

    copy: Tensor
    flipped: Tensor | None  # which units are flipped, None if none is
    routed: float  # fraction of gates that take part in routing after that
    share: float  # fraction of flipped units
    plans: dict[tuple[int, int, int, bool], list[Plan]] = field(default_factory=dict)


# From the forward to the backward pass, as long as the gates exist.
_known: WeakIdKeyDictionary = WeakIdKeyDictionary()


def census(gates: Tensor) -> Census:
    """Count the gates, unless they are known."""
    known: Census | None = _known.get(gates)
    # Compiled code writes the gates of several layers into one buffer, and its version stays.
    if known is None or not torch.equal(known.copy, gates):
        opened = gates.view(torch.uint8).sum(0, dtype=torch.int32)
        known = Census(gates.clone(), *flipped_units(opened, len(gates)))
        _known[gates] = known
    return known


def _routing(
    gates: Tensor, weight: Tensor, dtype: torch.dtype, group: int | None, training: bool
) -> Routing | None:
    """Return what the grouped strategy needs to multiply rows of a dtype, None for the dense."""
    rows, (units, n_in, n_out) = len(gates), weight.shape
    tiny = rows * units * n_in * n_out <= COSTS.tiny
    if not gates.is_cpu or group == 0 or (group is None and tiny):
        return None
    known = census(gates)
    if group is None:
        group = choose_group(rows, n_in, units, n_out, known.routed, known.share, training)
    if not group:
        return None
    flipped, key = known.flipped, (group, n_in, n_out, dtype.itemsize < torch.float32.itemsize)
    if key not in known.plans:
        routed = gates if flipped is None else gates ^ flipped  # open where flipped ones close
        known.plans[key] = [make_plan(part, *key) for (part,) in cut(BLOCKS.rows, routed)]
    signs = None if flipped is None else 1 - 2 * flipped.to(dtype)
    return Routing(group, known.plans[key], flipped, signs)


def map_rows(
    x: Tensor, gates: Tensor, weight: Tensor, group: int | None = None, training: bool = False
) -> Tensor:
    """Return ``F(x, V)``."""
    if (kernels := _kernels_for(x)) is not None:
        return kernels.map_rows(x, gates, weight.to(x.dtype))
    if not weight.is_contiguous() and weight.mT.is_contiguous():
        # The gradient of a map with Vᵀ, which reads these weights as they lie in memory.
        return gradients(x, x, gates, weight.mT, group, need_weight=False)[0]
    routing = _routing(gates, weight, x.dtype, group, training)
    x, weight = x.contiguous(), weight.contiguous()
    if routing is None:
        dtype, kind = x.dtype, dense_dtype(x, weight)
        x, h, weight = (t.to(kind) for t in (x, gates, weight))
        parts = [dense_forward(part, part_h, weight) for part, part_h in cut(BLOCKS.rows, x, h)]
        return joined(parts).to(dtype)
    parts = [
        grouped_forward(part, plan, routing, weight)
        for (part,), plan in zip(cut(BLOCKS.rows, x), routing.plans, strict=True)
    ]
    y = joined(parts)
    if routing.flipped is not None:
        y += x @ _total(routing.flipped, weight).to(x.dtype)
    return y.to(x.dtype)


def gradients(
    delta: Tensor,
    x: Tensor,
    gates: Tensor,
    weight: Tensor,
    group: int | None = None,
    need_x: bool = True,
    need_weight: bool = True,
) -> tuple[Tensor, Tensor]:
    """Return the gradients of ``x`` and of the weight; an empty tensor for one not needed."""
    nothing = delta.new_empty(0)
    if (kernels := _kernels_for(delta)) is not None:
        back = weight.mT.to(delta.dtype)
        grad_x = kernels.map_rows(delta, gates, back) if need_x else nothing
        grad_weight = kernels.outer(x, gates, delta) if need_weight else nothing
        return grad_x, grad_weight.to(weight.dtype)
    routing = _routing(gates, weight, delta.dtype, group, True)
    narrow, given = delta.dtype, weight
    if routing is None:
        kind = dense_dtype(delta, weight)
        x, gates, delta = (t.to(kind) for t in (x, gates, delta))
        weight = weight.to(kind) if need_x else weight
    delta = delta.contiguous()
    x = x.contiguous() if need_weight else delta
    weight = weight.contiguous() if need_x else weight
    sums = accumulator(x)  # sums over rows need float32 at least
    parts, total = [], None
    for number, (part_x, part_h, part_delta) in enumerate(cut(BLOCKS.rows, x, gates, delta)):
        part = empty_gradient(given, sums, x.device) if need_weight else None
        if routing is None:
            grad = dense_backward(part_x, part_h, weight, part_delta, need_x, part)
        else:
            plan = routing.plans[number]
            grad = grouped_backward(part_x, plan, routing, weight, part_delta, need_x, part)
        parts.append(grad)
        total = part if total is None or part is None else total.add_(part)
    grad_x = joined(parts) if need_x else nothing
    if routing is not None and routing.flipped is not None:
        if need_x:
            grad_x += delta @ _total(routing.flipped, weight).to(delta.dtype).t()
        if total is not None:
            common = (x.t() @ delta).to(sums)
            # Five times faster than ``index_add_``, which reads an index for every number.
            for unit in routing.flipped.nonzero().squeeze(1).tolist():
                total[unit] += common
    return grad_x.to(narrow), nothing if total is None else total.to(given.dtype)


def dense_dtype(x: Tensor, weight: Tensor) -> torch.dtype:
    """Return the dtype for products if all weights are converted, by the faster way."""
    # Conversions of more weights than the cache holds wait for the memory, and so do those of
    # their gradients, so that few rows take longer than without.
    narrows = x.dtype.itemsize < weight.dtype.itemsize and x.is_cpu
    many, few = weight.numel() >= BLOCKS.many_weights, len(x) < BLOCKS.few_rows
    return weight.dtype if narrows and many and few else x.dtype


def outer(x: Tensor, gates: Tensor, errors: Tensor, group: int | None = None) -> Tensor:
    """Return ``O(x, δ)``."""
    shape = (gates.shape[1], x.shape[1], errors.shape[1])
    weight = x.new_empty(1).expand(shape)  # only its shape and dtype are used
    return gradients(errors, x, gates, weight, group, need_x=False)[1]


def _total(flipped: Tensor, weight: Tensor) -> Tensor:
    """Return the sum of the weights of the flipped units."""
    return (flipped.to(weight.dtype) @ weight.flatten(1)).view(weight.shape[1:])


def _kernels_for(x: Tensor) -> ModuleType | None:
    """Return the module of Triton kernels, None if they cannot be used."""
    kernels = triton_kernels() if x.is_cuda else None
    return kernels if kernels is not None and x.dtype in kernels.DTYPES else None


@cache
def triton_kernels() -> ModuleType | None:
    """Import the kernels only where there is Triton."""
    if importlib.util.find_spec("triton") is None:
        return None
    from tensorswitch.switched import _triton

    return _triton
