"""The structured Gram matrix ``Σ_b z_b z_bᵀ`` of ``z = h ⊗ x``, computed without forming ``z``.

    C_ij = Σ_b h_bi h_bj x_b x_bᵀ

The matrix is symmetric in the units and in the inputs, and a row contributes to a pair of units
only if it opens both. For a block of eight units, rows are grouped by their gate pattern (255
patterns open at least one unit). ``x xᵀ`` is then summed once per pattern rather than once for each
of the 36 pairs of the block, and the sums of the pairs follow from the sums of the patterns. Only
if there are few rows, ``z`` is formed.

Few blocks cover every pair of units: arrange the units in k columns of q, where q is the order of a
finite field. Two points in different columns lie on exactly one of the ``q²`` lines
``y = s·x + t``, so the q² blocks with the k points of a line cover all pairs from different
columns. The pairs within each column are covered recursively. For 64 units and blocks of eight this
is the affine plane of order eight: 72 blocks that contain every pair exactly once.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations, combinations_with_replacement, product

import torch
from torch import Tensor

from tensorswitch._memory import workspace
from tensorswitch.linear._cholesky import SymmetricPanels

Block = tuple[tuple[int, ...], tuple[tuple[int, int], ...]]


@dataclass(frozen=True)
class Settings:
    """Sizes of blocks, pieces and strips, measured by ``benchmarks.ridge speed``.

    Blocks have ``block`` units, or fewer if a pattern had less than ``rows_per_pattern`` rows on
    average. The rows of a pattern are cut into pieces of one of the ``lengths``, where adding up
    the result of a piece costs as much as ``piece_cost`` rows. Only strips of ``strip`` inputs of
    ``x xᵀ`` that reach the upper triangle are computed. Gathered rows take up to ``cache_bytes``,
    unpacked rows of a product ``product_bytes``, and a call on little data the time of ``call``
    multiply-adds.
    """

    block: int = 8
    rows_per_pattern: int = 32
    strip: int = 32
    cache_bytes: int = 1 << 22
    product_bytes: int = 1 << 26
    lengths: tuple[int, ...] = tuple(
        16 * n for n in (1, 2, 3, 4, 5, 6, 8, 10, 12, 13, 14, 15, 16, 18, 20, 24, 32)
    )
    piece_cost: int = 64
    call: float = 2e5


SETTINGS = Settings()


class PackedPairs:
    """``Σ z zᵀ`` with a row per pair of units i ≤ j and a column per pair of inputs."""

    def __init__(self, units: int, inputs: int) -> None:
        self.units, self.inputs = units, inputs
        self.shape: tuple[int, ...] = units * (units + 1) // 2, inputs * (inputs + 1) // 2

    def rows(self, gram: Tensor) -> Callable[[int, int], Tensor]:
        """Return a function that unpacks rows ``start`` to ``stop`` of the full matrix."""
        units, inputs = self.units, self.inputs
        index = pair_index(units, gram.device)
        columns = pair_index(inputs, gram.device).flatten()

        def rows(start: int, stop: int) -> Tensor:
            first, last = start // inputs, -(-stop // inputs)
            blocks = gram.index_select(0, index[first:last].flatten()).index_select(1, columns)
            blocks = blocks.view(last - first, units, inputs, inputs)
            whole = blocks.transpose(1, 2).reshape(-1, units * inputs)
            return whole[start - first * inputs : stop - first * inputs]

        return rows

    def panels(self, gram: Tensor) -> SymmetricPanels:
        """Return a copy that can be factorised."""
        order = self.units * self.inputs
        return SymmetricPanels.from_rows(order, self.rows(gram), gram, self.inputs)

    def product(self, gram: Tensor, weight: Tensor) -> Tensor:
        """Return ``(Σ z zᵀ) W`` in float64, unpacking some rows at a time."""
        rows, w = self.rows(gram), weight.double()
        step = max(1, SETTINGS.product_bytes // (8 * len(w) * self.inputs)) * self.inputs
        starts = range(0, len(w), step)
        return torch.cat([rows(s, min(s + step, len(w))).double() @ w for s in starts])

    def diagonal(self, gram: Tensor) -> Tensor:
        """Return the diagonal in float64."""
        own = pair_index(self.units, gram.device).diagonal()
        square = pair_index(self.inputs, gram.device).diagonal()
        return gram[own][:, square].double().flatten()


def pair_index(units: int, device: torch.device | str = "cpu") -> Tensor:
    """Return the packed row of each pair of units, of shape (units, units)."""
    i, j = torch.triu_indices(units, units, device=device)
    index = torch.empty(units, units, dtype=torch.long, device=device)
    index[i, j] = index[j, i] = torch.arange(len(i), device=device)
    return index


def add_gram(
    packed: Tensor, cross: Tensor, x: Tensor, gates: Tensor, targets: Tensor, sign: int = 1
) -> None:
    """Add the Gram matrix of rows to ``packed``, their ``Σ_b h_bj x_b t_bᵀ`` to ``cross``."""
    rows, units = gates.shape
    if not rows:
        return
    n_in = x.shape[1]
    size = max(2, min(SETTINGS.block, int(math.log2(max(4, rows / SETTINGS.rows_per_pattern)))))
    if _expanding_pays(rows, units, n_in, size):
        _add_expanded(packed, cross, x, gates, targets, sign)
        return
    index = pair_index(units, x.device)
    bits = gates.t().to(torch.uint8).contiguous()
    padded = torch.nn.functional.pad(x, (0, 0, 0, 1))
    both = torch.nn.functional.pad(torch.cat([x, targets], dim=1), (0, 0, 0, 1))
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
                sums = _products(copies[:, :, strip], copies[:, :, strip.start :])
                total.addmm_(opens[:, part], sums)
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
    grouped = blocks * (12 * SETTINGS.call + rows * n_in**2) + units * SETTINGS.call
    expanded = units * 4 * SETTINGS.call + rows * (units * n_in) ** 2 / 2
    return expanded < grouped


def _add_expanded(
    packed: Tensor, cross: Tensor, x: Tensor, gates: Tensor, targets: Tensor, sign: int
) -> None:
    """Add the same sums from ``z`` itself, for a few rows at a time."""
    units, n_in = gates.shape[1], x.shape[1]
    i, j = torch.triu_indices(n_in, n_in, device=x.device)
    upper = i * n_in + j
    step = max(1, SETTINGS.cache_bytes // (units * n_in * x.element_size()))
    for start in range(0, len(x), step):
        part = slice(start, start + step)
        z = (gates[part, :, None] * x[part, None, :]).flatten(1)
        sums = (z.t() @ targets[part]).view(units, n_in, -1)
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
    step = max(1, SETTINGS.cache_bytes // (slots.shape[1] * padded[0].nbytes))
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
    """Return pieces of rows with the same pattern: the pattern and the row indices of each.

    An index one past the last row is padding. Pattern 0 opens no unit and is omitted.
    """
    counts = torch.bincount(code, minlength=patterns)
    order = torch.sort(code, stable=True).indices
    begin = counts.cumsum(0) - counts
    lengths = torch.tensor(SETTINGS.lengths, device=code.device)
    cost = (-(-counts[1:] // lengths[:, None])).sum(1) * (lengths + SETTINGS.piece_cost)
    length = SETTINGS.lengths[int(cost.argmin())]
    pieces = -(-counts // length)
    pieces[0] = 0
    pattern = torch.repeat_interleave(pieces)
    first = (pieces.cumsum(0) - pieces)[pattern]
    offset = (torch.arange(len(pattern), device=code.device) - first) * length
    step = torch.arange(length, device=code.device)
    inside = step < (counts[pattern] - offset)[:, None]
    slots = torch.where(inside, (begin[pattern] + offset)[:, None] + step, len(code))
    return pattern, torch.nn.functional.pad(order, (0, 1), value=len(code))[slots]


def _strips(n_in: int, device: torch.device) -> list[tuple[slice, Tensor, slice]]:
    """Return strips of inputs, the places of the upper triangle in their products, its columns."""
    strips, done = [], 0
    for start in range(0, n_in, SETTINGS.strip):
        inputs = slice(start, min(start + SETTINGS.strip, n_in))
        whole = torch.ones(inputs.stop - start, n_in - start, dtype=torch.bool, device=device)
        wide = whole.triu().flatten().nonzero().flatten()
        strips.append((inputs, wide, slice(done, done + len(wide))))
        done += len(wide)
    return strips


# Irreducible polynomials, with coefficients as bits, of the fields with 2, 4, 8, … elements.
POLYNOMIALS = {2: 3, 4: 7, 8: 11, 16: 19, 32: 37, 64: 67, 128: 131, 256: 283, 512: 529}


@lru_cache
def pair_cover(units: int, size: int) -> tuple[Block, ...]:
    """Return blocks of units that cover all pairs, with the places i ≤ j of those new to each."""
    seen: set[tuple[int, int]] = set()
    blocks = []
    for block in map(tuple, map(sorted, _cover(tuple(range(units)), size))):
        pairs = combinations_with_replacement(range(len(block)), 2)
        new = tuple((i, j) for i, j in pairs if (block[i], block[j]) not in seen)
        seen.update((block[i], block[j]) for i, j in new)
        blocks.append((block, new))
    return tuple(block for block in blocks if block[1])


def _cover(units: tuple[int, ...], size: int) -> list[tuple[int, ...]]:
    if len(units) <= size:
        return [units]
    half = max(1, size // 2)
    halves = [units[start : start + half] for start in range(0, len(units), half)]
    simple = [a + b for a, b in combinations(halves, 2)]
    order = max(size, -(-len(units) // size))
    while not _is_field(order):
        order += 1
    if order**2 >= len(simple):
        return simple
    columns = [units[i * order : (i + 1) * order] for i in range(size)]
    lines = []
    for slope, start in product(range(order), repeat=2):
        heights = [_on_line(x, slope, start, order) for x in range(size)]
        points = zip(columns, heights, strict=True)
        lines.append(tuple(column[y] for column, y in points if y < len(column)))
    lines = [line for line in lines if len(line) > 1]
    for column in columns:
        if column:
            lines += _cover(column, size)
    return min(simple, lines, key=len)


def _is_field(order: int) -> bool:
    """Return whether ``order`` is prime or a power of two in ``POLYNOMIALS``."""
    return order in POLYNOMIALS or all(order % d for d in range(2, int(order**0.5) + 1))


def _on_line(x: int, slope: int, start: int, order: int) -> int:
    """Return ``slope · x + start`` in the field."""
    if order not in POLYNOMIALS:
        return (slope * x + start) % order
    product = 0
    while x:
        if x & 1:
            product ^= slope
        x >>= 1
        slope <<= 1
        if slope & order:
            slope ^= POLYNOMIALS[order]
    return product ^ start
