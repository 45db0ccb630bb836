"""How the symmetric matrix C is stored: what the solvers need to know about it."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from tensorswitch.ridge._cholesky import SymmetricPanels
from tensorswitch.ridge._gram import gram_rows, pair_index

__all__ = ["Dense", "Layout", "Packed", "Panelled"]

PRODUCT_BYTES = 1 << 26  # rows of C unpacked at a time for a product


@dataclass(frozen=True)
class Dense:
    """C stored as a symmetric matrix."""

    def panels(self, gram: Tensor) -> SymmetricPanels:
        """Return a copy of C."""
        return SymmetricPanels.from_rows(len(gram), lambda start, stop: gram[start:stop], gram)

    def product(self, gram: Tensor, weight: Tensor) -> Tensor:
        """Return ``C W``, accumulated in float64."""
        return gram.double() @ weight.double()

    def diagonal(self, gram: Tensor) -> Tensor:
        """Return the diagonal of C, in float64."""
        return gram.diagonal().double()


@dataclass(frozen=True)
class Packed:
    """C stored with a row per pair of units and a column per pair of inputs."""

    units: int
    inputs: int

    def panels(self, gram: Tensor) -> SymmetricPanels:
        """Return a copy of C."""
        rows, order = gram_rows(gram, self.units, self.inputs), self.units * self.inputs
        return SymmetricPanels.from_rows(order, rows, gram, self.inputs)

    def product(self, gram: Tensor, weight: Tensor) -> Tensor:
        """Return ``C W``, accumulated in float64."""
        rows, order = gram_rows(gram, self.units, self.inputs), self.units * self.inputs
        step = max(1, PRODUCT_BYTES // (8 * order * self.inputs)) * self.inputs
        parts = [
            rows(start, min(start + step, order)).double() @ weight.double()
            for start in range(0, order, step)
        ]
        return torch.cat(parts)

    def diagonal(self, gram: Tensor) -> Tensor:
        """Return the diagonal of C, in float64."""
        own = pair_index(self.units, gram.device).diagonal()
        square = pair_index(self.inputs, gram.device).diagonal()
        return gram[own][:, square].double().flatten()


@dataclass(frozen=True)
class Panelled:
    """The lower triangle of C, stored in one vector in the order of :class:`SymmetricPanels`."""

    order: int

    def panels(self, gram: Tensor) -> SymmetricPanels:
        """Return a copy of C."""
        return SymmetricPanels.of_vector(self.order, gram.clone())

    def product(self, gram: Tensor, weight: Tensor) -> Tensor:
        """Return ``C W``; the products of panels are added up in float64."""
        return SymmetricPanels.of_vector(self.order, gram) @ weight

    def diagonal(self, gram: Tensor) -> Tensor:
        """Return the diagonal of C, in float64."""
        return SymmetricPanels.of_vector(self.order, gram).diagonal().double()


Layout = Dense | Packed | Panelled
