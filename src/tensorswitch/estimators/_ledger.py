"""Which rows a model of sums contains, so that only these can be removed."""

from dataclasses import dataclass
from typing import Self

import numpy as np
import torch
from pandas.util import hash_array
from torch import Tensor

from tensorswitch.persistence import SavedPart, saved_as


@saved_as("row-ledger")
@dataclass(frozen=True)
class RowLedger(SavedPart):
    """The sum of the weights of each row, by a hash of inputs and target: 16 bytes for a row."""

    hashes: Tensor  # sorted
    weight: Tensor

    @classmethod
    def of(cls, hashes: Tensor, y: np.ndarray, weight: Tensor | None) -> Self:
        """Return the ledger of rows with these targets, which may be labels of any type."""
        words = y.dtype.kind in "OUS"
        for column in y.reshape(len(y), -1).T:
            values = column.astype(str).astype(object) if words else column.astype(np.float64)
            found = hash_array(values, categorize=False).view(np.int64)
            hashes = 31 * hashes + torch.from_numpy(found)  # odd, so that no bits are lost
        ones = torch.ones(len(hashes), dtype=torch.float64, device="cpu")
        return cls(hashes, ones if weight is None else weight.double())._summed()

    def _summed(self) -> Self:
        found, place = torch.unique(self.hashes, return_inverse=True)
        total = torch.zeros(len(found), dtype=torch.float64, device="cpu")
        return type(self)(found, total.index_add_(0, place, self.weight))

    def merge(self, other: Self) -> Self:
        """Return the ledger of the rows of both."""
        both = (
            torch.cat(pair) for pair in ((self.hashes, other.hashes), (self.weight, other.weight))
        )
        return type(self)(*both)._summed()

    def remove(self, other: Self) -> Self:
        """Return the ledger without the rows of another, or raise if they are not among these."""
        left = self.merge(type(self)(other.hashes, -other.weight))
        if strangers := int((left.weight < -1e-9).sum()):
            raise ValueError(
                f"{strangers} of {len(other.hashes)} rows are not in the model with these values, "
                "targets and weights; nothing was removed"
            )
        kept = left.weight > 1e-9
        return type(self)(left.hashes[kept], left.weight[kept])
