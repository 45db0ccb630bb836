"""Fit models of sums on a Dask cluster."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from tensorswitch.estimators._ridge import RidgeEstimator
from tensorswitch.linear._dask import chunks_of, merged

if TYPE_CHECKING:
    from dask.array import Array

Model = TypeVar("Model", bound=RidgeEstimator)


def fit_on_dask(model: Model, X: Array, y: Array, *, split_every: int = 4) -> Model:
    """Fit a model that keeps sums to the chunks of Dask arrays.

    Each chunk is summed on the worker that holds it, and the models are merged in a tree. If a
    worker dies and Dask repeats a chunk or a merge, its rows are still counted once.

    Parameters
    ----------
    model : TSConvRidgeClassifier, or a classifier or regressor TSRidge* or StreamingRidge*
        A model that has been fitted to a sample, whose features are used. Its rows do not count.
    X, y : dask.array.Array
        Images or features with their labels or targets, in chunks along the first axis.
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
    >>> sample = TSConvRidgeClassifier(512).fit(digits.images[:300], digits.target[:300])
    >>> model = fit_on_dask(sample, images[:1500], labels[:1500])
    >>> bool(model.score(digits.images[1500:], digits.target[1500:]) > 0.9)
    True
    """
    from dask.delayed import delayed

    chunks = chunks_of({"X": X, "y": y})
    add, start = delayed(_add), delayed(model.without_rows())
    return merged([add(start, *part) for part in chunks], _merge, split_every)


def _add(model: Model, X: np.ndarray, y: np.ndarray) -> Model:
    return model.without_rows().partial_fit(X, y)  # tasks do not modify their inputs


def _merge(models: Sequence[Model]) -> Model:
    total = models[0].without_rows()
    for model in models:
        total.merge(model)
    return total
