"""One-pass ridge regression on a TS representation, as a scikit-learn classifier and regressor."""

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
    """What stands before the readout: principal components if asked for, a constant input for the intercept, and the gates."""

    mean: np.ndarray | None
    basis: np.ndarray | None
    intercept: bool
    gate_weights: list[Tensor]

    def __call__(self, X: np.ndarray) -> Tensor:
        if self.basis is not None:
            X = (X - self.mean) @ self.basis
        x = from_numpy(np.ascontiguousarray(X))
        return torch.nn.functional.pad(x, (0, 1), value=1.0) if self.intercept else x


class _TSRidge(BaseEstimator):  # type: ignore[misc]
    """What classifier and regressor share: gates, PCA, and the choice of solver. Their targets are (rows, outputs)."""

    def __init__(
        self,
        gates: Sequence[int] | int = (64,),
        alpha: float | str | Sequence[float | str] = "mean",
        *,
        solver: str = "auto",
        pca: int | None = None,
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
        self.pca = pca
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
        """All rows at once, by any solver. What was fitted before stays until this one is complete."""
        weight = self._weights(X, sample_weight)
        front = self._new_front(X, weight)
        x, t = front(X), from_numpy(targets)
        problem = Problem.checked(x, t, front.gate_weights, weight, "relu")
        options: dict[str, Any] = {
            "tol": self.tol,
            "max_iter": self.max_iter,
            "progress": self.verbose,
        }
        solved = solve_checked(
            problem, self.alpha, self.solver, self.memory_gb, forgetting=self.forgetting, **options
        )
        self._keep(front, solved.solver, solved.statistics, solved.solution)

    def _partial_fit(
        self, X: np.ndarray, targets: np.ndarray, sample_weight: Any, first: bool
    ) -> None:
        """Add rows to the sums; the readout is solved when it is next needed."""
        weight = self._weights(X, sample_weight)
        if not first and self._statistics is None:
            raise ValueError(
                f"this model was fitted by the {self.solver_!r} solver, which keeps no sums to add to; fit it with solver='streaming'"
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
        self._front, self.solver_, self._statistics, self._solution = (
            front,
            solver,
            statistics,
            solution,
        )
        self.gate_weights_ = [w.numpy() for w in front.gate_weights]

    def _new_front(self, X: np.ndarray, weight: Tensor | None) -> _Front:
        """Principal components of the rows, and gate weights by Glorot's uniform distribution."""
        random = check_random_state(self.random_state)
        mean = basis = None
        if self.pca is not None:
            check_positive(pca=self.pca)
            if self.pca > min(X.shape):
                raise ValueError(
                    f"pca={self.pca} components cannot be had from {X.shape[0]} rows of {X.shape[1]} features"
                )
            s = np.ones(len(X), X.dtype) if weight is None else weight.numpy()
            mean = (s @ X / max(s.sum(), np.finfo(X.dtype).tiny)).astype(X.dtype)
            basis = principal_components(np.sqrt(s)[:, None] * (X - mean), int(self.pca))
        n_in = (X.shape[1] if basis is None else basis.shape[1]) + bool(self.fit_intercept)
        generator = torch.Generator().manual_seed(random.randint(2**31))
        gate_weights = draw_gates(n_in, self._gates(), generator, from_numpy(X[:0]).dtype)
        if self.fit_intercept:
            constant = (
                n_in - 1
            )  # the input that is one; above the first layer, the gate that is always open
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
        """The readout with its λ and, where several were tried, their generalised cross-validation errors."""
        check_is_fitted(self, "solver_")
        if self._solution is None:
            assert self._statistics is not None
            self._solution = self._statistics.solve(self.alpha)
        return self._solution

    @property
    def n_iter_(self) -> int:
        """Iterations of conjugate gradients, 1 for the direct solvers."""
        return max(1, self.solution_.iterations)

    @property
    def alpha_(self) -> float:
        """The λ used."""
        return self.solution_.alpha

    @property
    def coef_(self) -> np.ndarray:
        """The readout, (n_L, …, n_1, inputs, outputs); the last input is the constant one if there is an intercept."""
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
    """Classify by ridge regression of ±1 targets on ``z = h_L ⊗ … ⊗ h_1 ⊗ x``, with random gates that stay as they are.

    One pass over the data and one linear system. ``fit`` takes all rows at once; ``partial_fit`` takes them chunk by chunk, keeps sums whose size
    does not depend on the number of rows, and gives the same answer.

    Parameters
    ----------
    gates : number of gates of each layer, ``(n_1, …, n_L)``; one number for a single layer
    alpha : the ridge penalty λ. "mean" is the mean of the diagonal of ``Σ z zᵀ``, the paper's choice. Of a list, the one with the least generalised
        cross-validation error is taken, at little more than the price of one
    solver : "streaming" (sums a Gram matrix), "matrix-free" (conjugate gradients), "dual" (few rows), or "auto", the fastest that fits into
        memory; all give the same answer, and the log says which was taken and why
    pca : project on so many principal components first, fitted by ``fit`` on all rows and by ``partial_fit`` on the first chunk
    fit_intercept : add a constant input, and let the first gate of each layer be always open, so that gates and readout have biases; the paper
        has none
    tol, max_iter : where conjugate gradients stop
    forgetting : factor on the sums at each ``partial_fit``, for data that drifts
    memory_gb : what may be used, by default seven tenths of what is free
    random_state : seed of the gates
    verbose : show progress

    Attributes
    ----------
    classes_ : the labels
    gate_weights_ : a matrix for each layer
    coef_ : the readout, (n_L, …, n_1, inputs, outputs)
    alpha_ : the λ used
    solver_ : the solver used
    solution_ : readout, λ, iterations, and the error of each λ tried

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> X, y = load_digits(return_X_y=True)
    >>> model = TSRidgeClassifier(gates=(128, 32), random_state=0).fit(X[:1000] / 16, y[:1000])
    >>> bool(model.score(X[1000:] / 16, y[1000:]) > 0.94)
    True
    """

    classes_: np.ndarray

    @unchanged_on_error
    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Solve for the readout from all rows at once."""
        X, y = self._validated(X, y, True)
        check_classification_targets(y)
        classes = check_classes(y)
        self._fit(X, self._targets(y, classes, X.dtype), sample_weight)
        self.classes_ = classes
        return self

    @available_if(_sums)  # type: ignore[untyped-decorator]
    @unchanged_on_error
    def partial_fit(self, X: Any, y: Any, classes: Any = None, sample_weight: Any = None) -> Self:
        """Add a chunk of rows. The first call must name all ``classes``."""
        first = not hasattr(self, "solver_")
        known = check_partial_fit(None if first else self.classes_, classes)
        X, y = self._validated(X, y, first)
        check_classification_targets(y)
        self._partial_fit(X, self._targets(y, known, X.dtype), sample_weight, first)
        self.classes_ = known
        return self

    @staticmethod
    def _targets(y: np.ndarray, classes: np.ndarray, dtype: Any) -> np.ndarray:
        """±1, a column for each class; a single one for two classes."""
        targets = np.where(
            class_places(y, classes)[:, None] == np.arange(len(classes)), 1, -1
        ).astype(dtype)
        return targets[:, 1:] if len(classes) == 2 else targets

    def decision_function(self, X: Any) -> np.ndarray:
        """The readout: (rows, classes), or for two classes (rows,), positive for the second."""
        outputs = self._outputs(X)
        return outputs[:, 0] if outputs.shape[1] == 1 else outputs

    def predict(self, X: Any) -> np.ndarray:
        """The class of largest output."""
        outputs = self._outputs(X)
        single = outputs.shape[1] == 1
        places = (outputs[:, 0] > 0).astype(int) if single else outputs.argmax(1)
        return self.classes_[places]  # type: ignore[no-any-return]


class TSRidgeRegressor(MultiOutputMixin, RegressorMixin, _TSRidge):  # type: ignore[misc]
    """Ridge regression on ``z = h_L ⊗ … ⊗ h_1 ⊗ x``, with random gates that stay as they are.

    Parameters, solvers and attributes are those of :class:`TSRidgeClassifier`. Targets may have several columns.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.random.default_rng(0).normal(size=(2000, 3))
    >>> y = np.abs(X).sum(1)
    >>> model = TSRidgeRegressor(gates=64, alpha=1.0, random_state=0).fit(X[:1500], y[:1500])
    >>> bool(model.score(X[1500:], y[1500:]) > 0.94)
    True
    """

    _flat: bool

    @unchanged_on_error
    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Solve for the readout from all rows at once."""
        X, y = self._validated(X, y, True, multi_output=True, y_numeric=True)
        self._fit(X, self._targets(y, X.dtype), sample_weight)
        self._flat = y.ndim == 1
        return self

    @available_if(_sums)  # type: ignore[untyped-decorator]
    @unchanged_on_error
    def partial_fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Add a chunk of rows."""
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
        """(rows,) or (rows, columns), as the targets were."""
        outputs = self._outputs(X)
        return outputs[:, 0] if self._flat else outputs
