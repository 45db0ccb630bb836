"""The dense strategy: expands a few units at a time, on the narrower side.

Y = Σ_J (h_J ⊗ x) V_J,    J the units whose copies fit into the cache

If the output is narrower than the input, ``x V_j`` is computed for all units and then gated,
instead of multiplying the gated input. Gates are ones and zeros of the dtype of ``x``.
"""

from collections.abc import Iterator

import torch
from torch import Tensor

from tensorswitch._memory import workspace
from tensorswitch.switched._cost import BLOCKS


def dense_forward(x: Tensor, gates: Tensor, weight: Tensor) -> Tensor:
    """Return ``Σ_j h_bj V_jᵀ x_b``, in the accumulator dtype if it was summed in parts."""
    if weight.shape[2] < weight.shape[1]:
        return _narrow_forward(x, gates, weight)
    if x.numel() * len(weight) * x.element_size() <= BLOCKS.cache_bytes:
        # At this size the number of calls determines the time.
        return (gates.unsqueeze(2) * x.unsqueeze(1)).flatten(1) @ weight.flatten(0, 1)
    y: Tensor | None = None
    for ht, w in cut(_units_in_cache(x.numel(), x), gates.t(), weight):
        part = (ht.t().unsqueeze(2) * x.unsqueeze(1)).flatten(1) @ w.flatten(0, 1)
        y = part.to(accumulator(x)) if y is None else y.add_(part)
    assert y is not None
    return y


def _narrow_forward(x: Tensor, gates: Tensor, weight: Tensor) -> Tensor:
    """Multiply first, by weights side by side, and gate the products."""
    n_out = weight.shape[2]
    y = torch.zeros(len(x), n_out, dtype=accumulator(x), device=x.device)
    step = _units_in_cache(min(len(x), BLOCKS.narrow_rows) * n_out // 2, x, BLOCKS.lanes)
    for h, w in cut(step, gates.t(), weight):
        side_by_side = w.transpose(0, 1).flatten(1)
        for part_x, ht, part_y in cut(BLOCKS.narrow_rows, x, h.t(), y):
            products = (part_x @ side_by_side).view(len(part_x), len(w), n_out)
            part_y += torch.bmm(ht.unsqueeze(1), products).squeeze(1)
    return y


def dense_backward(
    x: Tensor, gates: Tensor, weight: Tensor, delta: Tensor, need_x: bool, out: Tensor | None
) -> Tensor:
    """Return the gradient of ``x`` if needed, and write that of the weight to ``out``."""
    if weight.shape[2] < weight.shape[1]:
        return _narrow_backward(x, gates, weight, delta, need_x, out)
    step = _units_in_cache(len(x) * (weight.shape[1] + weight.shape[2]), x)
    grad_x: Tensor | None = None
    room = weight if out is None else out
    for h, w, grad_w in cut(step, gates.t(), weight, room):
        errors = h.unsqueeze(2) * delta
        if need_x:
            part = torch.bmm(errors, w.transpose(1, 2)).sum(0)
            grad_x = part.to(accumulator(x)) if grad_x is None else grad_x.add_(part)
        if out is not None:
            product_into(grad_w, x.t().expand(len(h), -1, -1), errors)
    return x if grad_x is None else grad_x


def _narrow_backward(
    x: Tensor, gates: Tensor, weight: Tensor, delta: Tensor, need_x: bool, out: Tensor | None
) -> Tensor:
    """Do the same by expanding the errors, ``∂y ⊗ h``, for products with many columns."""
    # The units come last: there are more of them than outputs, and the inner loop should be long.
    (_, n_in, n_out), sums = weight.shape, accumulator(x)
    shape = (len(x), n_in) if need_x else (0,)
    grad_x = torch.zeros(shape, dtype=sums, device=x.device)
    room = weight if out is None else out
    step = _units_in_cache(BLOCKS.error_rows * n_out // 2, x, BLOCKS.lanes)
    for h, w, grad_w in cut(step, gates.t(), weight, room):
        flat = w.permute(1, 2, 0).flatten(1) if need_x else w
        total: Tensor | None = None
        for part_x, ht, part_delta, part_grad in cut(
            BLOCKS.error_rows, x, h.t(), delta, grad_x if need_x else x
        ):
            errors = (part_delta.unsqueeze(2) * ht.unsqueeze(1)).flatten(1)
            if need_x:
                part_grad += errors @ flat.t()
            if out is None:
                continue
            if total is None:
                total = (part_x.t() @ errors).to(sums)
            elif x.dtype == sums:  # without a buffer for the product
                total.addmm_(part_x.t(), errors)
            else:
                total += part_x.t() @ errors
        if out is not None and total is not None:
            grad_w.copy_(total.view(n_in, n_out, len(w)).permute(2, 0, 1))
    return grad_x


def _units_in_cache(numbers: int, x: Tensor, multiple: int = 1) -> int:
    """Return how many units fit in cache if each takes this many numbers, in multiples."""
    size = BLOCKS.cache_bytes if x.device.type == "cpu" else BLOCKS.device_bytes
    fitting = size // max(1, numbers * x.element_size())
    return max(1, fitting // multiple) * multiple


def cut(step: int, *tensors: Tensor) -> Iterator[tuple[Tensor, ...]]:
    """Yield slices of ``step`` rows of the tensors; at least one, even if there are no rows."""
    rows = len(tensors[0])
    if rows <= step:
        yield tensors
        return
    for start in range(0, rows, step):
        yield tuple(t[start : start + step] for t in tensors)


def joined(parts: list[Tensor]) -> Tensor:
    """Concatenate the parts, without a copy if there is only one."""
    return parts[0] if len(parts) == 1 else torch.cat(parts)


def accumulator(x: Tensor) -> torch.dtype:
    """Return the dtype for sums: that of ``x``, or float32 if it is narrower."""
    return torch.promote_types(x.dtype, torch.float32)


def product_into(out: Tensor, a: Tensor, b: Tensor) -> None:
    """Write a matrix product, or a batch of them, to ``out``, which may have a wider dtype."""
    multiply = torch.bmm if a.dim() == 3 else torch.mm
    if out.dtype == a.dtype:
        multiply(a, b, out=out)
    else:
        out.copy_(multiply(a, b, out=workspace.empty("narrow product", out.shape, a)))
