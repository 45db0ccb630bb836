"""Fit models of sums on a Dask cluster."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from tensorswitch.estimators._ridge import RidgeEstimator

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
    X : dask.array.Array
        Images or features, in chunks along the first axis.
    y : dask.array.Array of shape (rows,) or (rows, outputs)
        Labels or targets.
    split_every : int, default=4
        Number of models that are merged at a time.

    Returns
    -------
    estimator
        The model of all rows.

    Raises
    ------
    TypeError
        If an argument is not a Dask array.
    ValueError
        If X and y have different numbers of rows.

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

    for name, array in (("X", X), ("y", y)):
        if not hasattr(array, "to_delayed"):
            raise TypeError(
                f"{name} must be a Dask array, got {type(array).__name__}; "
                "convert it with dask.array.from_array()"
            )
    if len(X) != len(y):
        raise ValueError(f"X has {len(X)} rows but y has {len(y)}")
    if split_every < 2:
        raise ValueError(f"split_every must be at least 2, got {split_every}")
    X = X.rechunk(dict.fromkeys(range(1, X.ndim), -1))
    y = y.rechunk({0: X.chunks[0], **dict.fromkeys(range(1, y.ndim), -1)})
    start, add, join = delayed(model.without_rows()), delayed(_add), delayed(_merge)
    chunks = zip(X.to_delayed().ravel(), y.to_delayed().ravel(), strict=True)
    models = [add(start, *chunk) for chunk in chunks]
    while len(models) > 1:
        models = [join(models[s : s + split_every]) for s in range(0, len(models), split_every)]
    return models[0].compute()


def _add(model: Model, X: np.ndarray, y: np.ndarray) -> Model:
    # Tasks do not modify their inputs.
    return model.without_rows().partial_fit(X, y)


def _merge(models: Sequence[Model]) -> Model:
    total = models[0].without_rows()
    for model in models:
        total.merge(model)
    return total
