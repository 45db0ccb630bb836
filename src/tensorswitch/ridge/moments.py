"""Sums over weighted rows, and the normal equations of ridge regression that they give.

    (C − n z̄ z̄ᵀ + λI) W = S − n z̄ t̄ᵀ,        c = t̄ − Wᵀ z̄

with ``C = Σ s z zᵀ``, ``S = Σ s z tᵀ`` and ``n = Σ s``. The intercept c is not penalised. Without
an intercept z̄ and t̄ are zero. Everything happens when the system is solved, so sums of different
rows can be added and subtracted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from tensorswitch.ridge._cholesky import CholeskyFactor
from tensorswitch.ridge._layouts import Dense, Layout

__all__ = ["Moments", "System"]

DENSE = Dense()
ROUNDING = 64  # of centred sums of squares, in units of the precision


@dataclass(frozen=True)
class Moments:
    """Sums over rows.

    Parameters
    ----------
    gram : Tensor
        ``C = Σ s z zᵀ``, stored as ``layout`` says; by default a matrix.
    cross : Tensor of shape (features, out)
        ``S = Σ s z tᵀ``.
    feature_sum : Tensor of shape (features,)
        ``Σ s z``.
    target_sum : Tensor of shape (out,)
        ``Σ s t``, in float64.
    target_energy : Tensor of shape (out,)
        ``Σ s t²``, in float64.
    rows : float
        ``n = Σ s``.
    squares : float
        ``Σ s²``.
    layout : Dense, Packed or Panelled, default=Dense()
        How C is stored.

    Examples
    --------
    >>> import torch
    >>> from tensorswitch.ridge.moments import Moments, System
    >>> z = torch.randn(50, 3, dtype=torch.float64)
    >>> t = z.sum(1, keepdim=True) + 7
    >>> system = System(Moments.of(z, t), fit_intercept=True)
    >>> weight = system.solve(1e-9)
    >>> round(float(system.intercept(weight)), 3)
    7.0
    """

    gram: Tensor
    cross: Tensor
    feature_sum: Tensor
    target_sum: Tensor
    target_energy: Tensor
    rows: float
    squares: float
    layout: Layout = DENSE

    @classmethod
    def of(cls, z: Tensor, targets: Tensor, sample_weight: Tensor | None = None) -> Moments:
        """Sum explicit features.

        Parameters
        ----------
        z : Tensor of shape (rows, features)
            The features.
        targets : Tensor of shape (rows, out)
            The targets.
        sample_weight : Tensor of shape (rows,), optional
            Weights, 1 by default.

        Returns
        -------
        Moments
        """
        s = z.new_ones(len(z)) if sample_weight is None else sample_weight
        weighted, exact = z * s[:, None], targets.double()
        sums = (s.double() @ exact, s.double() @ exact.square())
        counts = float(s.double().sum()), float(s.double().square().sum())
        return cls(weighted.t() @ z, weighted.t() @ targets, weighted.sum(0), *sums, *counts)

    @classmethod
    def sum(cls, parts: Sequence[Moments]) -> Moments:
        """Add sums of different rows.

        Parameters
        ----------
        parts : sequence of Moments
            At least one.

        Returns
        -------
        Moments
            The only one itself, or a new one.
        """
        if len(parts) == 1:
            return parts[0]
        names = ("gram", "cross", "feature_sum", "target_sum", "target_energy")
        total = {name: getattr(parts[0], name).clone() for name in names}
        for part in parts[1:]:
            for name in names:
                total[name] += getattr(part, name)
        rows, squares = sum(p.rows for p in parts), sum(p.squares for p in parts)
        return replace(parts[0], **total, rows=rows, squares=squares)

    def product(self, weight: Tensor) -> Tensor:
        """Return ``C W``.

        Parameters
        ----------
        weight : Tensor of shape (features, columns)
            W.

        Returns
        -------
        Tensor of shape (features, columns)
            The product, accumulated in float64.
        """
        return self.layout.product(self.gram, weight)

    def squared_error(self, weight: Tensor, intercept: Tensor | None) -> Tensor:
        """Return ``Σ s (t − Wᵀz − c)²`` of each output, without the rows.

            Σ s t² − 2 WᵀS + WᵀCW + 2 c (Wᵀ Σ s z − Σ s t) + n c²

        Parameters
        ----------
        weight : Tensor of shape (features, columns)
            W. There may be a multiple of the outputs, for several readouts at once.
        intercept : Tensor of shape (columns,) or None
            c.

        Returns
        -------
        Tensor of shape (columns,)
            In float64.
        """
        w = weight.double()
        many = w.shape[1] // self.cross.shape[1]
        cross, sums = self.cross.double().repeat(1, many), self.target_sum.repeat(many)
        error = self.target_energy.repeat(many) - 2 * (w * cross).sum(0)
        error += (w * self.product(w)).sum(0)
        if intercept is not None:
            c = intercept.double()
            error += 2 * c * (self.feature_sum.double() @ w - sums) + self.rows * c.square()
        return error


class System:
    """The normal equations of some rows.

    Parameters
    ----------
    moments : Moments
        Sums over the rows, with ``rows > 0``.
    fit_intercept : bool
        Whether there is an intercept.

    Attributes
    ----------
    right : Tensor of shape (features, out)
        ``S − n z̄ t̄ᵀ``.
    energy : float
        ``Σ s (t − t̄)²`` over all outputs.
    constant : Tensor of shape (count,)
        With an intercept, the features of which nothing but rounding error is left.
    """

    def __init__(self, moments: Moments, fit_intercept: bool) -> None:
        self.moments, self.fit_intercept = moments, fit_intercept
        energy, self.right = moments.target_energy, moments.cross
        if fit_intercept:
            self.feature_mean = moments.feature_sum.double() / moments.rows
            self.target_mean = moments.target_sum / moments.rows
            energy = (energy - moments.rows * self.target_mean.square()).clamp(min=0)
            spread = torch.outer(moments.feature_sum.double(), self.target_mean)
            self.right = (moments.cross.double() - spread).to(moments.cross)
            # What is left of a constant feature, such as the input for biases, is rounding error.
            whole = moments.layout.diagonal(moments.gram)
            centred = whole - moments.rows * self.feature_mean.square()
            least = ROUNDING * torch.finfo(moments.gram.dtype).eps
            self.constant = (centred <= least * whole).nonzero().flatten()
            self.right[self.constant] = 0
        self.energy = float(energy.sum())

    def mean_diagonal(self) -> float:
        """Return the mean of the diagonal of ``C − n z̄ z̄ᵀ``."""
        diagonal = self.moments.layout.diagonal(self.moments.gram)
        if self.fit_intercept:
            diagonal = diagonal - self.moments.rows * self.feature_mean.square()
            diagonal[self.constant] = 0
        return max(0.0, float(diagonal.mean()))

    def factorise(self, shift: float) -> CholeskyFactor:
        """Factorise ``C − n z̄ z̄ᵀ + shift · I``.

        Parameters
        ----------
        shift : float
            What is added to the diagonal.

        Returns
        -------
        CholeskyFactor
            The factor, with memory of its own.
        """
        panels = self.moments.layout.panels(self.moments.gram)
        if self.fit_intercept:
            panels.add_outer(self.feature_mean, -self.moments.rows)
            panels.isolate(self.constant, self.mean_diagonal() or 1.0)
        return panels.cholesky(shift)

    def solve(self, alpha: float) -> Tensor:
        """Return the readout for one λ.

        Parameters
        ----------
        alpha : float
            The penalty λ.

        Returns
        -------
        Tensor of shape (features, out)
            W.
        """
        return self.factorise(alpha).solve(self.right)

    def intercept(self, weight: Tensor) -> Tensor | None:
        """Return ``c = t̄ − Wᵀ z̄``, or None without an intercept.

        Parameters
        ----------
        weight : Tensor of shape (features, columns)
            W. There may be a multiple of the outputs, for several readouts at once.

        Returns
        -------
        Tensor of shape (columns,) or None
            In float64.
        """
        if not self.fit_intercept:
            return None
        many = weight.shape[1] // self.right.shape[1]
        return self.target_mean.repeat(many) - self.feature_mean @ weight.double()
