"""Predictions, and common measures of how good they are."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from pandas import DataFrame
from sklearn.metrics import average_precision_score as precision_score
from sklearn.metrics import roc_auc_score

from tensorswitch._files import replacing


class Metric(NamedTuple):
    """What learners are ranked by; it has a column in tables."""

    measure: str  # its name in records
    label: str
    more: bool = True  # whether more is better
    percent: bool = False

    def text(self, value: float, digits: int = 2) -> str:
        """Return a value as it is shown, or a dash."""
        if math.isnan(value):
            return "–"
        if self.label in ("RMSE", "MAE"):
            return number(value)
        return f"{100 * value:.{digits}f}" if self.percent else f"{value:.3f}"


SHARES = {
    "error": Metric("error", "error", more=False, percent=True),
    "balanced-accuracy": Metric("balanced_accuracy", "balanced accuracy", percent=True),
    "log-loss": Metric("log_loss", "log-loss", more=False),
    "roc-auc": Metric("roc_auc", "ROC AUC"),
    "average-precision": Metric("average_precision", "average precision"),
    "f1": Metric("f1", "F1"),
}
NUMBERS = {
    "r2": Metric("r2", "R²"),
    "rmse": Metric("rmse", "RMSE", more=False),
    "mae": Metric("mae", "MAE", more=False),
}
METRICS = SHARES | NUMBERS
OF_THRESHOLDS = ("balanced-accuracy", "f1")  # for which a threshold is chosen


def metric_name(name: str | None, task: str) -> str:
    """Return the name of a metric that suits a task, by default error or R²."""
    fitting = [*(SHARES if task == "classification" else NUMBERS)]
    key = fitting[0] if name is None else name.lower().replace("_", "-").replace(" ", "-")
    if key not in fitting:
        raise ValueError(f"metric of a {task} must be one of {', '.join(fitting)}; got {name!r}")
    return key


BINS = 10  # of the reliability curve
LEAST = 1e-12  # smaller probabilities count as this in the log-loss
MANY = 50  # classes beyond which only the probability of the predicted one is written or measured


def classification_metrics(
    truth: np.ndarray,
    predicted: np.ndarray,
    probabilities: np.ndarray | None,
    classes: int,
    positive: int | None = None,
) -> dict[str, Any]:
    """Return error, accuracies, F1, confusion matrix and what follows from probabilities.

    Balanced accuracy is the mean over classes that occur. F1, ROC AUC and average precision are
    those of the ``positive`` one of two classes, by default the rarer, or means over all classes.
    Reliability has rows, the sum of the probabilities of the predicted classes and the number of
    right rows, by that probability.
    """
    confusion = np.zeros((classes, classes), dtype=np.int64)
    np.add.at(confusion, (truth, predicted), 1)  # += would count equal pairs once
    counts, right = confusion.sum(1), truth == predicted
    recall = confusion.diagonal()[counts > 0] / counts[counts > 0]
    found: dict[str, Any] = {"error": 1 - float(right.mean()), "accuracy": float(right.mean())}
    found |= {"balanced_accuracy": float(recall.mean()), "confusion": confusion.tolist()}
    judged = np.flatnonzero((counts > 0) & (counts < len(truth)))
    if classes == 2:
        judged = judged[judged == (counts.argmin() if positive is None else positive)]
    f1 = 2 * confusion.diagonal()[judged] / (counts + confusion.sum(0))[judged]
    found["f1"] = float(f1.mean()) if len(judged) else math.nan
    if probabilities is None:
        return found
    for name, measure in (("roc_auc", roc_auc_score), ("average_precision", precision_score)):
        some = judged if len(judged) <= MANY else judged[:0]
        each = [measure(truth == k, probabilities[:, k]) for k in some]
        found[name] = float(np.mean(each)) if each else math.nan
    rows, p = np.arange(len(truth)), np.clip(probabilities, LEAST, 1)
    found["log_loss"] = float(-np.log(p[rows, truth] / p.sum(1)).mean())
    sure = probabilities[rows, predicted]
    places = np.minimum((sure * BINS).astype(int), BINS - 1)
    found["reliability"] = [
        [int(k.sum()), float(sure[k].sum()), int(right[k].sum())]
        for k in (places == b for b in range(BINS))
    ]
    return found


def regression_metrics(truth: np.ndarray, predicted: np.ndarray) -> dict[str, Any]:
    """Return R², which is NaN if the targets are constant, RMSE, MAE and the error 1 − R²."""
    residual = predicted - truth
    # The mean of equal numbers may differ from them in the last digit.
    total = np.square(truth - truth.mean()).sum() if np.ptp(truth) > 0 else 0.0
    r2 = float(1 - np.square(residual).sum() / total) if total > 0 else float("nan")
    rmse, mae = float(np.sqrt(np.square(residual).mean())), float(np.abs(residual).mean())
    return {"error": 1 - r2, "r2": r2, "rmse": rmse, "mae": mae}


def number(value: float) -> str:
    """Format a number with four significant digits, without an exponent unless it is extreme."""
    short = f"{value:.4g}"
    return f"{float(short):,.0f}" if 1e4 <= abs(float(short)) < 1e9 else short


@dataclass(frozen=True)
class Predictions:
    """Predictions of rows, in their order; as an array or when iterated over, the labels.

    Parameters
    ----------
    class_names : list of str or None
        The classes that the model knows; None for a regression.
    probabilities : ndarray of shape (rows, classes) or None, default=None
        The probability of each class, if the model has them.
    truth : ndarray of shape (rows,) or None, default=None
        The names of the right classes, or the right numbers, if they are known.
    codes, values : ndarray of shape (rows,) or None, default=None
        The predicted classes, as indices into ``class_names``, or the predictions of a regression.
    low, high : ndarray of shape (rows,) or None, default=None
        Bounds between which nine tenths of the targets lie.
    notes : tuple of str, default=()
        Columns that are missing or new, and cells that are not of the kind of their column.

    Examples
    --------
    >>> import numpy as np
    >>> from tensorswitch.compare import Predictions
    >>> found = Predictions(["no", "yes"], codes=np.array([0, 1]), truth=np.array(["no", "no"]))
    >>> found.labels.tolist(), found.error
    (['no', 'yes'], 0.5)
    """

    class_names: list[str] | None
    probabilities: np.ndarray | None = None
    truth: np.ndarray | None = None
    codes: np.ndarray | None = None
    values: np.ndarray | None = None
    low: np.ndarray | None = None
    high: np.ndarray | None = None
    notes: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.labels)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.labels.tolist())

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.array(self.labels, dtype=dtype)

    @property
    def labels(self) -> np.ndarray:
        """The name of the predicted class of each row, or the predicted number."""
        if self.class_names is None:
            assert self.values is not None
            return self.values
        return np.array(self.class_names)[self.codes]

    @property
    def confidence(self) -> np.ndarray | None:
        """The probability of the predicted class of each row, if the model has probabilities."""
        if self.probabilities is None:
            return None
        return self.probabilities[np.arange(len(self)), self.codes]

    @property
    def error(self) -> float:
        """The share of rows with a wrong label, or 1 − R²; NaN if the truth is not known."""
        return float("nan") if self.truth is None else float(self.metrics()["error"])

    @property
    def unknown(self) -> list[str]:
        """Classes of the rows that the model does not know."""
        if self.truth is None or self.class_names is None:
            return []
        return sorted({*self.truth} - {*self.class_names})

    def metrics(self) -> dict[str, Any]:
        """Measure the predictions against the truth; classes that are not known count as errors.

        They are ``accuracy``, ``balanced_accuracy``, ``f1``, ``confusion`` and, with probabilities,
        ``log_loss``, ``roc_auc`` and ``average_precision``; or ``r2``, ``rmse`` and ``mae``.
        """
        if self.truth is None:
            raise ValueError("the true targets are not known, so no errors can be computed")
        if self.class_names is None:
            return regression_metrics(self.truth, self.labels)
        names = [*self.class_names, *self.unknown]
        place = {name: i for i, name in enumerate(names)}
        truth = np.array([place[name] for name in self.truth], dtype=int)
        probabilities = self.probabilities
        if probabilities is not None:
            probabilities = np.pad(probabilities, ((0, 0), (0, len(self.unknown))))
        assert self.codes is not None
        return classification_metrics(truth, self.codes, probabilities, len(names))

    def save(
        self, path: str | Path, ids: Sequence[Any] | None = None, id_name: str = "row"
    ) -> None:
        """Write a line for each row, as CSV.

        Parameters
        ----------
        path : str or Path
            The file.
        ids : sequence, optional
            What identifies the rows, by default their numbers from 0.
        id_name : str, default="row"
            Name of that column.
        """
        frame = DataFrame(self.columns())
        frame.insert(0, id_name, range(len(self)) if ids is None else ids, allow_duplicates=True)
        with replacing(path) as partial:
            frame.to_csv(partial, index=False, lineterminator="\n")

    def columns(self) -> dict[str, list[str]]:
        """Return the columns of the predictions by name, as text.

        They are label, its probability and that of every class; or prediction and interval.
        """
        if self.class_names is None:
            bounds = {"prediction": self.values, "low": self.low, "high": self.high}
            known = {name: v.astype(float) for name, v in bounds.items() if v is not None}
            return {name: list(map(repr, v.tolist())) for name, v in known.items()}
        columns = {}
        if self.confidence is not None and self.probabilities is not None:
            columns["probability"] = self.confidence
            if len(self.class_names) <= MANY:
                names = [f"probability of {name}" for name in self.class_names]
                columns |= dict(zip(names, self.probabilities.T, strict=True))
        shares = {name: [f"{p:.6f}" for p in column] for name, column in columns.items()}
        return {"label": self.labels.tolist(), **shares}
