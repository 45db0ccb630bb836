"""The structured Gram matrix ``Σ_b z_b z_bᵀ`` of ``z = h ⊗ x``, without ``z``.

    C_ij = Σ_b h_bi h_bj x_b x_bᵀ

is symmetric in the units and in the inputs, and only rows that open both units count. Eight units together show one of 255 patterns that open
something, and a row shows one of them: so its ``x xᵀ`` is added once for the whole block of units, in place of once for each of its 36 pairs, and
the sums over patterns come after. :mod:`tensorswitch.ridge._cover` finds as few blocks as bring every pair together.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from tensorswitch._memory import workspace
from tensorswitch.ridge._cover import pair_cover

MAX_BLOCK = 8  # units
ROWS_PER_PATTERN = 32  # at least, or blocks are smaller
STRIP = 32  # inputs: of ``x xᵀ`` only the strips that reach the upper triangle are made
CACHE_BYTES = 1 << 23  # of gathered rows
LENGTHS = (16, 32, 48, 64, 80, 96, 128, 160, 192, 208, 224, 240, 256, 288, 320, 384, 512)
PIECE_COST = 64  # rows: what it costs to add up a piece's result


def packed_shape(units: int, n_in: int) -> tuple[int, int]:
    """One row for each pair of units i ≤ j, one column for each pair of inputs."""
    return units * (units + 1) // 2, n_in * (n_in + 1) // 2


def pair_index(units: int, device: torch.device | str = "cpu") -> Tensor:
    """(units, units): the packed row of a pair, in either order."""
    i, j = torch.triu_indices(units, units, device=device)
    index = torch.empty(units, units, dtype=torch.long, device=device)
    index[i, j] = index[j, i] = torch.arange(len(i), device=device)
    return index


def add_gram(packed: Tensor, x: Tensor, gates: Tensor) -> None:
    """Add the rows' Gram matrix to ``packed``."""
    rows, units = gates.shape
    if not rows:
        return
    size = max(2, min(MAX_BLOCK, int(math.log2(max(4, rows / ROWS_PER_PATTERN)))))
    index = pair_index(units, x.device)
    bits = gates.t().to(torch.uint8).contiguous()
    padded = torch.nn.functional.pad(x, (0, 0, 0, 1))
    strips = _strips(x.shape[1], x.device)
    for block, pairs in pair_cover(units, size):
        code = bits[block[0]].clone()
        for i, unit in enumerate(block[1:], 1):
            code |= bits[unit] << i
        pattern, slots = _pieces(code, 2 ** len(block))
        i, j = torch.tensor(pairs, device=x.device).t()
        opens = ((pattern >> i[:, None]) & (pattern >> j[:, None]) & 1).to(x.dtype)
        members = torch.tensor(block, device=x.device)
        places = index[members[i], members[j]]
        step = max(1, CACHE_BYTES // (slots.shape[1] * x.shape[1] * x.element_size()))
        totals = [x.new_zeros(len(pairs), (strip.stop - strip.start) * (x.shape[1] - strip.start)) for strip, *_ in strips]
        for begin in range(0, len(slots), step):
            part = slots[begin : begin + step]
            copies = workspace.empty("copies", (part.numel(), x.shape[1]), x)
            copies = torch.index_select(padded, 0, part.flatten(), out=copies).view(*part.shape, -1)
            for total, (strip, *_) in zip(totals, strips, strict=True):
                total.addmm_(opens[:, begin : begin + step], _strip_products(copies, strip))
        for total, (_, upper, columns) in zip(totals, strips, strict=True):
            packed[:, columns].index_add_(0, places, total.index_select(1, upper).to(packed.dtype))


def _pieces(code: Tensor, patterns: int) -> tuple[Tensor, Tensor]:
    """Rows sorted by pattern and cut into pieces of one length: the pattern of each piece, and its rows (one past the last is padding).

    Pattern 0 opens nothing and is left out. Long pieces need more padding, short ones more additions: the length is the cheapest for these counts.
    """
    counts = torch.bincount(code, minlength=patterns)
    order = torch.sort(code, stable=True).indices
    begin = counts.cumsum(0) - counts
    lengths = torch.tensor(LENGTHS, device=code.device)
    cost = (-(-counts[1:] // lengths[:, None])).sum(1) * (lengths + PIECE_COST)
    length = LENGTHS[int(cost.argmin())]
    pieces = -(-counts // length)
    pieces[0] = 0
    pattern = torch.repeat_interleave(pieces)
    offset = (torch.arange(len(pattern), device=code.device) - (pieces.cumsum(0) - pieces)[pattern]) * length
    step = torch.arange(length, device=code.device)
    slots = ((begin[pattern] + offset)[:, None] + step).clamp_(max=len(code) - 1)
    return pattern, torch.where(step < (counts[pattern] - offset)[:, None], order[slots], len(code))


def _strips(n_in: int, device: torch.device) -> list[tuple[slice, Tensor, slice]]:
    """Inputs a few at a time: which, where the upper triangle lies in their products with all inputs from there on, and its packed columns."""
    strips, done = [], 0
    for start in range(0, n_in, STRIP):
        inputs = slice(start, min(start + STRIP, n_in))
        wide = torch.ones(inputs.stop - start, n_in - start, dtype=torch.bool, device=device).triu().flatten().nonzero().flatten()
        strips.append((inputs, wide, slice(done, done + len(wide))))
        done += len(wide)
    return strips


def _strip_products(copies: Tensor, strip: slice) -> Tensor:
    narrow, wide = copies[:, :, strip], copies[:, :, strip.start :]
    out = workspace.empty("strips", (len(copies), narrow.shape[2], wide.shape[2]), copies)
    return torch.bmm(narrow.transpose(1, 2), wide, out=out).flatten(1)


def gram_rows(packed: Tensor, units: int, n_in: int) -> Callable[[int, int], Tensor]:
    """What gives rows ``start`` to ``stop`` of the whole matrix, (rows, units · inputs)."""
    index = pair_index(units, packed.device)
    columns = pair_index(n_in, packed.device).flatten()

    def rows(start: int, stop: int) -> Tensor:
        first, last = start // n_in, -(-stop // n_in)
        blocks = packed.index_select(0, index[first:last].flatten()).index_select(1, columns).view(last - first, units, n_in, n_in)
        return blocks.transpose(1, 2).reshape(-1, units * n_in)[start - first * n_in : stop - first * n_in]

    return rows


def unpack(packed: Tensor, units: int, n_in: int) -> Tensor:
    """The whole symmetric matrix (units · inputs, units · inputs)."""
    return gram_rows(packed, units, n_in)(0, units * n_in)
