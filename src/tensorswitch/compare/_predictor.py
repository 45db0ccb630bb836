"""A fitted pipeline: from the rows of a file to predictions, saved as one file."""

import inspect
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

import numpy as np
from pandas import DataFrame, Series
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.pipeline import Pipeline, make_pipeline

from tensorswitch import persistence
from tensorswitch.compare._metrics import (
    METRICS,
    Predictions,
    classification_metrics,
    regression_metrics,
)
from tensorswitch.datasets import DataError
from tensorswitch.explain import Explanation, explain
from tensorswitch.linear._calibration import Calibration
from tensorswitch.persistence import SavedPart, saved_as

COVERED = 0.9  # nominal coverage of the intervals


@saved_as("raw-images")
@dataclass(frozen=True)
class RawImages(SavedPart):
    """The encoder of learners that take images as they are, with channels last."""

    def __call__(self, rows: np.ndarray) -> np.ndarray:
        return rows.transpose(0, 2, 3, 1)


@saved_as("constant-feature")
class ConstantFeature(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Divide rows by their root mean square length, and append 1, for kernels without a bias."""

    def fit(self, X: np.ndarray, y: Any = None) -> Self:
        self.length_ = float(np.sqrt(np.square(X, dtype=np.float64).sum(1).mean())) or 1.0
        return self

    def transform(self, X: np.ndarray) -> np.ndarray:
        return np.column_stack([X / self.length_, np.ones(len(X))]).astype(X.dtype)

    def state(self) -> dict[str, Any]:
        return {"length": self.length_}

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> Self:
        found = cls()
        found.length_ = state["length"]
        return found


@saved_as("interval")
@dataclass(frozen=True)
class Interval(SavedPart):
    """Quantiles of residuals, in units of the predicted deviation if the model predicts one."""

    low: float
    high: float
    scaled: bool

    @classmethod
    def fit(cls, residuals: np.ndarray, deviations: np.ndarray | None) -> Self:
        """Take quantiles that cover nine tenths of rows that the model has not seen."""
        relative = residuals if deviations is None else residuals / deviations
        rest = (1 - COVERED) / 2
        low = np.quantile(relative, rest, method="lower")
        high = np.quantile(relative, 1 - rest, method="higher")
        # If all predictions are too high or too low, the interval still has the prediction in it.
        return cls(min(float(low), 0.0), max(float(high), 0.0), deviations is not None)


@saved_as("predictor")
@dataclass
class Predictor(SavedPart):
    """A fitted learner, the encoding of its inputs and the meaning of its outputs.

        rows → encoder → model (scaling, …, estimator) → calibration or interval

    Parameters
    ----------
    model : estimator
        A fitted scikit-learn estimator or pipeline.
    encoder : callable
        From raw rows to the inputs of the model.
    learner : str
        Name of the learner.
    class_names : tuple of str or None
        Names of the classes; None for a regression.
    target_name, id_name, target_written : str, default=""
        Columns of a table, and how the target was written, if that is special.
    interval, calibration : Interval or Calibration, or None, default=None
        For the intervals of a regression, and the probabilities of classifiers without.
    row_shape, row_type : tuple of int and str
        Shape and type of a row of an array, before it is encoded; () for tables.
    threshold : tuple of int and float, or None, default=None
        The rarer one of two classes, and the probability from which it is predicted; by default it
        is the class of the larger probability.

    Examples
    --------
    >>> from tensorswitch.compare import load_problem, train
    >>> problem = load_problem("digits")
    >>> predictor, result = train(problem, "linear")
    >>> predictor.predict(problem.rows[:3]).labels.tolist()
    ['6', '4', '4']
    """

    model: Any
    encoder: Any
    learner: str
    class_names: tuple[str, ...] | None
    target_name: str = ""
    id_name: str = ""
    interval: Interval | None = None
    calibration: Calibration | None = None
    row_shape: tuple[int, ...] = ()
    row_type: str = ""
    target_written: str = ""
    threshold: tuple[int, float] | None = None

    @property
    def is_table(self) -> bool:
        """Whether it predicts rows of a table."""
        return not self.row_shape

    def predict(self, rows: Any, encoded: bool = False) -> Predictions:
        """Predict classes and their probabilities, or numbers and their intervals.

        Parameters
        ----------
        rows : DataFrame, dict, list of dict, ndarray, str or Path
            Raw rows: a table, one row or columns by name, several rows, an array, or a file as
            :func:`predict_rows` takes it. None, NaN and empty strings are missing values.
        encoded : bool, default=False
            Whether they are inputs of the model already.

        Returns
        -------
        Predictions
            In the order of the rows. As an array they are the labels, or the numbers.
        """
        if isinstance(rows, str | Path):
            from tensorswitch.compare._rows import predict_rows

            predictions, given = predict_rows(self, rows)
            return replace(predictions, notes=tuple(given.notes))
        x, notes = (rows, ()) if encoded else self._inputs(rows)
        if self.class_names is not None:
            codes, probabilities = self._classes(x)
            return Predictions([*self.class_names], probabilities, codes=codes, notes=notes)
        values, deviations = numbers_of(self.model, x)
        low = high = None
        if self.interval is not None and (deviations is not None or not self.interval.scaled):
            unit = deviations if self.interval.scaled and deviations is not None else 1.0
            low, high = values + self.interval.low * unit, values + self.interval.high * unit
        return Predictions(None, values=values, low=low, high=high, notes=notes)

    def predict_proba(self, rows: Any) -> np.ndarray:
        """Return the probability of each class, in the order of ``class_names``.

        Parameters
        ----------
        rows : DataFrame, dict, list of dict, ndarray, str or Path
            Raw rows, as in :meth:`predict`.
        """
        found = self.predict(rows).probabilities
        if found is None:
            raise TypeError(f"{self.learner} has no probabilities")
        return found

    def _inputs(self, rows: Any) -> tuple[np.ndarray, tuple[str, ...]]:
        """Return the inputs of the model for raw rows, and what is unusual about them."""
        if not self.is_table:
            rows = np.asarray(rows)
            check_array(self, "the array", rows)
            return self.encoder(rows), ()
        frame = as_frame(rows)
        return self.encoder(frame), tuple(self.encoder.describe_differences(frame))

    def choose_threshold(self, test: np.ndarray, truth: np.ndarray, goal: str) -> dict[str, Any]:
        """Choose from which probability the rarer of two classes is predicted.

        Parameters
        ----------
        test, truth : ndarray
            Inputs of rows that the model has not seen, and their classes.
        goal : str
            The metric to be large.

        Returns
        -------
        dict
            The measures of these rows, with thresholds that the other half of them has chosen.
        """
        found = self.predict(test, encoded=True)
        if found.probabilities is None or len(truth) < 2:
            return {}
        rare = int(np.bincount(truth, minlength=2).argmin())
        shares, half = found.probabilities[:, rare], np.arange(len(truth)) % 2 == 0

        def best(rows: np.ndarray) -> float:
            """Return the middle of the threshold of the largest metric and the next smaller."""
            tried = np.unique(np.quantile(shares[rows], np.linspace(0, 1, 200)))
            measure = METRICS[goal].measure
            scores = [
                classification_metrics(
                    truth[rows], np.where(shares[rows] >= t, rare, 1 - rare), None, 2, rare
                )[measure]
                for t in tried
            ]
            place = int(np.nan_to_num(scores, nan=-1.0).argmax())
            return float((tried[place] + tried[max(0, place - 1)]) / 2)

        thresholds = np.where(half, best(~half), best(half))
        codes = np.where(shares >= thresholds, rare, 1 - rare)
        self.threshold = rare, best(np.ones_like(half))
        return classification_metrics(truth, codes, found.probabilities, 2, rare)

    def explain(self, rows: Any) -> Explanation:
        """Return what each column, or each pixel, contributes to the outputs of the model.

        Contributions of raw rows have the shape (rows, outputs, columns), or (rows, outputs, ...)
        with the axes of an image, and add up with the constant to the outputs. A model that has no
        exact explanation raises a TypeError.
        """
        rows = as_frame(rows) if self.is_table else np.asarray(rows)
        x = self.encoder(rows)
        found = explain(self.model, x)
        if self.is_table:
            return found.grouped(self.encoder.sources, len(self.encoder.columns))
        return found if isinstance(self.encoder, RawImages) else self._in_pixels(rows, x, found)

    def _in_pixels(self, rows: np.ndarray, x: np.ndarray, found: Explanation) -> Explanation:
        """Divide the contribution of each principal component among the pixels it is made of."""
        shares, basis = found.contributions, self.encoder.basis
        if basis is not None:
            pixels = replace(self.encoder, basis=None, flat=True)(rows)
            known = np.abs(x[:, None]) > 1e-30  # a component of zero contributes nothing
            slopes = np.divide(shares, x[:, None], out=np.zeros_like(shares), where=known)
            shares = (slopes @ basis.T) * pixels[:, None]
        shares = shares.reshape(*found.constant.shape, *self.encoder.mean.shape)
        if rows.ndim == 4:  # without the margin that the preparation has added, which is zero
            height, width = rows.shape[-2:]
            top, left = (shares.shape[-2] - height) // 2, (shares.shape[-1] - width) // 2
            shares = shares[..., top : top + height, left : left + width]
        return Explanation(shares, found.constant)

    def _classes(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray | None]:
        """Return predicted classes, and probabilities with a column for each class there is."""
        known = np.asarray(self.model.classes_).astype(int)
        if hasattr(self.model, "predict_proba"):
            found = np.asarray(self.model.predict_proba(x), dtype=float)
            codes = known[found.argmax(1)]  # without predicting twice
        else:
            codes = np.asarray(self.model.predict(x)).astype(int)
            if self.calibration is None:
                return codes, None
            found = self.calibration.probabilities(decisions(self.model, x))
        assert self.class_names is not None
        every = np.zeros((len(codes), len(self.class_names)))
        every[:, known] = found
        if self.threshold is not None:
            rare, least = self.threshold
            codes = np.where(every[:, rare] >= least, rare, 1 - rare)
        return codes, every

    def save(self, path: str | Path) -> None:
        """Write everything to a safetensors file, atomically, if the model is of this library."""
        persistence.save(self, path)

    def state(self) -> dict[str, Any]:
        """Return all parts, and the steps of a pipeline as a list."""
        return {**vars(self), "model": steps(self.model)}

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> Self:
        """Return the predictor of a state."""
        first, *rest = state["model"]
        return cls(**state | {"model": make_pipeline(first, *rest) if rest else first})


def steps(model: Any) -> list[Any]:
    """Return the steps of a pipeline, or the estimator itself as the only step."""
    return [step for _, step in model.steps] if isinstance(model, Pipeline) else [model]


def can_save(model: Any) -> bool:
    """Return whether all steps of a model can be saved without pickle."""
    return all(persistence.is_saveable(step) for step in steps(model))


def numbers_of(model: Any, x: np.ndarray) -> tuple[np.ndarray, np.ndarray | None]:
    """Return predictions, and deviations if the model has them and they fit into memory."""
    values = deviations = None
    if "return_std" in inspect.signature(model.predict).parameters:
        with suppress(MemoryError):
            values, deviations = model.predict(x, return_std=True)
            deviations = np.maximum(deviations, 1e-12)  # residuals are divided by them
    values = model.predict(x) if values is None else values
    return np.asarray(values, dtype=float).reshape(len(x)), deviations


def decisions(model: Any, x: np.ndarray) -> np.ndarray:
    """Return the decision function with a column per class, one column for two classes."""
    return np.asarray(model.decision_function(x), dtype=float).reshape(len(x), -1)


def measure(
    predictor: Predictor, test: np.ndarray, truth: np.ndarray
) -> tuple[dict[str, Any], float, str]:
    """Return measures on test rows, seconds and a remark, and learn how far off the model is."""
    start = time.perf_counter()
    if predictor.class_names is None:
        values, deviations = numbers_of(predictor.model, test)
        predictor.interval = Interval.fit(truth - values, deviations)
        return regression_metrics(truth, values), time.perf_counter() - start, ""
    found, classes = predictor.predict(test, encoded=True), len(predictor.class_names)
    seconds, remark = time.perf_counter() - start, ""
    if found.probabilities is None and hasattr(predictor.model, "decision_function"):
        if len(np.unique(truth)) == classes == len(predictor.model.classes_):
            outputs = decisions(predictor.model, test)
            predictor.calibration = Calibration.fit(outputs, truth, np.ones(len(truth)))
        else:
            remark = "no probabilities, as some classes are not among the test rows"
    assert found.codes is not None
    metrics = classification_metrics(truth, found.codes, found.probabilities, classes)
    return metrics, seconds, remark


def as_frame(rows: Any) -> DataFrame:
    """Return rows of a table: a frame, one row or columns by name, or a list of rows."""
    if isinstance(rows, DataFrame):
        return rows
    if isinstance(rows, Series):
        rows = rows.to_dict()
    if isinstance(rows, Mapping):
        scalar = all(
            isinstance(value, str) or not hasattr(value, "__len__") for value in rows.values()
        )
        return DataFrame([rows]) if scalar else DataFrame(dict(rows))
    if isinstance(rows, list | tuple) and all(isinstance(row, Mapping) for row in rows):
        return DataFrame(list(rows))
    what = "a DataFrame, a dictionary, a list of dictionaries or the path of a table"
    raise TypeError(
        f"rows must be {what}, since columns are known by name; got {type(rows).__name__}"
    )


def check_array(predictor: Predictor, data: str | Path, rows: np.ndarray) -> None:
    """Raise if rows are not like those of training."""
    if not len(rows):
        raise DataError(f"{data} has no rows to predict")
    # Numbers of all types are alike; bytes are scaled as pixels.
    if (rows.dtype == np.uint8) != (predictor.row_type == "uint8"):
        what = f"{data} contains {rows.dtype}, but the model was trained on {predictor.row_type}"
        raise DataError(f"{what}; use the same type, since bytes are scaled as pixels")
    found, known = rows.shape[1:], tuple(predictor.row_shape)
    if found != known:
        raise DataError(f"{data} has rows of shape {found}, but the model was trained on {known}")
    if not np.isfinite(rows).all():
        raise DataError(f"{data} contains NaN or infinity")


def load_predictor(path: str | Path) -> Predictor:
    """Read a fitted pipeline.

    Parameters
    ----------
    path : str or Path
        A ``model.safetensors``, or the output folder of ``tensorswitch train``.

    Returns
    -------
    Predictor
        The fitted pipeline.

    Examples
    --------
    >>> import tempfile
    >>> from tensorswitch.compare import load_predictor, load_problem, train
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = train(load_problem("digits"), "rr", folder)
    ...     load_predictor(folder).learner
    'rr'
    """
    found = persistence.load(path)
    if not isinstance(found, Predictor):
        raise ValueError(
            f"{path} holds a {type(found).__name__} without the preparation of its inputs; use a "
            "model written by `tensorswitch train` or `tensorswitch.compare.train`"
        )
    return found
