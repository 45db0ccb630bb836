"""What a readout is linear in: ``z = φ(x)``, known by its products and never formed as a whole.

apply        φ(X) W              predictions, conjugate gradients
adjoint      φ(X)ᵀ R             conjugate gradients, weights of the dual solver
gram         φ(X) φ(Y)ᵀ          dual solver, preconditioner, leave-one-out
accumulate   Σ s z zᵀ, Σ s z tᵀ  streaming solver, in a packed layout of its own
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol, Self

import torch
from torch import Tensor

from tensorswitch.linear._cholesky import SymmetricPanels
from tensorswitch.linear._rows import row_hashes
from tensorswitch.switches import Routes

BLOCK_BYTES = 1 << 26  # of outputs, or of expanded errors, that a solver makes at a time
CHUNK_BYTES = 1 << 27  # of given columns that are made at a time, before they are summed
Change = Callable[[slice, Tensor], Tensor]


@dataclass(frozen=True)
class RowsOf:
    """Inputs with the gates that they open in each layer, so that gates are computed once."""

    x: Tensor
    gates: tuple[Tensor, ...] = ()

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, index: slice | Tensor) -> RowsOf:
        return RowsOf(self.x[index], tuple(h[index] for h in self.gates))

    def times(self, factor: Tensor | float) -> RowsOf:
        """Return the rows with inputs times a factor, and the same gates."""
        return RowsOf(self.x * factor, self.gates)

    def to(self, dtype: torch.dtype) -> RowsOf:
        """Return the rows with inputs of another type, and the same gates."""
        return RowsOf(self.x.to(dtype), self.gates)


class Packing(Protocol):
    """The layout in which the symmetric matrix ``Σ z zᵀ`` is accumulated, and its uses."""

    shape: tuple[int, ...]

    def panels(self, gram: Tensor) -> SymmetricPanels:
        """Return a copy that can be factorised."""

    def product(self, gram: Tensor, weight: Tensor) -> Tensor:
        """Return ``(Σ z zᵀ) W``, accumulated in float64."""

    def diagonal(self, gram: Tensor) -> Tensor:
        """Return the diagonal in float64."""


class Representation(ABC):
    """A map ``z = φ(x)`` that offers four products, of which each solver needs some.

    They are :meth:`apply`, :meth:`adjoint`, :meth:`gram` and :meth:`accumulate`. ``W`` has the
    shape (features, out), with features in the order of ``shape``.

    Attributes
    ----------
    shape : tuple of int
        The axes that the features stand for: (n_L, …, n_1, n_0), or (features,).
    in_features : int
        Number of inputs n_0.

    Examples
    --------
    >>> import torch
    >>> from tensorswitch.linear import Columns, Copies
    >>> x = torch.tensor([[1.0, 2.0], [3.0, -4.0]])
    >>> copies = Copies([torch.tensor([[1.0, 0.0], [0.0, 1.0]])])
    >>> copies.features, copies.apply(copies.rows(x), torch.ones(4, 1)).tolist()
    (4, [[6.0], [-1.0]])
    >>> copies.gram(copies.rows(x)).tolist()
    [[10.0, -5.0], [-5.0, 25.0]]
    """

    shape: tuple[int, ...]
    in_features: int
    packing: Packing

    @property
    def features(self) -> int:
        """Length of z."""
        return math.prod(self.shape)

    @property
    def gram_shape(self) -> tuple[int, ...]:
        """The shape of packed ``Σ z zᵀ``."""
        return self.packing.shape

    @property
    def dtype(self) -> torch.dtype | None:
        """The type that rows must have; None for any."""
        return None

    @abstractmethod
    def rows(self, x: Tensor, routes: Tensor | Routes | None = None) -> RowsOf:
        """Return rows with their gates, one for each row of the targets.

        Parameters
        ----------
        x : Tensor of shape (rows, n_0)
            The inputs.
        routes : bool Tensor of shape (rows, units) or Routes, optional
            The gates, where they do not follow from weights.
        """

    def apply(self, rows: RowsOf, weight: Tensor) -> Tensor:
        """Return ``φ(X) W``, of shape (rows, out), in blocks of rows.

        Parameters
        ----------
        rows, weight : RowsOf, and Tensor of shape (features, out)
            The rows, and W.
        """
        parts = [self._apply(rows[part], weight) for part in self._blocks(rows, weight.shape[1])]
        return parts[0] if len(parts) == 1 else torch.cat(parts)

    def adjoint(self, rows: RowsOf, errors: Tensor) -> Tensor:
        """Return ``φ(X)ᵀ R``, of shape (features, out), summed over blocks of rows.

        Parameters
        ----------
        rows, errors : RowsOf, and Tensor of shape (rows, out)
            The rows, and R.
        """
        result = errors.new_zeros(self.features, errors.shape[1])
        for part in self._blocks(rows, errors.shape[1]):
            result += self._adjoint(rows[part], errors[part])
        return result

    def normal(self, rows: RowsOf, weight: Tensor, change: Change | None = None) -> Tensor:
        """Return ``φ(X)ᵀ φ(X) W``, with both products of a block while it is in the cache.

        Parameters
        ----------
        rows, weight : RowsOf, and Tensor of shape (features, out)
            The rows, and W.
        change : callable, optional
            ``change(part, outputs)`` replaces the outputs of some rows on the way.
        """
        result = torch.zeros_like(weight)
        for part in self._blocks(rows, weight.shape[1]):
            block = rows[part]
            outputs = self._apply(block, weight)
            result += self._adjoint(block, outputs if change is None else change(part, outputs))
        return result

    def gram(self, rows: RowsOf, other: RowsOf | None = None) -> Tensor:
        """Return ``φ(X) φ(Y)ᵀ = (X Yᵀ) ∘ Π_l (H_l G_lᵀ)``, of shape (rows, other rows).

        Parameters
        ----------
        rows, other : RowsOf, and RowsOf, optional
            X with gates H, and Y with gates G; by default X.
        """
        other = rows if other is None else other
        kernel = rows.x @ other.x.t()
        for h, g in zip(rows.gates, other.gates, strict=True):
            kernel *= h.to(kernel.dtype) @ g.to(kernel.dtype).t()
        return kernel

    @abstractmethod
    def accumulate(
        self, gram: Tensor, cross: Tensor, rows: RowsOf, targets: Tensor, sign: int = 1
    ) -> None:
        """Add ``Σ z zᵀ`` and ``Σ z tᵀ`` of some rows, in place.

        Parameters
        ----------
        gram, cross : Tensor of shape ``gram_shape`` and (features, out)
            The sums of products of features, packed, and of products with targets.
        rows, targets : RowsOf and Tensor of shape (rows, out)
            Rows and targets, times the roots of their weights.
        sign : {1, -1}, default=1
            −1 subtracts the rows.
        """

    def mean_square(self, rows: RowsOf, sample_weight: Tensor | None = None) -> float:
        """Return the mean of the diagonal of ``Σ s z zᵀ``, the paper's choice of λ.

            Σ s ‖x‖² Π_l (open gates of layer l) / features

        Parameters
        ----------
        rows, sample_weight : RowsOf, and Tensor of shape (rows,), optional
            The rows, and their weights s, 1 by default.
        """
        total = 0.0
        for part in self._blocks(rows, 1):
            block = rows[part]
            energy = block.x.double().square().sum(1)
            for h in block.gates:
                energy *= h.sum(1)
            energy = energy if sample_weight is None else energy * sample_weight[part]
            total += float(energy.sum())
        return total / self.features

    def hashes(self, rows: RowsOf) -> Tensor:
        """Return a hash of each row, in int64; rows of equal representations have the same."""
        return row_hashes(rows.x)

    @abstractmethod
    def differences(self, other: Representation) -> str:
        """Return how another representation differs, or "" if sums of both can be added."""

    @abstractmethod
    def state(self) -> dict[str, Any]:
        """Return what files keep of it."""

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> Self:
        """Return the representation of a state."""
        return cls(**state)

    def _blocks(self, rows: RowsOf, out: int) -> Iterator[slice]:
        """Yield slices of rows whose outputs and expanded errors fit into the cache."""
        step = max(64, self._block_rows(out, rows.x.element_size()))
        # Once for no rows, for the shape of results.
        for start in range(0, max(1, len(rows)), step):
            yield slice(start, start + step)

    @abstractmethod
    def _block_rows(self, out: int, size: int) -> int: ...

    @abstractmethod
    def _apply(self, rows: RowsOf, weight: Tensor) -> Tensor: ...

    @abstractmethod
    def _adjoint(self, rows: RowsOf, errors: Tensor) -> Tensor: ...
