"""Kernels that are tried, and their errors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from torch import Tensor

from tensorswitch.kernel_ridge._scaling import Scaling

Shape = tuple[float, str, int]  # constant, kind and depth
CLOSE = 1.1  # errors, as a multiple of the least, with which kernels are rivals


@dataclass(frozen=True)
class Candidate:
    """A kernel on scaled columns, and its error on some rows.

    Parameters
    ----------
    scaling : Scaling
        Of the columns.
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

    scaling: Scaling
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
        return self.scaling.name == "ramps"

    def entry(self) -> dict[str, Any]:
        """Return its row in a table of candidates."""
        names = ("kind", "depth", "bias", "penalty", "rows", "error")
        scaling = {"scaling": self.scaling.name, "weights": self.scaling.power}
        return {**scaling, **{name: getattr(self, name) for name in names}}


def rivals_of(ranked: Sequence[Candidate]) -> list[Candidate]:
    """Return the best kernels of ramps and of columns, or only one if it is clearly better.

    Parameters
    ----------
    ranked : sequence of Candidate
        The best first.

    Returns
    -------
    list of Candidate
        One or two, the best first.
    """
    best = ranked[0]
    other = next((c for c in ranked if c.ramps != best.ramps), None)
    return [best] if other is None or other.judged > CLOSE * best.judged else [best, other]
