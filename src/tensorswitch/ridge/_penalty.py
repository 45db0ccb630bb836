"""The penalty λ: validation, and selection by generalised cross-validation (GCV).

References
----------
.. [1] G. H. Golub, M. Heath and G. Wahba, "Generalized Cross-Validation as a Method for Choosing a
   Good Ridge Parameter", Technometrics 21(2), 1979.
.. [2] M. F. Hutchinson, "A Stochastic Estimator of the Trace of the Influence Matrix for Laplacian
   Smoothing Splines", Communications in Statistics 19(2), 1990.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tensorswitch.ridge._cholesky import SingularError
from tensorswitch.ridge._solution import Fit, Solution

log = logging.getLogger("tensorswitch.ridge")

Alpha = float | str | Sequence[float | str]
PROBES = 16


def least_gcv(
    alpha: Alpha, mean: float, rows: float, fit: Callable[[float, bool], Fit]
) -> Solution:
    """Fit each λ, the largest first, and return the solution with the lowest GCV error.

        GCV = Σ s ‖t − Wᵀz‖² · rows / (rows − freedom)²

    ``fit(λ, judged)`` returns error and degrees of freedom if ``judged``. A single λ is fitted
    without them.
    """
    values = check_alphas(alpha, mean)
    if len(values) == 1:
        return fit(values[0], False).solution
    path, best, least = [], None, math.inf
    for value in values:
        try:
            result = fit(value, True)
        except SingularError:
            if best is None:  # smaller values are worse conditioned, so they would fail too
                raise
            log.info("alpha %.3g is too small for working precision and is skipped", value)
            break
        spare = rows - result.freedom
        score = result.squared_error * rows / spare**2 if spare > 0 else math.inf
        path.append((value, score))
        if best is None or score < least:
            best, least = result.solution, score
    assert best is not None
    if math.isinf(least):
        log.warning(
            "no alpha leaves residual degrees of freedom, so their GCV errors are undefined; "
            "using the largest, %.3g",
            best.alpha,
        )
    elif best.alpha in (values[0], values[-1]):
        end = "largest" if best.alpha == values[0] else "smallest"
        log.info(
            "the best alpha, %.3g, is the %s one tried; consider a wider range",
            best.alpha,
            end,
        )
    return best._replace(path=tuple(path))


def effective_rows(total: float, squares: float) -> float:
    """Return the effective number of rows, ``max(Σ s, (Σ s)² / Σ s²)``, for sample weights s.

    Integer weights count as repetitions in ``Σ s``. ``(Σ s)² / Σ s²`` is Kish's effective sample
    size, which does not depend on the scale of the weights.

    Parameters
    ----------
    total : float
        Sum of the weights.
    squares : float
        Sum of the squared weights.

    Returns
    -------
    float
        The effective number of rows, 0 if all weights are zero.

    Examples
    --------
    >>> from tensorswitch.ridge import effective_rows
    >>> effective_rows(2 + 1, 2**2 + 1)  # one row twice, another once
    3
    >>> round(effective_rows(0.5 + 0.5, 0.5**2 + 0.5**2))
    2
    """
    return max(total, total**2 / squares) if squares > 0 else 0.0


def probes(length: int, like: Tensor) -> Tensor:
    """Return columns g of random signs, for Hutchinson's estimator ``tr A ≈ mean gᵀ A g`` [2]_."""
    generator = torch.Generator("cpu").manual_seed(0)
    bits = torch.randint(0, 2, (length, PROBES), generator=generator, device="cpu")
    return bits.mul_(2).sub_(1).to(like)


def check_alphas(alpha: Any, mean: float) -> list[float]:
    """Return the distinct values of λ in decreasing order, or raise if one is invalid."""
    several = not isinstance(alpha, str) and np.ndim(alpha) > 0
    values = {_check_alpha(a, mean) for a in (alpha if several else [alpha])}
    if not values:
        raise ValueError("alpha is empty: give at least one value")
    return sorted(values, reverse=True)


def _check_alpha(alpha: Any, mean: float) -> float:
    if isinstance(alpha, str) and alpha == "mean":
        return mean if mean > 0 else 1.0
    try:
        value = math.nan if isinstance(alpha, str | bool) else float(alpha)
    except (TypeError, ValueError):
        value = math.nan
    if not math.isfinite(value) or value < 0:
        raise ValueError(
            f"alpha must be 'mean', a non-negative number or a list of these, got {alpha!r}"
        )
    return value
