"""Plans of the grouped strategy: which rows have which gate pattern.

Units are processed in groups of ``group``, each of which has ``2^group − 1`` patterns with an open
gate. A *segment* is one pattern of one group. The rows with this pattern occupy adjacent *slots*,
so that a segment is one matrix product. Slots are split into chunks that fit in cache.

Units that are open for most rows are *flipped*: their product is computed for all rows at once, and
subtracted where their gate is closed.

    Σ_j h_j V_jᵀ x = (Σ_{j flipped} V_j)ᵀ x + Σ_j s_j h'_j V_jᵀ x      s_j = −1, h'_j = 1 − h_j if
                                                                    flipped, otherwise 1 and h_j
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from tensorswitch.switched._cost import BLOCKS, COSTS


@dataclass(frozen=True)
class Chunk:
    """A run of unit groups whose gathered rows and matrices fit in cache."""

    # Indices are int32, because torch gathers with them twice as fast as with int64.
    units: slice
    index: Tensor  # row in each slot, with the number of rows for padding
    lengths: list[int]  # number of slots of each segment, the same for all if ``even``
    even: bool
    bag: Tensor  # the used slots row by row
    offsets: Tensor  # where the slots of each row begin in ``bag``


Plan = list[Chunk]


class Routing(NamedTuple):
    """What the grouped strategy knows about the gates of a call, with a plan per block of rows."""

    group: int
    plans: list[Plan]
    flipped: Tensor | None  # which units are, None if none is
    signs: Tensor | None  # (units,), −1 for flipped units and 1 for others


def flipped_units(opened: Tensor, rows: int) -> tuple[Tensor | None, float, float]:
    """Return which units to flip or None, and the fractions of routed gates and flipped units."""
    pairs = max(1, rows * len(opened))
    counts = opened.tolist()
    total, saved = sum(counts), sum(max(0, 2 * count - rows) for count in counts)
    if saved <= COSTS.flip_rows * len(counts):
        return None, total / pairs, 0.0
    flipped = 2 * opened > rows
    return flipped, (total - saved) / pairs, int(flipped.sum()) / len(counts)


def make_plan(gates: Tensor, group: int, n_in: int, n_out: int, narrow: bool = False) -> Plan:
    """Return the chunks for gates (rows, units) and matrices of ``n_in`` × ``n_out``."""
    rows, units = gates.shape
    if not rows or not units:
        return []
    opened = gates.view(torch.uint8).sum(0, dtype=torch.int32).tolist()
    sizes = n_in, n_out, narrow
    if group == 1:
        runs = _unit_slices(opened, n_in, n_out)
        chunks = [_gather_chunk(gates[:, run], run, *sizes) for run in runs]
    else:
        codes, closed = pattern_codes(gates, group), 1 - sum(opened) / gates.numel()
        slots, patterns = rows * (1 - closed**group), 2**group - 1
        step = max(1, int(BLOCKS.chunk_bytes / _bytes(slots, patterns, n_in, n_out)))
        chunks = []
        for start in range(0, codes.shape[1], step):
            covered = slice(start * group, min((start + step) * group, units))
            part = codes[:, start : start + step]
            chunks.append(_pattern_chunk(part, group, covered, *sizes))
    return [chunk for chunk in chunks if len(chunk.bag)]


def _bytes(slots: float, matrices: int, n_in: int, n_out: int) -> float:
    """Return the size of gathered rows, their products and the matrices."""
    return 4 * (slots * (n_in + n_out) + matrices * n_in * n_out)


def _unit_slices(opened: list[int], n_in: int, n_out: int) -> Iterator[slice]:
    """Yield runs of units that fit in cache; a few that are open far more often are alone."""
    # If they were not, all others would be padded to their length, or take a product each.
    often = BLOCKS.often * sum(opened) / len(opened)
    lone = {unit for unit, rows in enumerate(opened) if rows > often}
    if len(lone) > BLOCKS.few_units:
        lone = set()
    start, size = 0, 0.0
    for unit, rows in enumerate(opened):
        more = _bytes(rows, 1, n_in, n_out)
        if unit > start and (lone & {unit - 1, unit} or size + more > BLOCKS.chunk_bytes):
            yield slice(start, unit)
            start, size = unit, 0.0
        size += more
    yield slice(start, len(opened))


def _gather_chunk(gates: Tensor, units: slice, *sizes: int) -> Chunk:
    """Return a chunk whose segments are units."""
    # The rank of a row in its segment is a running count, so that no sort is needed.
    row, segment = gates.nonzero().unbind(1)
    running = gates.cumsum(0, dtype=torch.int32)
    rank = running.view(-1).index_select(0, row * gates.shape[1] + segment) - 1
    return _chunk(units, len(gates), (row, segment, rank), running[-1], *sizes)


def _pattern_chunk(codes: Tensor, group: int, units: slice, *sizes: int) -> Chunk:
    """Return a chunk whose segments are the patterns of groups."""
    patterns = 2**group - 1
    used = codes != 0
    row, segment = used.nonzero().unbind(1)
    segment = segment * patterns + (codes[used].long() - 1)
    counts = torch.bincount(segment, minlength=codes.shape[1] * patterns)
    order = torch.sort(segment.to(torch.int32), stable=True).indices
    place = torch.empty_like(order)
    place[order] = torch.arange(len(order), device=order.device)
    rank = place - (counts.cumsum(0) - counts)[segment]
    return _chunk(units, len(codes), (row, segment, rank), counts, *sizes)


def _chunk(
    units: slice, rows: int, routes: tuple[Tensor, Tensor, Tensor], counts: Tensor, *sizes: int
) -> Chunk:
    """Return a chunk for routes: the row of each, its segment, and its rank in the segment."""
    (row, segment, rank), (n_in, n_out, narrow) = routes, sizes
    lengths = counts.tolist()
    longest, total = max(lengths), len(row)
    alone = COSTS.pad_work * len(lengths)
    if narrow:  # separate products leave out segments without rows, and their conversion
        alone = COSTS.narrow_pad_work * sum(map(bool, lengths))
    even = _pads_pay(longest, len(lengths), total, n_in, n_out, alone)
    short = partial(row.new_zeros, dtype=torch.int32)
    if even:
        bag = segment * longest + rank
        index = short(longest * len(lengths)).fill_(rows)
        lengths = [longest] * len(lengths)
    else:
        bag = (counts.cumsum(0) - counts)[segment] + rank
        index = short(total)
    index.scatter_(0, bag, row.to(torch.int32))
    offsets = short(rows + 1)
    torch.cumsum(torch.bincount(row, minlength=rows), 0, out=offsets[1:])
    return Chunk(units, index, lengths, even, bag.to(torch.int32), offsets)


def _pads_pay(longest: int, segments: int, total: int, n_in: int, n_out: int, alone: float) -> bool:
    """Return whether to pad segments of ``total`` rows; ``alone`` is what products apart cost."""
    area, width = n_in * n_out, n_in + n_out
    padding, most = longest * segments - total, COSTS.pad_share * total
    work = padding * (area + COSTS.pad_move * width)
    fits = padding <= most or 4 * width * longest * segments <= 2 * BLOCKS.chunk_bytes
    return fits and work <= most * area + alone


def pattern_codes(gates: Tensor, group: int) -> Tensor:
    """Return the pattern of each group as an integer, with bit i for unit i: (rows, groups)."""
    bits = F.pad(gates.to(torch.uint8), (0, -gates.shape[1] % group)).view(len(gates), -1, group)
    code = bits[..., 0].clone()
    for i in range(1, group):
        code |= bits[..., i] << i
    return code


def pattern_sums(values: Tensor, out: Tensor, signs: Tensor | None = None) -> Tensor:
    """Sum (groups, g, n), times signs (groups, g, 1), over pattern c into ``out[:, c − 1]``."""
    # By doubling: the patterns whose highest unit is i are this unit alone, and this unit added to
    # every pattern of lower units.
    for i in range(values.shape[1]):
        first = 2**i
        alone = out[:, first - 1 : first]
        if signs is None:
            alone.copy_(values[:, i : i + 1])
        else:
            torch.mul(values[:, i : i + 1], signs[:, i : i + 1], out=alone)
        torch.add(out[:, : first - 1], alone, out=out[:, first : 2 * first - 1])
    return out


def unit_sums(patterns: Tensor, group: int) -> Tensor:
    """Sum (groups, 2^g − 1, n) over the patterns of each unit; overwrites its input."""
    result = patterns.new_empty(len(patterns), group, patterns.shape[2])
    for i in reversed(range(group)):
        first = 2**i
        rest = patterns[:, first : 2 * first - 1]
        torch.add(patterns[:, first - 1], rest.sum(1), out=result[:, i])
        patterns[:, : first - 1] += rest
    return result
