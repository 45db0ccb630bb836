"""Support vector machines with the equivalent kernels, one pair of classes at a time."""

from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, field
from itertools import combinations
from numbers import Integral, Real
from typing import ClassVar, NamedTuple, Self, TypeVar

import joblib
import numpy as np
import torch
from joblib.parallel import get_active_backend
from numpy.typing import ArrayLike
from sklearn.base import ClassifierMixin
from sklearn.preprocessing import normalize as unit_rows
from sklearn.svm import SVC
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import _ovr_decision_function, check_classification_targets
from sklearn.utils.validation import check_is_fitted

from tensorswitch._checks import check_above_zero, from_numpy
from tensorswitch._process import threads
from tensorswitch._progress import track
from tensorswitch.estimators._base import (
    ABOVE_ZERO,
    AT_LEAST_ZERO,
    CLASS_WEIGHT,
    SEEN,
    ClassWeight,
    Constraints,
    SavedEstimator,
    State,
    Weights,
    unchanged_on_error,
)
from tensorswitch.estimators._validation import (
    check_classes,
    check_rows,
    check_squares,
    check_training_rows,
    check_weights,
    class_factors,
    class_places,
)
from tensorswitch.kernels import equivalent_kernels
from tensorswitch.linear._calibration import Calibration
from tensorswitch.linear._rows import row_hashes
from tensorswitch.persistence import saved_as

PREDICT_BYTES = 1 << 27
FOLDS = 5  # of the cross-validation that calibrates probabilities
Result = TypeVar("Result")


class Machine(NamedTuple):
    """The support vectors of one pair of classes; its decisions are positive for the first."""

    support: np.ndarray
    coef: np.ndarray
    intercept: float
    iterations: int

    def is_free(self, C: float) -> bool:
        """Return whether no coefficient is at its bound; any larger C then gives this machine."""
        # The dual problem of a larger C differs in this bound only, and it is convex.
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
        job: Callable[[int, int, np.ndarray], Result],
        need: Callable[[int], int],
        memory_gb: float | None,
        n_jobs: int | None,
        verbose: bool,
    ) -> list[Result]:
        """Run ``job(i, j, rows)`` for each pair; ``need`` is the bytes that so many rows take."""
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
        pairs = zip(self.pairs, self.rows, strict=True)
        tasks = (joblib.delayed(job)(*pair, rows) for pair, rows in pairs)
        options = {"return_as": "generator" if verbose else "list", "pre_dispatch": workers}
        with threads(1 if workers > 1 else torch.get_num_threads()):
            results = joblib.Parallel(n_jobs=workers, prefer="threads", **options)(tasks)
            return list(track(results, len(self.pairs), "pairs of classes", verbose))


def cache_bytes(cache_size: float) -> int:
    """Return what libsvm's cache takes, of which ``cache_size`` says how many MiB."""
    check_above_zero(cache_size=cache_size)
    return int(cache_size * 2**20)


def solve(
    solver: SVC, gram: np.ndarray, is_second: np.ndarray, rows: np.ndarray, weight: Weights = None
) -> Machine:
    """Return the machine of two classes, whose support vectors are numbered as ``rows`` are."""
    solver.fit(gram, is_second.astype(np.int64), sample_weight=weight)
    coef, intercept = -solver.dual_coef_[0], -float(solver.intercept_[0])
    return Machine(rows[solver.support_], coef, intercept, int(np.max(solver.n_iter_)))


def vote(decisions: np.ndarray, n_classes: int) -> np.ndarray:
    """Return the class with the most votes; ties go to the first class, as in libsvm."""
    votes = np.zeros((len(decisions), n_classes), dtype=np.int64)
    for column, (i, j) in enumerate(combinations(range(n_classes), 2)):
        first = decisions[:, column] > 0
        votes[:, i] += first
        votes[:, j] += ~first
    return votes.argmax(1)


def prepared(X: np.ndarray, normalize: bool, constant: float = 0.0) -> np.ndarray:
    """Return rows, of unit length if requested, with a constant column unless it is zero."""
    X = unit_rows(X) if normalize else X
    return np.column_stack([X, np.full(len(X), constant, X.dtype)]) if constant else X


def constant_input(
    bias: bool | float, X: np.ndarray, normalize: bool, weight: Weights = None
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


@saved_as("kernel-svc")
@dataclass(eq=False, repr=False)
class TSKernelSVC(ClassifierMixin, SavedEstimator):  # type: ignore[misc]
    """Support vector classifier with the equivalent kernel of a wide SS or TS network.

    The machines are trained one-vs-one, each with the Gram matrix of its two classes, so the full
    Gram matrix, 25 times as large for ten classes of equal size, does not have to fit into memory.
    The result is the one that libsvm finds with the full matrix.

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
    bias : bool or float, default=True
        The constant input, without which the kernels are blind to the length of rows. True is the
        root mean square length of the training rows (1 if they have unit length); False adds
        none, as in the paper's experiments.
    class_weight, tol, shrinking, cache_size, max_iter, decision_function_shape : optional
        As in :class:`sklearn.svm.SVC`, with the same defaults; each machine has a cache of its own.
    probability : bool, default=False
        Whether ``predict_proba`` is available. Decisions for rows that 5-fold cross-validation
        holds out are calibrated, so that ``fit`` takes about five times as long.
    memory_gb : float, optional
        Memory budget in GiB for Gram matrices and libsvm's caches during ``fit``. The number of
        pairs that are solved at a time is reduced to stay within it. By default there is no limit.
    n_jobs, verbose : int, optional, and bool, default=False
        Number of pairs of classes to solve in parallel through joblib, in threads unless another
        joblib backend, such as Dask, is active, and whether to show a progress bar.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        The class labels, sorted.
    bias_ : float
        The constant input, 0 without one.
    support_ : ndarray of shape (n_support,)
        Indices of the training samples that are support vectors of any pair.
    support_vectors_ : ndarray of shape (n_support, n_features)
        The support vectors, scaled to unit length if ``normalize``.
    n_support_ : ndarray of shape (n_classes,)
        Number of support vectors of each class.
    pair_coef_ : ndarray of shape (n_pairs, n_support)
        Coefficients of each one-vs-one machine, with pairs in the order (0, 1), (0, 2), ….
    intercept_, n_iter_ : ndarray of shape (n_pairs,)
        Intercept of each machine, and number of iterations of libsvm for it.
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

    kernel: str = "ts"
    depth: int = 1
    C: float = 1.0
    _: KW_ONLY
    normalize: bool = False
    bias: bool | float = True
    class_weight: ClassWeight = None
    tol: float = 1e-3
    shrinking: bool = True
    cache_size: float = 200
    max_iter: int = -1
    decision_function_shape: str = "ovr"
    probability: bool = False
    memory_gb: float | None = None
    n_jobs: int | None = None
    verbose: bool = False

    _fitted_with: tuple[str, int, bool] = field(init=False)
    _calibration: Calibration | None = field(init=False)

    _parameter_constraints: ClassVar[Constraints] = {
        "kernel": [StrOptions({"ts", "ss", "ntk"})],
        "depth": [Interval(Integral, 0, None, closed="left")],
        "C": [ABOVE_ZERO],
        "bias": ["boolean", AT_LEAST_ZERO],
        **CLASS_WEIGHT,
        "tol": [ABOVE_ZERO],
        "cache_size": [ABOVE_ZERO],
        "max_iter": [Interval(Integral, -1, None, closed="left")],
        "decision_function_shape": [StrOptions({"ovr", "ovo"})],
        "memory_gb": [ABOVE_ZERO, None],
        "n_jobs": [Integral, None],
        "verbose": ["verbose"],
        **{name: ["boolean"] for name in ("normalize", "shrinking", "probability")},
    }

    @unchanged_on_error
    def fit(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Fit a machine for each pair of classes.

        Parameters
        ----------
        X, y : array-like of shape (n_samples, n_features) and (n_samples,)
            Training samples and their class labels.
        sample_weight : array-like of shape (n_samples,), optional
            Factor on C of each sample, 1 by default. Samples with a weight of 0 are ignored.
        """
        self._validate_params()
        X, y = check_training_rows(self, X, y)
        check_squares(X)
        pairs = Pairs(y)
        self.classes_, labels = pairs.classes, pairs.labels
        weight = check_weights(X, sample_weight)
        if weight is not None and len(ignored := np.setdiff1d(labels, labels[weight > 0])):
            raise ValueError(
                f"all samples of class {self.classes_[ignored[0]]} have a sample_weight of zero"
            )
        if self.probability:
            _check_rows_of_classes(pairs, weight)
        self.bias_ = constant_input(self.bias, X, self.normalize, weight)
        Z = prepared(X, self.normalize, self.bias_)
        self._fitted_with = (self.kernel, int(self.depth), bool(self.normalize))
        machines = self._machines(Z, pairs, weight)

        self.support_ = np.unique(np.concatenate([m.support for m in machines]))
        self.support_vectors_ = Z[self.support_, : X.shape[1]]  # without the constant input
        self.n_support_ = np.bincount(labels[self.support_], minlength=len(self.classes_))
        self.pair_coef_ = np.stack([m.dense(len(Z))[self.support_] for m in machines])
        self.intercept_ = np.array([m.intercept for m in machines])
        self.n_iter_ = np.array([m.iterations for m in machines])
        self._calibration = self._calibrated(Z, pairs, weight) if self.probability else None
        return self

    def _machines(self, Z: np.ndarray, pairs: Pairs, weight: Weights) -> list[Machine]:
        """Solve for every pair. Support vectors are numbered as the rows of ``Z``."""
        kind, depth, _ = self._fitted_with
        labels = pairs.labels
        factors = class_factors(self.class_weight, pairs.classes, labels, weight)
        if not (factors > 0).all():
            nothing = pairs.classes[(factors <= 0).argmax()]
            raise ValueError(f"class_weight must be positive, but that of class {nothing} is not")
        names = ("C", "tol", "shrinking", "cache_size", "max_iter")
        options = {name: getattr(self, name) for name in names}

        def job(i: int, j: int, rows: np.ndarray) -> Machine:
            if weight is not None:
                # libsvm would drop the others and number its support vectors without them.
                rows = rows[weight[rows] > 0]
            grams = equivalent_kernels(Z[rows], depths=[depth], kinds=[kind], dtype=torch.float64)
            factor = {0: factors[i], 1: factors[j]}
            solver = SVC(kernel="precomputed", class_weight=factor, **options)
            some = None if weight is None else weight[rows]
            return solve(solver, grams[kind, depth], labels[rows] == j, rows, some)

        def need(count: int) -> int:
            return 8 * count**2 + cache_bytes(self.cache_size)

        return pairs.run(job, need, self.memory_gb, self.n_jobs, self.verbose)

    def _calibrated(self, Z: np.ndarray, pairs: Pairs, weight: Weights) -> Calibration:
        """Calibrate probabilities on the decisions for rows that cross-validation held out."""
        used = np.arange(len(Z)) if weight is None else np.flatnonzero(weight)
        labels = pairs.labels[used]
        decisions = np.empty((len(used), len(pairs.pairs)))
        fold = _folds(Z[used], labels)
        for k in range(fold.max() + 1):
            kept, held = np.flatnonzero(fold != k), np.flatnonzero(fold == k)
            rows = used[kept]
            some = None if weight is None else weight[rows]
            machines = self._machines(Z[rows], Pairs(pairs.classes[labels[kept]]), some)
            coef = np.stack([m.dense(len(rows)) for m in machines])
            intercept = np.array([m.intercept for m in machines])
            decisions[held] = self._decide(Z[used[held]], Z[rows], coef, intercept)
        plain = np.ones(len(used)) if weight is None else weight[used].astype(np.float64)
        return Calibration.fit(self._scores(decisions), labels, plain)

    def _scores(self, decisions: np.ndarray) -> np.ndarray:
        """Return a column for each class, or one for two classes, from those of pairs."""
        if len(self.classes_) == 2:
            return -decisions
        return _ovr_decision_function(decisions < 0, -decisions, len(self.classes_))

    def decision_function(self, X: ArrayLike) -> np.ndarray:
        """Return the decisions: for two classes, a column that is positive for the second.

        For more, a column per class, or per pair if ``decision_function_shape="ovo"``.
        """
        decisions = self._pair_decisions(X)
        if len(self.classes_) == 2:
            return -decisions[:, 0]
        return decisions if self.decision_function_shape == "ovo" else self._scores(decisions)

    def predict(self, X: ArrayLike) -> np.ndarray:
        """Predict the class with the most votes of the pairs; ties go to the first class."""
        decisions = self._pair_decisions(X)
        return self.classes_[vote(decisions, len(self.classes_))]

    @available_if(lambda self: self.probability)  # type: ignore[untyped-decorator]
    def predict_proba(self, X: ArrayLike) -> np.ndarray:
        """Return probabilities, (n_samples, n_classes), which need ``probability=True``."""
        check_is_fitted(self)
        if self._calibration is None:
            raise ValueError("the model was fitted with probability=False; fit it again")
        return self._calibration.probabilities(self._scores(self._pair_decisions(X)))

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "support_")

    def _fitted_state(self, sums: bool) -> State:
        fitted = {k: v for k, v in vars(self).items() if k.endswith("_") and k not in SEEN}
        kernel, calibration = self._fitted_with, self._calibration
        return {"attributes": fitted, "kernel": kernel, "calibration": calibration}

    def _restore(self, fitted: State) -> None:
        self._fitted_with, self._calibration = fitted["kernel"], fitted["calibration"]
        self.__dict__.update(fitted["attributes"])

    def _pair_decisions(self, X: ArrayLike) -> np.ndarray:
        check_is_fitted(self)
        X = check_rows(self, X, dtype=self.support_vectors_.dtype)
        Z = prepared(X, self._fitted_with[2], self.bias_)
        support = prepared(self.support_vectors_, False, self.bias_)
        return self._decide(Z, support, self.pair_coef_, self.intercept_)

    def _decide(
        self, Z: np.ndarray, support: np.ndarray, coef: np.ndarray, intercept: np.ndarray
    ) -> np.ndarray:
        """Return the decisions of all pairs, (rows, pairs), block by block."""
        kind, depth, _ = self._fitted_with
        step = max(1, PREDICT_BYTES // (8 * len(support)))
        wanted: State = {"depths": [depth], "kinds": [kind], "dtype": torch.float64}
        parts = (Z[start : start + step] for start in range(0, len(Z), step))
        kernels = (equivalent_kernels(part, support, **wanted)[kind, depth] for part in parts)
        return np.concatenate([kernel @ coef.T + intercept for kernel in kernels])


def _folds(Z: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Return the fold of each row, by its content, so that copies within a class stay together."""
    hashes = row_hashes(from_numpy(np.ascontiguousarray(Z))).numpy()
    fewest = min(len(np.unique(hashes[labels == c])) for c in range(labels.max() + 1))
    if fewest == 1:  # copies of one row only
        hashes, fewest = np.arange(len(labels)), int(np.bincount(labels).min())
    fold = np.empty(len(labels), dtype=np.int64)
    for c in range(labels.max() + 1):
        fold[labels == c] = np.unique(hashes[labels == c], return_inverse=True)[1]
    return fold % min(FOLDS, fewest)


def _check_rows_of_classes(pairs: Pairs, weight: Weights) -> None:
    """Refuse classes of which cross-validation could hold out all rows."""
    rows = np.bincount(pairs.labels if weight is None else pairs.labels[weight > 0])
    if rows.min() < 2:
        rare = pairs.classes[rows.argmin()]
        raise ValueError(f"probability=True needs 2 rows of each class, but {rare} has one")
