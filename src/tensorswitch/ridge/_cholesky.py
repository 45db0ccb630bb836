"""Symmetric matrices in panels: half the memory, and a Cholesky factorisation of any order.

The lower triangle is kept as panels of consecutive rows, each from the first column to its own
part of the diagonal. All work is matrix products and triangular solutions of one panel at a time,
so that no LAPACK call sees more than ``PANEL`` rows. Factorising a whole matrix at once crashes in
some builds of OpenBLAS from an order of about 32,768 on.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from tensorswitch._memory import empty

PANEL = 1024  # rows: long products, and little wasted above the diagonal
FILL_BYTES = 1 << 21  # of the matrix that is asked for at a time


class SingularError(ValueError):
    """The system has no solution that could be trusted."""


class SymmetricPanels:
    """The lower triangle of a symmetric matrix, in panels of rows.

    Parameters
    ----------
    order : int
        Rows and columns.
    dtype : torch.dtype
        Of the entries, which are not initialised.
    device : torch.device
        Where they are.
    panel : int, default=1024
        Rows of a panel.
    """

    def __init__(
        self, order: int, dtype: torch.dtype, device: torch.device, panel: int = PANEL
    ) -> None:
        self.order = order
        self.spans = [(s, min(s + panel, order)) for s in range(0, order, panel)]
        self.panels = [empty((stop - start, stop), dtype, device) for start, stop in self.spans]

    @classmethod
    def from_rows(
        cls,
        order: int,
        rows: Callable[[int, int], Tensor],
        like: Tensor,
        multiple: int = 1,
        panel: int = PANEL,
    ) -> SymmetricPanels:
        """Copy a matrix from ``rows(start, stop)``, asking for a few rows at a time.

        ``multiple`` is the number of rows that are cheapest to ask for together.
        """
        matrix = cls(order, like.dtype, like.device, panel)
        few = FILL_BYTES // (max(1, order) * multiple * like.element_size())
        step = max(1, few) * multiple
        for (start, stop), target in zip(matrix.spans, matrix.panels, strict=True):
            for begin in range(start, stop, step):
                end = min(begin + step, stop)
                target[begin - start : end - start] = rows(begin, end)[:, :stop]
        return matrix

    def cholesky(self, shift: float = 0.0) -> CholeskyFactor:
        """Factorise ``A + shift · I``. The matrix is overwritten.

        Raises
        ------
        SingularError
            If the matrix is not positive definite to working precision.
        """
        for (start, stop), panel in zip(self.spans, self.panels, strict=True):
            panel[:, start:stop].diagonal().add_(shift)
        for k, (start, stop) in enumerate(self.spans):
            corner = self.panels[k][:, start:stop]
            factor, info = torch.linalg.cholesky_ex(corner)
            if int(info):
                raise _singular(corner.dtype)
            corner.copy_(factor)
            if stop == self.order:
                break
            below = corner.new_empty(self.order - stop, stop - start)
            for (first, last), panel in zip(self.spans[k + 1 :], self.panels[k + 1 :], strict=True):
                mine, left = below[first - stop : last - stop], panel[:, start:stop]
                mine[:] = torch.linalg.solve_triangular(factor.mT, left, upper=True, left=False)
                left.copy_(mine)
                panel[:, stop:].addmm_(mine, below[: last - stop].mT, alpha=-1)
        return CholeskyFactor(self)


class CholeskyFactor:
    """The factor L of ``A = L Lᵀ``, where the matrix was."""

    def __init__(self, matrix: SymmetricPanels) -> None:
        self.order, self.spans, self.panels = matrix.order, matrix.spans, matrix.panels
        pivots = torch.cat([corner.diagonal() for corner in self._corners()]).double().square()
        # The smallest pivot bounds the smallest eigenvalue from above. False if it is NaN.
        dtype = self.panels[0].dtype
        if not float(pivots.min()) > torch.finfo(dtype).eps * float(pivots.max()):
            raise _singular(dtype)

    def solve(self, right: Tensor) -> Tensor:
        """Return ``A⁻¹ right``, for ``right`` of shape (order, columns)."""
        x = right.to(self.panels[0].dtype, copy=True)
        rows = list(zip(self.spans, self.panels, self._corners(), strict=True))
        for (start, stop), panel, corner in rows:
            x[start:stop] -= panel[:, :start] @ x[:start]
            x[start:stop] = torch.linalg.solve_triangular(corner, x[start:stop], upper=False)
        for (start, stop), panel, corner in reversed(rows):
            x[start:stop] = torch.linalg.solve_triangular(corner.mT, x[start:stop], upper=True)
            x[:start] -= panel[:, :start].mT @ x[start:stop]
        return x

    def inverse_diagonal(self) -> Tensor:
        """Return the diagonal of ``A⁻¹``: the squared lengths of the columns of ``L⁻¹``."""
        corners = self._corners()
        result = torch.empty(self.order, dtype=torch.float64, device=self.panels[0].device)
        for k, (start, stop) in enumerate(self.spans):
            eye = torch.eye(stop - start, dtype=corners[k].dtype, device=corners[k].device)
            column = torch.linalg.solve_triangular(corners[k], eye, upper=False)
            found = column.new_zeros(self.order - start, stop - start)
            found[: stop - start] = column
            for j in range(k + 1, len(self.spans)):
                first, last = self.spans[j]
                sums = self.panels[j][:, start:first] @ found[: first - start]
                part = torch.linalg.solve_triangular(corners[j], sums, upper=False)
                found[first - start : last - start] = -part
            result[start:stop] = found.double().square().sum(0)
        return result

    def inverse_trace(self) -> float:
        """Return the trace of ``A⁻¹``."""
        return float(self.inverse_diagonal().sum())

    def _corners(self) -> list[Tensor]:
        return [panel[:, s:] for (s, _), panel in zip(self.spans, self.panels, strict=True)]


def _singular(dtype: torch.dtype) -> SingularError:
    hint = "" if dtype == torch.float64 else ", or float64"
    return SingularError(f"the system is singular to working precision; use a larger alpha{hint}")
