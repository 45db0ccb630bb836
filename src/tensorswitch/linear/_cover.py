"""Coverings: few blocks of units such that every pair of units shares a block.

Arrange the units in k columns of q, where q is the order of a finite field. Two points in
different columns lie on exactly one of the ``q²`` lines ``y = s·x + t``, so the q² blocks with the
k points of a line cover all pairs from different columns. The pairs within each column are covered
recursively. For 64 units and blocks of eight this is the affine plane of order eight: 72 blocks
that contain every pair exactly once.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import combinations

Block = tuple[tuple[int, ...], tuple[tuple[int, int], ...]]

# Irreducible polynomials that define the fields with 2, 4, 8, … elements.
POLYNOMIALS = {
    2: 0b11,
    4: 0b111,
    8: 0b1011,
    16: 0b10011,
    32: 0b100101,
    64: 0b1000011,
    128: 0b10000011,
    256: 0b100011011,
    512: 0b1000010001,
}


@lru_cache
def pair_cover(units: int, size: int) -> tuple[Block, ...]:
    """Return blocks of at most ``size`` units that cover all pairs of units.

    Each block comes with the pairs i ≤ j, as positions within the block, that are new to it.
    """
    seen: set[tuple[int, int]] = set()
    blocks = []
    for block in _cover(tuple(range(units)), size):
        block = tuple(sorted(block))
        new = [
            (i, j)
            for i in range(len(block))
            for j in range(i, len(block))
            if (block[i], block[j]) not in seen
        ]
        seen.update((block[i], block[j]) for i, j in new)
        blocks.append((block, tuple(new)))
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
    for slope in range(order):
        for start in range(order):
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
