"""Rows sorted by gate pattern: the book-keeping of the grouped strategy of :mod:`tensorswitch.switched`.

Units are taken ``group`` at a time; a group shows one of ``2^group − 1`` patterns that open something. A *segment* is one pattern of one group,
and the rows that show it stand side by side in *slots*, so that a segment is one matrix product. Slots are cut into chunks that fit in cache.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

CHUNK_BYTES = 1 << 21
PAD_SHARE, PAD_ROWS = 0.35, 24  # segments are padded to one length, for one batched product, if on average they grow by no more than this


@dataclass(frozen=True)
class Chunk:
    """A run of unit groups whose gathered rows fit in cache.

    ``index`` names the row in each slot (one past the last row is padding) and ``lengths`` counts the slots of each segment. ``bag`` lists the
    used slots row by row, ``offsets`` says where each row's begin.
    """

    units: slice
    index: Tensor
    lengths: list[int]
    even: bool
    bag: Tensor
    offsets: Tensor


def make_plan(gates: Tensor, group: int, width: int) -> list[Chunk]:
    """The chunks for boolean ``gates`` (rows, units); ``width`` numbers are gathered for each slot."""
    rows, units = gates.shape
    if not rows or not units:
        return []
    groups = math.ceil(units / group)
    used = 0.5 if group == 1 else 1.0
    step = max(1, min(groups, int(CHUNK_BYTES / (4 * rows * width * used))))
    starts = range(0, groups, step)
    if group == 1:
        chunks = [_gather_chunk(gates[:, s : s + step], slice(s, min(s + step, units))) for s in starts]
    else:
        codes = pattern_codes(gates, group)
        chunks = [_pattern_chunk(codes[:, s : s + step], group, slice(s * group, min((s + step) * group, units))) for s in starts]
    return [chunk for chunk in chunks if len(chunk.bag)]


def _gather_chunk(gates: Tensor, units: slice) -> Chunk:
    """A segment is a unit. A row's place in it is a running count, so no sort is needed."""
    row, segment = gates.nonzero(as_tuple=True)
    running = gates.cumsum(0, dtype=torch.int32)
    rank = running[gates] - 1
    return _chunk(units, row, segment, rank, running[-1], len(gates))


def _pattern_chunk(codes: Tensor, group: int, units: slice) -> Chunk:
    """A segment is a pattern of a group."""
    patterns = 2**group - 1
    used = codes != 0
    row, segment = used.nonzero(as_tuple=True)
    segment = segment * patterns + (codes[used].long() - 1)
    counts = torch.bincount(segment, minlength=codes.shape[1] * patterns)
    order = torch.sort(segment.to(torch.int32), stable=True).indices
    place = torch.empty_like(order)
    place[order] = torch.arange(len(order), device=order.device)
    return _chunk(units, row, segment, place - (counts.cumsum(0) - counts)[segment], counts, len(codes))


def _chunk(units: slice, row: Tensor, segment: Tensor, rank: Tensor, counts: Tensor, rows: int) -> Chunk:
    lengths = counts.tolist()
    longest, total = max(lengths), len(row)
    even = longest * len(lengths) - total <= PAD_SHARE * total + PAD_ROWS * len(lengths)
    if even:
        bag = segment * longest + rank
        index = torch.full((longest * len(lengths),), rows, device=row.device)
        lengths = [longest] * len(lengths)
    else:
        bag = (counts.cumsum(0) - counts)[segment] + rank
        index = torch.empty_like(row)
    index[bag] = row
    offsets = torch.searchsorted(row, torch.arange(rows + 1, device=row.device))
    return Chunk(units, index, lengths, even, bag, offsets)


def pattern_codes(gates: Tensor, group: int) -> Tensor:
    """The pattern of each group of units as an integer, bit i for the group's i-th unit: (rows, groups), 0 where all are closed."""
    bits = F.pad(gates.to(torch.uint8), (0, -gates.shape[1] % group)).view(len(gates), -1, group)
    code = bits[..., 0].clone()
    for i in range(1, group):
        code |= bits[..., i] << i
    return code


def membership(group: int, like: Tensor) -> Tensor:
    """(2^g − 1, g): which units a pattern opens."""
    pattern = torch.arange(1, 2**group, device=like.device)
    return ((pattern[:, None] >> torch.arange(group, device=like.device)) & 1).to(like.dtype)
