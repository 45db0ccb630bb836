"""A fitted kernel expansion: predictions and their standard deviations."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tensorswitch._memory import dense_rows
from tensorswitch.kernel_ridge._sensitivity import gradients
from tensorswitch.kernels import diagonal_factor, equivalent_kernels
from tensorswitch.linear._loo import Centred
from tensorswitch.persistence import SavedPart, saved_as
from tensorswitch.preprocessing import ColumnMap

PREDICT_BYTES = 1 << 26  # of the kernel matrix held at a time


@saved_as("kernel-model")
@dataclass(frozen=True)
class KernelModel(SavedPart):
    """Predict with ``f(x) = Σ_i α_i k(z(x), z_i) + b``.

    Parameters
    ----------
    columns : ColumnMap
        From features to the columns of ``z``.
    bias : float
        The constant column of ``z``.
    kind, depth : {"ss", "ts", "ntk"} and int
        The kernel.
    support : Tensor of shape (rows, columns + 1)
        The ``z_i``.
    coef, intercept : Tensor of shape (rows, outputs) and (outputs,)
        α and b.
    weight : Tensor of shape (rows,) or None
        Sample weights of the rows.
    noise : float
        λ, the variance of the noise in units of the kernel's.
    copies : float, default=1.0
        How many rows a row of weight 1 stands for; the noise of a single one is as much larger.

    Examples
    --------
    >>> import numpy as np
    >>> from tensorswitch.kernel_ridge import Search
    >>> x = np.linspace(-1, 1, 40)[:, None]
    >>> model = Search(seed=0).fit(x, np.abs(x)).model
    >>> model(np.array([[-0.5], [0.25]])).round(1)
    array([[0.5],
           [0.2]])
    """

    columns: ColumnMap
    bias: float
    kind: str
    depth: int
    support: Tensor
    coef: Tensor
    intercept: Tensor
    weight: Tensor | None
    noise: float
    copies: float = 1.0

    def __call__(self, x: Any) -> np.ndarray:
        """Return ``f(x)`` of rows, dense or sparse."""
        parts = [self.kernel(z) @ self.coef for z in self._parts(x)]
        return (torch.cat(parts) + self.intercept).double().numpy()

    def kernel(self, z: Tensor) -> Tensor:
        """Return the kernel of scaled rows and the support, of shape (rows, support rows)."""
        other = None if z is self.support else self.support  # of itself it takes half the time
        found = equivalent_kernels(z, other, kinds=[self.kind], depths=[self.depth])
        return found[self.kind, self.depth]

    def scaled(self, x: Any) -> Tensor:
        """Return ``z(x)``, of shape (rows, columns + 1), in the type of the support."""
        return torch.from_numpy(self.columns(dense_rows(x), self.bias)).to(self.support)

    def contributions(self, z: Tensor) -> Tensor:
        """Return ``z_j ∂f/∂z_j`` of scaled rows, of shape (rows, outputs, columns + 1).

        They add up to ``f − b``, since kernels are homogeneous in z.
        """
        found = gradients(z, self.support, self.coef, self.kind, self.depth)
        return torch.stack([gradient * z for gradient in found], dim=1)

    def variance(self, x: Any) -> np.ndarray:
        """Return the predictive variance in units of the kernel's, noise included.

        ``k_c(x, x) − k_cᵀ (A + λ)⁻¹ k_c + λ (1 + 1/n)`` with the kernel centred on the training
        rows, which stands for the free intercept.
        """
        rows = len(self.support)
        gram = self.kernel(self.support)
        roots = gram.new_ones(rows) if self.weight is None else self.weight.to(gram).sqrt()
        share = roots.square() / rows
        means = gram @ share
        mean = float(share @ means)
        factor = Centred.of(gram, self.weight).factorise(self.noise).factor
        parts = []
        for z in self._parts(x):
            k = self.kernel(z)
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
