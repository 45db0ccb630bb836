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

CHUNK_BYTES = 1 << 22
# Segments padded to one length make one batched product. That is faster than a product for each as long as the padding adds no more than
PAD_SHARE = 0.25  # of all rows,
PAD_WORK = (
    1.3e6  # and this many multiply-adds for each segment, the overhead of a product of its own.
)


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


Plan = list[Chunk]


def make_plan(gates: Tensor, group: int, n_in: int, n_out: int) -> Plan:
    """The chunks for boolean ``gates`` (rows, units) and matrices of ``n_in`` × ``n_out``."""
    rows, units = gates.shape
    if not rows or not units:
        return []
    groups = math.ceil(units / group)
    used = 0.5 if group == 1 else 1.0
    step = max(1, min(groups, int(CHUNK_BYTES / (4 * rows * (n_in + n_out) * used))))
    starts = range(0, groups, step)
    if group == 1:
        chunks = [
            _gather_chunk(gates[:, s : s + step], slice(s, min(s + step, units)), n_in * n_out)
            for s in starts
        ]
    else:
        codes = pattern_codes(gates, group)
        chunks = [
            _pattern_chunk(
                codes[:, s : s + step],
                group,
                slice(s * group, min((s + step) * group, units)),
                n_in * n_out,
            )
            for s in starts
        ]
    return [chunk for chunk in chunks if len(chunk.bag)]


def _gather_chunk(gates: Tensor, units: slice, area: int) -> Chunk:
    """A segment is a unit. A row's place in it is a running count, so no sort is needed."""
    row, segment = gates.nonzero().unbind(1)
    running = gates.cumsum(0)
    rank = running.view(-1).index_select(0, row * gates.shape[1] + segment) - 1
    return _chunk(units, row, segment, rank, running[-1], len(gates), area)


def _pattern_chunk(codes: Tensor, group: int, units: slice, area: int) -> Chunk:
    """A segment is a pattern of a group."""
    patterns = 2**group - 1
    used = codes != 0
    row, segment = used.nonzero().unbind(1)
    segment = segment * patterns + (codes[used].long() - 1)
    counts = torch.bincount(segment, minlength=codes.shape[1] * patterns)
    order = torch.sort(segment.to(torch.int32), stable=True).indices
    place = torch.empty_like(order)
    place[order] = torch.arange(len(order), device=order.device)
    return _chunk(
        units, row, segment, place - (counts.cumsum(0) - counts)[segment], counts, len(codes), area
    )


def _chunk(
    units: slice, row: Tensor, segment: Tensor, rank: Tensor, counts: Tensor, rows: int, area: int
) -> Chunk:
    lengths = counts.tolist()
    longest, total = max(lengths), len(row)
    even = (longest * len(lengths) - total) * area <= PAD_SHARE * total * area + PAD_WORK * len(
        lengths
    )
    if even:
        bag = segment * longest + rank
        index = torch.full((longest * len(lengths),), rows, device=row.device)
        lengths = [longest] * len(lengths)
    else:
        bag = (counts.cumsum(0) - counts)[segment] + rank
        index = torch.empty_like(row)
    index.scatter_(0, bag, row)
    row = row.contiguous()
    offsets = torch.searchsorted(row, torch.arange(rows + 1, device=row.device))
    return Chunk(units, index, lengths, even, bag, offsets)


def pattern_codes(gates: Tensor, group: int) -> Tensor:
    """The pattern of each group of units as an integer, bit i for the group's i-th unit: (rows, groups), 0 where all are closed."""
    bits = F.pad(gates.to(torch.uint8), (0, -gates.shape[1] % group)).view(len(gates), -1, group)
    code = bits[..., 0].clone()
    for i in range(1, group):
        code |= bits[..., i] << i
    return code


def pattern_sums(values: Tensor, out: Tensor) -> Tensor:
    """For (groups, g, n) the sum over the units of each pattern, in ``out`` (groups, 2^g − 1, n). Pattern c stands at c − 1.

    By doubling: the patterns whose highest unit is i are that unit alone, and that unit added to every pattern before.
    """
    for i in range(values.shape[1]):
        first = 2**i
        out[:, first - 1] = values[:, i]
        torch.add(out[:, : first - 1], values[:, i : i + 1], out=out[:, first : 2 * first - 1])
    return out


def unit_sums(patterns: Tensor, group: int) -> Tensor:
    """For (groups, 2^g − 1, n) the sum over the patterns of each unit: (groups, g, n). The adjoint of :func:`pattern_sums`; overwrites its input."""
    result = patterns.new_empty(len(patterns), group, patterns.shape[2])
    for i in reversed(range(group)):
        first = 2**i
        rest = patterns[:, first : 2 * first - 1]
        torch.add(patterns[:, first - 1], rest.sum(1), out=result[:, i])
        patterns[:, : first - 1] += rest
    return result
