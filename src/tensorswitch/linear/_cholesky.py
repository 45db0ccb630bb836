"""Symmetric matrices stored in panels, with a Cholesky factorisation that works at any order.

The lower triangle is stored as panels of consecutive rows, each of which extends from the first
column to its own diagonal block; this halves the memory. The factorisation consists of matrix
products and triangular solves of one panel at a time, so no LAPACK call sees more than ``PANEL``
rows. Some builds of OpenBLAS crash when they factorise a whole matrix of order 32,768 or more.

See [1]_ for a related format.

References
----------
.. [1] F. G. Gustavson, J. Waśniewski, J. J. Dongarra and J. Langou, "Rectangular Full Packed Format
   for Cholesky's Algorithm: Factorization, Solution, and Inversion", ACM TOMS 37(2), 2010.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from scipy.linalg.lapack import dtrtri, strtri
from torch import Tensor

from tensorswitch._memory import empty

PANEL = 1024  # rows: large enough for fast products, small enough to waste little memory
FILL_BYTES = 1 << 21  # requested from ``rows`` at a time


class SingularError(ValueError):
    """Raised when a system is too ill-conditioned for a reliable solution."""


class SymmetricPanels:
    """The lower triangle of a symmetric matrix, whose panels follow each other in a vector."""

    def __init__(self, order: int, vector: Tensor, panel: int = PANEL) -> None:
        self.order, self.spans = order, _spans(order, panel)
        shapes = [(stop - start, stop) for start, stop in self.spans]
        parts = vector.split([rows * columns for rows, columns in shapes])
        self.panels = [part.view(shape) for part, shape in zip(parts, shapes, strict=True)]

    @classmethod
    def from_rows(
        cls,
        order: int,
        rows: Callable[[int, int], Tensor],
        like: Tensor,
        multiple: int = 1,
        panel: int = PANEL,
    ) -> SymmetricPanels:
        """Copy a matrix from ``rows(start, stop)``, a few times ``multiple`` rows at a time."""
        matrix = cls(order, empty((_length(order, panel),), like.dtype, like.device), panel)
        few = FILL_BYTES // (max(1, order) * multiple * like.element_size())
        step = max(1, few) * multiple
        for (start, stop), target in zip(matrix.spans, matrix.panels, strict=True):
            for begin in range(start, stop, step):
                end = min(begin + step, stop)
                target[begin - start : end - start] = rows(begin, end)[:, :stop]
        return matrix

    def diagonal(self) -> Tensor:
        """Return a copy of the diagonal."""
        corners = zip(self.spans, self.panels, strict=True)
        return torch.cat([panel[:, start:].diagonal() for (start, _), panel in corners])

    def __matmul__(self, right: Tensor) -> Tensor:
        """Return ``A right`` in float64; each panel is multiplied in its own type."""
        v = right.to(self.panels[0].dtype)
        result = torch.zeros(right.shape, dtype=torch.float64, device=right.device)
        for (start, stop), panel in zip(self.spans, self.panels, strict=True):
            result[start:stop] += panel @ v[:stop]
            result[:start] += panel[:, :start].mT @ v[start:stop]
        return result

    def add_outer(self, vector: Tensor, factor: float) -> None:
        """Add ``factor · v vᵀ``."""
        v = vector.to(self.panels[0].dtype)
        for (start, stop), panel in zip(self.spans, self.panels, strict=True):
            panel.addr_(v[start:stop], v[:stop], alpha=factor)

    def isolate(self, places: Tensor, value: float) -> None:
        """Replace some rows and columns by those of ``value`` times the identity."""
        for place in places.tolist():
            for (start, stop), panel in zip(self.spans, self.panels, strict=True):
                if start <= place < stop:
                    panel[place - start] = 0
                    panel[:, place] = 0
                    panel[place - start, place] = value
                elif place < start:
                    panel[:, place] = 0

    def add_products(self, z: Tensor, factor: float) -> None:
        """Add ``factor · zᵀ z`` with half of its operations."""
        for (start, stop), panel in zip(self.spans, self.panels, strict=True):
            panel.addmm_(z[:, start:stop].mT, z[:, :stop], alpha=factor)

    def cholesky(self, shift: float = 0.0) -> CholeskyFactor:
        """Factorise ``A + shift · I``, overwriting the matrix."""
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


class PackedPanels:
    """``Σ z zᵀ`` as one vector with all panels, to which sums of other rows can be added."""

    def __init__(self, order: int) -> None:
        self.order = order
        self.shape: tuple[int, ...] = (_length(order, PANEL),)

    def view(self, gram: Tensor) -> SymmetricPanels:
        """Return the panels without copying them."""
        return SymmetricPanels(self.order, gram)

    def panels(self, gram: Tensor) -> SymmetricPanels:
        """Return a copy that can be factorised."""
        return self.view(gram.clone())

    def product(self, gram: Tensor, weight: Tensor) -> Tensor:
        """Return ``(Σ z zᵀ) W``; the products of panels are added up in float64."""
        return self.view(gram) @ weight

    def diagonal(self, gram: Tensor) -> Tensor:
        """Return the diagonal in float64."""
        return self.view(gram).diagonal().double()


class CholeskyFactor:
    """The Cholesky factor L of ``A = L Lᵀ``, in the memory of the matrix."""

    def __init__(self, matrix: SymmetricPanels) -> None:
        self.order, self.spans, self.panels = matrix.order, matrix.spans, matrix.panels
        pivots = torch.cat([corner.diagonal() for corner in self._corners()]).double().square()
        # The smallest pivot is an upper bound of the smallest eigenvalue. The comparison is
        # written so that NaN raises too.
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

    def _corners(self) -> list[Tensor]:
        return [panel[:, s:] for (s, _), panel in zip(self.spans, self.panels, strict=True)]


class DenseFactor:
    """The Cholesky factor of ``A + shift · I`` for a matrix that LAPACK can take as a whole."""

    def __init__(self, matrix: Tensor, shift: float) -> None:
        # Transposed, columns are contiguous, as LAPACK wants them; other layouts cost two copies.
        self.factor = matrix.clone().mT
        self.factor.diagonal().add_(shift)
        info = torch.empty((), dtype=torch.int32, device=matrix.device)
        torch.linalg.cholesky_ex(self.factor, out=(self.factor, info))
        if int(info):
            raise _singular(matrix.dtype)

    def solve(self, right: Tensor) -> Tensor:
        """Return ``A⁻¹ right``, in a third of the time of torch.cholesky_solve, which copies L."""
        half = torch.linalg.solve_triangular(self.factor, right, upper=False)
        return torch.linalg.solve_triangular(self.factor.mT, half, upper=True)

    def inverse_diagonal(self) -> Tensor:
        """Return the diagonal of ``A⁻¹``, with half the work of the inverse itself."""
        invert = dtrtri if self.factor.dtype == torch.float64 else strtri
        inverse, _ = invert(np.asfortranarray(self.factor.cpu().numpy()), lower=1)
        return torch.from_numpy(np.einsum("ij,ij->j", inverse, inverse)).to(self.factor.device)


def _length(order: int, panel: int) -> int:
    return sum((stop - start) * stop for start, stop in _spans(order, panel))


def _spans(order: int, panel: int) -> list[tuple[int, int]]:
    return [(start, min(start + panel, order)) for start in range(0, order, panel)]


def _singular(dtype: torch.dtype) -> SingularError:
    hint = "" if dtype == torch.float64 else ", or float64"
    return SingularError(f"the system is singular to working precision; use a larger alpha{hint}")
