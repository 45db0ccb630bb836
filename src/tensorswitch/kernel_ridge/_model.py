"""A fitted kernel expansion: predictions and their standard deviations."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tensorswitch._sparse import dense_rows
from tensorswitch.kernel_ridge._loo import Centred
from tensorswitch.kernel_ridge._scaling import Scaling
from tensorswitch.kernels import diagonal_factor, equivalent_kernels

PREDICT_BYTES = 1 << 26  # of the kernel matrix held at a time


@dataclass(frozen=True)
class KernelModel:
    """``f(x) = Σ_i α_i k(z(x), z_i) + b``.

    Parameters
    ----------
    scaling : Scaling
        From columns to ``z``.
    bias : float
        The constant column of ``z``.
    kind, depth : str and int
        The kernel.
    support : Tensor of shape (rows, features + 1)
        The ``z_i``.
    coef : Tensor of shape (rows, outputs)
        α.
    intercept : Tensor of shape (outputs,)
        b.
    weight : Tensor of shape (rows,) or None
        Sample weights of the rows.
    noise : float
        λ, the variance of the noise in units of the kernel's.
    copies : float, default=1.0
        How many rows a row of weight 1 stands for; the noise of a single one is as much larger.
    """

    scaling: Scaling
    bias: float
    kind: str
    depth: int
    support: Tensor
    coef: Tensor
    intercept: Tensor
    weight: Tensor | None
    noise: float
    copies: float = 1.0

    def kernel(self, z: Tensor, other: Tensor | None = None) -> Tensor:
        """Return the kernel matrix of scaled rows.

        Parameters
        ----------
        z : Tensor of shape (rows, features + 1)
            Scaled rows.
        other : Tensor of shape (other rows, features + 1), optional
            By default ``z``.

        Returns
        -------
        Tensor of shape (rows, other rows)
        """
        options: dict[str, Any] = {"kinds": [self.kind], "depths": [self.depth]}
        return equivalent_kernels(z, other, **options)[self.kind, self.depth]

    def scaled(self, x: Any) -> Tensor:
        """Return ``z(x)`` in the type of the support.

        Parameters
        ----------
        x : ndarray or sparse matrix of shape (rows, features)
            The rows.

        Returns
        -------
        Tensor of shape (rows, features + 1)
        """
        return torch.from_numpy(self.scaling(dense_rows(x), self.bias)).to(self.support)

    def outputs(self, x: Any) -> np.ndarray:
        """Return ``f(x)``.

        Parameters
        ----------
        x : ndarray or sparse matrix of shape (rows, features)
            The rows.

        Returns
        -------
        ndarray of shape (rows, outputs)
        """
        parts = [self.kernel(z, self.support) @ self.coef for z in self._parts(x)]
        return (torch.cat(parts) + self.intercept).double().numpy()

    def variance(self, x: Any) -> np.ndarray:
        """Return the predictive variance in units of the kernel's, noise included.

        ``k_c(x, x) − k_cᵀ (A + λ)⁻¹ k_c + λ (1 + 1/n)`` with the kernel centred on the training
        rows, which stands for the free intercept.

        Parameters
        ----------
        x : ndarray or sparse matrix of shape (rows, features)
            The rows.

        Returns
        -------
        ndarray of shape (rows,)
        """
        rows = len(self.support)
        gram = self.kernel(self.support)
        roots = gram.new_ones(rows) if self.weight is None else self.weight.sqrt()
        share = roots.square() / rows
        means = gram @ share
        mean = float(share @ means)
        centred = Centred.of(gram, self.weight)
        centred.matrix.diagonal().add_(self.noise)
        factor = torch.linalg.cholesky(centred.matrix)
        parts = []
        for z in self._parts(x):
            k = self.kernel(z, self.support)
            own = k @ share
            k = (k - means - own[:, None] + mean) * roots
            norms = diagonal_factor(self.kind, self.depth) * z.square().sum(1)
            explained = torch.linalg.solve_triangular(factor, k.t(), upper=False).square().sum(0)
            noise = self.noise * (self.copies + 1 / rows)
            parts.append(norms - 2 * own + mean - explained + noise)
        return torch.cat(parts).clamp(min=self.noise * self.copies).double().numpy()

    def _parts(self, x: Any) -> Iterator[Tensor]:
        step = max(1, PREDICT_BYTES // (self.support.element_size() * len(self.support)))
        for start in range(0, x.shape[0], step):
            yield self.scaled(x[start : start + step])
