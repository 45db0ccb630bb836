"""The trained part of the ridge estimators: a readout behind a front, in the units of the targets.

    y = (Wᵀ φ(x) + c) · scale + shift

It is fitted to all rows by any solver, or to sums, to which rows can be added, from which they can
be removed, and which can be merged with sums of other rows.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import KW_ONLY, dataclass, replace
from typing import Self, TypeAlias

import numpy as np
import torch
from scipy import sparse
from torch import Tensor

from tensorswitch import persistence
from tensorswitch._checks import check_factor, from_numpy
from tensorswitch._memory import memory_budget
from tensorswitch._progress import progress_bar
from tensorswitch.estimators._base import Matrix, State, Weights
from tensorswitch.estimators._front import Front, NewRows
from tensorswitch.linear import Columns, SingularError, Solution, StoredRows, Sums
from tensorswitch.linear._matrix_free import Options, Watch
from tensorswitch.linear._penalty import Alpha, penalties
from tensorswitch.linear._problem import Problem
from tensorswitch.linear._rows import fold_of_hashes
from tensorswitch.linear._solve import Folds, choose_folds, solve_problem
from tensorswitch.linear._streaming import left_out_readouts
from tensorswitch.persistence import SavedPart, saved_as
from tensorswitch.preprocessing import column_moments

Bar: TypeAlias = Callable[..., None]  # of progress

log = logging.getLogger("tensorswitch.linear")

PREDICT_ROWS = 8192
# Conjugate gradients are faster than the Gram matrix of more columns (benchmarks.many_features).
MOST_SUMMED = 40_000
COLUMN_SOLVERS = ("auto", "streaming", "matrix-free")
TOO_CONFIDENT = "probabilities are calibrated on training rows, since %s; they may be too confident"


@saved_as("target-units")
@dataclass(frozen=True)
class TargetUnits(SavedPart):
    """``t = (y − shift) / scale``, the same scale for all outputs.

    Predictions then follow ``y → a·y + b`` to rounding, whatever the penalty.
    """

    shift: np.ndarray
    scale: float = 1.0

    @classmethod
    def fit(cls, targets: np.ndarray, weight: Weights) -> Self:
        """Return mean and typical deviation; a scale of 1 for constant targets."""
        mean, deviation, _ = column_moments(targets, weight)
        scale = float(np.sqrt(np.square(deviation).mean())) or 1.0
        return cls(mean, scale if scale > 1e-12 * np.abs(mean).max(initial=0) else 1.0)

    @property
    def plain(self) -> bool:
        """Whether targets are taken as they are."""
        return not self.shift.any() and self.scale == 1

    def scaled(self, targets: np.ndarray, dtype: torch.dtype) -> Tensor:
        """Return targets for the readout."""
        scaled = (targets - self.shift) / self.scale
        return from_numpy(np.ascontiguousarray(scaled)).to(dtype)

    def scaled_rows(self, rows: NewRows) -> NewRows:
        """Return rows with scaled targets in float64."""
        return replace(rows, targets=(rows.targets - self.shift) / self.scale)

    def restored(self, outputs: np.ndarray) -> np.ndarray:
        """Return outputs in the units of the targets.

        In float64, since targets such as Unix times are far from zero compared with their spread.
        """
        if self.plain:
            return outputs
        return outputs.astype(np.float64) * self.scale + self.shift

    def converted(self, sums: Sums, other: TargetUnits) -> Sums:
        """Return sums of targets in these units as those in other units."""
        factor, offset = self.scale / other.scale, (self.shift - other.shift) / other.scale
        if factor == 1 and not offset.any():
            return sums
        outputs = len(self.shift)
        return sums.retarget(range(outputs), [factor] * outputs, offset.tolist())


@dataclass(frozen=True)
class RidgeSettings:
    """The parameters of an estimator that its readout needs; ``left_out`` asks for calibration."""

    alpha: Alpha
    fit_intercept: bool = True
    solver: str = "auto"
    tol: float = 1e-4
    max_iter: int = 500
    forgetting: float = 1.0
    memory_gb: float | None = None
    left_out: bool = False
    verbose: bool = False
    name: str = "ridge regression"

    def __post_init__(self) -> None:
        penalties(self.alpha, 1.0)  # raises
        check_factor(forgetting=self.forgetting)

    def options(self, watch: Watch | None = None) -> Options:
        """Return the options of the solvers."""
        return Options(self.tol, self.max_iter, self.fit_intercept, watch=watch)


@saved_as("ridge-readout")
@dataclass(eq=False)
class Readout:
    """A ridge readout behind a front.

    It has one of three: ``sums``, to which rows can be added; ``problem``, the few rows of the dual
    solver, from which sums can be made; or only a ``solution``.
    """

    front: Front
    units: TargetUnits
    settings: RidgeSettings
    solver: str = "streaming"
    _: KW_ONLY
    sums: Sums | None = None
    problem: Problem | None = None
    solved: Solution | None = None
    loaded: bool = False

    @property
    def solution(self) -> Solution:
        """The readout with its λ, solved when it is first needed."""
        if self.solved is None:
            assert self.sums is not None
            settings = self.settings
            self.solved = self.sums.solve(settings.alpha, fit_intercept=settings.fit_intercept)
        return self.solved

    @classmethod
    def fit(
        cls, front: Front, units: TargetUnits, rows: NewRows, settings: RidgeSettings
    ) -> tuple[Readout, np.ndarray | None]:
        """Fit all rows at once, with any solver.

        Also returns outputs for each row of a readout that has not seen it, NaN where they are not
        known, or None where they are left to the sums.
        """
        if not isinstance(front.representation, Columns):
            return cls._fit_in_memory(front, units, rows, settings)
        solver = _column_solver(front, len(units.shift), settings, len(rows))
        with progress_bar(settings.name, settings.verbose, len(rows)) as bar:
            if solver == "matrix-free":
                return cls._fit_stored(front, units, rows, settings, bar)
            readout = cls.empty(front, units, settings, len(rows))
            assert readout.sums is not None
            # No decay within one call: rows that arrive together are equally old.
            readout._accumulate(readout.sums, rows, 1, forget=False, bar=bar)
        readout.solution  # noqa: B018  # while the user expects to wait
        return readout, None

    @classmethod
    def _fit_in_memory(
        cls, front: Front, units: TargetUnits, rows: NewRows, settings: RidgeSettings
    ) -> tuple[Readout, np.ndarray | None]:
        """Fit rows whose inputs are held at once, with the solver of least work."""
        x, t = _inputs(front, rows.X, settings), units.scaled(rows.targets, front.dtype)
        problem = Problem.checked(
            x,
            t,
            front.representation,
            rows.weight,
            hashes=rows.hashes,
            fold_hashes=rows.fold_hashes,
        )
        with progress_bar(settings.name, settings.verbose) as bar:
            solved = solve_problem(
                problem,
                settings.alpha,
                settings.options(lambda note: bar(note=note)),
                solver=settings.solver,
                memory_gb=settings.memory_gb,
                forgetting=settings.forgetting,
                left_out=settings.left_out,
            )
        few = problem if solved.solver == "dual" else None  # to make sums from, if they are needed
        outputs = None if solved.left_out is None else solved.left_out.numpy()
        readout = cls(front, units, settings, solved.solver, sums=solved.sums, problem=few)
        return replace(readout, solved=solved.solution), outputs

    @classmethod
    def _fit_stored(
        cls, front: Front, units: TargetUnits, rows: NewRows, settings: RidgeSettings, bar: Bar
    ) -> tuple[Readout, np.ndarray | None]:
        """Keep the columns of all rows in half precision, and solve by conjugate gradients."""
        # The rest is for vectors.
        budget = None if settings.memory_gb is None else settings.memory_gb * 2**30 / 2
        features, outputs = front.representation.features, len(units.shift)
        stored = StoredRows(front.count * len(rows), features, outputs, memory=budget)
        own = []  # places of the rows themselves, without mirror images
        # Half precision is finest around zero.
        centre = torch.zeros(features, dtype=front.dtype, device="cpu")
        for i, part in enumerate(front.chunks(len(rows))):
            t = units.scaled(rows.targets[part], front.dtype)
            own.append(torch.arange(len(stored), len(stored) + len(t), device="cpu"))
            s = None if rows.weight is None else rows.weight[part]
            for j, x in enumerate(front.variants(rows.X[part])):
                if i == j == 0 and settings.fit_intercept:
                    centre = x.mean(0)
                stored.append((x - centre).float(), t.float(), s, rows.fold_hashes[part])
            bar(len(t), note="features")
        solution, left_out = stored.solve(
            settings.alpha,
            fit_intercept=settings.fit_intercept,
            watch=lambda note: bar(note=note),
            left_out=settings.left_out,
        )
        weight, intercept = solution.weight.to(front.dtype), solution.intercept
        if intercept is not None:
            # Of columns that are not centred.
            intercept = intercept - centre.double() @ weight.double()
        solution = solution._replace(weight=weight, intercept=intercept)
        found = None if left_out is None else left_out[torch.cat(own)].numpy()
        return cls(front, units, settings, "matrix-free", solved=solution), found

    @classmethod
    def empty(
        cls, front: Front, units: TargetUnits, settings: RidgeSettings, rows: int = 1
    ) -> Readout:
        """Return a readout that has learned from no rows; errors name how many are to come."""
        outputs = len(units.shift)
        sums = Sums(
            front.representation,
            outputs,
            dtype=front.dtype,
            device="cpu",
            forgetting=settings.forgetting,
            **_folds(front, outputs, settings, rows),
        )
        return cls(front, units, settings, sums=sums)

    def add(self, rows: NewRows, settings: RidgeSettings) -> Readout:
        """Return the readout with further rows; the sums it was made of are used up."""
        if self.summed().forgetting != settings.forgetting:
            raise ValueError(
                f"forgetting was {self.summed().forgetting} for earlier rows and is now "
                f"{settings.forgetting}; it cannot be changed"
            )
        return self._changed(rows, settings, 1)

    def remove(self, rows: NewRows, settings: RidgeSettings) -> Readout:
        """Return the readout without rows that were added before."""
        return self._changed(rows, settings, -1)

    def _changed(self, rows: NewRows, settings: RidgeSettings, sign: int) -> Readout:
        sums, parts = self.summed(), self.front.chunks(len(rows))
        if len(parts) * self.front.count > 1:  # so that nothing changes if a later chunk fails
            sums = sums.copy()
        # The penalty may be another one, but gates and sums are made with or without an intercept.
        settings = replace(settings, fit_intercept=self.settings.fit_intercept)
        result = replace(self.with_sums(sums), settings=settings)
        result._accumulate(sums, rows, sign)
        return result

    def _accumulate(
        self, sums: Sums, rows: NewRows, sign: int, *, forget: bool = True, bar: Bar | None = None
    ) -> None:
        """Add rows to sums or remove them, chunk by chunk; earlier rows are forgotten once."""
        folds = fold_of_hashes(rows.fold_hashes, sums.folds)
        for part in self.front.chunks(len(rows)):
            t = self.units.scaled(rows.targets[part], self.front.dtype)
            s = None if rows.weight is None else rows.weight[part]
            if isinstance(self.front.representation, Columns):
                variants = self.front.variants(rows.X[part])
            else:
                variants = iter([_inputs(self.front, rows.X[part], self.settings)])
            for x in variants:
                if sign > 0:
                    sums.update(x, t, s, folds[part], forget=forget)
                else:
                    sums.remove(x, t, s, folds[part])
                forget = False
            if bar is not None:
                bar(len(t), note="sums")

    def summed(self) -> Sums:
        """Return the sums, made of the rows of the dual solver if there are any."""
        if self.sums is not None:
            return self.sums
        if self.problem is None and self.loaded and self.solver in ("streaming", "dual"):
            raise ValueError(
                "the model was loaded from a file, which has no sums of its rows, so it cannot be "
                "updated; save it with sums=True, or fit it again"
            )
        message = (
            f"the model was fitted by the {self.solver!r} solver, which cannot be updated; "
            "fit it with solver='streaming'"
        )
        if self.problem is None:
            raise ValueError(message)
        try:
            sums = Readout.empty(self.front, self.units, self.settings).sums
        except MemoryError as error:
            raise ValueError(f"{message} ({error})") from error
        assert sums is not None
        sums.add(self.problem)
        self.sums, self.problem, self.solver = sums, None, "streaming"
        return sums

    def with_sums(self, sums: Sums, units: TargetUnits | None = None) -> Readout:
        """Return the readout of other sums of the same front."""
        return Readout(self.front, units or self.units, self.settings, sums=sums)

    def merge(self, other: Readout) -> Readout:
        """Return the readout of the rows of both."""
        if not same_front(self.front, other.front):
            raise ValueError(
                "the models have different features and cannot be merged; "
                "start both from without_rows() of the same model"
            )
        theirs = other.units.converted(copy(other).summed(), self.units)  # other stays as it is
        return self.with_sums(self.summed().merge(theirs))

    def all_reduce(self) -> Readout:
        """Return the readout of the rows of all ranks, in the units of the first."""
        from torch import distributed

        units = torch.tensor(
            [*self.units.shift, self.units.scale], dtype=torch.float64, device="cpu"
        )
        distributed.broadcast(units, 0)  # every rank has scaled by its own first rows
        first = TargetUnits(units[:-1].numpy(), float(units[-1]))
        return self.with_sums(self.units.converted(self.summed(), first).all_reduce(), first)

    def retarget(
        self, columns: Sequence[int], signs: Sequence[float], offsets: Sequence[float]
    ) -> Readout:
        """Return the readout of other targets, which follow from the present ones."""
        sums = self.summed().retarget(columns, signs, offsets)
        return self.with_sums(sums, TargetUnits(np.zeros(len(columns))))

    def predict(self, X: Matrix) -> np.ndarray:
        """Return outputs in the units of the targets, chunk by chunk."""
        parts = [
            self.of_inputs(self.front(X[start : min(start + PREDICT_ROWS, part.stop)]))
            for part in self.front.chunks(X.shape[0])
            for start in range(part.start, part.stop, PREDICT_ROWS)
        ]
        return self.units.restored(np.concatenate(parts))

    def of_inputs(self, x: Tensor, solution: Solution | None = None) -> np.ndarray:
        """Return outputs for the inputs of a representation."""
        representation = self.front.representation
        found = solution or self.solution
        return found.outputs(representation, representation.rows(x)).numpy()

    def left_out(self, x: Tensor, hashes: Tensor) -> np.ndarray | None:
        """Return the outputs for rows of the readouts of the other folds, if there are any."""
        sums, solution = self.summed(), self.solution
        if sums.folds == 1:
            log.warning(TOO_CONFIDENT, "the sums of folds do not fit into memory")
            return None
        judged = range(1) if sums.held_out else range(sums.folds)  # of which sums are known
        intercept = self.settings.fit_intercept
        try:
            readouts = left_out_readouts(sums.moments(), solution.alpha, intercept, judged)
        except SingularError:
            log.warning(TOO_CONFIDENT, "without one of the folds the readout is not determined")
            return None
        folds = fold_of_hashes(hashes, sums.folds)
        outputs = np.full((len(folds), sums.out_features), np.nan)
        for fold, (weight, constant) in readouts.items():
            rows = (folds == fold).nonzero().flatten()
            other = Solution(weight, solution.alpha, intercept=constant)
            outputs[rows.numpy()] = self.of_inputs(x[rows], other)
        return outputs

    def state(self, sums: bool = False) -> State:
        """Return front, units and solution, and on request what it takes to add rows."""
        state: State = {
            "front": self.front,
            "units": self.units,
            "settings": vars(self.settings),
            "solver": self.solver,
            "solution": self.solved if sums else self.solution,
        }
        if sums:
            state["sums"] = self.sums
            if self.problem is not None:
                p = self.problem
                state["rows"] = [p.rows.x, p.targets, p.sample_weight, p.hashes, p.fold_hashes]
        return state

    @classmethod
    def from_state(cls, state: State) -> Self:
        """Return the readout of a state."""
        front, problem = state["front"], None
        if "rows" in state:
            x, targets, weight, *hashes = state["rows"]
            kinds = dict(zip(("hashes", "fold_hashes"), hashes, strict=False))
            problem = Problem.checked(x, targets, front.representation, weight, **kinds)
        return cls(
            front,
            state["units"],
            RidgeSettings(**state["settings"]),
            state["solver"],
            sums=state.get("sums"),
            problem=problem,
            solved=state["solution"],
            loaded=True,
        )


def same_front(a: Front, b: Front) -> bool:
    """Return whether two fronts compute the same."""
    first, second = persistence.encode(a), persistence.encode(b)
    if first[0] != second[0]:
        return False
    return all(torch.equal(tensor, second[1][name]) for name, tensor in first[1].items())


def _inputs(front: Front, X: Matrix, settings: RidgeSettings) -> Tensor:
    """Return the inputs of rows, after a check of memory if they are sparse."""
    if sparse.issparse(X):
        needed = X.shape[0] * front.representation.in_features * X.dtype.itemsize
        budget = memory_budget(settings.memory_gb)
        if needed > budget:
            raise MemoryError(
                f"{X.shape[0]:,} sparse rows of {X.shape[1]:,} features need "
                f"{needed / 2**30:.2f} GB as a matrix, but the budget is "
                f"{budget / 2**30:.2f} GB; use components, or partial_fit with fewer rows"
            )
    return front(X)


def _folds(front: Front, outputs: int, settings: RidgeSettings, rows: int) -> Folds:
    """Return how many sums of folds there is memory for."""
    several = len(penalties(settings.alpha, 1.0))
    return choose_folds(
        front.representation,
        rows,
        outputs,
        solver="streaming",
        memory_gb=settings.memory_gb,
        dtype=front.dtype,
        in_chunks=True,
        alphas=several,
        wanted=settings.left_out or several > 1,
    )[1]


def _column_solver(front: Front, outputs: int, settings: RidgeSettings, rows: int) -> str:
    """Choose the solver for given columns."""
    if settings.solver != "auto" or settings.forgetting != 1:
        return "matrix-free" if settings.solver == "matrix-free" else "streaming"
    reason = f"there are more than {MOST_SUMMED:,} features"
    if front.representation.features <= MOST_SUMMED:
        try:
            _folds(front, outputs, settings, rows)
        except MemoryError as error:
            reason = str(error)
        else:
            return "streaming"
    log.info("rows are kept and solved by conjugate gradients: %s", reason)
    return "matrix-free"
