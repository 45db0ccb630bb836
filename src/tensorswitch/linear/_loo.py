"""Exact leave-one-out residuals of ridge regression in its dual form, with a free intercept.

With the roots r of the weights, ``u = r / ‖r‖`` and ``P = I − u uᵀ``, the dual system of a kernel K
is

    A = P R K R P + τ u uᵀ,        β = (A + λI)⁻¹ P (r ∘ y),        α = r ∘ β

where τ, the mean of the diagonal, stands in for the direction that P takes out: it changes no
solution, and keeps the small differences below from being lost. The residual of row i, predicted
from all others, is ``β_i / (r_i d_i)`` with

    d_i = [(A + λI)⁻¹]_ii − u_i² / (τ + λ)

and the intercept is the weighted mean of ``y − K α``. Without an intercept, u is zero. β and the
diagonal of the inverse come from one eigendecomposition for a whole path of λ
(:class:`Spectrum`), or from a Cholesky factor of each.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from tensorswitch.linear._cholesky import DenseFactor
from tensorswitch.linear._rows import Observations

PRECISION = 2  # of the largest eigenvalue, in units of the type: a smaller λ is lost in rounding
CERTAIN = 1e-12  # of the diagonal, below which what is left of it is rounding
ALL = slice(None)
Index = slice | Tensor


@dataclass(frozen=True)
class LeaveOneOut:
    """A solution and its leave-one-out residuals."""

    penalty: float  # λ
    coef: Tensor  # α, (rows, outputs), which sums to zero with an intercept
    residuals: Tensor  # target minus prediction from all other rows, (rows, outputs)
    precision: Tensor  # d_i
    intercept: Tensor  # (outputs,); zero without one

    def unseen(self, observations: Observations) -> tuple[Tensor, Tensor]:
        """Return the residual of each observation left out, and the part of it that is left.

        An observation that has the share σ of the weight of row i has the residual

            (t − f(x_i)) / (1 − h_i σ),        h_i = 1 − λ d_i,     y_i − f(x_i) = λ β_i / r_i

        where ``h_i`` is the leverage of the whole row.
        """
        o = observations
        kept = (self.penalty * self.precision.double())[o.row]
        left = (1 - (1 - kept) * o.share).clamp(min=torch.finfo(torch.float64).tiny)[:, None]
        whole = self.residuals.double()[o.row]
        fitted = torch.where(kept[:, None] == 0, 0, whole * kept[:, None])
        alone = (o.share == 1)[:, None]
        return torch.where(alone, whole, (o.offset + fitted) / left), left

    def error(self, observations: Observations) -> float:
        """Return the mean squared leave-one-out error over observations and outputs."""
        residuals, _ = self.unseen(observations)
        squares = observations.weight @ residuals.square()
        return float(squares.sum() / (observations.weight.sum() * residuals.shape[1]))


@dataclass(frozen=True)
class Centring:
    """The direction of the intercept, and what it takes out of a kernel."""

    roots: Tensor  # r, the roots of the weights
    direction: Tensor  # u, or zeros without an intercept
    sums: Tensor  # R K R u
    scale: float  # τ, the mean of the diagonal of P R K R P; 1 if all rows are alike
    alike: bool = False  # so that P R K R P is zero but for rounding

    @classmethod
    def of(
        cls,
        weight: Tensor | None,
        rows: int,
        trace: Tensor,
        product: Callable[[Tensor], Tensor],
        intercept: bool = True,
        dtype: torch.dtype | None = None,
    ) -> Centring:
        """Return the centring for a kernel that is known by its products, computed in a type."""
        roots = trace.new_ones(rows) if weight is None else weight.to(trace).sqrt()
        u = roots / roots.norm() if intercept else torch.zeros_like(roots)
        sums = product(u) if intercept else torch.zeros_like(roots)
        whole = float(trace) / rows
        mean = whole - float(u @ sums) / rows
        positive = mean > 16 * torch.finfo(dtype or trace.dtype).eps * whole
        return cls(roots, u, sums, mean if positive else 1.0, not positive)

    def take_out(
        self, block: Tensor, rows: Index = ALL, columns: Index = ALL, scale: float | None = None
    ) -> Tensor:
        """Turn a block of ``R K R`` into one of ``A = R K R − u vᵀ − v uᵀ``, in place."""
        u, along = self.direction, self.scale if scale is None else scale
        v = self.sums - 0.5 * (u @ self.sums + along) * u
        block.addr_(u[rows], v[columns], alpha=-1)
        return block.addr_(v[rows], u[columns], alpha=-1)

    def project(self, v: Tensor) -> Tensor:
        """Return ``P v``."""
        return v - self.direction[:, None] * (self.direction @ v)

    def goal(self, targets: Tensor) -> Tensor:
        """Return ``P (r ∘ y)``."""
        return self.project(targets * self.roots[:, None])

    def intercept(self, beta: Tensor, targets: Tensor) -> Tensor:
        """Return the weighted mean of ``y − K α``, or zeros without an intercept."""
        u, length = self.direction, self.roots.norm()
        return ((u * self.roots) @ targets - self.sums @ beta) / length

    def result(
        self, penalty: float, beta: Tensor, inverse_diagonal: Tensor, targets: Tensor
    ) -> LeaveOneOut:
        """Return residuals and intercept from β and the diagonal of ``(A + λI)⁻¹``."""
        d = inverse_diagonal - self.direction.square() / (self.scale + penalty)
        d = torch.maximum(d, CERTAIN * inverse_diagonal)
        residuals = beta / (d * self.roots)[:, None]
        if len(d) < 2 and bool(self.direction.any()):  # no other row to predict from
            residuals = torch.full_like(residuals, torch.inf)
        coef = beta * self.roots[:, None]
        return LeaveOneOut(penalty, coef, residuals, d, self.intercept(beta, targets))


@dataclass(frozen=True)
class Centred:
    """A kernel matrix that is held as a whole, centred: ``A``."""

    matrix: Tensor
    centring: Centring

    @classmethod
    def of(cls, kernel: Tensor, weight: Tensor | None, intercept: bool = True) -> Centred:
        """Centre a kernel matrix, which is overwritten."""
        if weight is not None:
            roots = weight.to(kernel).sqrt()
            kernel *= roots[:, None]
            kernel *= roots
        trace = kernel.diagonal().sum()
        centring = Centring.of(weight, len(kernel), trace, lambda u: kernel @ u, intercept)
        if centring.alike:
            kernel.zero_().addr_(centring.direction, centring.direction)
        elif intercept:
            centring.take_out(kernel)
        return cls(kernel, centring)

    @property
    def scale(self) -> float:
        """The mean of the diagonal."""
        return self.centring.scale

    def single(self) -> Centred:
        """Return the same in float32, in which errors are found in half the time."""
        c = self.centring
        vectors = c.roots.float(), c.direction.float(), c.sums.float()
        return Centred(self.matrix.float(), Centring(*vectors, c.scale, c.alike))

    def factorise(self, penalty: float) -> DenseFactor:
        """Return the Cholesky factor of ``A + λI``."""
        return DenseFactor(self.matrix, penalty)

    def at(self, penalty: float, targets: Tensor) -> LeaveOneOut:
        """Return the solution and its residuals for one λ from a Cholesky factor."""
        factor = self.factorise(penalty)
        beta = factor.solve(self.centring.goal(targets))
        return self.centring.result(penalty, beta, factor.inverse_diagonal(), targets)


class Spectrum:
    """Solutions and leave-one-out residuals of any λ from one eigendecomposition of A."""

    def __init__(self, centred: Centred) -> None:
        self.centring = centred.centring
        values, self.vectors = torch.linalg.eigh(centred.matrix)
        self.values = values.clamp(min=0)

    @property
    def least(self) -> float:
        """The least λ that is not lost in rounding errors."""
        return PRECISION * torch.finfo(self.values.dtype).eps * float(self.values[-1])

    def path(self, penalties: Sequence[float], targets: Tensor) -> list[LeaveOneOut]:
        """Return the solutions of several λ."""
        inverses = 1 / (self.values.new_tensor(penalties)[:, None] + self.values)
        diagonals = self.vectors.square() @ inverses.t()
        rotated, centring = self.vectors.t() @ self.centring.goal(targets), self.centring
        found = []
        for penalty, inverse, diagonal in zip(penalties, inverses, diagonals.t(), strict=True):
            beta = centring.project(self.vectors @ (rotated * inverse[:, None]))
            found.append(centring.result(penalty, beta, diagonal, targets))
        return found
