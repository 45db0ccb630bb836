"""Splitting tensors into blocks, and accumulating sums over them."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from tensorswitch._memory import workspace


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
