"""Rows by their content: hashes, folds of cross-validation, and identical rows merged into one.

    fold = hash(row) mod folds

Order, chunks, merging and the number of processes therefore change nothing, identical rows share a
fold, and a weight of two equals a repeated row.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor

from tensorswitch._checks import check_positive

WORD = 1 << 64
HASHED_BYTES = 1 << 24  # of rows at a time


def row_hashes(x: Tensor) -> Tensor:
    """Return a hash of 64 bits of each row.

        hash = mix(Σ_j fold(fold(x_j) · c_j)  mod 2⁶⁴),        fold(b) = b ⊕ b >> 32

    ``x`` is taken in float64, so that rows have the hash of their float32 values in either type,
    and −0 equals 0. The constants ``c_j`` are odd. Numbers with few digits only fill their upper
    bits; folding before and after the product spreads them over all 64.
    """
    constants = torch.tensor(_constants(x.shape[1]), device=x.device)
    result = torch.empty(len(x), dtype=torch.int64, device=x.device)
    step = max(1, HASHED_BYTES // (8 * max(1, x.shape[1])))
    for start in range(0, len(x), step):
        part = (x[start : start + step].double() + 0.0).contiguous().view(torch.int64)
        part = (part ^ _shift(part, 32)) * constants
        result[start : start + step] = _mix((part ^ _shift(part, 32)).sum(1))
    return result


def fold_of_rows(x: Tensor, folds: int) -> Tensor:
    """Return the fold of each row from 0, ``hash(row) mod folds``, in int64.

    Parameters
    ----------
    x : Tensor of shape (rows, n_0)
        The rows.
    folds : int
        Number of folds.

    Examples
    --------
    >>> import torch
    >>> from tensorswitch.linear import fold_of_rows
    >>> x = torch.randn(1000, 3, generator=torch.Generator().manual_seed(0))
    >>> folds = fold_of_rows(x, 5)
    >>> bool(torch.bincount(folds).min() > 150)
    True
    >>> torch.equal(fold_of_rows(x.double(), 5), folds)
    True
    """
    return fold_of_hashes(row_hashes(x), folds)


def fold_of_hashes(hashes: Tensor, folds: int) -> Tensor:
    """Return the folds of rows with these hashes; see :func:`fold_of_rows`."""
    check_positive(folds=folds)
    return _shift(hashes, 33) % folds


class DistinctRows(NamedTuple):
    """Groups of identical rows with a positive weight, in the order of their first rows."""

    first: Tensor  # the place of the first row of each group
    place: Tensor  # the group of each row, or −1 for rows of weight zero
    targets: Tensor  # weighted means, in float64
    weight: Tensor  # sums, in float64
    spread: Tensor  # Σ s ‖t − mean‖² of each group, which no readout can explain


def distinct_rows(hashes: Tensor, targets: Tensor, sample_weight: Tensor | None) -> DistinctRows:
    """Merge identical rows: the mean of their targets, the sum of their weights.

    This leaves the solution unchanged, and leave-one-out then leaves out a whole group.
    """
    ones = torch.ones(len(hashes), dtype=torch.float64, device=hashes.device)
    weight = ones if sample_weight is None else sample_weight.double()
    used = (weight > 0).nonzero().flatten()
    _, group = torch.unique(hashes[used], return_inverse=True)
    count = int(group.max()) + 1 if len(group) else 0
    first = torch.full((count,), len(hashes), device=hashes.device)
    first.scatter_reduce_(0, group, used, "amin")
    order = first.argsort()  # groups in the order of their first rows
    rank = torch.empty_like(order)
    rank[order] = torch.arange(count, device=hashes.device)
    group, first = rank[group], first[order]
    total = weight.new_zeros(count).index_add_(0, group, weight[used])
    sums = weight.new_zeros(count, targets.shape[1])
    sums.index_add_(0, group, targets[used].double() * weight[used, None])
    place = torch.full((len(hashes),), -1, device=hashes.device)
    place[used] = group
    mean = sums / total[:, None]
    squares = (targets[used].double() - mean[group]).square().sum(1) * weight[used]
    spread = torch.zeros_like(total).index_add_(0, group, squares)
    return DistinctRows(first, place, mean, total, spread)


def shuffled(hashes: Tensor, seed: int) -> Tensor:
    """Return an order of rows that depends on their content and a seed alone."""
    return _mix(hashes ^ _signed(_split_mix(seed))).argsort(stable=True)


@lru_cache(maxsize=8)
def _constants(count: int) -> list[int]:
    """Return odd numbers of 64 bits as signed ones."""
    return [_signed(_split_mix(j) | 1) for j in range(1, count + 1)]


def _split_mix(j: int) -> int:
    """Return the j-th number of 64 bits of SplitMix64."""
    z = j * 0x9E3779B97F4A7C15 % WORD
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 % WORD
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB % WORD
    return z ^ (z >> 31)


def _signed(value: int) -> int:
    return value - WORD if value >= WORD // 2 else value


def _shift(bits: Tensor, by: int) -> Tensor:
    """Shift right without copies of the sign."""
    return (bits >> by) & ((1 << (64 - by)) - 1)


def _mix(bits: Tensor) -> Tensor:
    """Mix all bits, as the finaliser of MurmurHash3."""
    for factor in (0xFF51AFD7ED558CCD, 0xC4CEB9FE1A85EC53):
        bits = (bits ^ _shift(bits, 33)) * _signed(factor)
    return bits ^ _shift(bits, 33)
