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

from tensorswitch.linear._cholesky import CholeskyFactor
from tensorswitch.linear._penalty import log
from tensorswitch.linear._representation import Representation

ROUNDING = 64  # of centred sums of squares, in units of the precision
INEXACT = 1024  # likewise; below it, errors are a percent or more


@dataclass(frozen=True)
class Moments:
    """Sums over rows.

    Parameters
    ----------
    gram : Tensor
        ``C = Σ s z zᵀ``, packed as the representation does it.
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
    representation : Representation
        Whose features they are, and how C is packed.
    """

    gram: Tensor
    cross: Tensor
    feature_sum: Tensor
    target_sum: Tensor
    target_energy: Tensor
    rows: float
    squares: float
    representation: Representation

    @classmethod
    def sum(cls, parts: Sequence[Moments]) -> Moments:
        """Add sums of different rows."""
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
        """Return ``C W``."""
        return self.representation.product(self.gram, weight)

    def squared_error(self, weight: Tensor, intercept: Tensor | None) -> Tensor:
        """Return ``Σ s (t − Wᵀz − c)²`` of each output, without the rows.

        Σ s t² − 2 WᵀS + WᵀCW + 2 c (Wᵀ Σ s z − Σ s t) + n c²
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
            whole = moments.representation.diagonal(moments.gram)
            centred = whole - moments.rows * self.feature_mean.square()
            least = ROUNDING * torch.finfo(moments.gram.dtype).eps
            self.constant = (centred <= least * whole).nonzero().flatten()
            self.right[self.constant] = 0
        self.energy = float(energy.sum())

    def mean_diagonal(self) -> float:
        """Return the mean of the diagonal of ``C − n z̄ z̄ᵀ``."""
        diagonal = self.moments.representation.diagonal(self.moments.gram)
        if self.fit_intercept:
            diagonal = diagonal - self.moments.rows * self.feature_mean.square()
            diagonal[self.constant] = 0
        return max(0.0, float(diagonal.mean()))

    def factorise(self, shift: float) -> CholeskyFactor:
        """Factorise ``C − n z̄ z̄ᵀ + shift · I``."""
        panels = self.moments.representation.panels(self.moments.gram)
        if self.fit_intercept:
            panels.add_outer(self.feature_mean, -self.moments.rows)
            panels.isolate(self.constant, self.mean_diagonal() or 1.0)
        return panels.cholesky(shift)

    def solve(self, alpha: float) -> Tensor:
        """Return the readout for one λ."""
        return self.factorise(alpha).solve(self.right)

    def intercept(self, weight: Tensor) -> Tensor | None:
        """Return ``c = t̄ − Wᵀ z̄``, or None without an intercept."""
        if not self.fit_intercept:
            return None
        many = weight.shape[1] // self.right.shape[1]
        return self.target_mean.repeat(many) - self.feature_mean @ weight.double()


def warn_of_large_means(folds: Sequence[Moments]) -> None:
    """Warn of features that lose most of their digits when their sums are centred."""
    total = Moments.sum(folds)
    whole = total.representation.diagonal(total.gram)
    part = 1 - total.feature_sum.double().square() / (total.rows * whole)  # variance by mean square
    eps = torch.finfo(total.gram.dtype).eps
    # Those below are constant, or cannot be told from it.
    count = int(((part > ROUNDING * eps) & (part < INEXACT * eps)).sum())
    if count:
        log.warning(
            "the means of %d features are so large, compared to their standard deviations, "
            "that sums in %s lose most of their digits; centre the features, or use float64",
            count,
            total.gram.dtype,
        )
