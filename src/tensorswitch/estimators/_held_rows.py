"""A sample of rows to calibrate probabilities with."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

CALIBRATED_ROWS = 2_000


class HeldRows(NamedTuple):
    """A sample of rows to calibrate with: those with the lowest hashes.

    ``outputs`` are those of readouts that have not seen the row, or None as long as they are left
    to the sums of the folds.
    """

    hashes: Tensor
    x: Tensor
    places: np.ndarray
    weight: np.ndarray
    outputs: np.ndarray | None

    @property
    def bound(self) -> int | None:
        """Hash that a row must fall below to be taken, or None as long as all are taken."""
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
        return self.only(np.sort(self.hashes.argsort(stable=True)[:CALIBRATED_ROWS].numpy()))

    def without(self, hashes: Tensor) -> HeldRows:
        left = hashes.tolist()
        keep = []
        for place, value in enumerate(self.hashes.tolist()):
            if value in left:
                left.remove(value)
            else:
                keep.append(place)
        return self.only(np.array(keep, dtype=np.int64))
