"""Fit one method to one split of a problem, and measure it on the test rows."""

from __future__ import annotations

import copy
import math
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from sklearn.model_selection import train_test_split
from threadpoolctl import threadpool_limits
from torch import nn

from tensorswitch.compare import Problem
from tensorswitch.compare._problem import Parts
from tensorswitch.datasets import Preparation
from tensorswitch.estimators import TSKernelSVC, kernel_svc_grid
from tensorswitch.experiments.filters import first_filters
from tensorswitch.experiments.methods import COMPARED, Method, Setting
from tensorswitch.experiments.metrics import classification_metrics, regression_metrics
from tensorswitch.experiments.predictor import (
    Front,
    Interval,
    Predictor,
    all_classes,
    decisions,
    predicted_classes,
    predicted_numbers,
)
from tensorswitch.linear._calibration import Calibration
from tensorswitch.training import Learner

__all__ = ["Fit", "fit_method"]

VALIDATION = 0.2  # share of the training rows on which networks and kernel machines are validated
FEWEST = 50  # with fewer training rows nothing is held out
SVM_DEPTHS, SVM_CS, SVM_GRID_ROWS = (1, 3, 5), (1.0, 10.0, 100.0), 5_000
WatchEpoch = Callable[[int, int, str], None]


@dataclass
class Fit:
    """A fitted method and its results.

    Parameters
    ----------
    predictor : Predictor
        The model with its encoding.
    metrics : dict
        Measures on the test rows.
    fit_seconds, predict_seconds : float
        Times of learning, with all choices, and of predicting the test rows.
    one_pass : float, default=nan
        Test error after one pass over the data.
    curve : list of dict, default=[]
        For networks, ``seconds`` of training and test ``error`` after each epoch.
    note : str, default=""
        Remark on the fit, such as a chosen setting.
    filters : list of list of float or None, default=None
        Weights of the first hidden units in pixels, where they were learned.
    """

    predictor: Predictor
    metrics: dict[str, Any]
    fit_seconds: float
    predict_seconds: float
    one_pass: float = math.nan
    curve: list[dict[str, float]] = field(default_factory=list)
    note: str = ""
    filters: list[list[float]] | None = None


def fit_method(
    name: str,
    problem: Problem,
    split: tuple[np.ndarray, np.ndarray],
    setting: Callable[[np.ndarray], Setting],
    components: int | None = None,
    watch: WatchEpoch | None = None,
    parts: Parts | None = None,
) -> Fit:
    """Fit a method to the training rows of a split and test it on the others.

    Parameters
    ----------
    name : str
        Name of the method, a key of :data:`~tensorswitch.experiments.methods.COMPARED`.
    problem : Problem
        The problem.
    split : tuple of ndarray
        Training and test rows.
    setting : callable
        Takes the training inputs and returns a :class:`Setting`.
    components : int, optional
        Principal components of images and arrays.
    watch : callable, optional
        Called after each epoch as ``watch(done, total, note)``.
    parts : Parts, optional
        The encoded split, if it is already available.

    Returns
    -------
    Fit
        The fitted method.
    """
    method = COMPARED[name]
    parts = problem.parts(*split, components) if parts is None else parts
    predictor = _empty(name, method, problem, parts)
    inputs, test = _inputs(method, predictor, problem, split, parts)
    target = (parts.train_target - predictor.centre) / predictor.spread
    if problem.class_names is not None:
        target = parts.train_target
    chosen, note = _limited(method, len(target))
    x, y = inputs[chosen], target[chosen]
    options = setting(x)
    fit = Fit(predictor, {}, 0.0, 0.0, note=note)
    start = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # defaults that do not converge are the user's defaults
        if method.epochs:
            _by_epochs(fit, method, options, x, y, test, parts.test_target, watch)
        else:
            model = method.make(options)
            if isinstance(model, TSKernelSVC):
                model, fit.note = _tuned_machine(model, x, y, fit.note)
            # Small products are faster on one core, and much faster if others are busy.
            with threadpool_limits(1 if name == "mlp" else None, "blas"):
                fit.predictor.model = model.fit(x, y)
            fit.fit_seconds = time.perf_counter() - start
        _measure(fit, test, parts.test_target, name == "rr")
    preparation = parts.encoder
    if method.epochs and problem.is_image and isinstance(preparation, Preparation):
        learned = name != "ts-lrc"  # fixed gates are random
        network = fit.predictor.model.network_
        fit.filters = first_filters(network, preparation.basis) if learned else None
    return fit


def _empty(name: str, method: Method, problem: Problem, parts: Parts) -> Predictor:
    """Return the predictor without its model."""
    front = Front(images=method.images)
    if method.constant:
        length = float(np.sqrt(np.square(parts.train, dtype=np.float64).sum(1).mean()))
        front = Front(length=length or 1.0)
    shape: dict[str, Any] = {}
    if not problem.is_table:
        assert isinstance(problem.rows, np.ndarray)
        shape = {"row_shape": problem.rows.shape[1:], "row_type": str(problem.rows.dtype)}
    centre, spread = 0.0, 1.0
    if problem.class_names is None:
        centre, spread = float(parts.train_target.mean()), float(parts.train_target.std())
        spread = spread if spread > 0 else 1.0
    names: dict[str, Any] = {"target_name": problem.target_name, "id_name": problem.id_name}
    names["target_written"] = problem.target_written
    numbers: dict[str, Any] = {"centre": centre, "spread": spread}
    return Predictor(
        None, parts.encoder, name, problem.class_names, front, **names, **numbers, **shape
    )


def _inputs(
    method: Method,
    predictor: Predictor,
    problem: Problem,
    split: tuple[np.ndarray, np.ndarray],
    parts: Parts,
) -> tuple[np.ndarray, np.ndarray]:
    if method.images:
        assert isinstance(problem.rows, np.ndarray)
        train, test = (predictor.front(problem.rows[rows]) for rows in split)
        return train, test
    return predictor.front(parts.train), predictor.front(parts.test)


def _limited(method: Method, rows: int) -> tuple[np.ndarray, str]:
    """Return which rows to learn from, and a note if they are not all."""
    if method.most_rows is None or rows <= method.most_rows:
        return np.arange(rows), ""
    chosen = np.random.default_rng(0).permutation(rows)[: method.most_rows]
    return np.sort(chosen), f"learned from {method.most_rows:,} of {rows:,} rows"


def _held_out(x: np.ndarray, y: np.ndarray) -> tuple[Any, ...]:
    """Split off validation rows: x, y and the held-out x, y, which are None if there are few."""
    if len(x) < FEWEST:
        return x, y, None, None
    classes = y.dtype.kind == "i" and np.bincount(y).min() >= 2
    options: dict[str, Any] = {"test_size": VALIDATION, "random_state": 0}
    stratify = y if classes and len(x) * VALIDATION >= len(np.unique(y)) else None
    x, held_x, y, held_y = train_test_split(x, y, stratify=stratify, **options)
    return x, y, held_x, held_y


def _by_epochs(
    fit: Fit,
    method: Method,
    setting: Setting,
    x: np.ndarray,
    y: np.ndarray,
    test: np.ndarray,
    truth: np.ndarray,
    watch: WatchEpoch | None,
) -> None:
    """Train a network, and keep the epoch of least validation error."""
    every = {"classes": np.unique(y)} if setting.task == "classification" else {}
    x, y, held_x, held_y = _held_out(x, y)
    model = method.make(setting)
    Learner(nn.Linear(1, 1))  # imports torch's compiler, a second that is not learning
    best, kept, seconds = math.inf, None, 0.0
    for epoch in range(1, setting.epochs + 1):
        start = time.perf_counter()
        model.partial_fit(x, y, **every)
        seconds += time.perf_counter() - start
        current = replace(fit.predictor, model=model)
        error = _error(current, test, truth)
        fit.curve.append({"seconds": seconds, "error": error})
        criterion = model.loss_ if held_x is None else _criterion(current, held_x, held_y)
        if criterion < best or kept is None:
            best, kept, fit.note = criterion, copy.deepcopy(model), f"epoch {epoch}"
        if watch is not None:
            fits = f"test R² {1 - error:.3f}"  # the error of a regression is 1 − R²
            note = fits if setting.task == "regression" else f"test error {100 * error:.2f} %"
            watch(epoch, setting.epochs, note)
    fit.predictor.model = kept
    fit.fit_seconds, fit.one_pass = seconds, fit.curve[0]["error"]


def _criterion(predictor: Predictor, x: np.ndarray, target: np.ndarray) -> float:
    """Return the error on held-out rows; of a regression the squared one, since R² may be NaN."""
    if predictor.class_names is not None:
        return _error(predictor, x, target)
    plain = replace(predictor, centre=0.0, spread=1.0)  # the targets are standardised
    return float(np.square(predicted_numbers(plain, x)[0] - target).mean())


def _error(predictor: Predictor, x: np.ndarray, truth: np.ndarray) -> float:
    if predictor.class_names is None:
        return float(regression_metrics(truth, predicted_numbers(predictor, x)[0])["error"])
    return float(np.mean(predicted_classes(predictor.model, x)[0] != truth))


def _tuned_machine(
    model: TSKernelSVC, x: np.ndarray, y: np.ndarray, note: str
) -> tuple[TSKernelSVC, str]:
    """Choose depth and C by validation error, if there are few rows."""
    depth, C = model.depth, model.C
    train, labels, held_x, held_y = _held_out(x, y)
    complete = len(np.unique(labels)) == len(np.unique(y))
    if held_x is not None and complete and len(x) <= SVM_GRID_ROWS:
        grid: dict[str, Any] = {"kinds": [model.kernel], "depths": SVM_DEPTHS, "Cs": SVM_CS}
        errors = kernel_svc_grid(train, labels, held_x, held_y, **grid)
        _, depth, C = min(errors, key=lambda key: (errors[key], key))
    chosen = f"depth {depth}, C {C:g}"
    return model.set_params(depth=depth, C=C), f"{chosen}; {note}" if note else chosen


def _measure(fit: Fit, test: np.ndarray, truth: np.ndarray, one_pass: bool) -> None:
    """Measure the fit on test rows, and learn from them how far off it is."""
    predictor = fit.predictor
    start = time.perf_counter()
    if predictor.class_names is None:
        values, deviations = predicted_numbers(predictor, test)
        fit.metrics = regression_metrics(truth, values)
        predictor.interval = Interval.fit(truth - values, deviations)
    else:
        codes, probabilities = predicted_classes(predictor.model, test)
        classes = len(predictor.class_names)
        probabilities = all_classes(predictor.model, probabilities, classes)
        fit.metrics = classification_metrics(truth, codes, probabilities, classes)
        known = len(np.unique(truth)) == classes == len(predictor.model.classes_)
        if probabilities is None and known:
            outputs = decisions(predictor.model, test)
            predictor.calibration = Calibration.fit(outputs, truth, np.ones(len(truth)))
        elif probabilities is None:
            missing = "no probabilities, as some classes are not among the test rows"
            fit.note = f"{fit.note}; {missing}" if fit.note else missing
    fit.predict_seconds = time.perf_counter() - start
    if one_pass:
        fit.one_pass = fit.metrics["error"]
