"""The structured Gram matrix ``Σ_b z_b z_bᵀ`` of ``z = h ⊗ x``, without ``z``.

    C_ij = Σ_b h_bi h_bj x_b x_bᵀ

is symmetric in the units and in the inputs, and only rows that open both units count. Two groups of g units together show at most
``(2^g − 1)²`` pairs of patterns that open something on both sides, and a row shows one of them: so its ``x xᵀ`` is added once for the two groups,
in place of once for each of g² pairs of units, and the sums over patterns come after.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from tensorswitch._plans import pattern_codes, unit_sums

MAX_GROUP = 4
SIMILAR = 0.75  # cells at least this long as the longest are padded to it


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
    n_in = x.shape[1]
    group = max(1, min(MAX_GROUP, int(math.log2(max(2, rows / 32)) / 2), units))
    codes = pattern_codes(gates, group)
    index = pair_index(units, x.device)
    upper = torch.triu_indices(n_in, n_in, device=x.device)
    columns = upper[0] * n_in + upper[1]
    patterns = 2**group - 1
    for a in range(codes.shape[1]):
        first = slice(a * group, min((a + 1) * group, units))
        order = codes[:, a].argsort()  # so that the rows of a pair of patterns are gathered from nearby
        near_x, near_codes = torch.nn.functional.pad(x[order], (0, 0, 0, 1)), codes[order]
        for b in range(a, codes.shape[1]):
            second = slice(b * group, min((b + 1) * group, units))
            sums = _pattern_grams(near_x, near_codes[:, a], near_codes[:, b], patterns)
            blocks = unit_sums(unit_sums(sums.view(1, patterns, -1), group).view(group, patterns, -1), group)
            blocks = blocks[: first.stop - first.start, : second.stop - second.start].index_select(2, columns)
            places = index[first, second]
            chosen = torch.ones_like(places, dtype=torch.bool)
            if a == b:
                chosen = chosen.triu()
            packed.index_add_(0, places[chosen], blocks[chosen].to(packed.dtype))


def _pattern_grams(padded: Tensor, first: Tensor, second: Tensor, patterns: int) -> Tensor:
    """``Σ x xᵀ`` over the rows of each pair of patterns: (patterns², inputs²). The last row of ``padded`` is zero."""
    n_in = padded.shape[1]
    cells = patterns**2
    key = (first.to(torch.int16) - 1) * patterns + (second.to(torch.int16) - 1)
    key = torch.where((first == 0) | (second == 0), cells, key)
    order = torch.sort(key, stable=True).indices
    counts = torch.bincount(key, minlength=cells + 1)[:cells]
    start = counts.cumsum(0) - counts
    # Cells of about the same length go together in one batched product, padded to the longest of them.
    counts, by_length = counts.sort(descending=True)
    start, lengths = start[by_length], counts.tolist()
    out = padded.new_zeros(cells, n_in, n_in)
    begin = 0
    while begin < cells and lengths[begin]:
        longest = lengths[begin]
        end = begin + 1
        while end < cells and lengths[end] >= SIMILAR * longest - 8 and lengths[end]:
            end += 1
        step = torch.arange(longest, device=order.device)
        slots = (start[begin:end, None] + step).clamp_(max=len(order) - 1)
        index = torch.where(step < counts[begin:end, None], order[slots], len(padded) - 1)
        copies = padded.index_select(0, index.flatten()).view(end - begin, longest, n_in)
        torch.bmm(copies.transpose(1, 2), copies, out=out[begin:end])
        begin = end
    return torch.empty_like(out).index_copy_(0, by_length, out).flatten(1)


def unpack(packed: Tensor, units: int, n_in: int) -> Tensor:
    """The whole symmetric matrix (units · inputs, units · inputs)."""
    dimension = units * n_in
    whole = packed.new_empty(units, n_in, units, n_in)
    index = pair_index(units, packed.device)
    columns = pair_index(n_in, packed.device).flatten()
    for i in range(units):
        whole[i] = packed[index[i]].index_select(1, columns).view(units, n_in, n_in).transpose(0, 1)
    return whole.view(dimension, dimension)
