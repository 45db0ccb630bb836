"""Generalised cross-validation (GCV) [1]_ of λ from the normal equations.

    GCV = Σ s ‖t − Wᵀz − c‖² · rows / (rows − freedom)²,    freedom = tr Z (ZᵀZ + λI)⁻¹ Zᵀ + 1

where 1 is for the intercept. It is not safe on data with repeated rows, of which it knows nothing:
it then prefers values that are far too small.

With many more rows than features, traces are estimated with random signs [2]_, and Gauss quadrature
evaluates values of λ over three decades with one factorisation.

References
----------
.. [1] G. H. Golub, M. Heath and G. Wahba, "Generalized Cross-Validation as a Method for Choosing a
   Good Ridge Parameter", Technometrics 21(2), 1979.
.. [2] M. F. Hutchinson, "A Stochastic Estimator of the Trace of the Influence Matrix for Laplacian
   Smoothing Splines", Communications in Statistics 19(2), 1990.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

import torch
from torch import Tensor

from tensorswitch.ridge._cholesky import SingularError
from tensorswitch.ridge._quadrature import Quadrature, pieces
from tensorswitch.ridge.moments import System
from tensorswitch.ridge.penalty import effective_rows, log

__all__ = ["gcv_errors", "gcv_score", "probes", "while_regular"]

T = TypeVar("T")
PROBES = 16
FACTORISE_EACH = 3  # fewer values of λ than this are factorised one by one


def gcv_score(squared_error: float, freedom: float, rows: float) -> float:
    """Return the GCV error, infinite if no degrees of freedom are left.

    Parameters
    ----------
    squared_error : float
        Sum of the squared residuals.
    freedom : float
        Effective degrees of freedom of the fit.
    rows : float
        Effective number of rows.

    Returns
    -------
    float
        ``squared_error · rows / (rows − freedom)²``.
    """
    spare = rows - freedom
    return squared_error * rows / spare**2 if spare > 0 else math.inf


def gcv_errors(system: System, values: Sequence[float]) -> list[float]:
    """Return the GCV error of each λ.

    Parameters
    ----------
    system : System
        The normal equations.
    values : sequence of float
        Values of λ, the largest first.

    Returns
    -------
    list of float
        Infinite for values that are too small for the precision, or that leave no degrees of
        freedom.
    """
    rows = effective_rows(system.moments.rows, system.moments.squares)
    judge = _Judge(system, values)
    errors: list[float] = []
    for _, (error, freedom) in while_regular(values, judge):
        errors.append(gcv_score(error, freedom + system.fit_intercept, rows))
    return errors + [math.inf] * (len(values) - len(errors))


def while_regular(
    values: Sequence[float], judge: Callable[[float], T]
) -> Iterator[tuple[float, T]]:
    """Yield each λ with what was found for it, until one is too small for the precision.

    Parameters
    ----------
    values : sequence of float
        Values of λ, the largest first. Smaller values are worse conditioned, so that all after the
        first that fails would fail too.
    judge : callable
        Takes λ and raises :class:`SingularError` if the precision does not suffice.

    Yields
    ------
    value : float
        The λ.
    found : object
        What ``judge`` returned.

    Raises
    ------
    SingularError
        If the largest value fails already.
    """
    for i, value in enumerate(values):
        try:
            found = judge(value)
        except SingularError:
            if not i:
                raise
            log.info("alpha %.3g is too small for working precision and is skipped", value)
            return
        yield value, found


class _Judge:
    """Squared error and degrees of freedom of a λ.

    Values in the same piece of the path share a factorisation if there are many more rows than
    features. Otherwise the error of an estimated trace could exceed the residual degrees of
    freedom, rows − freedom.
    """

    def __init__(self, system: System, values: Sequence[float]) -> None:
        self.system, self.features = system, len(system.right)
        self.estimate = system.moments.rows > 4 * self.features
        self.piece_of = {value: piece for piece in pieces(values) for value in piece}
        self.tools: dict[float, Callable[[float], tuple[float, float]]] = {}
        # Less than this is rounding error.
        self.least = 100 * torch.finfo(system.right.dtype).eps * system.energy

    def __call__(self, alpha: float) -> tuple[float, float]:
        piece = self.piece_of[alpha]
        if not self.estimate or len(piece) < FACTORISE_EACH:
            return self.alone(alpha)
        if piece[0] not in self.tools:
            try:
                self.tools[piece[0]] = self._together(math.sqrt(piece[0] * piece[-1]))
            except SingularError:  # at the middle; larger values may still work
                self.tools[piece[0]] = self.alone
        return self.tools[piece[0]](alpha)

    def alone(self, alpha: float) -> tuple[float, float]:
        """Factorise for one λ."""
        right, factor = self.system.right, self.system.factorise(alpha)
        g = probes(self.features, right) if self.estimate else right[:, :0]
        weight, u = factor.solve(torch.cat([right, g], dim=1)).split(
            [right.shape[1], g.shape[1]], 1
        )
        trace = float((g.double() * u).sum(0).mean()) if g.shape[1] else factor.inverse_trace()
        # At the solution C w = S − λw, which gives t·t − 2 w·S + w·Cw = t·t − w·S − λ w·w.
        explained, norm = (weight.double() * right).sum(), weight.double().square().sum()
        error = self.system.energy - float(explained) - alpha * float(norm)
        return max(error, self.least), self.features - alpha * trace

    def _together(self, middle: float) -> Callable[[float], tuple[float, float]]:
        right = self.system.right
        starts = torch.cat([right, probes(self.features, right)], dim=1)
        quadrature, out = Quadrature(self.system.factorise(middle).solve, starts), right.shape[1]

        def judge(alpha: float) -> tuple[float, float]:
            first, second = quadrature.sums(alpha - middle)
            error = (
                self.system.energy - float(first[:out].sum()) - alpha * float(second[:out].sum())
            )
            return max(error, self.least), self.features - alpha * float(first[out:].mean())

        return judge


def probes(length: int, like: Tensor) -> Tensor:
    """Return columns g of random signs, for Hutchinson's estimator ``tr A ≈ mean gᵀ A g``.

    Parameters
    ----------
    length : int
        Length of the columns.
    like : Tensor
        Gives data type and device.

    Returns
    -------
    Tensor of shape (length, PROBES)
        Entries of ±1.
    """
    generator = torch.Generator("cpu").manual_seed(0)
    bits = torch.randint(0, 2, (length, PROBES), generator=generator, device="cpu")
    return bits.mul_(2).sub_(1).to(like)
