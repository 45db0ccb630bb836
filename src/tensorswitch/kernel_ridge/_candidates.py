"""Kernels that are tried, and their errors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from torch import Tensor

from tensorswitch.preprocessing import ColumnMap

Shape = tuple[float, str, int]  # constant, kind and depth
CLOSE = 1.1  # errors, as a multiple of the least, with which kernels are rivals


@dataclass(frozen=True)
class Candidate:
    """A kernel on scaled columns, and its error on some rows.

    Parameters
    ----------
    columns : ColumnMap
        The scaling, with column weights.
    bias : float
        The constant column.
    kind, depth : str and int
        The kernel.
    rows : int
        How many rows it was tried on.
    penalty : float
        The best λ, in multiples of the mean diagonal of the centred kernel matrix.
    error : float
        Its mean squared leave-one-out error.
    judged : float
        The same, raised for column weights that were learned from the same rows.
    coef : Tensor of shape (rows, outputs) or None
        The solution.
    """

    columns: ColumnMap
    bias: float
    kind: str
    depth: int
    rows: int = 0
    penalty: float = 0.0
    error: float = np.inf
    judged: float = np.inf
    coef: Tensor | None = field(default=None, repr=False, compare=False)

    @property
    def shape(self) -> Shape:
        """Constant, kind and depth."""
        return self.bias, self.kind, self.depth

    @property
    def ramps(self) -> bool:
        """Whether the columns are ramps."""
        return self.columns.kind == "ramps"


def rivals_of(ranked: Sequence[Candidate]) -> list[Candidate]:
    """Return the best kernels of ramps and of columns, or only one if it is clearly better."""
    best = ranked[0]
    other = next((c for c in ranked if c.ramps != best.ramps), None)
    return [best] if other is None or other.judged > CLOSE * best.judged else [best, other]


def table_of(tried: Sequence[Candidate]) -> dict[str, list[float | str]]:
    """Return candidates as the columns of a table."""
    names = ("kind", "depth", "bias", "penalty", "rows", "error")
    return {
        "scaling": [c.columns.kind for c in tried],
        "weights": [c.columns.power for c in tried],
        **{name: [getattr(c, name) for c in tried] for name in names},
    }
