"""Validation of rows: sparse ones become dense, and tables with text get a useful error."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.utils.validation import _check_sample_weight, validate_data

from tensorswitch._checks import LARGEST_SQUARED
from tensorswitch._memory import dense_rows

TABLES_HINT = (
    "{problem}. {name} takes numbers only. skrub.tabular_pipeline({name}()) encodes strings, "
    "categories, dates and missing values; install it with pip install 'tensorswitch[tables]'"
)
COPIES = 3  # of dense rows that a fit holds
NEGLIGIBLE = 1e-12  # of the largest weight
TOO_LARGE = "numbers beyond 1e150 cannot be squared; divide them by a common factor"


def validated(estimator: Any, X: Any, y: Any = "no_validation", **options: Any) -> Any:
    """Call scikit-learn's ``validate_data`` for rows of numbers, dense or sparse.

    Returns
    -------
    ndarray of shape (rows, features), or sparse matrix, or the pair with targets
        Training rows are dense; others stay sparse, so that they can be converted in blocks.
    """
    options = {"dtype": [np.float64, np.float32], "order": "C", "accept_sparse": "csr", **options}
    found = rows_of_numbers(estimator, X, y, **options)
    if isinstance(found, tuple):
        return dense_rows(found[0], copies=COPIES), found[1]
    return found


def rows_of_numbers(estimator: Any, X: Any, y: Any = "no_validation", **options: Any) -> Any:
    """Call scikit-learn's ``validate_data``, with a hint if there are dates or text."""
    _refuse_dates(estimator, X)
    try:
        return validate_data(estimator, X, y, **options)
    except ValueError as error:
        if "could not convert string" not in str(error):
            raise
        problem = f"X holds text ({error})"
        raise ValueError(_hint(estimator, problem)) from error


def check_squares(numbers: np.ndarray) -> None:
    """Raise if squares of the numbers, which variances and kernels sum, would overflow."""
    if numbers.dtype == np.float64 and np.abs(numbers).max(initial=0.0) > LARGEST_SQUARED:
        raise ValueError(TOO_LARGE)


def sample_weights(X: Any, sample_weight: Any) -> np.ndarray | None:
    """Return the weights of rows in float64, None if there are none.

    Weights so small that they cannot matter, as of rows that have decayed, are zero.

    Raises
    ------
    ValueError
        If they do not fit the rows, are negative, or all zero.
    """
    if sample_weight is None:
        return None
    weight: np.ndarray = _check_sample_weight(
        sample_weight, X, dtype=np.float64, ensure_non_negative=True
    )
    if not weight.any():
        raise ValueError("sample_weight is zero for every row")
    result: np.ndarray = np.where(weight > NEGLIGIBLE * weight.max(), weight, 0.0)
    return result


def _refuse_dates(estimator: Any, X: Any) -> None:
    """Raise if an array or a column of a DataFrame holds dates, which would become nanoseconds."""
    dtypes: Any = getattr(X, "dtypes", None)
    for column, dtype in dtypes.items() if hasattr(dtypes, "items") else ():
        if getattr(dtype, "kind", "") in ("M", "m"):
            raise ValueError(_hint(estimator, f"column {column!r} of X holds dates ({dtype})"))
    if getattr(getattr(X, "dtype", None), "kind", "") in ("M", "m"):
        raise ValueError(_hint(estimator, f"X holds dates ({X.dtype})"))


def _hint(estimator: Any, problem: str) -> str:
    return TABLES_HINT.format(problem=problem, name=type(estimator).__name__)
