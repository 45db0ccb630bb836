"""A sample of rows to calibrate probabilities with."""

from __future__ import annotations

from collections import defaultdict
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

CALIBRATED_ROWS = 2_000
FADED = 1e-3  # of the largest weight in its class, below which a row is forgotten


class HeldRows(NamedTuple):
    """A sample of rows to calibrate with: those with the lowest hashes.

    A row that is repeated with the same class is held once, with the sum of its weights, so that
    tables with few different rows are sampled as a whole. ``outputs`` are those of readouts that
    have not seen the row, or None as long as they are left to the sums of the folds.
    """

    hashes: Tensor
    x: Tensor
    places: np.ndarray
    weight: np.ndarray
    outputs: np.ndarray | None

    @property
    def bound(self) -> int | None:
        """Largest hash of a row that is taken, or None as long as all are taken."""
        return int(self.hashes.max()) if len(self.hashes) >= CALIBRATED_ROWS else None

    @classmethod
    def none(cls, like: Tensor) -> HeldRows:
        """Return a sample without rows, with the features and the type of ``like``."""
        hashes, x = like.new_empty(0, dtype=torch.int64), torch.empty_like(like[:0])
        return cls(hashes, x, np.empty(0, dtype=np.int64), np.empty(0), None)

    def only(self, rows: Any) -> HeldRows:
        outputs = None if self.outputs is None else self.outputs[rows]
        index = torch.as_tensor(rows, device=self.x.device)
        return HeldRows(
            self.hashes[index], self.x[index], self.places[rows], self.weight[rows], outputs
        )

    def joined(self, other: HeldRows) -> HeldRows:
        both = HeldRows(
            torch.cat([self.hashes, other.hashes]),
            torch.cat([self.x, other.x]),
            np.concatenate([self.places, other.places]),
            np.concatenate([self.weight, other.weight]),
            None,
        )
        return both.lowest()

    def lowest(self) -> HeldRows:
        rows, weight = lowest_rows(self.hashes.numpy(), self.places, self.weight)
        return self.only(rows)._replace(weight=weight)

    def without(self, hashes: Tensor, places: np.ndarray, weight: np.ndarray) -> HeldRows:
        """Subtract the weights of rows, and drop those that have none left."""
        removed: dict[tuple[int, int], float] = defaultdict(float)
        for key, less in zip(
            zip(hashes.tolist(), places.tolist(), strict=True), weight.tolist(), strict=True
        ):
            removed[key] += less
        keys = zip(self.hashes.tolist(), self.places.tolist(), strict=True)
        left = self.weight - np.array([removed.get(key, 0.0) for key in keys])
        kept = np.flatnonzero(left > 1e-9 * self.weight)
        return self.only(kept)._replace(weight=left[kept], outputs=None)

    def faded(self, factor: float) -> HeldRows:
        """Multiply the weights, and drop rows whose weight no longer matters."""
        largest = np.zeros(self.places.max(initial=0) + 1)
        np.maximum.at(largest, self.places, self.weight)
        kept = np.flatnonzero(self.weight > FADED * largest[self.places])
        return self.only(kept)._replace(weight=factor * self.weight[kept], outputs=None)


def lowest_rows(
    hashes: np.ndarray, places: np.ndarray, weight: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return the places of rows of the lowest hashes, each class once, and the sums of weights."""
    order = np.lexsort((places, hashes))
    rows, classes = hashes[order], places[order]
    new = np.ones(len(order), dtype=bool)
    new[1:] = (rows[1:] != rows[:-1]) | (classes[1:] != classes[:-1])
    starts = np.flatnonzero(new)
    total = np.add.reduceat(weight[order], starts) if len(starts) else np.empty(0)
    return order[starts[:CALIBRATED_ROWS]], total[:CALIBRATED_ROWS]
