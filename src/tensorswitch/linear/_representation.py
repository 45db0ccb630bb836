"""What a readout is linear in: ``z = φ(x)``, known by its products and never formed as a whole."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Self

import torch
from torch import Tensor

from tensorswitch.linear._cholesky import SymmetricPanels
from tensorswitch.switches import Routes

BLOCK_BYTES = 1 << 26  # of outputs, or of expanded errors, made at a time
Change = Callable[[slice, Tensor], Tensor]


@dataclass(frozen=True)
class RowsOf:
    """Rows of inputs with the gates they open, so that gates are computed once.

    Parameters
    ----------
    x : Tensor of shape (rows, n_0)
        The inputs.
    gates : tuple of bool Tensor of shape (rows, n_l)
        The gates of each layer; none for columns that are given.
    """

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


class Representation(ABC):
    """A map ``z = φ(x)`` that offers four products, of which each solver needs some.

        apply        φ(X) W              predictions, conjugate gradients
        adjoint      φ(X)ᵀ R             conjugate gradients, weights of the dual solver
        gram         φ(X) φ(Y)ᵀ          dual solver, preconditioner, leave-one-out
        accumulate   Σ s z zᵀ, Σ s z tᵀ  streaming solver, in a packed layout of its own

    ``W`` has the shape (features, out), with features in the order of ``shape``.

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

    @property
    def features(self) -> int:
        """Length of z."""
        return math.prod(self.shape)

    @property
    def dtype(self) -> torch.dtype | None:
        """The type that rows must have; None for any."""
        return None

    @abstractmethod
    def rows(self, x: Tensor, routes: Tensor | Routes | None = None) -> RowsOf:
        """Return rows with their gates.

        Parameters
        ----------
        x : Tensor of shape (rows, n_0)
            The inputs.
        routes : bool Tensor of shape (rows, units) or Routes, optional
            The gates, where they do not follow from weights.

        Returns
        -------
        RowsOf
            One row for each row of the targets.
        """

    def apply(self, rows: RowsOf, weight: Tensor) -> Tensor:
        """Return ``φ(X) W``, in blocks of rows.

        Parameters
        ----------
        rows : RowsOf
            The rows.
        weight : Tensor of shape (features, out)
            W.

        Returns
        -------
        Tensor of shape (rows, out)
        """
        parts = [self._apply(rows[part], weight) for part in self.blocks(rows, weight.shape[1])]
        return parts[0] if len(parts) == 1 else torch.cat(parts)

    def adjoint(self, rows: RowsOf, errors: Tensor) -> Tensor:
        """Return ``φ(X)ᵀ R``, summed over blocks of rows.

        Parameters
        ----------
        rows : RowsOf
            The rows.
        errors : Tensor of shape (rows, out)
            R.

        Returns
        -------
        Tensor of shape (features, out)
        """
        result = errors.new_zeros(self.features, errors.shape[1])
        for part in self.blocks(rows, errors.shape[1]):
            result += self._adjoint(rows[part], errors[part])
        return result

    def normal(self, rows: RowsOf, weight: Tensor, change: Change | None = None) -> Tensor:
        """Return ``φ(X)ᵀ φ(X) W``, with both products of a block while it is in the cache.

        Parameters
        ----------
        rows : RowsOf
            The rows.
        weight : Tensor of shape (features, out)
            W.
        change : callable, optional
            ``change(part, outputs)`` replaces the outputs of some rows on the way.

        Returns
        -------
        Tensor of shape (features, out)
        """
        result = torch.zeros_like(weight)
        for part in self.blocks(rows, weight.shape[1]):
            block = rows[part]
            outputs = self._apply(block, weight)
            result += self._adjoint(block, outputs if change is None else change(part, outputs))
        return result

    @abstractmethod
    def gram(self, rows: RowsOf, other: RowsOf | None = None) -> Tensor:
        """Return ``φ(X) φ(Y)ᵀ``.

        Parameters
        ----------
        rows : RowsOf
            X.
        other : RowsOf, optional
            Y, by default X.

        Returns
        -------
        Tensor of shape (rows, other rows)
        """

    @abstractmethod
    def accumulate(
        self, gram: Tensor, cross: Tensor, rows: RowsOf, targets: Tensor, sign: int = 1
    ) -> None:
        """Add ``Σ z zᵀ`` and ``Σ z tᵀ`` of some rows, in place.

        Parameters
        ----------
        gram : Tensor of shape ``gram_shape``
            The sums of products of features, packed.
        cross : Tensor of shape (features, out)
            The sums of products with targets.
        rows : RowsOf
            The rows, times the root of their weights.
        targets : Tensor of shape (rows, out)
            The targets, times the root of their weights.
        sign : {1, -1}, default=1
            −1 subtracts the rows.
        """

    @property
    @abstractmethod
    def gram_shape(self) -> tuple[int, ...]:
        """The shape of packed ``Σ z zᵀ``."""

    @abstractmethod
    def panels(self, gram: Tensor) -> SymmetricPanels:
        """Return a copy of packed ``Σ z zᵀ`` that can be factorised.

        Parameters
        ----------
        gram : Tensor of shape ``gram_shape``
            The sums.

        Returns
        -------
        SymmetricPanels
        """

    @abstractmethod
    def product(self, gram: Tensor, weight: Tensor) -> Tensor:
        """Return ``(Σ z zᵀ) W`` from packed sums, accumulated in float64.

        Parameters
        ----------
        gram : Tensor of shape ``gram_shape``
            The sums.
        weight : Tensor of shape (features, out)
            W.

        Returns
        -------
        Tensor of shape (features, out)
        """

    @abstractmethod
    def diagonal(self, gram: Tensor) -> Tensor:
        """Return the diagonal of packed ``Σ z zᵀ``, in float64.

        Parameters
        ----------
        gram : Tensor of shape ``gram_shape``
            The sums.

        Returns
        -------
        Tensor of shape (features,)
        """

    @abstractmethod
    def mean_square(self, rows: RowsOf, sample_weight: Tensor | None = None) -> float:
        """Return the mean of the diagonal of ``Σ s z zᵀ``, the paper's choice of λ.

        Parameters
        ----------
        rows : RowsOf
            The rows.
        sample_weight : Tensor of shape (rows,), optional
            Weights s of the rows, 1 by default.

        Returns
        -------
        float
            Summed in float64.
        """

    @abstractmethod
    def hashes(self, rows: RowsOf) -> Tensor:
        """Return a hash of each row; rows of equal representations have the same.

        Parameters
        ----------
        rows : RowsOf
            The rows.

        Returns
        -------
        Tensor of int64 of shape (rows,)
        """

    @abstractmethod
    def differences(self, other: Representation) -> str:
        """Return how another representation differs, or "" if sums of both can be added.

        Parameters
        ----------
        other : Representation
            Another representation.

        Returns
        -------
        str
        """

    @abstractmethod
    def state(self) -> dict[str, Any]:
        """Return what files keep of it."""

    @classmethod
    @abstractmethod
    def from_state(cls, state: dict[str, Any]) -> Self:
        """Return the representation of a state."""

    def check(self, x: Tensor, dtype: torch.dtype, device: torch.device) -> None:
        """Raise unless inputs have the type and the device of the sums they are added to.

        Parameters
        ----------
        x : Tensor
            The inputs.
        dtype, device : torch.dtype and torch.device
            Those of the sums.
        """
        if x.device != device:
            raise ValueError(f"x is on {x.device}, but the sums are on {device}")
        if x.dtype != dtype:
            raise TypeError(f"x is {x.dtype}, but the sums are {dtype}; convert it with .to()")

    def blocks(self, rows: RowsOf, out: int) -> Iterator[slice]:
        """Yield slices of rows whose outputs and expanded errors fit into the cache.

        Parameters
        ----------
        rows : RowsOf
            The rows.
        out : int
            Number of outputs.

        Yields
        ------
        slice
        """
        width = max(1, self.expanded(out)) * rows.x.element_size()
        step = max(64, min(8192, BLOCK_BYTES // width))
        for start in range(0, max(1, len(rows)), step):
            yield slice(start, start + step)

    def expanded(self, out: int) -> int:
        """Return how many numbers a row has between the two factors of a product.

        Parameters
        ----------
        out : int
            Number of outputs.

        Returns
        -------
        int
        """
        return out

    @abstractmethod
    def _apply(self, rows: RowsOf, weight: Tensor) -> Tensor: ...

    @abstractmethod
    def _adjoint(self, rows: RowsOf, errors: Tensor) -> Tensor: ...
