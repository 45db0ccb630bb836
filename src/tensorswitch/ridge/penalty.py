"""The penalty λ: numbers, multiples of the mean of the Gram matrix's diagonal, and lists."""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

__all__ = ["MULTIPLES", "Alpha", "Penalties", "effective_rows", "least_error", "penalties"]

log = logging.getLogger("tensorswitch.ridge")

Alpha = float | str | Sequence[float | str]
SELECTIONS = ("cv", "gcv")
MULTIPLES = tuple(10.0 ** (k / 2) for k in range(6, -10, -1))  # of the mean, tried by default


class Penalties(NamedTuple):
    """Hold the values of λ to try and how to choose among them.

    Parameters
    ----------
    values : list of float
        Distinct values, the largest first.
    selection : {"cv", "gcv"}
        By cross-validation, or by generalised cross-validation.
    """

    values: list[float]
    selection: str


def penalties(alpha: Any, mean: float, selection: str = "cv") -> Penalties:
    """Return the values of λ that ``alpha`` stands for.

    Parameters
    ----------
    alpha : float, str or a sequence of these
        A number; "mean" or a multiple such as "0.1 mean", where the mean is that of the Gram
        matrix's diagonal; several of these; or "cv" or "gcv" for ``MULTIPLES`` of the mean and how
        to choose among them.
    mean : float
        The mean of the diagonal. If it is 0, 1 is used.
    selection : {"cv", "gcv"}, default="cv"
        How to choose among several values.

    Returns
    -------
    Penalties

    Raises
    ------
    ValueError
        If a value is not a number of at least 0 or a multiple of the mean.

    Examples
    --------
    >>> from tensorswitch.ridge.penalty import penalties
    >>> penalties([1.0, "0.1 mean", "mean"], 50.0).values
    [50.0, 5.0, 1.0]
    """
    if selection not in SELECTIONS:
        raise ValueError(f"selection must be 'cv' or 'gcv', got {selection!r}")
    mean = mean if mean > 0 else 1.0
    if isinstance(alpha, str) and alpha in SELECTIONS:
        return Penalties([m * mean for m in MULTIPLES], alpha)
    several = not isinstance(alpha, str) and np.ndim(alpha) > 0
    values = {_value(a, mean) for a in (alpha if several else [alpha])}
    if not values:
        raise ValueError("alpha is empty: give at least one value")
    return Penalties(sorted(values, reverse=True), selection)


def _value(alpha: Any, mean: float) -> float:
    number, scale = alpha, 1.0
    if isinstance(alpha, str):
        text = alpha.strip()
        # As reports print them: "0.1 × mean".
        number = text.removesuffix("mean").rstrip(" ×*") or 1.0 if text.endswith("mean") else None
        scale = mean
    try:
        value = math.nan if number is None or isinstance(alpha, bool) else float(number) * scale
    except (TypeError, ValueError):
        value = math.nan
    if not math.isfinite(value) or value < 0:
        raise ValueError(
            "alpha must be 'mean', a non-negative number, a multiple such as '0.1 mean', a list of "
            f"these, 'cv' or 'gcv'; got {alpha!r}"
        )
    return value


def least_error(values: Sequence[float], errors: Sequence[float]) -> float:
    """Return the λ with the least error, the larger one of equals.

    Parameters
    ----------
    values : sequence of float
        Values of λ, the largest first.
    errors : sequence of float
        The error of each, infinite where it is unknown.

    Returns
    -------
    float
        The chosen λ.
    """
    best = min(range(len(values)), key=lambda i: errors[i])
    if math.isinf(errors[best]):
        log.warning("too few rows to compare values of alpha; using the largest, %.3g", values[0])
    elif best in (0, len(values) - 1):
        end = "smallest" if best else "largest"
        log.info(
            "the best alpha, %.3g, is the %s one tried; consider a wider range", values[best], end
        )
    return values[best]


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
