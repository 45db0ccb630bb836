"""Explanations in the user's terms: columns of a table, or pixels of an image."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from tensorswitch.compare import Problem
from tensorswitch.datasets import Preparation
from tensorswitch.estimators import TSRidgeClassifier
from tensorswitch.experiments.metrics import number
from tensorswitch.experiments.predictions import Predictions
from tensorswitch.experiments.predictor import Predictor
from tensorswitch.explain import Explanation, explain
from tensorswitch.tables import TableEncoder

__all__ = ["Example", "can_explain", "examples", "explain_rows", "feature_names"]

EXAMPLES = 6  # half of them right and half of them wrong, if there are enough
ROWS = 1_000  # test rows among which examples are chosen
BLOCK = 50  # rows that are explained at a time
NEAREST = 3


@dataclass(frozen=True)
class Example:
    """A test row, what was predicted for it, and why.

    Parameters
    ----------
    row : int
        Place of the row among all rows.
    said, right : str
        Prediction and truth.
    sure : float or None
        Probability of the prediction, if there is one.
    correct : bool
        Whether the prediction is right; for a regression, whether it is a typical one.
    shares : ndarray
        Contributions to the predicted class, or to the number.
    against : ndarray or None
        Contributions to the right class, if another one was predicted.
    neighbours : list of str
        Training rows with similar gates, in words.
    """

    row: int
    said: str
    right: str
    sure: float | None
    correct: bool
    shares: np.ndarray
    against: np.ndarray | None
    neighbours: list[str]


def can_explain(predictor: Predictor) -> bool:
    """Return whether a model has an exact explanation.

    Parameters
    ----------
    predictor : Predictor
        The model.

    Returns
    -------
    bool
        True for TS ridge regression, kernel ridge regression, networks and convolutions.
    """
    found = getattr(type(predictor.model), "explain", None)
    if predictor.front.images and found is TSRidgeClassifier.explain:
        return False  # it is about rows of features, which images are not
    return found is not None and predictor.front.length is None


def explain_rows(predictor: Predictor, rows: Any) -> Explanation:
    """Return what each column, or each pixel, contributes to the outputs.

    Parameters
    ----------
    predictor : Predictor
        The model.
    rows : Table or ndarray
        Raw rows.

    Returns
    -------
    Explanation
        Contributions of shape (rows, outputs, columns) or (rows, outputs, ...) with the axes of an
        image, which add up with the constant to the outputs of the model, for regressions in the
        units of the target.
    """
    x = predictor.inputs(rows)
    found = explain(predictor.model, x)
    if isinstance(predictor.encoder, TableEncoder):
        found = found.grouped(predictor.encoder.sources, len(predictor.encoder.columns))
    elif not predictor.front.images:
        assert isinstance(rows, np.ndarray)
        found = _in_pixels(predictor.encoder, rows, x, found)
    if predictor.class_names is None:
        constant = found.constant * predictor.spread + predictor.centre
        found = Explanation(found.contributions * predictor.spread, constant)
    return found


def _in_pixels(
    preparation: Preparation, rows: np.ndarray, x: np.ndarray, found: Explanation
) -> Explanation:
    """Divide the contribution of each principal component among the pixels it is made of."""
    shape = (*found.constant.shape, *preparation.mean.shape)
    if preparation.basis is None:
        return Explanation(_cropped(found.contributions.reshape(shape), rows), found.constant)
    pixels = preparation._replace(basis=None, flat=True)(rows)
    slopes = np.divide(
        found.contributions,
        x[:, None],
        out=np.zeros_like(found.contributions),
        where=np.abs(x[:, None]) > 1e-30,
    )
    shares = (slopes @ preparation.basis.T) * pixels[:, None]
    return Explanation(_cropped(shares.reshape(shape), rows), found.constant)


def _cropped(shares: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Leave out the pixels that the preparation has added around images, which are zero."""
    if rows.ndim < 4:
        return shares
    height, width = rows.shape[-2:]
    top, left = (shares.shape[-2] - height) // 2, (shares.shape[-1] - width) // 2
    return shares[..., top : top + height, left : left + width]


def feature_names(predictor: Predictor) -> list[str] | None:
    """Return the names of the columns that explanations are about.

    Parameters
    ----------
    predictor : Predictor
        The model.

    Returns
    -------
    list of str or None
        Names; None for images and arrays.
    """
    if not isinstance(predictor.encoder, TableEncoder):
        return None
    return predictor.encoder.columns


def examples(
    predictor: Predictor, problem: Problem, split: tuple[np.ndarray, np.ndarray]
) -> tuple[list[Example], np.ndarray]:
    """Choose test rows, right and wrong ones, and explain them.

    Parameters
    ----------
    predictor : Predictor
        A model of the training rows.
    problem : Problem
        The problem.
    split : tuple of ndarray
        Training and test rows.

    Returns
    -------
    examples : list of Example
        Up to six: the wrong rows of which the model was most sure, or the largest errors of a
        regression, and rows that are typical.
    importance : ndarray
        Mean absolute contribution of each column or pixel over test rows.
    """
    train, test = split
    test = np.random.default_rng(0).permutation(test)[:ROWS]
    rows = _take(problem.rows, test)
    predictions = predictor.predict(rows)
    chosen = _choose(problem.target[test], predictions)
    importance = _importance(predictor, rows)
    found = explain_rows(predictor, _take(rows, chosen))
    near, counts = _neighbours(predictor, problem, train, test[chosen])
    made = []
    for order, place in enumerate(chosen):
        row = int(test[place])
        words = [*near[order], *counts[order]]
        shares = found.contributions[order]
        made.append(_example(problem, predictor, predictions, shares, row, place, words))
    return made, importance


def _importance(predictor: Predictor, rows: Any) -> np.ndarray:
    """Return the mean absolute contributions, of a few rows at a time.

    With many classes, those of all rows would take gigabytes.
    """
    total: Any = 0.0
    for start in range(0, len(rows), BLOCK):
        places = np.arange(start, min(start + BLOCK, len(rows)))
        total = total + len(places) * explain_rows(predictor, _take(rows, places)).importance
    return np.asarray(total / len(rows))


def _take(rows: Any, places: np.ndarray) -> Any:
    return rows[places] if isinstance(rows, np.ndarray) else rows.take(places)


def _choose(truth: np.ndarray, predictions: Predictions) -> np.ndarray:
    half = EXAMPLES // 2
    if predictions.class_names is None:
        distance = np.abs(predictions.labels - truth)
        order = np.argsort(-distance, kind="stable")
        middle = len(order) // 2
        return np.concatenate([order[:half], order[middle : middle + half]])
    places = predictions.places
    wrong = np.flatnonzero(places != truth)
    if predictions.probabilities is not None:
        sure = predictions.probabilities[np.arange(len(places)), places]
        wrong = wrong[np.argsort(-sure[wrong], kind="stable")]
    right = np.flatnonzero(places == truth)
    # One of each class, where possible, so that the right ones differ.
    _, first = np.unique(truth[right], return_index=True)
    varied = [*right[np.sort(first)], *np.delete(right, first)]
    wrong = wrong[:half]
    return np.array([*wrong, *varied[: EXAMPLES - len(wrong)]], dtype=int)


def _example(
    problem: Problem,
    predictor: Predictor,
    predictions: Predictions,
    shares: np.ndarray,
    row: int,
    place: int,
    neighbours: list[str],
) -> Example:
    truth = problem.target[row]
    if predictions.class_names is None:
        said = predictions.labels[place]
        low, high = predictions.low, predictions.high
        within = low is None or high is None or low[place] <= truth <= high[place]
        words = number(said), number(truth)
        return Example(row, *words, None, bool(within), shares[0], None, neighbours)
    code = int(predictions.places[place])
    names = predictions.class_names
    sure = None if predictions.probabilities is None else predictions.probabilities[place, code]
    known = [int(label) for label in predictor.model.classes_]
    learned = code != truth and int(truth) in known
    against = _of_class(shares, known.index(int(truth))) if learned else None
    return Example(
        row,
        names[code],
        names[int(truth)],
        None if sure is None else float(sure),
        code == truth,
        _of_class(shares, known.index(code)),
        against,
        neighbours,
    )


def _of_class(shares: Any, code: int) -> Any:
    """Return the contributions to a class; two classes share one output."""
    if len(shares) == 1:
        return shares[0] if code == 1 else -shares[0]
    return shares[code]


def _neighbours(
    predictor: Predictor, problem: Problem, train: np.ndarray, rows: np.ndarray
) -> tuple[list[list[str]], list[list[str]]]:
    """Describe the training rows whose gates are most like those of some rows."""
    nothing: list[list[str]] = [[] for _ in rows]
    model: Any = predictor.model
    if not hasattr(model, "nearest_rows") or predictor.front.images:
        return nothing, nothing
    near = predictor.inputs(_take(problem.rows, rows))
    others = predictor.inputs(_take(problem.rows, train))
    places, share = model.nearest_rows(near, others, NEAREST)
    words = [
        [
            f"{problem.row_name(other)} ({_name(problem, other)}, {100 * s:.0f} % of gates agree)"
            for other, s in zip(train[row], shares, strict=True)
        ]
        for row, shares in zip(places, share, strict=True)
    ]
    if not hasattr(model, "open_gates"):
        return words, nothing
    from tensorswitch.explain import shared_patterns

    counts = shared_patterns(model.open_gates(near), model.open_gates(others))
    return words, [[f"{c} training rows have exactly its pattern of gates"] for c in counts]


def _name(problem: Problem, row: int) -> str:
    value = problem.target[row]
    return number(value) if problem.class_names is None else problem.class_names[int(value)]
