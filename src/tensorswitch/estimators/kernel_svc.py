"""Support vector machines with the equivalent kernels, one pair of classes at a time.

A one-vs-one machine only needs the Gram matrix of its two classes, so the full matrix is never
formed. With ten classes of equal size, a pair takes 1/25 of the memory. The result is the one that
libsvm finds with the full matrix.
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
    """The machine of one pair of classes; its decisions are positive for the first.

    Parameters
    ----------
    support : ndarray of shape (n_support,)
        Indices of the support vectors in the training data.
    coef : ndarray of shape (n_support,)
        Their coefficients.
    intercept : float
        The intercept.
    iterations : int
        Number of iterations of libsvm.
    """

    support: np.ndarray
    coef: np.ndarray
    intercept: float
    iterations: int

    def dense(self, rows: int) -> np.ndarray:
        """Return the coefficients of all rows, zero for those that are not support vectors."""
        result = np.zeros(rows)
        result[self.support] = self.coef
        return result


class TSKernelSVC(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Support vector classifier with the equivalent kernel of a wide SS or TS network.

    The machines are trained one-vs-one, each with the Gram matrix of its two classes, so the full
    Gram matrix does not have to fit into memory.

    Parameters
    ----------
    kernel : {"ts", "ss", "ntk"}, default="ts"
        The kernel: tensor switching [1]_, scalar switching (ReLU), or the tangent kernel of the
        ReLU network.
    depth : int, default=1
        Number of layers of the infinitely wide network. 0 is the linear kernel.
    C : float, default=1.0
        Penalty of errors. Smaller values regularise more.
    normalize : bool, default=False
        Whether to scale samples to unit length first, as in the paper's experiments.
    class_weight : None, "balanced" or dict, default=None
        Factor on C of each class, as in :class:`sklearn.svm.SVC`.
    tol : float, default=1e-3
        Tolerance of the stopping criterion of libsvm.
    shrinking : bool, default=True
        Whether libsvm uses the shrinking heuristic.
    cache_size : float, default=200
        Size of libsvm's cache in MiB, for each machine.
    max_iter : int, default=-1
        Maximum number of iterations of libsvm; -1 for no limit.
    decision_function_shape : {"ovr", "ovo"}, default="ovr"
        Shape of the decision function for more than two classes, as in :class:`sklearn.svm.SVC`.
    memory_gb : float, optional
        Memory budget in GiB for Gram matrices and libsvm's caches during ``fit``. The number of
        pairs that are solved at a time is reduced to stay within it. By default there is no limit.
    n_jobs : int, optional
        Number of pairs of classes to solve in parallel through joblib. They run in threads unless
        another joblib backend, such as Dask, is active.
    verbose : bool, default=False
        Show a progress bar.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        The class labels, sorted.
    support_ : ndarray of shape (n_support,)
        Indices of the training samples that are support vectors of any pair.
    support_vectors_ : ndarray of shape (n_support, n_features)
        The support vectors, scaled to unit length if ``normalize``.
    n_support_ : ndarray of shape (n_classes,)
        Number of support vectors of each class.
    pair_coef_ : ndarray of shape (n_pairs, n_support)
        Coefficients of each one-vs-one machine, with pairs in the order (0, 1), (0, 2), ….
    intercept_ : ndarray of shape (n_pairs,)
        Intercept of each machine.
    n_iter_ : ndarray of shape (n_pairs,)
        Number of iterations of libsvm for each machine.
    n_features_in_ : int
        Number of features seen during fit.

    See Also
    --------
    kernel_svc_grid : Validation errors for many kernels, depths and values of C.

    References
    ----------
    .. [1] C.-Y. Tsai, A. Saxe and D. Cox, "Tensor Switching Networks", NIPS 2016, arXiv:1610.10087.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from tensorswitch.estimators import TSKernelSVC
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
        memory_gb: float | None = None,
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
        self.memory_gb = memory_gb
        self.n_jobs = n_jobs
        self.verbose = verbose

    @unchanged_on_error
    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> TSKernelSVC:
        """Fit a machine for each pair of classes.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Training samples.
        y : array-like of shape (n_samples,)
            Class labels.
        sample_weight : array-like of shape (n_samples,), optional
            Factor on C of each sample, 1 by default. Samples with a weight of 0 are ignored.

        Returns
        -------
        self : object
            The fitted estimator.
        """
        kind, depth = check_kind(self.kernel), check_depth(self.depth)
        if self.decision_function_shape not in ("ovr", "ovo"):
            raise ValueError(
                "decision_function_shape must be 'ovr' or 'ovo', "
                f"got {self.decision_function_shape!r}"
            )
        _check_positive("C", self.C)
        X, y = validate_data(self, X, y, dtype=[np.float64, np.float32], order="C")
        pairs = _Pairs(y)
        self.classes_, labels = pairs.classes, pairs.labels
        weight = None
        if sample_weight is not None:
            weight = _check_sample_weight(sample_weight, X, ensure_non_negative=True)
            ignored = np.setdiff1d(labels, labels[weight > 0])
            if len(ignored):
                raise ValueError(
                    f"all samples of class {self.classes_[ignored[0]]} have a sample_weight of zero"
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
                # libsvm would drop the others and number its support vectors without them.
                rows = rows[weight[rows] > 0]
            grams = equivalent_kernels(X[rows], depths=[depth], kinds=[kind], dtype=torch.float64)
            factor = {0: factors[i], 1: factors[j]}
            solver = SVC(kernel="precomputed", class_weight=factor, **options)
            some = None if weight is None else weight[rows]
            return _solve(solver, grams[kind, depth], labels[rows] == j, rows, some)

        machines = pairs.run(
            job,
            lambda rows: 8 * rows**2 + _cache_bytes(self.cache_size),
            self.memory_gb,
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
        """Return the decision function.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Samples.

        Returns
        -------
        ndarray of shape (n_samples,), (n_samples, n_classes) or (n_samples, n_pairs)
            For two classes, a single column that is positive for the second class. For more, a
            column per class, or a column per pair if ``decision_function_shape="ovo"``.
        """
        decisions = self._pair_decisions(X)
        if len(self.classes_) == 2:
            return -decisions[:, 0]
        if self.decision_function_shape == "ovo":
            return decisions
        return _ovr_decision_function(decisions < 0, -decisions, len(self.classes_))  # type: ignore[no-any-return]

    def predict(self, X: Any) -> np.ndarray:
        """Predict the class with the most votes of the pairs; ties go to the first class.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Samples.

        Returns
        -------
        ndarray of shape (n_samples,)
            Class labels.
        """
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
    memory_gb: float | None = None,
    n_jobs: int | None = None,
    verbose: bool = False,
) -> dict[tuple[str, int, float], float]:
    """Compute the validation error of :class:`TSKernelSVC` for a grid of kernels, depths and C.

    The work on the kernels is shared: one sweep computes several kinds and depths, as far as
    ``memory_gb`` allows, and each matrix is used for every C. The default grid is the paper's.

    Parameters
    ----------
    X : array-like of shape (n_samples, n_features)
        Training samples.
    y : array-like of shape (n_samples,)
        Class labels.
    X_val : array-like of shape (n_validation, n_features)
        Validation samples.
    y_val : array-like of shape (n_validation,)
        Class labels of the validation samples.
    kinds : iterable of {"ss", "ts", "ntk"}, default=("ss", "ts")
        Kernels.
    depths : iterable of int, default=range(1, 11)
        Depths of the kernels.
    Cs : iterable of float, default=(1, 10, 100, 1000)
        Penalties of errors.
    normalize : bool, default=True
        Whether to scale samples to unit length first.
    tol : float, default=1e-3
        Tolerance of the stopping criterion of libsvm.
    cache_size : float, default=200
        Size of libsvm's cache in MiB, for each machine.
    memory_gb : float, optional
        Memory budget in GiB for Gram matrices and libsvm's caches. By default there is no limit.
    n_jobs : int, optional
        Number of pairs of classes to solve in parallel through joblib.
    verbose : bool, default=False
        Show a progress bar.

    Returns
    -------
    dict
        For each ``(kind, depth, C)``, the fraction of the validation samples that is misclassified.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from tensorswitch.estimators import kernel_svc_grid
    >>> X, y = load_digits(return_X_y=True)
    >>> data = X[:600], y[:600], X[600:900], y[600:900]
    >>> errors = kernel_svc_grid(*data, depths=[1, 3], Cs=[1, 10])
    >>> len(errors)
    8
    >>> min(errors.values()) < 0.1
    True
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
    matrices = _matrices_that_fit(pairs, len(X_val), cache_size, memory_gb)
    batches = [(kinds, depths)]
    if len(kinds) * len(depths) > matrices:
        starts = range(0, len(depths), matrices)
        batches = [([k], depths[s : s + matrices]) for k in kinds for s in starts]
    largest = max(len(k) * len(d) for k, d in batches)

    def job(i: int, j: int, rows: np.ndarray) -> dict[tuple[str, int, float], np.ndarray]:
        decisions = {}
        for some_kinds, some_depths in batches:
            wanted: dict[str, Any] = {"depths": some_depths, "kinds": some_kinds}
            grams = equivalent_kernels(X[rows], dtype=torch.float64, **wanted)
            across = equivalent_kernels(X_val, X[rows], dtype=torch.float64, **wanted)
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

    results = pairs.run(job, need, memory_gb, n_jobs, verbose)
    errors = {}
    for key in results[0]:
        decisions = np.stack([r[key] for r in results], axis=1)
        predicted = pairs.classes[_vote(decisions, len(pairs.classes))]
        errors[key] = float(np.mean(predicted != y_val))
    return errors


class _Pairs:
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
            _check_positive("memory_gb", memory_gb)
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
        with _torch_threads(1 if workers > 1 else torch.get_num_threads()):
            parallel = joblib.Parallel(
                n_jobs=workers,
                prefer="threads",
                return_as="generator" if verbose else "list",
                pre_dispatch=workers,
            )
            results = parallel(tasks)
            return list(track(results, len(self.pairs), "pairs of classes", verbose))


@contextmanager
def _torch_threads(count: int) -> Iterator[None]:
    """Limit torch's threads in workers that start meanwhile, to avoid oversubscription."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _matrices_that_fit(
    pairs: _Pairs, validation_rows: int, cache_size: float, memory_gb: float | None
) -> int:
    if memory_gb is None:
        return sys.maxsize
    _check_positive("memory_gb", memory_gb)
    rows = max(len(r) for r in pairs.rows)
    budget = memory_gb * 2**30 - _cache_bytes(cache_size)
    return max(1, int(budget // (8 * rows * (rows + validation_rows))))


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
    """Return the class with the most votes; ties go to the first class, as in libsvm."""
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
