"""What a solver returns."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from torch import Tensor


class Solution(NamedTuple):
    """``weight`` is (n_L, …, n_1, n_0, out), as in :class:`tensorswitch.TensorSwitching`.

    Where several λ were tried, ``path`` has each with its generalised cross-validation error, from the largest down.
    """

    weight: Tensor
    alpha: float
    iterations: int = 0
    residual: float = 0.0
    path: tuple[tuple[float, float], ...] = ()


class Fit(NamedTuple):
    """The solution for one λ, with what generalised cross-validation needs where it was asked for."""

    solution: Solution
    squared_error: float = math.nan
    freedom: float = math.nan  # effective degrees of freedom, tr Z (ZᵀZ + λI)⁻¹ Zᵀ


def mean_diagonal(x: Tensor, gates: Sequence[Tensor], sample_weight: Tensor | None = None) -> float:
    """The mean of the diagonal of ``Σ s z zᵀ``."""
    energy = x.double().square().sum(1)
    for h in gates:
        energy *= h.sum(1)
    if sample_weight is not None:
        energy *= sample_weight
    return float(energy.sum()) / (x.shape[1] * math.prod(h.shape[1] for h in gates))
