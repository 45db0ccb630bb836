"""One-vs-one machines: the pairs of classes, a parallel loop over them, and their votes."""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations
from numbers import Real
from typing import Any, NamedTuple

import joblib
import numpy as np
import torch
from joblib.parallel import get_active_backend
from sklearn.preprocessing import normalize as unit_rows
from sklearn.svm import SVC
from sklearn.utils.multiclass import check_classification_targets

from tensorswitch._checks import check_above_zero
from tensorswitch._process import threads
from tensorswitch._progress import track
from tensorswitch.estimators._labels import check_classes, class_places


class Machine(NamedTuple):
    """The support vectors of one pair of classes; its decisions are positive for the first."""

    support: np.ndarray
    coef: np.ndarray
    intercept: float
    iterations: int

    def is_free(self, C: float) -> bool:
        """Return whether no coefficient is at its bound, so that any larger C gives this machine.

        The dual problem of a larger C differs in this bound only, and it is convex.
        """
        return bool((np.abs(self.coef) < C).all())

    def dense(self, rows: int) -> np.ndarray:
        """Return the coefficients of all rows, zero for those that are not support vectors."""
        result = np.zeros(rows)
        result[self.support] = self.coef
        return result


class Pairs:
    """The pairs of classes with their rows, and a parallel loop over them."""

    def __init__(self, y: np.ndarray) -> None:
        check_classification_targets(y)
        self.classes = check_classes(y)
        self.labels = class_places(y, self.classes)
        self.pairs = list(combinations(range(len(self.classes)), 2))
        self.rows = [np.flatnonzero((self.labels == i) | (self.labels == j)) for i, j in self.pairs]

    def run(
        self,
        job: Callable[..., Any],
        need: Callable[[int], int],
        memory_gb: float | None,
        n_jobs: int | None,
        verbose: bool,
    ) -> list[Any]:
        """Run ``job(i, j, rows)`` for each pair, as many at a time as jobs and memory allow.

        ``need`` returns the bytes that a number of rows takes.
        """
        backend, default = get_active_backend(prefer="threads")
        jobs = backend.effective_n_jobs(default if n_jobs is None else n_jobs)
        workers = min(jobs, len(self.pairs))
        if memory_gb is not None:
            check_above_zero(memory_gb=memory_gb)
            largest = max(range(len(self.rows)), key=lambda number: len(self.rows[number]))
            most = need(len(self.rows[largest]))
            if most > memory_gb * 2**30:
                first, second = (self.classes[k] for k in self.pairs[largest])
                raise MemoryError(
                    f"classes {first} and {second} need {most / 2**30:.2f} GB for their Gram "
                    f"matrix and libsvm's cache, but memory_gb is {memory_gb}; raise it, lower "
                    "cache_size, or fit fewer rows"
                )
            workers = min(workers, int(memory_gb * 2**30 // most))
        tasks = (
            joblib.delayed(job)(i, j, rows)
            for (i, j), rows in zip(self.pairs, self.rows, strict=True)
        )
        with threads(1 if workers > 1 else torch.get_num_threads()):
            parallel = joblib.Parallel(
                n_jobs=workers,
                prefer="threads",
                return_as="generator" if verbose else "list",
                pre_dispatch=workers,
            )
            results = parallel(tasks)
            return list(track(results, len(self.pairs), "pairs of classes", verbose))


def cache_bytes(cache_size: float) -> int:
    check_above_zero(cache_size=cache_size)
    return int(cache_size * 2**20)


def solve(
    solver: SVC,
    gram: np.ndarray,
    is_second: np.ndarray,
    rows: np.ndarray,
    weight: np.ndarray | None = None,
) -> Machine:
    solver.fit(gram, is_second.astype(np.int64), sample_weight=weight)
    return Machine(
        rows[solver.support_],
        -solver.dual_coef_[0],
        -float(solver.intercept_[0]),
        int(np.max(solver.n_iter_)),
    )


def vote(decisions: np.ndarray, n_classes: int) -> np.ndarray:
    """Return the class with the most votes; ties go to the first class, as in libsvm."""
    votes = np.zeros((len(decisions), n_classes), dtype=np.int64)
    for column, (i, j) in enumerate(combinations(range(n_classes), 2)):
        first = decisions[:, column] > 0
        votes[:, i] += first
        votes[:, j] += ~first
    winner: np.ndarray = votes.argmax(1)
    return winner


def prepared(X: np.ndarray, normalize: bool, constant: float = 0.0) -> np.ndarray:
    """Return rows, of unit length if requested, with a constant column unless it is zero."""
    X = unit_rows(X) if normalize else X
    if not constant:
        return X
    return np.column_stack([X, np.full(len(X), constant, dtype=X.dtype)])


def constant_input(
    bias: Any, X: np.ndarray, normalize: bool, weight: np.ndarray | None = None
) -> float:
    """Return the constant that ``bias`` stands for; True is the root mean square length of rows."""
    if isinstance(bias, bool | np.bool_):
        if not bias or normalize:
            return float(bias)
        squares = np.square(X, dtype=np.float64).sum(1)
        return float(np.sqrt(np.average(squares, weights=weight))) or 1.0
    if not isinstance(bias, Real) or not 0 <= float(bias) < np.inf:
        raise ValueError(f"bias must be True, False or a number of at least 0, got {bias!r}")
    return float(bias)
