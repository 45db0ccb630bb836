"""The penalty λ: numbers, multiples of the mean of the Gram matrix's diagonal, and lists."""

import logging
import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

log = logging.getLogger("tensorswitch.linear")

Alpha = float | str | Sequence[float | str]
MULTIPLES = tuple(10.0 ** (k / 2) for k in range(6, -10, -1))  # of the mean, tried by default


def penalties(alpha: Alpha, mean: float) -> list[float]:
    """Return the values of λ that ``alpha`` stands for."""
    mean = mean if mean > 0 else 1.0
    if isinstance(alpha, str) and alpha == "cv":
        return [m * mean for m in MULTIPLES]
    several = isinstance(alpha, Iterable) and not isinstance(alpha, str) and np.ndim(alpha) > 0
    values = {_value(a, mean) for a in (alpha if several else [alpha])}  # type: ignore[union-attr]
    if not values:
        raise ValueError("alpha is empty: give at least one value")
    return sorted(values, reverse=True)


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
            f"these, or 'cv'; got {alpha!r}"
        )
    return value


def least_error(values: Sequence[float], errors: Sequence[float]) -> float:
    """Return the λ with the least error, the larger one of equals."""
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
    """
    return max(total, total**2 / squares) if squares > 0 else 0.0
