"""Support vector machines with the equivalent kernels, one pair of classes at a time.

A one-vs-one machine for a pair of classes needs the Gram matrix of those two alone. So the whole matrix is never formed: with ten equal classes a
pair takes 1/25 of it, and the result is the one that libsvm finds on the whole matrix.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import combinations
from typing import Any, NamedTuple

import joblib
import numpy as np
import torch
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.preprocessing import normalize as unit_rows
from sklearn.svm import SVC
from sklearn.utils.class_weight import compute_class_weight
from sklearn.utils.multiclass import _ovr_decision_function, check_classification_targets
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from tensorswitch._progress import track
from tensorswitch.kernels import check_depth, kernels

__all__ = ["TSKernelSVC", "kernel_svc_grid"]

PREDICT_BYTES = 1 << 27


class Machine(NamedTuple):
    """The separator of one pair of classes; positive decisions favour the first."""

    support: np.ndarray  # row numbers in the training data
    coef: np.ndarray
    intercept: float
    iterations: int


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

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> TSKernelSVC:
        """Solve every pair of classes."""
        kind, depth = _check_kernel(self.kernel, self.depth)
        if self.decision_function_shape not in ("ovr", "ovo"):
            raise ValueError(f"decision_function_shape must be 'ovr' or 'ovo', got {self.decision_function_shape!r}")
        _check_penalty(self.C)
        X, y = validate_data(self, X, y, dtype=[np.float64, np.float32], order="C")
        self.classes_, labels = _encode(y)
        weight = None if sample_weight is None else _check_sample_weight(sample_weight, X)
        factors = compute_class_weight(self.class_weight, classes=self.classes_, y=y)
        X = _prepared(X, self.normalize)

        pairs = list(combinations(range(len(self.classes_)), 2))
        rows = [np.flatnonzero((labels == i) | (labels == j)) for i, j in pairs]
        svc = {"C": self.C, "tol": self.tol, "shrinking": self.shrinking, "cache_size": self.cache_size, "max_iter": self.max_iter}

        def job(number: int, threads: int | None) -> Machine:
            (i, j), r = pairs[number], rows[number]
            gram = kernels(X[r], depths=[depth], kinds=[kind], dtype=torch.float64, threads=threads)[kind, depth]
            solver = SVC(kernel="precomputed", class_weight={0: factors[i], 1: factors[j]}, **svc)
            return _solve(solver, gram, labels[r] == j, r, None if weight is None else weight[r])

        need = [8 * len(r) ** 2 + int(self.cache_size * 2**20) for r in rows]
        machines = _run(job, need, self.max_memory_gb, self.n_jobs, self.verbose, [self.classes_[list(p)] for p in pairs])

        self.support_ = np.unique(np.concatenate([m.support for m in machines]))
        self.support_vectors_ = X[self.support_]
        self.n_support_ = np.bincount(labels[self.support_], minlength=len(self.classes_))
        self.pair_coef_ = np.zeros((len(pairs), len(self.support_)))
        for row, machine in zip(self.pair_coef_, machines, strict=True):
            row[np.searchsorted(self.support_, machine.support)] = machine.coef
        self.intercept_ = np.array([m.intercept for m in machines])
        self.n_iter_ = np.array([m.iterations for m in machines])
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
        X = validate_data(self, X, dtype=self.support_vectors_.dtype, order="C", reset=False)
        X = _prepared(X, self.normalize)
        step = max(1, PREDICT_BYTES // (8 * len(self.support_)))
        key = (self.kernel, self.depth)
        parts = []
        for start in range(0, len(X), step):
            K = kernels(X[start : start + step], self.support_vectors_, depths=[self.depth], kinds=[self.kernel], dtype=torch.float64)[key]
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

    The default grid is the paper's. A sweep of the kernel gives all depths of both kinds at once, as far as ``max_memory_gb`` allows, and each matrix
    serves every C. Returns a dictionary from ``(kind, depth, C)`` to the fraction of ``X_val`` misclassified.
    """
    kinds, depths, Cs = list(kinds), list(depths), list(Cs)
    keys = [_check_kernel(kind, depth) for depth in depths for kind in kinds]
    for C in Cs:
        _check_penalty(C)
    if not keys or not Cs:
        raise ValueError("the grid is empty: give at least one kind, one depth and one C")
    X, y = np.ascontiguousarray(X), np.asarray(y)
    X_val, y_val = np.ascontiguousarray(X_val, dtype=X.dtype), np.asarray(y_val)
    classes, labels = _encode(y)
    X, X_val = _prepared(X, normalize), _prepared(X_val, normalize)
    pairs = list(combinations(range(len(classes)), 2))
    rows = [np.flatnonzero((labels == i) | (labels == j)) for i, j in pairs]
    cache = int(cache_size * 2**20)
    need = [8 * len(r) * (len(r) + len(X_val)) for r in rows]
    budget = np.inf if max_memory_gb is None else max_memory_gb * 2**30
    together = len(keys) if max_memory_gb is None else int(np.clip((budget - cache) // max(need), 1, len(keys)))

    def job(number: int, threads: int | None) -> dict[tuple[str, int, float], np.ndarray]:
        j, r = pairs[number][1], rows[number]
        decisions = {}
        for start in range(0, len(keys), together):
            batch = keys[start : start + together]
            wanted: dict[str, Any] = {"depths": {d for _, d in batch}, "kinds": {k for k, _ in batch}, "dtype": torch.float64, "threads": threads}
            grams, across = kernels(X[r], **wanted), kernels(X_val, X[r], **wanted)
            for key in batch:
                for C in Cs:
                    machine = _solve(SVC(kernel="precomputed", C=C, tol=tol, cache_size=cache_size), grams[key], labels[r] == j, np.arange(len(r)))
                    decisions[(*key, C)] = across[key][:, machine.support] @ machine.coef + machine.intercept
        return decisions

    whole = [together * n + cache for n in need]
    results = _run(job, whole, max_memory_gb, n_jobs, verbose, [classes[list(p)] for p in pairs])
    errors = {}
    for key in results[0]:
        predicted = classes[_vote(np.stack([r[key] for r in results], axis=1), len(classes))]
        errors[key] = float(np.mean(predicted != y_val))
    return errors


def _solve(solver: SVC, gram: np.ndarray, is_second: np.ndarray, rows: np.ndarray, weight: np.ndarray | None = None) -> Machine:
    solver.fit(gram, is_second.astype(np.int64), sample_weight=weight)
    return Machine(rows[solver.support_], -solver.dual_coef_[0], -float(solver.intercept_[0]), int(np.max(solver.n_iter_)))


def _run(job: Any, need: list[int], max_memory_gb: float | None, n_jobs: int | None, verbose: bool, names: list[Any]) -> list[Any]:
    """Every pair's job, as many at a time as jobs and memory allow."""
    workers = min(joblib.effective_n_jobs(n_jobs), len(need))
    if max_memory_gb is not None:
        largest = int(np.argmax(need))
        fits = int(max_memory_gb * 2**30 // need[largest])
        if fits < 1:
            a, b = names[largest]
            raise MemoryError(
                f"the classes {a!r} and {b!r} need {need[largest] / 2**30:.2f} GB for their Gram matrix, but max_memory_gb is {max_memory_gb}; "
                "raise it, or fit fewer rows"
            )
        workers = min(workers, fits)
    threads = None if workers == 1 else 1
    tasks = (joblib.delayed(job)(number, threads) for number in range(len(need)))
    done = joblib.Parallel(n_jobs=workers, prefer="threads", return_as="generator", pre_dispatch=workers)(tasks)
    return list(track(done, len(need), "pairs of classes", "pair", verbose))


def _vote(decisions: np.ndarray, n_classes: int) -> np.ndarray:
    """The class with most votes of (rows, pairs), the first of equals, as libsvm counts."""
    votes = np.zeros((len(decisions), n_classes), dtype=np.int64)
    for column, (i, j) in enumerate(combinations(range(n_classes), 2)):
        first = decisions[:, column] > 0
        votes[:, i] += first
        votes[:, j] += ~first
    winner: np.ndarray = votes.argmax(1)
    return winner


def _encode(y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    check_classification_targets(y)
    classes, labels = np.unique(y, return_inverse=True)
    if len(classes) < 2:
        raise ValueError(f"the classifier needs at least 2 classes, but y holds one class only: {classes[0]!r}")
    return classes, labels


def _prepared(X: np.ndarray, normalize: bool) -> np.ndarray:
    return unit_rows(X) if normalize else X


def _check_kernel(kind: str, depth: int) -> tuple[str, int]:
    if kind not in ("ss", "ts"):
        raise ValueError(f"kernel must be 'ss' or 'ts', got {kind!r}")
    return kind, check_depth(depth)


def _check_penalty(C: float) -> None:
    if not np.isreal(C) or not np.isfinite(C) or C <= 0:
        raise ValueError(f"C must be a positive number, got {C!r}")
