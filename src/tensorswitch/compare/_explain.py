"""Explanations in the user's terms: columns of a table, or pixels of an image."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from tensorswitch.compare._metrics import Predictions, number
from tensorswitch.compare._predictor import Predictor
from tensorswitch.compare._problem import Problem

EXAMPLES = 6  # half of them right and half of them wrong, if there are enough
ROWS = 1_000  # test rows among which examples are chosen
BLOCK = 50  # rows that are explained at a time


@dataclass(frozen=True)
class Example:
    """A test row, what was predicted for it, and why.

    ``shares`` are contributions to the prediction, ``against`` those to the right class.
    """

    row: int
    predicted: str
    target: str
    confidence: float | None
    correct: bool  # or, for a regression, whether the target is within the interval
    shares: np.ndarray
    against: np.ndarray | None  # if another class was predicted


def examples(
    predictor: Predictor, problem: Problem, test: np.ndarray
) -> tuple[list[Example], np.ndarray]:
    """Explain some test rows, and return the mean absolute contribution of each column or pixel.

    They are up to six: the wrong rows with the most probable predictions, or the largest errors of
    a regression, and rows that are typical.
    """
    test = np.random.default_rng(0).permutation(test)[:ROWS]
    predictions = predictor.predict(problem.take(test))
    chosen = _choose(problem.target[test], predictions)
    total: Any = 0.0
    for start in range(0, len(test), BLOCK):  # with many classes, all rows would take gigabytes
        part = test[start : start + BLOCK]
        total = total + len(part) * predictor.explain(problem.take(part)).importance
    found = predictor.explain(problem.take(test[chosen]))
    made = [
        _example(int(test[i]), problem.target[test[i]], i, predictor, predictions, shares)
        for i, shares in zip(chosen, found.contributions, strict=True)
    ]
    return made, np.asarray(total / len(test))


def _choose(truth: np.ndarray, predictions: Predictions) -> np.ndarray:
    half = EXAMPLES // 2
    if predictions.class_names is None:
        order = np.argsort(-np.abs(predictions.labels - truth), kind="stable")
        middle = max(half, len(order) // 2)  # errors of typical size
        return np.concatenate([order[:half], order[middle : middle + half]])
    wrong = np.flatnonzero(predictions.codes != truth)
    if predictions.confidence is not None:
        wrong = wrong[np.argsort(-predictions.confidence[wrong], kind="stable")]
    right = np.flatnonzero(predictions.codes == truth)
    # One of each class, where possible, so that the right ones differ.
    _, first = np.unique(truth[right], return_index=True)
    varied = [*right[np.sort(first)], *np.delete(right, first)]
    wrong = wrong[:half]
    return np.array([*wrong, *varied[: EXAMPLES - len(wrong)]], dtype=int)


def _example(
    row: int, truth: Any, place: int, predictor: Predictor, predictions: Predictions, shares: Any
) -> Example:
    """Return the example of a row, which is at some place among the predictions."""
    if predictions.class_names is None:
        value, low, high = predictions.labels[place], predictions.low, predictions.high
        within = low is None or high is None or low[place] <= truth <= high[place]
        return Example(row, number(value), number(truth), None, bool(within), shares[0], None)
    assert predictions.codes is not None
    code, names = int(predictions.codes[place]), predictions.class_names
    confidence = None if predictions.confidence is None else float(predictions.confidence[place])
    if len(shares) == 1:  # two classes share one output
        shares = np.concatenate([-shares, shares])
    of_class = dict(zip(map(int, predictor.model.classes_), shares, strict=True))
    against = of_class.get(int(truth)) if code != truth else None
    right = code == truth
    return Example(row, names[code], names[int(truth)], confidence, right, of_class[code], against)
