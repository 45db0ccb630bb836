"""Distinct rows in an order of their own, so that the first ones are a sample."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from tensorswitch.linear._rows import distinct_rows, row_hashes, shuffled


@dataclass(frozen=True)
class DistinctRows:
    """Rows without duplicates, in an order that depends on their content and a seed alone.

    Leaving out one of two identical rows says nothing about new data, so leave-one-out leaves out
    all of them together. It also makes a weight of two equal to a repeated row.

    Parameters
    ----------
    x : ndarray of shape (distinct rows, features)
        The rows, shuffled.
    targets : Tensor of shape (distinct rows, outputs)
        The weighted mean of the targets of each.
    weight : Tensor of shape (distinct rows,)
        The summed weights, with a mean of 1.
    spread : Tensor of shape (distinct rows,)
        ``Σ w ‖t − mean‖²`` over identical rows, which no prediction can explain.
    place : ndarray of shape (rows,)
        The distinct row of each row.
    copies : float
        How many different targets a distinct row has, on average.
    """

    x: np.ndarray
    targets: Tensor
    weight: Tensor
    spread: Tensor
    place: np.ndarray
    copies: float

    @classmethod
    def of(
        cls, x: np.ndarray, targets: np.ndarray, weight: np.ndarray | None, seed: int
    ) -> DistinctRows:
        """Merge identical rows, all of which have positive weights."""
        rows, t = torch.from_numpy(x), torch.from_numpy(targets)
        hashes = row_hashes(rows)
        found = distinct_rows(hashes, t, None if weight is None else torch.from_numpy(weight))
        order = shuffled(hashes[found.first], seed)
        rank = torch.empty_like(order)
        rank[order] = torch.arange(len(order), device=order.device)
        pairs = len(row_hashes(torch.cat([rows, t], 1)).unique())
        scale = found.weight.mean()
        return cls(
            x[found.first[order].numpy()],
            found.targets[order],
            found.weight[order] / scale,
            found.spread[order] / scale,
            rank[found.place].numpy(),
            pairs / len(order),
        )

    def __len__(self) -> int:
        return len(self.x)

    @property
    def weighted(self) -> bool:
        """Whether the weights differ."""
        return bool(self.weight.min() < self.weight.max())
