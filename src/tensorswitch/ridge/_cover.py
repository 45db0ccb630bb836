"""Blocks of units that bring every pair of units together.

``k`` points of each line ``y = s·x + t`` over a finite field of q elements: two points in different columns lie on exactly one of the ``q²`` lines.
So k columns of q units need q² blocks of k units, and the columns themselves the same again. For 64 units and blocks of eight this is the affine
plane of order eight: 72 blocks, and no pair is met twice.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import combinations

Block = tuple[tuple[int, ...], tuple[tuple[int, int], ...]]

# The irreducible polynomials that make the fields of 2, 4, 8, … elements.
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
    """Blocks of at most ``size`` units, each with the pairs i ≤ j (places within the block) that no block before it has."""
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
            heights = (_on_line(x, slope, start, order) for x in range(size))
            lines.append(
                tuple(
                    column[y] for column, y in zip(columns, heights, strict=True) if y < len(column)
                )
            )
    lines = [line for line in lines if len(line) > 1]
    for column in columns:
        if column:
            lines += _cover(column, size)
    return min(simple, lines, key=len)


def _is_field(order: int) -> bool:
    """Prime, or a power of two that is listed."""
    return order in POLYNOMIALS or all(order % d for d in range(2, int(order**0.5) + 1))


def _on_line(x: int, slope: int, start: int, order: int) -> int:
    """``slope · x + start`` in the field."""
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
