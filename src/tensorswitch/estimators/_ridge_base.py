"""What the ridge classifier and regressor share: gates, scaling, solvers, chunks and removal."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from scipy import sparse
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state
from sklearn.utils.validation import _check_sample_weight, check_is_fitted
from torch import Tensor

from tensorswitch._checks import check_factor, check_positive, from_numpy
from tensorswitch._memory import available_memory
from tensorswitch._progress import progress_bar
from tensorswitch.estimators._explaining import ExplainedRidge
from tensorswitch.estimators._front import Front, Scaling, moments, rows_of
from tensorswitch.estimators._inputs import rows_of_numbers
from tensorswitch.estimators._onnx import OnnxMixin
from tensorswitch.ridge import RidgeStatistics, Solution, apply_readout
from tensorswitch.ridge.dispatch import Solved, fold_options, solve_problem, statistics_of
from tensorswitch.ridge.dual import leave_one_out
from tensorswitch.ridge.matrix_free import Options
from tensorswitch.ridge.penalty import penalties
from tensorswitch.ridge.problem import Problem
from tensorswitch.ridge.rows import fold_of_hashes, row_hashes
from tensorswitch.switches import Switch, as_switch

PREDICT_ROWS = 8192
SCALED_ROWS = 600  # on which the kind of scaling is chosen
TRIED = tuple(f"{10.0**k} mean" for k in range(3, -5, -1))
AUTO_FEATURES, AUTO_GATES = 4096, (16, 256)  # what gates="auto" aims at, and its range


class Fitted(NamedTuple):
    """What a fit keeps besides its results."""

    front: Any  # Front, or what takes its place where features are given
    shift: np.ndarray  # of the targets
    scale: float


def can_update(model: TSRidgeBase) -> bool:
    """Raise unless the solver keeps sums."""
    if model.solver not in ("auto", "streaming"):
        raise AttributeError(
            f"partial_fit needs solver='streaming' or 'auto', got solver={model.solver!r}"
        )
    return True


class TSRidgeBase(ExplainedRidge, OnnxMixin, BaseEstimator):  # type: ignore[misc]
    """Gates, scaling, PCA and the choice of solver, for targets of shape (rows, outputs)."""

    _scaled_targets: ClassVar[bool] = False
    _left_out_wanted: ClassVar[bool] = False

    def __init__(
        self,
        gates: Sequence[int] | int | str = "auto",
        alpha: float | str | Sequence[float | str] = "cv",
        *,
        switch: Switch | str = "relu",
        solver: str = "auto",
        standardize: Any = "auto",
        components: int | None = None,
        fit_intercept: bool = True,
        selection: str = "cv",
        tol: float = 1e-4,
        max_iter: int = 500,
        forgetting: float = 1.0,
        memory_gb: float | None = None,
        random_state: Any = None,
        verbose: bool = False,
    ) -> None:
        self.gates = gates
        self.alpha = alpha
        self.switch = switch
        self.solver = solver
        self.standardize = standardize
        self.components = components
        self.fit_intercept = fit_intercept
        self.selection = selection
        self.tol = tol
        self.max_iter = max_iter
        self.forgetting = forgetting
        self.memory_gb = memory_gb
        self.random_state = random_state
        self.verbose = verbose

    _fitted: Fitted
    _statistics: RidgeStatistics | None
    _solution: Solution | None
    _problem: Problem | None
    solver_: str

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    def _fit(self, X: Any, targets: np.ndarray, sample_weight: np.ndarray | None) -> Solved:
        """Fit all rows at once, with any solver."""
        penalties(self.alpha, 1.0, self.selection)
        check_factor(forgetting=self.forgetting)
        weight = None if sample_weight is None else from_numpy(sample_weight)
        hashes = row_hashes_of(X)
        fitted = self._new(X, targets, weight, hashes)
        x, t = self._inputs(X, fitted), self._scaled(targets, fitted)
        front = fitted.front
        problem = Problem.checked(x, t, front.gate_weights, weight, front.switch, hashes)
        with progress_bar(type(self).__name__, self.verbose) as bar:
            solved = solve_problem(
                problem,
                self.alpha,
                self._options(lambda note: bar(note=note)),
                solver=self.solver,
                memory_gb=self.memory_gb,
                forgetting=self.forgetting,
                left_out=self._left_out_wanted,
            )
        self._keep(fitted, solved.solver, solved.statistics, solved.solution)
        if solved.solver == "dual":  # few rows, from which sums can be made when they are needed
            self._problem = problem
        return solved

    def _options(self, watch: Any = None) -> Options:
        intercept = bool(self.fit_intercept)
        return Options(self.tol, self.max_iter, intercept, self.selection, watch=watch)

    def _partial_fit(
        self, X: Any, targets: np.ndarray, sample_weight: np.ndarray | None, first: bool
    ) -> None:
        """Add rows to the sums; the readout is solved lazily, when it is next needed."""
        weight = None if sample_weight is None else from_numpy(sample_weight)
        hashes = row_hashes_of(X)
        if not first:
            fitted = self._fitted
            warn_of_ignored(X, fitted.front.scaling)
            rows = self._inputs(X, fitted), self._scaled(targets, fitted), weight
            statistics = self._same_forgetting()
            statistics.update(*rows, fold_of_hashes(hashes, statistics.folds))
            self._solution = None
            return
        penalties(self.alpha, 1.0, self.selection)
        fitted = self._new(X, targets, weight, hashes)
        x, t = self._inputs(X, fitted), self._scaled(targets, fitted)
        front = fitted.front
        problem = Problem.checked(x, t, front.gate_weights, weight, front.switch, hashes)
        self._keep(fitted, "streaming", self._new_sums(problem), None)

    def _new_sums(self, problem: Problem) -> RidgeStatistics:
        """Return the sums of some rows, of each fold if memory allows."""
        x, out = problem.x, problem.targets.shape[1]
        return statistics_of(problem, **self._sum_options(x, problem.sizes, out))

    def _new_statistics(self, fitted: Fitted, x: Tensor, t: Tensor) -> RidgeStatistics:
        """Return sums without rows, with as many folds as there is memory for."""
        front, out = fitted.front, t.shape[1]
        options = self._sum_options(x, [len(w) for w in front.gate_weights], out)
        return RidgeStatistics(
            front.gate_weights, out, switch=front.switch, dtype=x.dtype, **options
        )

    def _sum_options(self, x: Tensor, sizes: list[int], out: int) -> dict[str, Any]:
        alphas, selection = penalties(self.alpha, 1.0, self.selection)
        several = len(alphas) if selection == "cv" else 1
        _, folds = fold_options(
            len(x),
            x.shape[1],
            sizes,
            out,
            solver="streaming",
            memory_gb=self.memory_gb,
            dtype=x.dtype,
            in_chunks=True,
            alphas=several,
            wanted=self._left_out_wanted or several > 1,
        )
        return {"forgetting": self.forgetting, **folds}

    def _remove(self, X: Any, targets: np.ndarray, sample_weight: np.ndarray | None) -> None:
        """Subtract rows from the sums."""
        weight = None if sample_weight is None else from_numpy(sample_weight)
        fitted, statistics = self._fitted, self._sums()
        rows = self._inputs(X, fitted), self._scaled(targets, fitted), weight
        statistics.remove(*rows, fold_of_hashes(row_hashes_of(X), statistics.folds))
        self._solution = None

    def _same_forgetting(self) -> RidgeStatistics:
        """Return the sums, or raise if the parameter was changed after the first rows."""
        sums = self._sums()
        if sums.forgetting != self.forgetting:
            raise ValueError(
                f"forgetting was {sums.forgetting} for earlier rows and is now {self.forgetting}; "
                "it cannot be changed"
            )
        return sums

    def _sums(self) -> RidgeStatistics:
        if self._statistics is not None:
            return self._statistics
        message = (
            f"the model was fitted by the {self.solver_!r} solver, which cannot be updated; "
            "fit it with solver='streaming'"
        )
        if self._problem is None and self.solver_ in ("streaming", "dual"):
            raise ValueError(
                "the model was loaded from a file, which has no sums of its rows, so it cannot be "
                "updated; fit it again"
            )
        if self._problem is None:
            raise ValueError(message)
        try:
            self._statistics = self._new_sums(self._problem)
        except MemoryError as error:
            raise ValueError(f"{message} ({error})") from error
        self._problem, self.solver_ = None, "streaming"
        return self._statistics

    def _keep(
        self,
        fitted: Fitted,
        solver: str,
        statistics: RidgeStatistics | None,
        solution: Solution | None,
    ) -> None:
        self._fitted, self.solver_ = fitted, solver
        self._statistics, self._solution, self._problem = statistics, solution, None
        self.gate_weights_ = [w.numpy() for w in fitted.front.gate_weights]
        self.scaling_ = fitted.front.scaling.name

    def _new(self, X: Any, targets: np.ndarray, weight: Tensor | None, hashes: Tensor) -> Fitted:
        """Fit what comes before the readout to the first rows."""
        seed = int(check_random_state(self.random_state).randint(2**31))
        s = None if weight is None else weight.numpy()
        shift, scale = self._target_scale(targets, s)
        scaling = self._scaling(X, (targets - shift) / scale, s, hashes, seed)
        return Fitted(self._front(X, s, scaling, seed), shift, scale)

    def _target_scale(
        self, targets: np.ndarray, weight: np.ndarray | None
    ) -> tuple[np.ndarray, float]:
        """Return what is subtracted from targets and what they are divided by."""
        if not (self._scaled_targets and self.fit_intercept):
            return np.zeros(targets.shape[1]), 1.0
        mean, spread, _ = moments(targets, weight)
        scale = float(np.sqrt(np.square(spread).mean())) or 1.0
        return mean, scale if scale > 1e-12 * np.abs(mean).max(initial=0) else 1.0

    def _front(self, X: Any, weight: np.ndarray | None, scaling: Scaling, seed: int) -> Front:
        intercept = bool(self.fit_intercept)
        n_in = (X.shape[1] if self.components is None else self.components) + intercept
        switch = as_switch(self.switch)
        gates = self._gates(n_in, switch)
        return Front.fit(X, weight, scaling, self.components, intercept, gates, switch, seed)

    def _scaling(
        self, X: Any, targets: np.ndarray, weight: np.ndarray | None, hashes: Tensor, seed: int
    ) -> Scaling:
        """Return the scaling of the columns, chosen by cross-validation on a sample if "auto"."""
        given = self.standardize
        named = {"columns": "columns", "common": "common", True: "columns", False: "none"}
        plain = isinstance(given, str | bool | np.bool_)
        if plain and given != "auto" and given not in named:
            Scaling.given(given, X.shape[1])  # raises
        if not plain:
            return Scaling.given(given, X.shape[1])
        found = moments(X, weight)
        if given != "auto":
            return Scaling.fit(named[given], *found)
        sample = _sample(hashes, weight, SCALED_ROWS)
        rows, s = X[sample], None if weight is None else weight[sample]
        problem_targets = from_numpy(np.ascontiguousarray(targets[sample].astype(np.float64)))
        errors = {}
        for name in ("columns", "common"):
            scaling = Scaling.fit(name, *found)
            front = self._front(X, weight, scaling, seed)
            x = front(rows).double()
            problem = Problem.checked(
                x,
                problem_targets,
                [w.double() for w in front.gate_weights],
                None if s is None else from_numpy(s),
                as_switch(self.switch),
                hashes[torch.from_numpy(sample)],
            )
            errors[name] = leave_one_out(problem, TRIED, bool(self.fit_intercept))
        # Scaling each column is the usual choice; a common factor must be clearly better.
        return Scaling.fit(
            "common" if errors["common"] < 0.98 * errors["columns"] else "columns", *found
        )

    def _inputs(self, X: Any, fitted: Fitted) -> Tensor:
        """Return the inputs of the gates, after a check of memory if X is sparse."""
        if sparse.issparse(X):
            needed = X.shape[0] * fitted.front.gate_weights[0].shape[1] * X.dtype.itemsize
            given = self.memory_gb
            budget = 0.7 * available_memory() if given is None else given * 2**30
            if needed > budget:
                raise MemoryError(
                    f"{X.shape[0]:,} sparse rows of {X.shape[1]:,} features need "
                    f"{needed / 2**30:.2f} GB as a matrix, but the budget is "
                    f"{budget / 2**30:.2f} GB; use components, or partial_fit with fewer rows"
                )
        x: Tensor = fitted.front(X)
        return x

    @staticmethod
    def _scaled(targets: np.ndarray, fitted: Fitted) -> Tensor:
        scaled = (targets - fitted.shift) / fitted.scale
        return from_numpy(np.ascontiguousarray(scaled)).to(fitted.front.gate_weights[0].dtype)

    def _gates(self, n_in: int, switch: Switch) -> list[int]:
        if isinstance(self.gates, str):
            if self.gates != "auto":
                raise ValueError(f"gates must be 'auto' or numbers of gates, got {self.gates!r}")
            low, high = AUTO_GATES
            found = min(high, max(low, AUTO_FEATURES // n_in))
            return [max(switch.pieces, found - found % switch.pieces)]
        sizes: list[Any] = [self.gates] if np.ndim(self.gates) == 0 else list(self.gates)  # type: ignore[arg-type]
        if not sizes:
            raise ValueError("gates is empty: give the number of gates of at least one layer")
        for size in sizes:
            check_positive(gates=size)
            switch.check_gates(size)
        return [int(size) for size in sizes]

    @staticmethod
    def _weights(X: Any, sample_weight: Any) -> np.ndarray | None:
        if sample_weight is None:
            return None
        dtype = np.float32 if X.dtype == np.float32 else np.float64
        checked: np.ndarray = _check_sample_weight(
            sample_weight, X, dtype=dtype, ensure_non_negative=True
        )
        return checked

    @property
    def solution_(self) -> Solution:
        """The readout with its λ and, if several were tried, their errors."""
        check_is_fitted(self, "solver_")
        if self._solution is None:
            assert self._statistics is not None
            intercept = self._fitted.front.intercept
            self._solution = self._statistics.solve(
                self.alpha, fit_intercept=intercept, selection=self.selection
            )
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
        return self.solution_.weight.numpy() * self._fitted.scale

    @property
    def intercept_(self) -> np.ndarray:
        """The intercept, of shape (n_outputs,); zero without one."""
        shift, found = self._fitted.shift, self.solution_.intercept
        return shift if found is None else found.numpy() * self._fitted.scale + shift

    def _outputs(self, X: Any) -> np.ndarray:
        check_is_fitted(self, "solver_")
        dtype = self.gate_weights_[0].dtype
        X = rows_of_numbers(self, X, dtype=dtype, order="C", accept_sparse="csr", reset=False)
        solution, fitted = self.solution_, self._fitted
        parts = []
        for start in range(0, X.shape[0], PREDICT_ROWS):
            x = fitted.front(X[start : start + PREDICT_ROWS])
            parts.append(self._readout(x, solution.weight, solution.intercept).numpy())
        found = np.concatenate(parts)
        if not fitted.shift.any() and fitted.scale == 1:
            return found
        # In float64, since targets such as Unix times are far from zero compared with their spread.
        result: np.ndarray = found.astype(np.float64) * fitted.scale + fitted.shift
        return result

    def _readout(self, x: Tensor, weight: Tensor, intercept: Tensor | None) -> Tensor:
        """Return the outputs of a readout for inputs of the gates."""
        front = self._fitted.front
        return apply_readout(x, front.gate_weights, weight, front.switch, intercept)

    def _validated(self, X: Any, y: Any, first: bool, **options: Any) -> tuple[Any, np.ndarray]:
        dtype = [np.float64, np.float32] if first else self.gate_weights_[0].dtype
        X, y = rows_of_numbers(
            self, X, y, dtype=dtype, order="C", accept_sparse="csr", reset=first, **options
        )
        return X, y

    def _started(self) -> bool:
        return hasattr(self, "solver_")


def warn_of_ignored(X: Any, scaling: Scaling) -> None:
    """Warn if most columns vary that the scaling of the first chunk took for constant.

    Of a few, such as pixels at the border, nobody has to know.
    """
    if 2 * len(found := scaling.ignored(X)) > X.shape[1]:
        warnings.warn(
            f"{len(found)} of {X.shape[1]} columns were constant in the first chunk and are "
            "ignored in all others; begin with a larger chunk, or pass means and standard "
            "deviations as standardize=",
            UserWarning,
            stacklevel=2,
        )


def row_hashes_of(X: Any) -> Tensor:
    """Return a hash of each row, as it was given."""
    return torch.cat([row_hashes(from_numpy(np.ascontiguousarray(rows))) for _, rows in rows_of(X)])


def _sample(hashes: Tensor, weight: np.ndarray | None, count: int) -> np.ndarray:
    """Return the rows with the lowest hashes, which neither order nor repetition changes."""
    used = np.ones(len(hashes), bool) if weight is None else weight > 0
    values = hashes.numpy()
    kept = np.unique(values[used])[:count]
    return np.flatnonzero(used & np.isin(values, kept))
