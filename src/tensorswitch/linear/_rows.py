"""Rows by their content: hashes, folds of cross-validation, and identical rows merged into one.

    fold = hash(row) mod folds

Order, chunks, merging and the number of processes therefore change nothing, identical rows share a
fold, and a weight of two equals a repeated row.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from tensorswitch._checks import check_positive

if TYPE_CHECKING:
    from tensorswitch.linear._problem import Problem

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


def bucket_of_hashes(hashes: Tensor, buckets: int) -> Tensor:
    """Return a bucket for each hash, by other bits than those of folds."""
    return (hashes & ((1 << 31) - 1)) % buckets


class Observations(NamedTuple):
    """What leave-one-out leaves out at a time: rows alike in inputs and targets, or each of them.

    They are sorted by the distinct row that they belong to.
    """

    row: Tensor  # the distinct row
    offset: Tensor  # t − the mean of the targets of that row, in float64
    weight: Tensor  # Σ s
    units: Tensor  # how many of equal weight are left out one after the other
    share: Tensor  # the part of the distinct row's weight that is left out at a time

    def of_first(self, rows: int) -> Observations:
        """Return those of the first distinct rows."""
        stop = int(torch.searchsorted(self.row, rows))
        return Observations(*(tensor[:stop] for tensor in self))


class DistinctRows(NamedTuple):
    """Groups of identical rows with a positive weight."""

    first: Tensor  # the place of the first row of each group
    targets: Tensor  # weighted means, in float64
    weight: Tensor  # sums, in float64
    place: Tensor  # the observation of each row, or −1 for rows of weight zero
    observations: Observations
    single: bool  # whether identical rows are left out one by one


def distinct_rows(
    hashes: Tensor, targets: Tensor, sample_weight: Tensor | None, seed: int | None = None
) -> DistinctRows:
    """Merge identical rows: the mean of their targets, the sum of their weights.

    This leaves the solution unchanged. The order is that of the first rows, or with a seed that of
    :func:`shuffled`.
    """
    ones = torch.ones(len(hashes), dtype=torch.float64, device=hashes.device)
    weight = ones if sample_weight is None else sample_weight.double()
    used = (weight > 0).nonzero().flatten()
    s, t = weight[used], targets[used].double()
    group, first = _groups(hashes[used])
    pair, first_of_pair = _groups(pair_hashes(hashes, targets)[used])
    order = first.argsort() if seed is None else shuffled(hashes[used][first], seed)
    group = _inverse(order)[group]
    sorting = group[first_of_pair].argsort(stable=True)
    pair, row = _inverse(sorting)[pair], group[first_of_pair][sorting]

    def total(values: Tensor, of: Tensor, count: int) -> Tensor:
        return values.new_zeros(count, *values.shape[1:]).index_add_(0, of, values)

    weights, count = total(s, group, len(first)), total(_counts(s), pair, len(row))
    mean = total(t * s[:, None], group, len(first)) / weights[:, None]
    alike = total(count, row, len(first)).square().sum() - count.sum()
    alike_in_both = count.square().sum() - count.sum()
    single = are_observations(float(count.sum()), len(row), float(alike), float(alike_in_both))
    units, own = count if single else torch.ones_like(count), total(s, pair, len(row))
    observations = Observations(
        row, t[first_of_pair[sorting]] - mean[row], own, units, own / (units * weights[row])
    )
    place = torch.full((len(hashes),), -1, device=hashes.device)
    place[used] = pair
    return DistinctRows(used[first[order]], mean, weights, place, observations, single)


MANY = 10  # rows for each that differs, beyond which they are taken for observations
DIFFERENT = 0.2  # share of pairs of rows with the same inputs that have other targets


def are_observations(rows: float, distinct: float, alike: float, alike_in_both: float) -> bool:
    """Return whether rows alike in inputs and targets are observations, rather than copies of one.

    They are where inputs have few values: if many rows stand for each that differs, or if other
    targets are found with the same inputs. ``alike`` and ``alike_in_both`` are numbers of ordered
    pairs of rows with the same inputs, and with the same targets as well.
    """
    return rows >= MANY * distinct or alike - alike_in_both > DIFFERENT * alike


def fold_of_observations(problem: Problem, folds: int) -> Tensor:
    """Return the folds of rows in memory, over which observations of one row are spread."""
    hashes = problem.hashes
    if distinct_rows(hashes, problem.targets, problem.sample_weight).single:
        pairs = pair_hashes(hashes, problem.targets)
        order = pairs.argsort(stable=True)
        _, sizes = torch.unique_consecutive(pairs[order], return_counts=True)
        starts = torch.repeat_interleave(sizes.cumsum(0) - sizes, sizes)
        number = _inverse(order) - starts[_inverse(order)]  # among those that are alike
        hashes = _mix(pairs + 3 * number)
    return fold_of_hashes(hashes, folds)


def pair_hashes(hashes: Tensor, targets: Tensor) -> Tensor:
    """Return hashes of rows together with their targets."""
    return hashes + 3 * row_hashes(targets)  # odd, so that no bits are lost


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


def _groups(hashes: Tensor) -> tuple[Tensor, Tensor]:
    """Return the group of each row of equal hashes, and the place of the first of each group."""
    values, group = torch.unique(hashes, return_inverse=True)
    first = torch.full_like(values, len(hashes))
    places = torch.arange(len(hashes), device=hashes.device)
    return group, first.scatter_reduce_(0, group, places, "amin")


def _inverse(order: Tensor) -> Tensor:
    """Return the inverse of a permutation."""
    result = torch.empty_like(order)
    result[order] = torch.arange(len(order), device=order.device)
    return result


def _counts(weight: Tensor) -> Tensor:
    """Return weights that are counts, which are whole numbers from 1, and ones for others."""
    whole = bool((weight == weight.round()).all()) and bool((weight == 1).any())
    return weight if whole else torch.ones_like(weight)


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
