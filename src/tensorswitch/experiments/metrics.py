"""Common metrics of classification and regression."""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = ["BINS", "classification_metrics", "number", "regression_metrics"]

BINS = 10  # of the reliability curve
LEAST = 1e-12  # smaller probabilities count as this in the log-loss


def classification_metrics(
    truth: np.ndarray,
    predicted: np.ndarray,
    probabilities: np.ndarray | None,
    classes: int,
) -> dict[str, Any]:
    """Measure predicted classes and their probabilities.

    Parameters
    ----------
    truth : ndarray of int of shape (rows,)
        Right classes.
    predicted : ndarray of int of shape (rows,)
        Predicted classes.
    probabilities : ndarray of shape (rows, classes) or None
        Probabilities of the classes, if the model has them.
    classes : int
        Number of classes.

    Returns
    -------
    dict
        ``error``, ``accuracy``, ``balanced_accuracy`` (the mean over classes that occur),
        ``confusion`` (right class by predicted class) and, with probabilities, ``log_loss`` and
        ``reliability``: rows, mean probability of the predicted class and share of right rows, in
        ten bins of that probability.

    Examples
    --------
    >>> import numpy as np
    >>> from tensorswitch.experiments.metrics import classification_metrics
    >>> found = classification_metrics(np.array([0, 0, 1]), np.array([0, 1, 1]), None, 2)
    >>> round(found["accuracy"], 3), found["balanced_accuracy"], found["confusion"]
    (0.667, 0.75, [[1, 1], [0, 1]])
    """
    confusion = np.zeros((classes, classes), dtype=np.int64)
    np.add.at(confusion, (truth, predicted), 1)
    counts = confusion.sum(1)
    recall = confusion.diagonal()[counts > 0] / counts[counts > 0]
    accuracy = float(np.mean(truth == predicted))
    found: dict[str, Any] = {
        "error": 1 - accuracy,
        "accuracy": accuracy,
        "balanced_accuracy": float(recall.mean()),
        "confusion": confusion.tolist(),
    }
    if probabilities is None:
        return found
    p = np.clip(probabilities, LEAST, 1)
    p = p / p.sum(1, keepdims=True)
    found["log_loss"] = float(-np.log(p[np.arange(len(truth)), truth]).mean())
    sure = probabilities[np.arange(len(truth)), predicted]
    places = np.minimum((sure * BINS).astype(int), BINS - 1)
    found["reliability"] = [
        [int(k.sum()), float(sure[k].sum()), int((truth == predicted)[k].sum())]
        for k in (places == b for b in range(BINS))
    ]
    return found


def regression_metrics(truth: np.ndarray, predicted: np.ndarray) -> dict[str, Any]:
    """Measure predicted numbers.

    Parameters
    ----------
    truth : ndarray of shape (rows,)
        Right values.
    predicted : ndarray of shape (rows,)
        Predictions.

    Returns
    -------
    dict
        ``r2`` (the share of the variance that is explained; NaN if the right values are constant),
        ``rmse``, ``mae``, and ``error``, which is ``1 − r2``.

    Examples
    --------
    >>> import numpy as np
    >>> from tensorswitch.experiments.metrics import regression_metrics
    >>> found = regression_metrics(np.array([0.0, 1.0, 2.0]), np.array([0.0, 1.0, 1.0]))
    >>> found["r2"], round(found["rmse"], 3), round(found["mae"], 3)
    (0.5, 0.577, 0.333)
    """
    residual = predicted - truth
    # The mean of equal numbers may differ from them in the last digit.
    total = np.square(truth - truth.mean()).sum() if np.ptp(truth) > 0 else 0.0
    r2 = float(1 - np.square(residual).sum() / total) if total > 0 else float("nan")
    return {
        "error": 1 - r2,
        "r2": r2,
        "rmse": float(np.sqrt(np.square(residual).mean())),
        "mae": float(np.abs(residual).mean()),
    }


def number(value: float) -> str:
    """Format a number with four significant digits, without an exponent unless it is extreme.

    Parameters
    ----------
    value : float
        The number.

    Returns
    -------
    str
        The number, with commas between thousands.

    Examples
    --------
    >>> from tensorswitch.experiments.metrics import number
    >>> number(115912.3), number(0.0123456), number(1e12)
    ('115,900', '0.01235', '1e+12')
    """
    short = f"{value:.4g}"
    return f"{float(short):,.0f}" if 1e4 <= abs(float(short)) < 1e9 else short
