"""Ridge regression on a TS representation in one pass: classifier and regressor."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Self

import numpy as np
import torch
from sklearn.base import BaseEstimator, ClassifierMixin, MultiOutputMixin, RegressorMixin
from sklearn.utils import check_random_state
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data
from torch import Tensor

from tensorswitch._checks import check_positive, from_numpy
from tensorswitch._pca import principal_components
from tensorswitch._progress import progress_bar
from tensorswitch.estimators._explaining import ExplainedRidge
from tensorswitch.estimators._labels import check_classes, check_partial_fit, class_places
from tensorswitch.estimators._transaction import unchanged_on_error
from tensorswitch.ridge import RidgeStatistics, Solution, apply_readout, choose_solver, draw_gates
from tensorswitch.ridge._penalty import check_alphas
from tensorswitch.ridge._validation import Problem
from tensorswitch.ridge.choice import solve_checked

__all__ = ["TSRidgeClassifier", "TSRidgeRegressor"]

PREDICT_ROWS = 8192


def _sums(model: _TSRidge) -> bool:
    if model.solver not in ("auto", "streaming"):
        raise AttributeError(
            f"partial_fit needs solver='streaming' or 'auto', got solver={model.solver!r}"
        )
    return True


class _Front(NamedTuple):
    """The steps before the readout: optional PCA, a constant input for the intercept, and gates."""

    mean: np.ndarray | None
    basis: np.ndarray | None
    intercept: bool
    gate_weights: list[Tensor]

    def __call__(self, X: np.ndarray) -> Tensor:
        if self.basis is not None:
            X = (X - self.mean) @ self.basis
        x = from_numpy(np.ascontiguousarray(X))
        return torch.nn.functional.pad(x, (0, 1), value=1.0) if self.intercept else x


class _TSRidge(ExplainedRidge, BaseEstimator):  # type: ignore[misc]
    """Base class: gates, PCA and the choice of solver, for targets of shape (rows, outputs)."""

    def __init__(
        self,
        gates: Sequence[int] | int = (64,),
        alpha: float | str | Sequence[float | str] = "mean",
        *,
        solver: str = "auto",
        components: int | None = None,
        fit_intercept: bool = True,
        tol: float = 1e-4,
        max_iter: int = 500,
        forgetting: float = 1.0,
        memory_gb: float | None = None,
        random_state: Any = None,
        verbose: bool = False,
    ) -> None:
        self.gates = gates
        self.alpha = alpha
        self.solver = solver
        self.components = components
        self.fit_intercept = fit_intercept
        self.tol = tol
        self.max_iter = max_iter
        self.forgetting = forgetting
        self.memory_gb = memory_gb
        self.random_state = random_state
        self.verbose = verbose

    _front: _Front
    _statistics: RidgeStatistics | None
    _solution: Solution | None

    def _fit(self, X: np.ndarray, targets: np.ndarray, sample_weight: Any) -> None:
        """Fit all rows at once, with any solver."""
        weight = self._weights(X, sample_weight)
        front = self._new_front(X, weight)
        x, t = front(X), from_numpy(targets)
        problem = Problem.checked(x, t, front.gate_weights, weight, "relu")
        options: dict[str, Any] = {"tol": self.tol, "max_iter": self.max_iter}
        with progress_bar(type(self).__name__, self.verbose) as bar:
            solved = solve_checked(
                problem,
                self.alpha,
                self.solver,
                self.memory_gb,
                forgetting=self.forgetting,
                watch=lambda note: bar(note=note),
                **options,
            )
        self._keep(front, solved.solver, solved.statistics, solved.solution)

    def _partial_fit(
        self, X: np.ndarray, targets: np.ndarray, sample_weight: Any, first: bool
    ) -> None:
        """Add rows to the sums; the readout is solved lazily, when it is next needed."""
        weight = self._weights(X, sample_weight)
        if not first and self._statistics is None:
            raise ValueError(
                f"the model was fitted by the {self.solver_!r} solver, which cannot be updated; "
                "fit it with solver='streaming'"
            )
        front = self._new_front(X, weight) if first else self._front
        x, t = front(X), from_numpy(targets)
        if not first:
            assert self._statistics is not None
            self._statistics.update(x, t, weight)
            self._solution = None
            return
        check_alphas(self.alpha, 1.0)
        sizes = (len(x), x.shape[1], self._gates(), t.shape[1])
        choose_solver(
            *sizes, solver="streaming", memory_gb=self.memory_gb, dtype=x.dtype, in_chunks=True
        )
        statistics = RidgeStatistics(
            front.gate_weights, t.shape[1], dtype=x.dtype, forgetting=self.forgetting
        ).update(x, t, weight)
        self._keep(front, "streaming", statistics, None)

    def _keep(
        self,
        front: _Front,
        solver: str,
        statistics: RidgeStatistics | None,
        solution: Solution | None,
    ) -> None:
        self._front, self.solver_ = front, solver
        self._statistics, self._solution = statistics, solution
        self.gate_weights_ = [w.numpy() for w in front.gate_weights]

    def _new_front(self, X: np.ndarray, weight: Tensor | None) -> _Front:
        """Fit principal components and draw gate weights from Glorot's uniform distribution."""
        random = check_random_state(self.random_state)
        mean = basis = None
        if self.components is not None:
            check_positive(components=self.components)
            if self.components > min(X.shape):
                raise ValueError(
                    f"components={self.components} exceeds the smaller of {X.shape[0]} rows and "
                    f"{X.shape[1]} features"
                )
            s = np.ones(len(X), X.dtype) if weight is None else weight.numpy()
            mean = (s @ X / max(s.sum(), np.finfo(X.dtype).tiny)).astype(X.dtype)
            basis = principal_components(np.sqrt(s)[:, None] * (X - mean), int(self.components))
        n_in = (X.shape[1] if basis is None else basis.shape[1]) + bool(self.fit_intercept)
        generator = torch.Generator().manual_seed(random.randint(2**31))
        gate_weights = draw_gates(n_in, self._gates(), generator, from_numpy(X[:0]).dtype)
        if self.fit_intercept:
            # In the first layer the constant input, above it the gate that is always open.
            constant = n_in - 1
            for w in gate_weights:
                w[0] = 0
                w[0, constant] = 1
                constant = 0
        return _Front(mean, basis, bool(self.fit_intercept), gate_weights)

    def _gates(self) -> list[int]:
        sizes: list[Any] = [self.gates] if np.ndim(self.gates) == 0 else list(self.gates)  # type: ignore[arg-type]
        if not sizes:
            raise ValueError("gates is empty: give the number of gates of at least one layer")
        for size in sizes:
            check_positive(gates=size)
        return [int(size) for size in sizes]

    @staticmethod
    def _weights(X: np.ndarray, sample_weight: Any) -> Tensor | None:
        if sample_weight is None:
            return None
        return from_numpy(
            _check_sample_weight(sample_weight, X, dtype=X.dtype, ensure_non_negative=True)
        )

    @property
    def solution_(self) -> Solution:
        """The readout with its λ and, if several were tried, their GCV errors."""
        check_is_fitted(self, "solver_")
        if self._solution is None:
            assert self._statistics is not None
            self._solution = self._statistics.solve(self.alpha)
        return self._solution

    @property
    def n_iter_(self) -> int:
        """Number of iterations of conjugate gradients, 1 for the direct solvers."""
        return max(1, self.solution_.iterations)

    @property
    def alpha_(self) -> float:
        """The penalty λ that was used."""
        return self.solution_.alpha

    @property
    def coef_(self) -> np.ndarray:
        """The readout, of shape (n_L, …, n_1, n_inputs, n_outputs)."""
        return self.solution_.weight.numpy()

    def _outputs(self, X: Any) -> np.ndarray:
        check_is_fitted(self, "solver_")
        X = validate_data(self, X, dtype=self.gate_weights_[0].dtype, order="C", reset=False)
        weight, front = self.solution_.weight, self._front
        parts = [
            apply_readout(front(X[start : start + PREDICT_ROWS]), front.gate_weights, weight)
            for start in range(0, len(X), PREDICT_ROWS)
        ]
        return torch.cat(parts).numpy()

    def _validated(
        self, X: Any, y: Any, first: bool, **options: Any
    ) -> tuple[np.ndarray, np.ndarray]:
        dtype = [np.float64, np.float32] if first else self.gate_weights_[0].dtype
        X, y = validate_data(self, X, y, dtype=dtype, order="C", reset=first, **options)
        return X, y


class TSRidgeClassifier(ClassifierMixin, _TSRidge):  # type: ignore[misc]
    """Classifier by ridge regression of ±1 targets on a TS representation with random gates.

        W = argmin Σ ‖Wᵀ z − t‖² + λ ‖W‖²,        z = h_L ⊗ … ⊗ h_1 ⊗ x

    The gates are drawn at random and stay fixed [1]_, so training takes one pass over the data and
    one linear system. ``fit`` takes all rows at once. ``partial_fit`` takes them in chunks, keeps
    sums whose size does not depend on the number of rows, and computes the same solution.

    Parameters
    ----------
    gates : int or sequence of int, default=(64,)
        Number of gates of each layer, ``(n_1, …, n_L)``. An integer is a single layer.
    alpha : float, "mean" or a sequence of these, default="mean"
        The ridge penalty λ. "mean" is the mean of the diagonal of ``Σ z zᵀ``, as in the paper. Of
        several values, the one with the lowest generalised cross-validation error [2]_ is used,
        which costs little more than a single value.
    solver : {"auto", "streaming", "matrix-free", "dual"}, default="auto"
        "streaming" accumulates a Gram matrix, "matrix-free" runs conjugate gradients, and "dual"
        factorises a kernel matrix, for few rows. All compute the same solution. "auto" picks the
        one with the least estimated work that fits into memory and logs the reason.
    components : int, optional
        Number of principal components to project on first. They are fitted by ``fit`` on all rows
        and by ``partial_fit`` on the first chunk. By default there is no projection.
    fit_intercept : bool, default=True
        Whether gates and readout have biases: a constant input is appended, and the first gate of
        each layer is always open. The paper's networks have no biases.
    tol : float, default=1e-4
        Relative residual at which conjugate gradients stop.
    max_iter : int, default=500
        Maximum number of iterations of conjugate gradients.
    forgetting : float, default=1.0
        Factor in (0, 1] by which each ``partial_fit`` multiplies the previous sums, for data that
        drifts.
    memory_gb : float, optional
        Memory budget in GiB. By default 70 % of the memory that is available when fitting.
    random_state : int, RandomState instance or None, default=None
        Seed of the gate weights.
    verbose : bool, default=False
        Show a progress bar for conjugate gradients.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        The class labels, sorted.
    gate_weights_ : list of ndarray of shape (n_l, n_{l-1})
        The gate weights of each layer.
    coef_ : ndarray of shape (n_L, …, n_1, n_inputs, n_outputs)
        The readout. With an intercept, the last input is the constant one.
    alpha_ : float
        The penalty λ that was used.
    solver_ : str
        The solver that was used.
    solution_ : Solution
        The readout with λ, the number of iterations and, if several values of λ were tried, the
        error of each.
    n_iter_ : int
        Number of iterations of conjugate gradients, 1 for the direct solvers.
    n_features_in_ : int
        Number of features seen during fit.

    See Also
    --------
    TSRidgeRegressor : Ridge regression on the same representation.

    References
    ----------
    .. [1] C.-Y. Tsai, A. Saxe and D. Cox, "Tensor Switching Networks", NIPS 2016, arXiv:1610.10087.
    .. [2] G. H. Golub, M. Heath and G. Wahba, "Generalized Cross-Validation as a Method for
       Choosing a Good Ridge Parameter", Technometrics 21(2), 1979.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from tensorswitch.estimators import TSRidgeClassifier
    >>> X, y = load_digits(return_X_y=True)
    >>> model = TSRidgeClassifier(gates=(128, 32), random_state=0).fit(X[:1000] / 16, y[:1000])
    >>> bool(model.score(X[1000:] / 16, y[1000:]) > 0.94)
    True
    """

    classes_: np.ndarray

    @unchanged_on_error
    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Fit the readout to all rows at once.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Training samples.
        y : array-like of shape (n_samples,)
            Class labels.
        sample_weight : array-like of shape (n_samples,), optional
            Weights of the samples, 1 by default.

        Returns
        -------
        self : object
            The fitted estimator.
        """
        X, y = self._validated(X, y, True)
        check_classification_targets(y)
        classes = check_classes(y)
        self._fit(X, self._targets(y, classes, X.dtype), sample_weight)
        self.classes_ = classes
        return self

    @available_if(_sums)  # type: ignore[untyped-decorator]
    @unchanged_on_error
    def partial_fit(self, X: Any, y: Any, classes: Any = None, sample_weight: Any = None) -> Self:
        """Add a chunk of rows; the readout is solved when it is next needed.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            A chunk of samples.
        y : array-like of shape (n_samples,)
            Class labels.
        classes : array-like of shape (n_classes,), optional
            All labels that any chunk may contain. Required in the first call.
        sample_weight : array-like of shape (n_samples,), optional
            Weights of the samples, 1 by default.

        Returns
        -------
        self : object
            The fitted estimator.
        """
        first = not hasattr(self, "solver_")
        known = check_partial_fit(None if first else self.classes_, classes)
        X, y = self._validated(X, y, first)
        check_classification_targets(y)
        self._partial_fit(X, self._targets(y, known, X.dtype), sample_weight, first)
        self.classes_ = known
        return self

    @staticmethod
    def _targets(y: np.ndarray, classes: np.ndarray, dtype: Any) -> np.ndarray:
        """Return targets of ±1, with a column per class, or a single column for two classes."""
        member = class_places(y, classes)[:, None] == np.arange(len(classes))
        targets = np.where(member, 1, -1).astype(dtype)
        return targets[:, 1:] if len(classes) == 2 else targets

    def decision_function(self, X: Any) -> np.ndarray:
        """Return the outputs of the readout.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Samples.

        Returns
        -------
        ndarray of shape (n_samples, n_classes) or (n_samples,)
            The output of each class. For two classes there is a single output, which is positive
            for the second.
        """
        outputs = self._outputs(X)
        return outputs[:, 0] if outputs.shape[1] == 1 else outputs

    def predict(self, X: Any) -> np.ndarray:
        """Predict the class with the largest output.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Samples.

        Returns
        -------
        ndarray of shape (n_samples,)
            Class labels.
        """
        outputs = self._outputs(X)
        single = outputs.shape[1] == 1
        places = (outputs[:, 0] > 0).astype(int) if single else outputs.argmax(1)
        return self.classes_[places]  # type: ignore[no-any-return]


class TSRidgeRegressor(MultiOutputMixin, RegressorMixin, _TSRidge):  # type: ignore[misc]
    """Ridge regression on a TS representation with random gates.

        W = argmin Σ ‖Wᵀ z − t‖² + λ ‖W‖²,        z = h_L ⊗ … ⊗ h_1 ⊗ x

    The gates are drawn at random and stay fixed [1]_, so training takes one pass over the data and
    one linear system. ``fit`` takes all rows at once. ``partial_fit`` takes them in chunks, keeps
    sums whose size does not depend on the number of rows, and computes the same solution. Targets
    may have several columns.

    Parameters
    ----------
    gates : int or sequence of int, default=(64,)
        Number of gates of each layer, ``(n_1, …, n_L)``. An integer is a single layer.
    alpha : float, "mean" or a sequence of these, default="mean"
        The ridge penalty λ. "mean" is the mean of the diagonal of ``Σ z zᵀ``, as in the paper. Of
        several values, the one with the lowest generalised cross-validation error [2]_ is used,
        which costs little more than a single value.
    solver : {"auto", "streaming", "matrix-free", "dual"}, default="auto"
        "streaming" accumulates a Gram matrix, "matrix-free" runs conjugate gradients, and "dual"
        factorises a kernel matrix, for few rows. All compute the same solution. "auto" picks the
        one with the least estimated work that fits into memory and logs the reason.
    components : int, optional
        Number of principal components to project on first. They are fitted by ``fit`` on all rows
        and by ``partial_fit`` on the first chunk. By default there is no projection.
    fit_intercept : bool, default=True
        Whether gates and readout have biases: a constant input is appended, and the first gate of
        each layer is always open. The paper's networks have no biases.
    tol : float, default=1e-4
        Relative residual at which conjugate gradients stop.
    max_iter : int, default=500
        Maximum number of iterations of conjugate gradients.
    forgetting : float, default=1.0
        Factor in (0, 1] by which each ``partial_fit`` multiplies the previous sums, for data that
        drifts.
    memory_gb : float, optional
        Memory budget in GiB. By default 70 % of the memory that is available when fitting.
    random_state : int, RandomState instance or None, default=None
        Seed of the gate weights.
    verbose : bool, default=False
        Show a progress bar for conjugate gradients.

    Attributes
    ----------
    gate_weights_ : list of ndarray of shape (n_l, n_{l-1})
        The gate weights of each layer.
    coef_ : ndarray of shape (n_L, …, n_1, n_inputs, n_outputs)
        The readout. With an intercept, the last input is the constant one.
    alpha_ : float
        The penalty λ that was used.
    solver_ : str
        The solver that was used.
    solution_ : Solution
        The readout with λ, the number of iterations and, if several values of λ were tried, the
        error of each.
    n_iter_ : int
        Number of iterations of conjugate gradients, 1 for the direct solvers.
    n_features_in_ : int
        Number of features seen during fit.

    See Also
    --------
    TSRidgeClassifier : Classification with the same representation.

    References
    ----------
    .. [1] C.-Y. Tsai, A. Saxe and D. Cox, "Tensor Switching Networks", NIPS 2016, arXiv:1610.10087.
    .. [2] G. H. Golub, M. Heath and G. Wahba, "Generalized Cross-Validation as a Method for
       Choosing a Good Ridge Parameter", Technometrics 21(2), 1979.

    Examples
    --------
    >>> import numpy as np
    >>> from tensorswitch.estimators import TSRidgeRegressor
    >>> X = np.random.default_rng(0).normal(size=(2000, 3))
    >>> y = np.abs(X).sum(1)
    >>> model = TSRidgeRegressor(gates=64, alpha=1.0, random_state=0).fit(X[:1500], y[:1500])
    >>> bool(model.score(X[1500:], y[1500:]) > 0.94)
    True
    """

    _flat: bool

    @unchanged_on_error
    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Fit the readout to all rows at once.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Training samples.
        y : array-like of shape (n_samples,) or (n_samples, n_outputs)
            Targets.
        sample_weight : array-like of shape (n_samples,), optional
            Weights of the samples, 1 by default.

        Returns
        -------
        self : object
            The fitted estimator.
        """
        X, y = self._validated(X, y, True, multi_output=True, y_numeric=True)
        self._fit(X, self._targets(y, X.dtype), sample_weight)
        self._flat = y.ndim == 1
        return self

    @available_if(_sums)  # type: ignore[untyped-decorator]
    @unchanged_on_error
    def partial_fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Add a chunk of rows; the readout is solved when it is next needed.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            A chunk of samples.
        y : array-like of shape (n_samples,) or (n_samples, n_outputs)
            Targets.
        sample_weight : array-like of shape (n_samples,), optional
            Weights of the samples, 1 by default.

        Returns
        -------
        self : object
            The fitted estimator.
        """
        first = not hasattr(self, "solver_")
        X, y = self._validated(X, y, first, multi_output=True, y_numeric=True)
        if not first and (y.ndim == 1) != self._flat:
            raise ValueError(
                f"y has {y.ndim} axes, but the first chunk had {1 if self._flat else 2}"
            )
        self._partial_fit(X, self._targets(y, X.dtype), sample_weight, first)
        self._flat = y.ndim == 1
        return self

    @staticmethod
    def _targets(y: np.ndarray, dtype: Any) -> np.ndarray:
        return np.ascontiguousarray(y.reshape(len(y), -1), dtype=dtype)

    def predict(self, X: Any) -> np.ndarray:
        """Predict targets.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Samples.

        Returns
        -------
        ndarray of shape (n_samples,) or (n_samples, n_outputs)
            Predictions, in the shape of the training targets.
        """
        outputs = self._outputs(X)
        return outputs[:, 0] if self._flat else outputs
