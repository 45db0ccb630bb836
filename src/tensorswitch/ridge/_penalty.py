"""The penalty λ: its values, and the choice among several by generalised cross-validation."""

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
    """``fit(λ, judged)`` for each λ, the largest first, and of these the one with the least generalised cross-validation error

        GCV = Σ s ‖t − Wᵀz‖² · rows / (rows − freedom)²

    A single λ is fitted without being judged.
    """
    values = check_alphas(alpha, mean)
    if len(values) == 1:
        return fit(values[0], False).solution
    path, best, least = [], None, math.inf
    for value in values:
        try:
            result = fit(value, True)
        except SingularError:
            if best is None:  # the largest comes first: none of the others can do better
                raise
            log.info("alpha %.3g is too small for working precision and is left out", value)
            break
        spare = rows - result.freedom
        score = result.squared_error * rows / spare**2 if spare > 0 else math.inf
        path.append((value, score))
        if best is None or score < least:
            best, least = result.solution, score
    assert best is not None
    if math.isinf(least):
        log.warning(
            "none of the alphas leaves rows to judge it by; the largest, %.3g, is taken", best.alpha
        )
    elif best.alpha in (values[0], values[-1]):
        end = "largest" if best.alpha == values[0] else "smallest"
        log.info(
            "the best alpha, %.3g, is the %s one tried; a wider range may hold a better one",
            best.alpha,
            end,
        )
    return best._replace(path=tuple(path))


def effective_rows(total: float, squares: float) -> float:
    """How many rows weights with this sum and sum of squares stand for: whole numbers count as repetitions, and a common factor does not matter."""
    return max(total, total**2 / squares) if squares > 0 else 0.0


def probes(length: int, like: Tensor) -> Tensor:
    """Columns of ±1: ``tr A`` is the mean of ``gᵀ A g`` over them, for positive A with a small relative error."""
    generator = torch.Generator("cpu").manual_seed(0)
    return (
        torch.randint(0, 2, (length, PROBES), generator=generator, device="cpu")
        .mul_(2)
        .sub_(1)
        .to(like)
    )


def check_alphas(alpha: Any, mean: float) -> list[float]:
    """The values of λ, from the largest down, each once."""
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
            f"alpha must be 'mean' or a number of at least 0, or a list of these, got {alpha!r}"
        )
    return value
