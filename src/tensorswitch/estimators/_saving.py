"""Files of fitted estimators: safetensors with JSON, and nothing is pickled."""

from dataclasses import dataclass
from inspect import signature
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import check_is_fitted

from tensorswitch import persistence
from tensorswitch.estimators._base import State
from tensorswitch.persistence import SavedPart, Snapshot, saved_as

TRUSTED = ("numpy.dtype", "sklearn.", "skrub.")  # beyond what skops trusts


def save_estimator(
    model: BaseEstimator, path: str | Path, *, sums: bool = False, **notes: Any
) -> None:
    """Write a fitted estimator to a safetensors file, atomically.

    Parameters
    ----------
    model : estimator
        A fitted estimator of :mod:`tensorswitch.estimators`, or a pipeline that ends with one. Its
        other steps may be of scikit-learn and skrub; they are written by skops.
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
    steps = model.steps if isinstance(model, Pipeline) else [("", model)]
    if not persistence.is_saveable(steps[-1][1]):
        what = f"got a {type(model).__name__}"
        raise TypeError(
            f"only estimators of tensorswitch, or pipelines of them, can be saved; {what}"
        )
    check_is_fitted(steps[-1][1])
    written = [(name, _written(step, sums)) for name, step in steps]
    content = SavedPipeline(written) if isinstance(model, Pipeline) else written[0][1]
    persistence.save(content, path, **notes)


@saved_as("pipeline")
@dataclass(frozen=True)
class SavedPipeline(SavedPart):
    """How a pipeline is written, which itself is a class of scikit-learn."""

    steps: list[Any]

    @classmethod
    def from_state(cls, state: State) -> Any:
        """Make the pipeline again."""
        return Pipeline(state["steps"])


@saved_as("skops-step")
@dataclass(frozen=True)
class SavedStep(SavedPart):
    """How a step of another library is written: as skops does it, without pickle."""

    skops: np.ndarray

    @classmethod
    def from_state(cls, state: State) -> Any:
        """Make the step again, if it has nothing but classes that are trusted."""
        io, content = _skops(), state["skops"].tobytes()
        unknown = io.get_untrusted_types(data=content)
        if strangers := [name for name in unknown if not name.startswith(TRUSTED)]:
            raise ValueError(f"it has the classes {', '.join(strangers)}, which are not trusted")
        return io.loads(content, trusted=unknown)


def _written(step: Any, sums: bool) -> Any:
    """Return what is written of a step."""
    if isinstance(step, str) or step is None:
        return step
    if not persistence.is_saveable(step):
        return SavedStep(np.frombuffer(_skops().dumps(step), dtype=np.uint8))
    with_sums = sums and "sums" in signature(step.state).parameters
    return Snapshot(type(step), step.state(sums=True)) if with_sums else step


def _skops() -> Any:
    """Return skops.io, or say how to install it."""
    try:
        import skops.io  # type: ignore[import-untyped]
    except ImportError:
        what = "steps of other libraries are saved by skops"
        raise ImportError(
            f"{what}; install it with: pip install 'tensorswitch[pipelines]'"
        ) from None
    return skops.io


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
