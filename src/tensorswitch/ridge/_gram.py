"""The structured Gram matrix ``Σ_b z_b z_bᵀ`` of ``z = h ⊗ x``, without ``z``.

    C_ij = Σ_b h_bi h_bj x_b x_bᵀ

is symmetric in the units and in the inputs, and only rows that open both units count. Eight units together show one of 255 patterns that open
something, and a row shows one of them: so its ``x xᵀ`` is added once for the whole block of units, in place of once for each of its 36 pairs, and
the sums over patterns come after. :mod:`tensorswitch.ridge._cover` finds as few blocks as bring every pair together.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from tensorswitch._memory import workspace
from tensorswitch.ridge._cover import pair_cover

MAX_BLOCK = 8  # units
ROWS_PER_PATTERN = 32  # at least, or blocks are smaller
STRIP = 32  # inputs: of ``x xᵀ`` only the strips that reach the upper triangle are made
CACHE_BYTES = 1 << 22  # of gathered rows
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


def add_gram(packed: Tensor, cross: Tensor, x: Tensor, gates: Tensor, errors: Tensor) -> None:
    """Add the rows' Gram matrix to ``packed``, and ``Σ_b h_bj x_b e_bᵀ`` to ``cross`` (units, inputs, outputs)."""
    rows, units = gates.shape
    if not rows:
        return
    n_in = x.shape[1]
    size = max(2, min(MAX_BLOCK, int(math.log2(max(4, rows / ROWS_PER_PATTERN)))))
    index = pair_index(units, x.device)
    bits = gates.t().to(torch.uint8).contiguous()
    padded = torch.nn.functional.pad(x, (0, 0, 0, 1))
    both = torch.nn.functional.pad(torch.cat([x, errors], dim=1), (0, 0, 0, 1))
    strips = _strips(n_in, x.device)

    for block, pairs in pair_cover(units, size):
        pattern, slots = _pieces(_codes(bits, block), 2 ** len(block))
        members = torch.tensor(block, device=x.device)
        i, j = torch.tensor(pairs, device=x.device).t()
        opens = ((pattern >> i[:, None]) & (pattern >> j[:, None]) & 1).to(x.dtype)
        totals = [
            x.new_zeros(len(pairs), (strip.stop - strip.start) * (n_in - strip.start))
            for strip, *_ in strips
        ]
        for part, copies in _copies(padded, slots):
            for total, (strip, *_) in zip(totals, strips, strict=True):
                total.addmm_(
                    opens[:, part], _products(copies[:, :, strip], copies[:, :, strip.start :])
                )
        places = index[members[i], members[j]]
        for total, (_, upper, columns) in zip(totals, strips, strict=True):
            packed[:, columns].index_add_(0, places, total.index_select(1, upper).to(packed.dtype))
    for start in range(0, units, size):
        block = tuple(range(start, min(start + size, units)))
        pattern, slots = _pieces(_codes(bits, block), 2 ** len(block))
        opens = ((pattern >> torch.arange(len(block), device=x.device)[:, None]) & 1).to(x.dtype)
        for part, copies in _copies(both, slots):
            sums = opens[:, part] @ _products(copies[:, :, :n_in], copies[:, :, n_in:])
            cross[start : start + len(block)] += sums.view(len(block), n_in, -1).to(cross.dtype)


def _codes(bits: Tensor, block: tuple[int, ...]) -> Tensor:
    """The pattern of each row, bit i for the i-th unit of the block."""
    code = bits[block[0]].clone()
    for i, unit in enumerate(block[1:], 1):
        code |= bits[unit] << i
    return code


def _copies(padded: Tensor, slots: Tensor) -> Iterator[tuple[slice, Tensor]]:
    """The rows in some pieces at a time, (pieces, length, columns)."""
    step = max(1, CACHE_BYTES // (slots.shape[1] * padded.shape[1] * padded.element_size()))
    for begin in range(0, len(slots), step):
        part = slots[begin : begin + step]
        copies = workspace.empty("copies", (part.numel(), padded.shape[1]), padded)
        yield (
            slice(begin, begin + step),
            torch.index_select(padded, 0, part.flatten(), out=copies).view(*part.shape, -1),
        )


def _products(a: Tensor, b: Tensor) -> Tensor:
    """``aᵀ b`` of each piece, flattened."""
    out = workspace.empty("sums", (len(a), a.shape[2], b.shape[2]), a)
    return torch.bmm(a.transpose(1, 2), b, out=out).flatten(1)


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
    offset = (
        torch.arange(len(pattern), device=code.device) - (pieces.cumsum(0) - pieces)[pattern]
    ) * length
    step = torch.arange(length, device=code.device)
    slots = torch.where(
        step < (counts[pattern] - offset)[:, None],
        (begin[pattern] + offset)[:, None] + step,
        len(code),
    )
    return pattern, torch.nn.functional.pad(order, (0, 1), value=len(code))[slots]


def _strips(n_in: int, device: torch.device) -> list[tuple[slice, Tensor, slice]]:
    """Inputs a few at a time: which, where the upper triangle lies in their products with all inputs from there on, and its packed columns."""
    strips, done = [], 0
    for start in range(0, n_in, STRIP):
        inputs = slice(start, min(start + STRIP, n_in))
        wide = (
            torch.ones(inputs.stop - start, n_in - start, dtype=torch.bool, device=device)
            .triu()
            .flatten()
            .nonzero()
            .flatten()
        )
        strips.append((inputs, wide, slice(done, done + len(wide))))
        done += len(wide)
    return strips


def gram_rows(packed: Tensor, units: int, n_in: int) -> Callable[[int, int], Tensor]:
    """What gives rows ``start`` to ``stop`` of the whole matrix, (rows, units · inputs)."""
    index = pair_index(units, packed.device)
    columns = pair_index(n_in, packed.device).flatten()

    def rows(start: int, stop: int) -> Tensor:
        first, last = start // n_in, -(-stop // n_in)
        blocks = (
            packed.index_select(0, index[first:last].flatten())
            .index_select(1, columns)
            .view(last - first, units, n_in, n_in)
        )
        return blocks.transpose(1, 2).reshape(-1, units * n_in)[
            start - first * n_in : stop - first * n_in
        ]

    return rows


def unpack(packed: Tensor, units: int, n_in: int) -> Tensor:
    """The whole symmetric matrix (units · inputs, units · inputs)."""
    return gram_rows(packed, units, n_in)(0, units * n_in)
