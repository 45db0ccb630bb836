"""Distinct rows: identical ones become one, with their mean target and summed weight."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class DistinctRows:
    """Rows without duplicates, in an order that depends on their content and a seed alone.

    Leaving out one of two identical rows says nothing about new data, so leave-one-out leaves out
    all of them together. It also makes a weight of two equal to a repeated row.

    Parameters
    ----------
    x : ndarray of shape (distinct rows, features)
        The rows, shuffled, so that the first ones are a sample.
    targets : ndarray of shape (distinct rows, outputs)
        The weighted mean of the targets of each.
    weight : ndarray of shape (distinct rows,)
        The summed weights, with a mean of 1.
    spread : ndarray of shape (distinct rows,)
        ``Σ w (t − mean)²`` over identical rows and outputs, which no prediction can explain.
    place : ndarray of shape (rows,)
        The distinct row of each row with a positive weight.
    copies : float, default=1.0
        How many different targets a distinct row has, on average.
    """

    x: np.ndarray
    targets: np.ndarray
    weight: np.ndarray
    spread: np.ndarray
    place: np.ndarray
    copies: float = 1.0

    @classmethod
    def of(
        cls, x: np.ndarray, targets: np.ndarray, weight: np.ndarray | None, seed: int
    ) -> DistinctRows:
        """Merge identical rows.

        Parameters
        ----------
        x : ndarray of shape (rows, features)
            The inputs.
        targets : ndarray of shape (rows, outputs)
            The targets.
        weight : ndarray of shape (rows,) or None
            Sample weights, all positive.
        seed : int
            Of the shuffle.

        Returns
        -------
        DistinctRows
        """
        weight = np.ones(len(x)) if weight is None else weight / weight.mean()
        # Sorting by a keyed hash of the content is a shuffle that the order of rows cannot change,
        # and far cheaper than sorting the rows themselves.
        x = np.ascontiguousarray(x + 0.0)  # -0.0 is 0.0
        key = seed.to_bytes(8, "little")
        hashes = [hashlib.blake2b(row.data, digest_size=8, key=key).digest() for row in x]
        digests = np.frombuffer(b"".join(hashes), dtype=np.uint64)
        _, first, place = np.unique(digests, return_index=True, return_inverse=True)
        count = len(first)
        total = np.bincount(place, weight, count)
        sums = [np.bincount(place, weight * column, count) for column in targets.T]
        mean = np.stack(sums, axis=1) / total[:, None]
        squares = (np.square(targets - mean[place])).sum(1)
        spread = np.bincount(place, weight * squares, count)
        factor = total.mean()
        order = np.lexsort((*targets.T, place))
        pairs = np.column_stack([place, targets])[order]
        different = 1 + int((pairs[1:] != pairs[:-1]).any(1).sum())
        rows = x[first], mean, total / factor, spread / factor, place
        return cls(*rows, different / count)

    def __len__(self) -> int:
        return len(self.x)
