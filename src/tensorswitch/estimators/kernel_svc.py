"""Support vector machines with the equivalent kernels, one pair of classes at a time.

A one-vs-one machine for a pair of classes needs the Gram matrix of those two alone. So the whole matrix is never formed: with ten equal classes a
pair takes 1/25 of it, and the result is the one that libsvm finds on the whole matrix.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import combinations
from numbers import Real
from typing import Any, NamedTuple

import joblib
import numpy as np
import torch
from joblib.parallel import get_active_backend
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.preprocessing import normalize as unit_rows
from sklearn.svm import SVC
from sklearn.utils import check_X_y
from sklearn.utils.class_weight import compute_class_weight
from sklearn.utils.multiclass import _ovr_decision_function, check_classification_targets
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from tensorswitch._progress import track
from tensorswitch.estimators._labels import check_classes, class_places
from tensorswitch.estimators._transaction import unchanged_on_error
from tensorswitch.kernels import check_depth, check_kind, equivalent_kernels

__all__ = ["TSKernelSVC", "kernel_svc_grid"]

PREDICT_BYTES = 1 << 27


class Machine(NamedTuple):
    """The separator of one pair of classes; positive decisions favour the first."""

    support: np.ndarray  # row numbers in the training data
    coef: np.ndarray
    intercept: float
    iterations: int

    def dense(self, rows: int) -> np.ndarray:
        """The coefficients of all rows."""
        result = np.zeros(rows)
        result[self.support] = self.coef
        return result


class TSKernelSVC(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Support vector classifier with the SS or TS equivalent kernel, for data whose Gram matrix would not fit in memory.

    Parameters
    ----------
    kernel : "ts" or "ss"
    depth : layers of the infinitely wide network
    C : penalty of errors; smaller is smoother
    normalize : scale rows to unit length first, as in the paper's experiments
    class_weight : None, "balanced" or a dictionary from class to factor on C
    tol, shrinking, cache_size, max_iter : passed to libsvm; ``cache_size`` in megabytes for each machine
    decision_function_shape : "ovr" or "ovo", as in :class:`sklearn.svm.SVC`
    max_memory_gb : gigabytes that the fit may use for Gram matrices and libsvm's caches; fewer pairs are solved at a time to keep it
    n_jobs : pairs of classes solved in parallel through joblib, on threads unless another joblib backend, such as Dask, is active
    verbose : show progress

    Attributes
    ----------
    classes_ : class labels
    support_ : rows of the training data that are support vectors of any pair
    support_vectors_ : those rows (normalised if ``normalize``)
    n_support_ : support vectors of each class
    pair_coef_ : (pairs, support vectors) weights of each one-vs-one machine, pairs in the order (0, 1), (0, 2), …
    intercept_ : (pairs,)
    n_iter_ : (pairs,) iterations of libsvm

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> X, y = load_digits(return_X_y=True)
    >>> model = TSKernelSVC(depth=3, C=10, normalize=True).fit(X[:1000], y[:1000])
    >>> bool(model.score(X[1000:], y[1000:]) > 0.95)
    True
    """

    def __init__(
        self,
        kernel: str = "ts",
        depth: int = 1,
        C: float = 1.0,
        *,
        normalize: bool = False,
        class_weight: Any = None,
        tol: float = 1e-3,
        shrinking: bool = True,
        cache_size: float = 200,
        max_iter: int = -1,
        decision_function_shape: str = "ovr",
        max_memory_gb: float | None = None,
        n_jobs: int | None = None,
        verbose: bool = False,
    ) -> None:
        self.kernel = kernel
        self.depth = depth
        self.C = C
        self.normalize = normalize
        self.class_weight = class_weight
        self.tol = tol
        self.shrinking = shrinking
        self.cache_size = cache_size
        self.max_iter = max_iter
        self.decision_function_shape = decision_function_shape
        self.max_memory_gb = max_memory_gb
        self.n_jobs = n_jobs
        self.verbose = verbose

    @unchanged_on_error
    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> TSKernelSVC:
        """Solve every pair of classes."""
        kind, depth = check_kind(self.kernel), check_depth(self.depth)
        if self.decision_function_shape not in ("ovr", "ovo"):
            raise ValueError(
                f"decision_function_shape must be 'ovr' or 'ovo', got {self.decision_function_shape!r}"
            )
        _check_positive("C", self.C)
        X, y = validate_data(self, X, y, dtype=[np.float64, np.float32], order="C")
        pairs = _Pairs(y)
        self.classes_, labels = pairs.classes, pairs.labels
        weight = (
            None
            if sample_weight is None
            else _check_sample_weight(sample_weight, X, ensure_non_negative=True)
        )
        if weight is not None and len(used := np.unique(labels[weight > 0])) < len(self.classes_):
            raise ValueError(
                f"every sample of class {self.classes_[np.setdiff1d(labels, used)[0]]} has a sample_weight of zero"
            )
        factors = compute_class_weight(self.class_weight, classes=self.classes_, y=y)
        X = _prepared(X, self.normalize)
        options = {
            "C": self.C,
            "tol": self.tol,
            "shrinking": self.shrinking,
            "cache_size": self.cache_size,
            "max_iter": self.max_iter,
        }

        def job(i: int, j: int, rows: np.ndarray) -> Machine:
            if weight is not None:
                rows = rows[weight[rows] > 0]  # libsvm leaves the others out, and counts anew
            gram = equivalent_kernels(X[rows], depths=[depth], kinds=[kind], dtype=torch.float64)[
                kind, depth
            ]
            solver = SVC(
                kernel="precomputed", class_weight={0: factors[i], 1: factors[j]}, **options
            )
            return _solve(
                solver, gram, labels[rows] == j, rows, None if weight is None else weight[rows]
            )

        machines = pairs.run(
            job,
            lambda rows: 8 * rows**2 + _cache_bytes(self.cache_size),
            self.max_memory_gb,
            self.n_jobs,
            self.verbose,
        )

        self.support_ = np.unique(np.concatenate([m.support for m in machines]))
        self.support_vectors_ = X[self.support_]
        self.n_support_ = np.bincount(labels[self.support_], minlength=len(self.classes_))
        self.pair_coef_ = np.zeros((len(machines), len(self.support_)))
        for row, machine in zip(self.pair_coef_, machines, strict=True):
            row[np.searchsorted(self.support_, machine.support)] = machine.coef
        self.intercept_ = np.array([m.intercept for m in machines])
        self.n_iter_ = np.array([m.iterations for m in machines])
        self._fitted_with = (kind, depth, self.normalize)
        return self

    def decision_function(self, X: Any) -> np.ndarray:
        """Two classes: (rows,), positive for the second. More: (rows, classes), or (rows, pairs) with ``decision_function_shape="ovo"``."""
        decisions = self._pair_decisions(X)
        if len(self.classes_) == 2:
            return -decisions[:, 0]
        if self.decision_function_shape == "ovo":
            return decisions
        return _ovr_decision_function(decisions < 0, -decisions, len(self.classes_))  # type: ignore[no-any-return]

    def predict(self, X: Any) -> np.ndarray:
        """The class with most votes of the pairs, the first of equals."""
        decisions = self._pair_decisions(X)
        return self.classes_[_vote(decisions, len(self.classes_))]  # type: ignore[no-any-return]

    def _pair_decisions(self, X: Any) -> np.ndarray:
        check_is_fitted(self)
        kind, depth, normalize = self._fitted_with
        X = validate_data(self, X, dtype=self.support_vectors_.dtype, order="C", reset=False)
        X = _prepared(X, normalize)
        step = max(1, PREDICT_BYTES // (8 * len(self.support_)))
        parts = []
        for start in range(0, len(X), step):
            K = equivalent_kernels(
                X[start : start + step],
                self.support_vectors_,
                depths=[depth],
                kinds=[kind],
                dtype=torch.float64,
            )[kind, depth]
            parts.append(K @ self.pair_coef_.T + self.intercept_)
        return np.concatenate(parts)


def kernel_svc_grid(
    X: Any,
    y: Any,
    X_val: Any,
    y_val: Any,
    *,
    kinds: Iterable[str] = ("ss", "ts"),
    depths: Iterable[int] = range(1, 11),
    Cs: Iterable[float] = (1, 10, 100, 1000),
    normalize: bool = True,
    tol: float = 1e-3,
    cache_size: float = 200,
    max_memory_gb: float | None = None,
    n_jobs: int | None = None,
    verbose: bool = False,
) -> dict[tuple[str, int, float], float]:
    """Validation error of :class:`TSKernelSVC` for every kernel, depth and C, sharing the kernel work between them.

    The default grid is the paper's. A sweep of the kernel gives several depths at once, as far as ``max_memory_gb`` allows, and each matrix serves
    every C. Returns a dictionary from ``(kind, depth, C)`` to the fraction of ``X_val`` misclassified.
    """
    kinds, depths, Cs = [check_kind(k) for k in kinds], [check_depth(d) for d in depths], list(Cs)
    for C in Cs:
        _check_positive("C", C)
    if not kinds or not depths or not Cs:
        raise ValueError("the grid is empty: give at least one kind, one depth and one C")
    X, y = check_X_y(X, y, dtype=[np.float64, np.float32], order="C")
    X_val, y_val = check_X_y(X_val, y_val, dtype=X.dtype, order="C")
    if X.shape[1] != X_val.shape[1]:
        raise ValueError(f"X has {X.shape[1]} features but X_val has {X_val.shape[1]}")
    pairs = _Pairs(y)
    X, X_val = _prepared(X, normalize), _prepared(X_val, normalize)
    matrices = _matrices_that_fit(pairs, len(X_val), cache_size, max_memory_gb)
    together = len(kinds) * len(depths) <= matrices
    batches = (
        [(kinds, depths)]
        if together
        else [
            ([k], depths[s : s + matrices]) for k in kinds for s in range(0, len(depths), matrices)
        ]
    )
    largest = max(len(k) * len(d) for k, d in batches)

    def job(i: int, j: int, rows: np.ndarray) -> dict[tuple[str, int, float], np.ndarray]:
        decisions = {}
        for some_kinds, some_depths in batches:
            wanted: dict[str, Any] = {
                "depths": some_depths,
                "kinds": some_kinds,
                "dtype": torch.float64,
            }
            grams, across = (
                equivalent_kernels(X[rows], **wanted),
                equivalent_kernels(X_val, X[rows], **wanted),
            )
            for key in list(grams):
                gram, test = grams.pop(key), across.pop(key)
                for C in Cs:
                    solver = SVC(kernel="precomputed", C=C, tol=tol, cache_size=cache_size)
                    machine = _solve(solver, gram, pairs.labels[rows] == j, np.arange(len(rows)))
                    decisions[(*key, C)] = test @ machine.dense(len(rows)) + machine.intercept
                del gram, test
        return decisions

    def need(rows: int) -> int:
        return largest * 8 * rows * (rows + len(X_val)) + _cache_bytes(cache_size)

    results = pairs.run(job, need, max_memory_gb, n_jobs, verbose)
    errors = {}
    for key in results[0]:
        predicted = pairs.classes[
            _vote(np.stack([r[key] for r in results], axis=1), len(pairs.classes))
        ]
        errors[key] = float(np.mean(predicted != y_val))
    return errors


class _Pairs:
    """The pairs of classes and their rows, and how to do a job for each of them."""

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
        max_memory_gb: float | None,
        n_jobs: int | None,
        verbose: bool,
    ) -> list[Any]:
        """``job(i, j, rows)`` for each pair, as many at a time as jobs and memory allow; ``need`` gives the bytes for a number of rows."""
        backend, default = get_active_backend(prefer="threads")
        workers = min(
            backend.effective_n_jobs(default if n_jobs is None else n_jobs), len(self.pairs)
        )
        if max_memory_gb is not None:
            _check_positive("max_memory_gb", max_memory_gb)
            largest = max(range(len(self.rows)), key=lambda number: len(self.rows[number]))
            most = need(len(self.rows[largest]))
            if most > max_memory_gb * 2**30:
                first, second = (self.classes[k] for k in self.pairs[largest])
                raise MemoryError(
                    f"the classes {first} and {second} need {most / 2**30:.2f} GB for their Gram matrix and libsvm's cache, "
                    f"but max_memory_gb is {max_memory_gb}; raise it, lower cache_size, or fit fewer rows"
                )
            workers = min(workers, int(max_memory_gb * 2**30 // most))
        tasks = (
            joblib.delayed(job)(i, j, rows)
            for (i, j), rows in zip(self.pairs, self.rows, strict=True)
        )
        with _torch_threads(1 if workers > 1 else torch.get_num_threads()):
            parallel = joblib.Parallel(
                n_jobs=workers,
                prefer="threads",
                return_as="generator" if verbose else "list",
                pre_dispatch=workers,
            )
            return list(
                track(parallel(tasks), len(self.pairs), "pairs of classes", "pair", verbose)
            )


@contextmanager
def _torch_threads(count: int) -> Iterator[None]:
    """For the threads that are started meanwhile, so that jobs and their operations do not fight for the cores."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _matrices_that_fit(
    pairs: _Pairs, validation_rows: int, cache_size: float, max_memory_gb: float | None
) -> int:
    if max_memory_gb is None:
        return sys.maxsize
    _check_positive("max_memory_gb", max_memory_gb)
    rows = max(len(r) for r in pairs.rows)
    return max(
        1,
        int(
            (max_memory_gb * 2**30 - _cache_bytes(cache_size))
            // (8 * rows * (rows + validation_rows))
        ),
    )


def _cache_bytes(cache_size: float) -> int:
    _check_positive("cache_size", cache_size)
    return int(cache_size * 2**20)


def _solve(
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


def _vote(decisions: np.ndarray, n_classes: int) -> np.ndarray:
    """The class with most votes of (rows, pairs), the first of equals, as libsvm counts."""
    votes = np.zeros((len(decisions), n_classes), dtype=np.int64)
    for column, (i, j) in enumerate(combinations(range(n_classes), 2)):
        first = decisions[:, column] > 0
        votes[:, i] += first
        votes[:, j] += ~first
    winner: np.ndarray = votes.argmax(1)
    return winner


def _prepared(X: np.ndarray, normalize: bool) -> np.ndarray:
    return unit_rows(X) if normalize else X


def _check_positive(name: str, value: float) -> None:
    if (
        isinstance(value, bool)
        or not isinstance(value, Real)
        or not np.isfinite(value)
        or value <= 0
    ):
        raise ValueError(f"{name} must be a positive number, got {value!r}")
