"""Tensors taken some rows or units at a time, and the type in which sums over them are kept."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor


def cut(step: int, *tensors: Tensor) -> Iterator[tuple[Tensor, ...]]:
    """Yield the tensors ``step`` rows at a time; once, whole, if that is all of them or none."""
    rows = len(tensors[0])
    if rows <= step:
        yield tensors
        return
    for start in range(0, rows, step):
        yield tuple(t[start : start + step] for t in tensors)


def joined(parts: list[Tensor]) -> Tensor:
    """Concatenate, without a copy where there is a single part."""
    return parts[0] if len(parts) == 1 else torch.cat(parts)


def accumulator(x: Tensor) -> torch.dtype:
    """Return the type in which sums are kept: that of ``x``, but float32 at least."""
    return torch.promote_types(x.dtype, torch.float32)


def product_into(out: Tensor, a: Tensor, b: Tensor) -> None:
    """Write the matrix product, or the batch of them, to ``out``, which may be of a wider type."""
    multiply = torch.bmm if a.dim() == 3 else torch.mm
    if out.dtype == a.dtype:
        multiply(a, b, out=out)
    else:
        out.copy_(multiply(a, b))
