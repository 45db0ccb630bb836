"""Means and deviations of columns, dense or sparse, a block of rows at a time."""

from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import numpy as np
from scipy import sparse

from tensorswitch._checks import TOO_LARGE

BLOCK_BYTES = 1 << 26  # of dense rows made at a time
Rows: TypeAlias = Any  # an array, or one of SciPy's sparse matrices, which have no common type


def dense_blocks(X: Rows) -> Iterator[tuple[slice, np.ndarray]]:
    """Yield parts and their rows as arrays, so that sparse rows are never dense all at once."""
    step = max(1, BLOCK_BYTES // (max(1, X.shape[1]) * X.dtype.itemsize))
    for start in range(0, X.shape[0], step):
        part = slice(start, min(start + step, X.shape[0]))
        rows = X[part]
        yield part, rows.toarray() if sparse.issparse(rows) else np.asarray(rows)


def column_moments(
    X: Rows, weight: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return means, standard deviations and root mean squares of the columns, weighted.

    Sums are taken of differences from one of the rows, so that the mean of equal numbers is that
    number, and deviations far smaller than the numbers keep their digits.
    """
    origin = _origin(X, weight)
    with np.errstate(over="ignore", invalid="ignore"):
        mean = origin + _average(X, weight, lambda rows: rows - origin)
        square = _average(X, weight, np.square)
        spread = _average(X, weight, lambda rows: np.square(rows - mean))
    if not (np.isfinite(square).all() and np.isfinite(spread).all()):
        raise ValueError(TOO_LARGE)
    return mean, np.sqrt(spread), np.sqrt(square)


def _origin(X: Rows, weight: np.ndarray | None) -> np.ndarray:
    """Return a row that counts; it only decides the rounding, so the first one will do."""
    used = np.arange(X.shape[0]) if weight is None else np.flatnonzero(weight)
    if not len(used) or sparse.issparse(X):
        return np.zeros(X.shape[1])
    return np.asarray(X[used[0]], dtype=np.float64)


def _average(
    X: Rows, weight: np.ndarray | None, of: Callable[[np.ndarray], np.ndarray]
) -> np.ndarray:
    """Return the weighted mean of a function of the rows, in float64."""
    total, count = np.zeros(X.shape[1]), 0.0
    for part, rows in dense_blocks(X):
        s = np.ones(len(rows)) if weight is None else weight[part].astype(np.float64)
        total, count = total + s @ of(rows.astype(np.float64)), count + s.sum()
    return total / max(count, np.finfo(float).tiny)
