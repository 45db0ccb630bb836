"""Rows by their content: hashes, folds of cross-validation, and identical rows merged into one.

    fold = hash(row) mod folds

Order, chunks, merging and the number of processes therefore change nothing, identical rows share a
fold, and a weight of two equals a repeated row.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple, TypeAlias

import torch
from torch import Tensor

from tensorswitch._checks import check_positive

Values: TypeAlias = Callable[[Tensor], Tensor]  # of the columns of some rows

WORD = 1 << 64
HASHED_BYTES = 1 << 24  # of rows at a time
SORTED = 8  # columns of targets by which rows with the same inputs are sorted


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


def distinct_rows(
    x: Tensor, hashes: Tensor, targets: Tensor, weight: Tensor | None, seed: int | None = None
) -> DistinctRows:
    """Merge identical rows: the mean of their targets, the sum of their weights.

    This leaves the solution unchanged. Rows of equal hashes are identical; the values ``x`` show
    whether they are copies. The order is that of the first rows, or with a seed that of
    :func:`shuffled`.
    """
    ones = torch.ones(len(hashes), dtype=torch.float64, device=hashes.device)
    weight = ones if weight is None else weight.double()
    used = (weight > 0).nonzero().flatten()
    s, t = weight[used], targets[used].double()
    groups = _Groups.of(hashes[used], row_hashes(targets[used]), s)
    order = groups.first.argsort() if seed is None else shuffled(hashes[used][groups.first], seed)
    rank = _inverse(order)
    sorting = rank[groups.row_of_pair].argsort(stable=True)
    row = rank[groups.row_of_pair][sorting]
    weights = _total(s, rank[groups.row], len(order))
    mean = _total(t * s[:, None], rank[groups.row], len(order)) / weights[:, None]
    own, count = _total(s, groups.pair, len(row))[sorting], groups.counts[sorting]
    single = groups.are_single(lambda rows: x[used[rows]])
    units = count if single else torch.ones_like(count)
    offset = t[groups.first_of_pair[sorting]] - mean[row]
    observations = Observations(row, offset, own, units, own / (units * weights[row]))
    place = torch.full((len(hashes),), -1, device=hashes.device)
    place[used] = _inverse(sorting)[groups.pair]
    return DistinctRows(used[groups.first[order]], mean, weights, place, observations)


def fold_hashes(
    values: Values, hashes: Tensor, targets: Tensor, weight: Tensor | None, seen: int = 0
) -> Tensor:
    """Return hashes by which rows belong to folds: those of the rows, where these are copies.

    Where targets differ for the same inputs, or identical rows are observations, the rows of a call
    with the same inputs are spread over the folds in the order of their targets; copies stay
    together. ``seen`` is the number of rows before.
    """
    ones = torch.ones(len(hashes), dtype=torch.float64, device=hashes.device)
    s = ones if weight is None else weight.double()
    if not len(hashes):
        return hashes
    groups = _Groups.of(hashes, row_hashes(targets), s)
    single = groups.are_single(values)
    if not single and groups.differing < EVIDENCE.differing:
        return hashes
    order = s.argsort(stable=True)  # of rows that differ in nothing else
    for column in reversed(targets[:, :SORTED].t().unbind()):
        order = order[column[order].argsort(stable=True)]
    order = order[groups.row[order].argsort(stable=True)]
    new = torch.ones_like(order, dtype=torch.bool)
    if not single:
        new[1:] = groups.pair[order[1:]] != groups.pair[order[:-1]]
    number = torch.empty_like(order)
    number[order] = new.cumsum(0) - 1
    first = torch.full_like(groups.first, len(order)).scatter_reduce_(0, groups.row, number, "amin")
    return hashes + ((number - first[groups.row] + seen) << 33)  # the next fold for the next one


@dataclass(frozen=True)
class Evidence:
    """What tells observations from copies, two kinds of identical rows with identical targets.

    Where inputs have few values, rows repeat by themselves; leaving out all of them together would
    say nothing of further ones. So many times (``far``) as many pairs of identical rows as
    independent columns would have are still explained by few values, which are counted on a
    ``sample``. Rows that differ in one column only share no values: there, and in any table, so
    ``many`` rows for each that differs are no copies. Targets that differ by so much, relative to
    chance, for the same inputs show that inputs repeat by themselves; identical targets do too,
    then, if targets have few values.
    """

    far: float = 10.0
    sample: int = 1_000
    many: tuple[int, int] = (10, 50)
    differing: float = 0.2
    largest_count: float = 100.0


EVIDENCE = Evidence()


class _Groups(NamedTuple):
    """Rows in groups of identical inputs, and in pairs of identical inputs and targets."""

    row: Tensor  # the group of each row
    first: Tensor  # the first row of each group
    pair: Tensor
    first_of_pair: Tensor
    row_of_pair: Tensor
    counts: Tensor  # the number of rows in each pair, where weights may be counts
    label: Tensor  # the target of each pair, as an integer

    @classmethod
    def of(cls, hashes: Tensor, labels: Tensor, weight: Tensor) -> _Groups:
        """Group rows by hashes of inputs and of targets."""
        row, first = _grouped(hashes)
        pair, first_of_pair = _grouped(pair_hashes(hashes, labels))
        _, label = torch.unique(labels[first_of_pair], return_inverse=True)
        made = cls(row, first, pair, first_of_pair, row[first_of_pair], weight, label)
        # Whole numbers are counts, unless they are large, as those of surveys: then only where
        # each row is there once, as in a table of counts.
        whole = bool((weight == weight.round()).all())
        once = len(first_of_pair) == len(hashes) and made.few_targets
        small = len(weight) and float(weight.max()) <= EVIDENCE.largest_count
        units = weight if whole and (once or small) else torch.ones_like(weight)
        return made._replace(counts=_total(units, pair, len(first_of_pair)))

    @property
    def few_targets(self) -> bool:
        """Whether targets have few values, so that rows with other inputs share them."""
        return len(self.label) > 0 and 2 * (int(self.label.max()) + 1) <= len(self.label)

    def are_single(self, values: Values) -> bool:
        """Return whether identical rows are observations, to be left out one by one."""
        if not len(self.counts) or not bool((self.counts > 1).any()):
            return False
        if self.differing >= EVIDENCE.differing:
            return self.few_targets
        return self._few_values(values)

    @property
    def differing(self) -> float:
        """How often targets differ for the same inputs, relative to chance."""
        total = _total(self.counts, self.row_of_pair, len(self.first))
        several = total > 1
        if not bool(several.any()):
            return 0.0
        same = _total(self.counts * (self.counts - 1), self.row_of_pair, len(self.first))
        each = 1 - (same / (total * (total - 1)).clamp(min=1))[several]
        within = float((each * total[several]).sum() / total[several].sum())
        of_label = _total(self.counts, self.label, int(self.label.max()) + 1)
        rows = float(total.sum())
        chance = 1 - float((of_label * (of_label - 1)).sum()) / (rows * (rows - 1))
        return within / chance if chance > 0 else 0.0

    def _few_values(self, values: Values) -> bool:
        """Return whether few values of the columns explain that rows repeat."""
        rows, distinct = len(self.row), len(self.first)
        some, all_ = EVIDENCE.many
        if rows >= all_ * distinct:
            return True
        step = max(1, distinct // EVIDENCE.sample)
        sample = values(self.first[::step])
        m, varying, shared = len(sample), 0, True
        total = _total(self.counts, self.row_of_pair, distinct)
        expected = math.log(float(total.sum()) ** 2)
        for column in sample.t():
            _, sizes = torch.unique(column, return_counts=True)
            if len(sizes) > 1:
                varying += 1
                equal = float((sizes * (sizes - 1)).sum()) / (m * (m - 1))
                shared &= equal > 0
                expected += math.log(equal) if shared else 0.0
                if varying > 1 and not shared:
                    return False
        if varying <= 1:
            return rows >= some * distinct
        return expected >= math.log(float((total * (total - 1)).sum()) / EVIDENCE.far)


def pair_hashes(hashes: Tensor, labels: Tensor) -> Tensor:
    """Return hashes of rows together with those of their targets."""
    return hashes + 3 * labels  # odd, so that no bits are lost


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


def _grouped(hashes: Tensor) -> tuple[Tensor, Tensor]:
    """Return the group of each row of equal hashes, and the place of the first of each group."""
    values, group = torch.unique(hashes, return_inverse=True)
    first = torch.full_like(values, len(hashes))
    places = torch.arange(len(hashes), device=hashes.device)
    return group, first.scatter_reduce_(0, group, places, "amin")


def _total(values: Tensor, group: Tensor, count: int) -> Tensor:
    """Return the sum of each group."""
    return values.new_zeros(count, *values.shape[1:]).index_add_(0, group, values)


def _inverse(order: Tensor) -> Tensor:
    """Return the inverse of a permutation."""
    result = torch.empty_like(order)
    result[order] = torch.arange(len(order), device=order.device)
    return result


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
