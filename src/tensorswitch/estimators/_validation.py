"""Validation of rows, weights and class labels, with errors that say what to do instead."""

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, is_classifier
from sklearn.utils import check_random_state
from sklearn.utils.class_weight import compute_class_weight
from sklearn.utils.multiclass import check_classification_targets, unique_labels
from sklearn.utils.validation import _check_sample_weight, validate_data

from tensorswitch._checks import LARGEST_SQUARED, TOO_LARGE
from tensorswitch.estimators._base import ClassWeight, Matrix, MatrixLike, RandomState, Weights

TABLES_HINT = (
    "{problem}. {name} takes numbers only. skrub.tabular_pipeline({name}()) encodes strings, "
    "categories, dates and missing values; install it with pip install 'tensorswitch[tables]'"
)
NEGLIGIBLE = 1e-12  # of the largest weight


def check_rows(estimator: BaseEstimator, X: MatrixLike, **options: object) -> Matrix:
    """Return rows for a fitted estimator; sparse ones only if ``accept_sparse`` is given."""
    return _checked(estimator, X, reset=False, **options)[0]


def check_training_rows(
    estimator: BaseEstimator, X: MatrixLike, y: ArrayLike, **options: object
) -> tuple[Matrix, np.ndarray]:
    """Return rows with labels, or with one or several targets if the estimator is a regressor."""
    numbers = not is_classifier(estimator)
    if numbers and (words := [v for v in np.asarray(y).ravel()[:1000] if isinstance(v, str)]):
        classifier = type(estimator).__name__.replace("Regressor", "Classifier")
        what = f"y holds text such as {str(words[0])!r}, but a regressor predicts numbers"
        raise ValueError(f"{what}; use {classifier} for classes")
    found = _checked(estimator, X, y, multi_output=numbers, y_numeric=numbers, **options)
    if not numbers:
        check_classification_targets(found[1])
    return found[0], found[1]


def _checked(
    estimator: BaseEstimator, X: MatrixLike, *y: ArrayLike, **options: object
) -> tuple[Matrix, ...]:
    """Call scikit-learn's ``validate_data``, with a hint if there are dates or text."""
    _refuse_dates(estimator, X)
    given = {"dtype": [np.float64, np.float32], "order": "C", **options}
    try:
        found = validate_data(estimator, X, *y, **given)
    except ValueError as error:
        text = str(error)
        if "contains NaN" in text and "Input X" in text:
            raise ValueError(_hint(estimator, "Input X contains NaN")) from error
        if "could not convert string" not in text:
            raise
        raise ValueError(_hint(estimator, f"X holds text ({error})")) from error
    return found if y else (found,)


def _refuse_dates(estimator: BaseEstimator, X: MatrixLike) -> None:
    """Raise if an array or a column of a DataFrame holds dates, which would become nanoseconds."""
    dtypes = getattr(X, "dtypes", {})
    for column, dtype in dtypes.items() if hasattr(dtypes, "items") else ():
        if getattr(dtype, "kind", "") in ("M", "m"):
            raise ValueError(_hint(estimator, f"column {column!r} of X holds dates ({dtype})"))
    dtype = getattr(X, "dtype", None)
    if getattr(dtype, "kind", "") in ("M", "m"):
        raise ValueError(_hint(estimator, f"X holds dates ({dtype})"))


def _hint(estimator: BaseEstimator, problem: str) -> str:
    return TABLES_HINT.format(problem=problem, name=type(estimator).__name__)


def check_squares(numbers: np.ndarray) -> None:
    """Raise if squares of the numbers, which variances and kernels sum, would overflow."""
    if numbers.dtype == np.float64 and np.abs(numbers).max(initial=0.0) > LARGEST_SQUARED:
        raise ValueError(TOO_LARGE)


def check_weights(X: Matrix, sample_weight: ArrayLike | None) -> Weights:
    """Return weights in float64, or None; those that cannot matter, as of decayed rows, are 0."""
    if sample_weight is None:
        return None
    weight: np.ndarray = _check_sample_weight(
        sample_weight, X, dtype=np.float64, ensure_non_negative=True
    )
    if not weight.any():
        raise ValueError("sample_weight is zero for every row")
    return np.where(weight > NEGLIGIBLE * weight.max(), weight, 0.0)


def seed_of(random_state: RandomState) -> int:
    """Return a seed for torch's generators."""
    return int(check_random_state(random_state).randint(2**31))


def check_classes(labels: ArrayLike, name: str = "y", weight: Weights = None) -> np.ndarray:
    """Return the sorted classes of rows with weight, or raise if there are fewer than two."""
    used = np.asarray(labels) if weight is None else np.asarray(labels)[weight > 0]
    found: np.ndarray = unique_labels(used) if len(used) else np.empty(0)
    if len(found) < 2:
        held = f"only one class: {found[0]}" if len(found) else "no labels"
        if weight is not None and len(used) < len(weight):
            name = f"{name} of the rows whose sample_weight is not negligible"
        raise ValueError(f"a classifier needs at least 2 classes, but {name} contains {held}")
    return found


def class_places(y: np.ndarray, classes: np.ndarray, weight: Weights = None) -> np.ndarray:
    """Return the index of each label among the classes, or raise if one is missing.

    Of rows without weight, the class is arbitrary.
    """
    if (y.dtype.kind in "OUS") != (classes.dtype.kind in "OUS"):
        raise ValueError(
            f"y has labels of type {y.dtype}, but the classes have type {classes.dtype}: {classes}"
        )
    place: np.ndarray = np.searchsorted(classes, y).clip(max=len(classes) - 1)
    wrong = classes[place] != y
    if weight is not None:
        wrong &= weight > 0
    if len(unknown := np.unique(y[wrong])):
        raise ValueError(
            f"y contains labels that are not among the classes {classes}: {unknown}; "
            "pass all classes to the first call of partial_fit"
        )
    return place.astype(np.int64)


def signed_targets(places: np.ndarray, classes: int) -> np.ndarray:
    """Return targets of ±1: a column per class, or that of the second one for two classes."""
    targets = np.where(places[:, None] == np.arange(classes), 1.0, -1.0)
    return targets[:, 1:] if classes == 2 else targets


def check_partial_fit(known: np.ndarray | None, classes: ArrayLike | None) -> np.ndarray:
    """Return the classes of ``partial_fit``, which the first call sets and no other may change."""
    if known is None:
        if classes is None:
            raise ValueError(
                "classes must be passed to the first call of partial_fit: the labels that are "
                "known to come, at least two"
            )
        return check_classes(classes, "classes")
    if classes is not None and not np.array_equal(unique_labels(classes), known):
        raise ValueError(
            f"classes={unique_labels(classes)} differ from those of the first call, {known}"
        )
    return known


def class_factors(
    class_weight: ClassWeight, classes: np.ndarray, places: np.ndarray, weight: Weights
) -> np.ndarray:
    """Return the factor of each class; "balanced" counts rows by their weights."""
    if not isinstance(class_weight, str) or class_weight != "balanced":
        return compute_class_weight(class_weight, classes=classes, y=classes[places])
    counts = np.bincount(places, weight, len(classes)).astype(np.float64)
    share = counts.sum() / len(classes)
    return np.divide(share, counts, out=np.zeros_like(counts), where=counts > 0)
