"""Files of fitted estimators: safetensors with JSON, and nothing is pickled."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from tensorswitch import persistence
from tensorswitch.estimators._base import State


def save_estimator(
    model: BaseEstimator, path: str | Path, *, sums: bool = False, **notes: Any
) -> None:
    """Write a fitted estimator to a safetensors file, atomically.

    Parameters
    ----------
    model : estimator
        A fitted estimator of :mod:`tensorswitch.estimators`.
    path : str or Path
        File to write.
    sums : bool, default=False
        Whether to include what a ridge estimator needs to go on after loading: its sums over rows,
        for ``partial_fit``, ``remove`` and ``merge``, and the sample that calibrates probabilities.
    **notes : Any
        Values to store with it: what JSON has, arrays, and objects of this package.

    Raises
    ------
    TypeError
        If it is not such an estimator, or a parameter cannot be stored.

    Examples
    --------
    >>> import tempfile
    >>> from sklearn.datasets import load_iris
    >>> from tensorswitch.estimators import TSRidgeClassifier, load_estimator, save_estimator
    >>> X, y = load_iris(return_X_y=True)
    >>> model = TSRidgeClassifier(random_state=0).fit(X, y)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save_estimator(model, f"{folder}/model.safetensors")
    ...     loaded = load_estimator(f"{folder}/model.safetensors")
    >>> bool((loaded.predict(X) == model.predict(X)).all())
    True
    """
    if not isinstance(model, BaseEstimator) or not persistence.is_saveable(model):
        raise TypeError(
            f"only estimators of tensorswitch can be saved, got a {type(model).__name__}; "
            "pipelines with other steps can be saved with skops.io"
        )
    if hasattr(model, "fit"):
        check_is_fitted(model)
    content = persistence.Snapshot(type(model), model.state(sums=True)) if sums else model
    persistence.save(content, path, **notes)


def load_estimator(path: str | Path) -> BaseEstimator:
    """Read an estimator from a file written by :func:`save_estimator`.

    Nothing is unpickled, so that files from untrusted sources cannot run code. The estimator
    predicts as before; rows can be added only if it was saved with ``sums=True``.

    Parameters
    ----------
    path : str or Path
        File to read.

    Raises
    ------
    ValueError
        If the file is damaged or does not contain an estimator.
    """
    return persistence.load(path, BaseEstimator)


def load_estimator_with_notes(path: str | Path) -> tuple[BaseEstimator, State]:
    """Read an estimator and the notes stored with it.

    Parameters
    ----------
    path : str or Path
        File written by :func:`save_estimator`.
    """
    return persistence.load_with_notes(path, BaseEstimator)
