"""Fit models of sums on a Dask cluster."""

import warnings
from collections.abc import Sequence
from typing import Any, TypeVar

import numpy as np
from sklearn.base import clone, is_classifier

from tensorswitch.estimators._ridge import RidgeEstimator
from tensorswitch.linear._dask import chunks_of, merged

Model = TypeVar("Model", bound=RidgeEstimator)


def fit_on_dask(model: Model, X: Any, y: Any, *, split_every: int = 4) -> Model:
    """Fit a model that keeps sums to the partitions of Dask arrays or data frames.

    Each partition is summed on the worker that holds it, and the models are merged in a tree. If a
    worker dies and Dask repeats a partition or a merge, its rows are still counted once.

    Parameters
    ----------
    model : TSConvRidgeClassifier, or a classifier or regressor TSRidge* or StreamingRidge*
        A model that has been fitted to a sample, whose features are used, and whose rows do not
        count; or one that has not, which takes its features from the first partition.
    X, y : dask.array.Array, or dask.dataframe.DataFrame and Series
        Images or features with their labels or targets, divided along the first axis.
    split_every : int, default=4
        Number of models that are merged at a time.

    Examples
    --------
    >>> import dask.array as da
    >>> from sklearn.datasets import load_digits
    >>> from tensorswitch.estimators import TSConvRidgeClassifier
    >>> from tensorswitch.estimators import fit_on_dask
    >>> digits = load_digits()
    >>> images, labels = (da.from_array(a, chunks=300) for a in (digits.images, digits.target))
    >>> model = fit_on_dask(TSConvRidgeClassifier(512), images[:1500], labels[:1500])
    >>> bool(model.score(digits.images[1500:], digits.target[1500:]) > 0.9)
    True
    """
    from dask.base import compute
    from dask.delayed import delayed

    X, y = map(_as_array, (X, y))
    parts = zip(chunks_of({"X": X, "y": y}), X.chunks[0], strict=True)
    chunks = [part for part, rows in parts if rows]  # filtering leaves empty ones
    if not model.__sklearn_is_fitted__():
        labels = delayed(np.unique)(y) if is_classifier(model) else None
        first, labels = compute(chunks[0], labels)
        model = clone(model).partial_fit(*first, **({} if labels is None else {"classes": labels}))
    add, start = delayed(_add), delayed(model.without_rows())
    return merged([add(start, *part) for part in chunks], _merge, split_every)


def _as_array(part: Any) -> Any:
    """Return a Dask array of a Dask data frame or series, whose lengths it computes."""
    if not hasattr(part, "to_dask_array"):
        return part
    with warnings.catch_warnings():  # strings become objects, which is what labels may be
        warnings.filterwarnings("ignore", "Dask currently has limited support")
        return part.to_dask_array(lengths=True)


def _add(model: Model, X: np.ndarray, y: np.ndarray) -> Model:
    return model.without_rows().partial_fit(X, y)  # tasks do not modify their inputs


def _merge(models: Sequence[Model]) -> Model:
    total = models[0].without_rows()
    for model in models:
        total.merge(model)
    return total
