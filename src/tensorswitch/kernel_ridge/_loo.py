"""Exact leave-one-out residuals of kernel ridge regression with a free intercept.

With weights ``w = s²`` of mean 1, ``u = s / ‖s‖`` and ``P = I − u uᵀ``,

    A = P diag(s) K diag(s) P + t u uᵀ,        β = (A + λI)⁻¹ P (s ∘ y),        α = s ∘ β

where ``t``, the mean of the diagonal, stands in for the direction that P takes out. The residual of
row i, predicted from all others, is ``β_i / (s_i d_i)`` with

    d_i = [(A + λI)⁻¹]_ii − u_i² / (t + λ)

The intercept is the weighted mean of ``y − K α``. λ is given in multiples of ``t``. One
eigendecomposition gives a whole path of λ (:func:`loo_path`); a single λ is cheaper by Cholesky
(:func:`loo_at`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from scipy.linalg.lapack import dtrtri, strtri
from torch import Tensor

TIE = 1.0005  # of errors this close, the one of the largest λ is taken


@dataclass(frozen=True)
class LeaveOneOut:
    """A solution and its leave-one-out residuals.

    Parameters
    ----------
    penalty : float
        λ in multiples of ``scale``.
    scale : float
        The mean of the diagonal of the centred kernel matrix.
    coef : Tensor of shape (rows, outputs)
        α, which sums to zero.
    residuals : Tensor of shape (rows, outputs)
        Target minus prediction from all other rows.
    precision : Tensor of shape (rows,)
        ``d_i``.
    intercept : Tensor of shape (outputs,)
        b.
    """

    penalty: float
    scale: float
    coef: Tensor
    residuals: Tensor
    precision: Tensor
    intercept: Tensor


def positive_scale(mean: float, before: float, dtype: torch.dtype) -> float:
    """Return the mean diagonal of a centred kernel, or 1 if all rows are alike but for rounding."""
    return mean if mean > 16 * torch.finfo(dtype).eps * before else 1.0


@dataclass(frozen=True)
class Centred:
    """``A``, its direction ``u``, the roots of the weights and ``S K S u``."""

    matrix: Tensor
    direction: Tensor
    roots: Tensor
    sums: Tensor
    scale: float

    @classmethod
    def of(cls, kernel: Tensor, weight: Tensor | None) -> Centred:
        """Centre a kernel matrix, which is overwritten."""
        roots = kernel.new_ones(len(kernel)) if weight is None else weight.sqrt()
        u = roots / roots.norm()
        if weight is not None:
            kernel *= roots[:, None]
            kernel *= roots
        sums, before = kernel @ u, float(kernel.diagonal().mean())
        kernel.addr_(sums - 0.5 * (u @ sums) * u, u, alpha=-1)
        kernel.addr_(u, sums - 0.5 * (u @ sums) * u, alpha=-1)
        scale = positive_scale(float(kernel.diagonal().mean()), before, kernel.dtype)
        kernel.addr_(u, u, alpha=scale)
        return cls(kernel, u, roots, sums, scale)

    def single(self) -> Centred:
        """Return the same in float32, in which errors are found in half the time."""
        return Centred(
            self.matrix.float(),
            self.direction.float(),
            self.roots.float(),
            self.sums.float(),
            self.scale,
        )

    def project(self, targets: Tensor) -> Tensor:
        """``P (s ∘ y)``."""
        y = targets * self.roots[:, None]
        return y - self.direction[:, None] * (self.direction @ y)

    def result(
        self, penalty: float, beta: Tensor, inverse_diagonal: Tensor, targets: Tensor
    ) -> LeaveOneOut:
        """Residuals and intercept from β and the diagonal of the inverse."""
        along = self.scale + penalty * self.scale
        d = inverse_diagonal - self.direction.square() / along
        residuals = beta / (d * self.roots)[:, None]
        coef = beta * self.roots[:, None]
        intercept = free_intercept(self.roots, self.sums, beta, targets)
        return LeaveOneOut(penalty, self.scale, coef, residuals, d, intercept)


def free_intercept(roots: Tensor, sums: Tensor, beta: Tensor, targets: Tensor) -> Tensor:
    """Return the weighted mean of ``y − K α``, from ``S K S u`` and without the kernel."""
    length = roots.norm()
    result: Tensor = (roots.square() @ targets) / length**2 - (sums @ beta) / length
    return result


def loo_path(
    kernel: Tensor, targets: Tensor, weight: Tensor | None, penalties: Sequence[float]
) -> list[LeaveOneOut]:
    """Leave-one-out residuals for each λ from one eigendecomposition.

    Parameters
    ----------
    kernel : Tensor of shape (rows, rows)
        The kernel matrix, which is overwritten.
    targets : Tensor of shape (rows, outputs)
        The targets.
    weight : Tensor of shape (rows,), optional
        Sample weights of mean 1.
    penalties : sequence of float
        λ in multiples of the mean diagonal of the centred matrix. Those too small for working
        precision are left out, but for the largest.

    Returns
    -------
    list of LeaveOneOut
        From the smallest λ up.
    """
    centred = Centred.of(kernel, weight)
    values, vectors = torch.linalg.eigh(centred.matrix)
    values.clamp_(min=0)
    scale = centred.scale
    least = 2 * torch.finfo(kernel.dtype).eps * float(values[-1]) / scale
    ordered = sorted(penalties)
    usable = [p for p in ordered if p >= least] or ordered[-1:]
    inverse = 1 / (values[:, None] + scale * kernel.new_tensor(usable))
    diagonals = vectors.square() @ inverse
    rotated = vectors.t() @ centred.project(targets)
    return [
        centred.result(p, vectors @ (rotated * inverse[:, i : i + 1]), diagonals[:, i], targets)
        for i, p in enumerate(usable)
    ]


def loo_at(centred: Centred, targets: Tensor, penalty: float) -> LeaveOneOut:
    """Leave-one-out residuals for one λ from a Cholesky factorisation.

    Parameters
    ----------
    centred : Centred
        The centred kernel matrix, which is left as it was.
    targets : Tensor of shape (rows, outputs)
        The targets.
    penalty : float
        λ in multiples of the mean diagonal.

    Returns
    -------
    LeaveOneOut
    """
    matrix = centred.matrix.clone()
    matrix.diagonal().add_(penalty * centred.scale)
    factor = torch.linalg.cholesky(matrix)
    beta = torch.cholesky_solve(centred.project(targets), factor)
    return centred.result(penalty, beta, _inverse_diagonal(factor), targets)


def _inverse_diagonal(factor: Tensor) -> Tensor:
    """Return the diagonal of ``(L Lᵀ)⁻¹``, the column sums of squares of ``L⁻¹``."""
    # Half the work of the inverse itself, which torch.cholesky_inverse returns.
    invert = dtrtri if factor.dtype == torch.float64 else strtri
    lower = np.asfortranarray(factor.numpy())
    inverse, _ = invert(lower, lower=1)
    return torch.from_numpy(np.einsum("ij,ij->j", inverse, inverse))


def loo_error(result: LeaveOneOut, weight: Tensor, spread: Tensor) -> float:
    """Mean squared leave-one-out error of the original rows and outputs."""
    squares = (weight[:, None] * result.residuals.square()).sum() + spread.sum()
    return float(squares / (weight.sum() * result.residuals.shape[1]))


def best(
    results: Sequence[LeaveOneOut], weight: Tensor, spread: Tensor
) -> tuple[LeaveOneOut, float]:
    """Return the result of least error and that error; of ties the one of the largest λ."""
    errors = [loo_error(r, weight, spread) for r in results]
    least = min(errors)
    tied = [i for i, e in enumerate(errors) if e <= TIE * least]
    chosen = max(tied, key=lambda i: results[i].penalty) if tied else 0
    return results[chosen], errors[chosen]
