"""The structured Gram matrix ``Σ_b z_b z_bᵀ`` of ``z = h ⊗ x``, computed without forming ``z``.

    C_ij = Σ_b h_bi h_bj x_b x_bᵀ

The matrix is symmetric in the units and in the inputs, and a row contributes to a pair of units
only if it opens both. For a block of eight units, rows are grouped by their gate pattern (255
patterns open at least one unit). ``x xᵀ`` is then summed once per pattern rather than once for each
of the 36 pairs of the block, and the sums of the pairs follow from the sums of the patterns. Only
if there are few rows, ``z`` is formed.
:mod:`tensorswitch.linear._cover` finds few blocks that cover every pair of units.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from tensorswitch._memory import workspace
from tensorswitch.linear._cover import pair_cover

MAX_BLOCK = 8  # units
ROWS_PER_PATTERN = 32  # on average; with fewer rows, blocks are made smaller
STRIP = 32  # inputs: only the strips of ``x xᵀ`` that reach the upper triangle are computed
CACHE_BYTES = 1 << 22  # of gathered rows
LENGTHS = (16, 32, 48, 64, 80, 96, 128, 160, 192, 208, 224, 240, 256, 288, 320, 384, 512)
CALL = 2e5  # multiply-adds in the time of a call on little data
PIECE_COST = 64  # cost of adding up the result of a piece, in rows


def packed_shape(units: int, n_in: int) -> tuple[int, int]:
    """Return the packed shape: a row per pair of units i ≤ j, a column per pair of inputs."""
    return units * (units + 1) // 2, n_in * (n_in + 1) // 2


def pair_index(units: int, device: torch.device | str = "cpu") -> Tensor:
    """Return the packed row of each pair of units, of shape (units, units)."""
    i, j = torch.triu_indices(units, units, device=device)
    index = torch.empty(units, units, dtype=torch.long, device=device)
    index[i, j] = index[j, i] = torch.arange(len(i), device=device)
    return index


def add_gram(
    packed: Tensor, cross: Tensor, x: Tensor, gates: Tensor, errors: Tensor, sign: int = 1
) -> None:
    """Add the Gram matrix of the rows to ``packed`` and ``Σ_b h_bj x_b e_bᵀ`` to ``cross``.

    ``cross`` has the shape (units, inputs, outputs). With ``sign=-1`` the sums are subtracted.
    """
    rows, units = gates.shape
    if not rows:
        return
    n_in = x.shape[1]
    size = max(2, min(MAX_BLOCK, int(math.log2(max(4, rows / ROWS_PER_PATTERN)))))
    if _expanding_pays(rows, units, n_in, size):
        _add_expanded(packed, cross, x, gates, errors, sign)
        return
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
            sums = total.index_select(1, upper).to(packed.dtype)
            packed[:, columns].index_add_(0, places, sums, alpha=sign)
    for start in range(0, units, size):
        block = tuple(range(start, min(start + size, units)))
        pattern, slots = _pieces(_codes(bits, block), 2 ** len(block))
        opens = ((pattern >> torch.arange(len(block), device=x.device)[:, None]) & 1).to(x.dtype)
        for part, copies in _copies(both, slots):
            sums = opens[:, part] @ _products(copies[:, :, :n_in], copies[:, :, n_in:])
            sums = sums.view(len(block), n_in, -1).to(cross.dtype)
            cross[start : start + len(block)].add_(sums, alpha=sign)


def _expanding_pays(rows: int, units: int, n_in: int, size: int) -> bool:
    """Return whether few rows are faster expanded than grouped, where calls take all the time."""
    blocks = max(1.0, units * (units - 1) / (size * (size - 1)))
    grouped = blocks * (12 * CALL + rows * n_in**2) + units * CALL
    expanded = units * 4 * CALL + rows * (units * n_in) ** 2 / 2
    return expanded < grouped


def _add_expanded(
    packed: Tensor, cross: Tensor, x: Tensor, gates: Tensor, errors: Tensor, sign: int
) -> None:
    """Add the same sums from ``z`` itself, for a few rows at a time."""
    units, n_in = gates.shape[1], x.shape[1]
    i, j = torch.triu_indices(n_in, n_in, device=x.device)
    upper = i * n_in + j
    step = max(1, CACHE_BYTES // (units * n_in * x.element_size()))
    for start in range(0, len(x), step):
        part = slice(start, start + step)
        z = (gates[part, :, None] * x[part, None, :]).flatten(1)
        sums = (z.t() @ errors[part]).view(units, n_in, -1)
        cross.add_(sums.to(cross.dtype), alpha=sign)
        done = 0
        for unit in range(units):
            first = unit * n_in
            block = z[:, first : first + n_in].t() @ z[:, first:]
            block = block.view(n_in, units - unit, n_in).transpose(0, 1).reshape(units - unit, -1)
            rows = packed[done : done + units - unit]  # pairs (unit, unit), (unit, unit + 1), …
            rows.add_(block.index_select(1, upper).to(packed.dtype), alpha=sign)
            done += units - unit


def _codes(bits: Tensor, block: tuple[int, ...]) -> Tensor:
    """Return the gate pattern of each row: bit i is the gate of the i-th unit of the block."""
    code = bits[block[0]].clone()
    for i, unit in enumerate(block[1:], 1):
        code |= bits[unit] << i
    return code


def _copies(padded: Tensor, slots: Tensor) -> Iterator[tuple[slice, Tensor]]:
    """Yield the rows of a few pieces at a time, of shape (pieces, length, columns)."""
    step = max(1, CACHE_BYTES // (slots.shape[1] * padded.shape[1] * padded.element_size()))
    for begin in range(0, len(slots), step):
        part = slots[begin : begin + step]
        copies = workspace.empty("copies", (part.numel(), padded.shape[1]), padded)
        torch.index_select(padded, 0, part.flatten(), out=copies)
        yield slice(begin, begin + step), copies.view(*part.shape, -1)


def _products(a: Tensor, b: Tensor) -> Tensor:
    """Return ``aᵀ b`` of each piece, flattened."""
    out = workspace.empty("sums", (len(a), a.shape[2], b.shape[2]), a)
    return torch.bmm(a.transpose(1, 2), b, out=out).flatten(1)


def _pieces(code: Tensor, patterns: int) -> tuple[Tensor, Tensor]:
    """Sort rows by pattern and cut them into pieces of equal length.

    Returns the pattern of each piece and its row indices, where an index one past the last row is
    padding. Pattern 0 opens no unit and is omitted. Long pieces need more padding and short ones
    more additions, so the length is chosen by its cost for these counts.
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
    """Split the inputs into strips.

    For each strip: its inputs, the positions of the upper triangle in their products with all
    inputs from the first of the strip on, and the packed columns of these positions.
    """
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
    """Return a function that unpacks rows ``start`` to ``stop`` of the full matrix."""
    index = pair_index(units, packed.device)
    columns = pair_index(n_in, packed.device).flatten()

    def rows(start: int, stop: int) -> Tensor:
        first, last = start // n_in, -(-stop // n_in)
        blocks = packed.index_select(0, index[first:last].flatten()).index_select(1, columns)
        blocks = blocks.view(last - first, units, n_in, n_in)
        whole = blocks.transpose(1, 2).reshape(-1, units * n_in)
        return whole[start - first * n_in : stop - first * n_in]

    return rows


def unpack(packed: Tensor, units: int, n_in: int) -> Tensor:
    """Return the full symmetric matrix of order units · inputs."""
    return gram_rows(packed, units, n_in)(0, units * n_in)
