"""The normal equations as an operator: centred, for all rows or without a fold."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from tensorswitch._memory import available_memory
from tensorswitch.ridge._conjugate_gradients import conjugate_gradients, dot
from tensorswitch.ridge._preconditioner import Preconditioner
from tensorswitch.ridge._processes import Total
from tensorswitch.ridge.folds import FOLDS, judged_folds
from tensorswitch.ridge.gcv import gcv_score, probes
from tensorswitch.ridge.penalty import Alpha, effective_rows, least_error, log, penalties
from tensorswitch.ridge.problem import check_some_rows, column_energies
from tensorswitch.ridge.readout import ReadoutMap, inner_first, outer_first, times_power
from tensorswitch.ridge.rows import fold_of_hashes

Watch = Callable[[str], None]
JUDGE_TOL = 1e-3  # residual at which a λ can be judged
OUTPUT_TOL = 1e-2  # and at which outputs for rows left out are good enough to calibrate with
WORSE, ENOUGH = 1.05, 3  # a path ends after three values in a row are 5 % worse than the best


class Options(NamedTuple):
    """The options of :func:`solve_matrix_free`."""

    tol: float = 1e-3
    max_iter: int = 500
    fit_intercept: bool = False
    selection: str = "cv"
    preconditioner: str = "auto"
    watch: Watch | None = None
    sample_bytes: float | None = None  # of sampled rows; by default a quarter of what is available


class _Columns(NamedTuple):
    """Right-hand sides of one or several sets of rows, one after the other.

    ``keep`` says which rows belong to each set (rows, sets); None is a single set of all rows.
    """

    keep: Tensor | None
    goal: Tensor
    feature_mean: Tensor | None  # (n_1, n_0, above, sets)
    target_mean: Tensor | None  # (sets, out)


class FreeSystem:
    """The problem in units in which nothing overflows or underflows.

    Scaling by powers of two is exact. With 2^p x, 2^q s and 2^r t the system has λ' = 2^(2p + q) λ
    and W' = 2^(r − p) W.
    """

    def __init__(
        self,
        z: ReadoutMap,
        targets: Tensor,
        hashes: Tensor,
        alpha: Alpha,
        options: Options,
        total: Total,
    ) -> None:
        self.options, self.total, self.hashes, self.like = options, total, hashes, z.like
        sample_weight = z.sample_weight
        weights = z.like.new_ones(len(targets)) if sample_weight is None else sample_weight
        sums = [
            z.mean_diagonal(),
            float(column_energies(targets, weights).sum()),
            float(weights.double().sum()),
            float(weights.double().square().sum()),
            len(targets),
        ]
        mean, energy, weight_sum, squares, rows = self._sum_of(sums)
        check_some_rows(weight_sum)
        self.rows, self.out = effective_rows(weight_sum, squares), targets.shape[1]
        self.q = 0 if sample_weight is None else -_exponent(weight_sum / rows)
        largest = max(penalties(alpha, mean, options.selection).values)
        self.p = -(_exponent(max(mean, largest)) + self.q) // 2
        self.r = -(_exponent(energy) + self.q) // 2
        self.weights = times_power(weights, self.q)
        self.targets, self.weight_sum = times_power(targets, self.r), weight_sum * 2.0**self.q
        self.z = z.scaled(self.p, None if sample_weight is None else self.weights)
        if options.fit_intercept:
            ones = z.like.new_ones(len(targets), 1)
            self.feature_mean = total(self.z.adjoint(ones)).double() / self.weight_sum
            norm = float(self.feature_mean.square().sum()) / self.feature_mean.numel()
            mean = max(0.0, mean - weight_sum * norm * 2.0 ** (-2 * self.p))
        self.values, self.selection = penalties(alpha, mean, options.selection)
        self._scale_goal()
        self.preconditioner = Preconditioner(
            self.z,
            self.weights,
            self.weight_sum,
            self.feature_mean if options.fit_intercept else None,
            total,
            options.preconditioner,
            available_memory() / 4 if options.sample_bytes is None else options.sample_bytes,
        )

    def _sum_of(self, numbers: Sequence[float]) -> list[float]:
        kept = torch.tensor(numbers, dtype=torch.float64, device=self.like.device)
        result: list[float] = self.total(kept).tolist()
        return result

    def _scale_goal(self) -> None:
        """Bring the goal to the order of 1; it may be far smaller if λ dominates."""
        rest = -_exponent(float(self.columns().goal.abs().max()))
        self.targets, self.r = times_power(self.targets, rest), self.r + rest

    def columns(self, keep: Tensor | None = None) -> _Columns:
        """Return ``Zᵀ s (T − t̄)``, for all rows or for each of several sets."""
        sets = 1 if keep is None else keep.shape[1]
        weights = self.weights.double()[:, None] * (1 if keep is None else keep)
        goal = self.targets[:, None, :].expand(-1, sets, -1)
        feature_mean = target_mean = None
        if self.options.fit_intercept:
            count = self.total(weights.sum(0)) if keep is not None else None
            n = weights.new_tensor([self.weight_sum]) if count is None else count.clamp_min(1e-300)
            sums = self.total(weights.expand(-1, sets).t() @ self.targets.double())
            target_mean = sums / n[:, None]
            goal = goal - target_mean.to(goal)
            if keep is None:
                feature_mean = self.feature_mean.to(self.like)
            else:
                feature_mean = (self.total(self.z.adjoint(keep)).double() / n).to(self.like)
        if keep is not None:
            goal = goal * keep[:, :, None]
        return _Columns(
            keep, self.total(self.z.adjoint(goal.flatten(1))), feature_mean, target_mean
        )

    def run(
        self, columns: _Columns, value: float, start: Tensor | None, tol: float
    ) -> tuple[Tensor, int, float]:
        """Solve for one λ by conjugate gradients."""
        shift = value * 2.0 ** (2 * self.p + self.q)
        watch = self.options.watch

        def operator(w: Tensor) -> Tensor:
            centre = self._means(columns, w)

            def change(part: slice, outputs: Tensor) -> Tensor:
                if centre is not None:
                    outputs = outputs - centre
                if columns.keep is not None:
                    outputs = (
                        outputs.view(len(outputs), columns.keep.shape[1], -1)
                        * columns.keep[part, :, None]
                    ).flatten(1)
                return outputs

            plain = centre is None and columns.keep is None
            return self.total(self.z.normal(w, None if plain else change)).add_(w, alpha=shift)

        def tell(iteration: int, residual: float) -> None:
            if watch is not None:
                watch(f"alpha {value:.3g}, iteration {iteration}, residual {residual:.1e}")

        precondition = self.preconditioner(shift)
        return conjugate_gradients(
            operator, precondition, columns.goal, start, tol, self.options.max_iter, tell
        )

    def _means(self, columns: _Columns, w: Tensor) -> Tensor | None:
        """Return the mean of ``Z w`` over the rows of each set, for each column."""
        if columns.feature_mean is None:
            return None
        sets = columns.feature_mean.shape[-1]
        each = w.flatten(0, 2).view(-1, sets, w.shape[-1] // sets)
        means = columns.feature_mean.flatten(0, 2)
        result = torch.einsum("fs,fso->so", means.double(), each.double())
        return result.flatten().to(w)

    def by_folds(
        self, values: Sequence[float], tol: float
    ) -> tuple[float, tuple[tuple[float, float], ...], Tensor | None, Tensor]:
        """Choose λ by its error on folds left out.

        Also returns a solution to start from and outputs for the rows of these folds.
        """
        folds = fold_of_hashes(self.hashes, FOLDS)
        left = torch.nn.functional.one_hot(folds, FOLDS).to(self.like)
        left = left[:, list(judged_folds(FOLDS, self.rows))]
        counts = self.total(self.weights.double() @ left.double())
        judged = (counts > 0) & (counts < self.weight_sum * (1 - 1e-12))
        left = left[:, judged]
        outputs = self.targets.new_full(self.targets.shape, math.nan).double()
        if not judged.any():
            errors = [math.inf] * len(values)
            return least_error(values, errors), (), None, outputs
        columns, found, errors = self.columns(1 - left), None, []
        for value in values:
            found, *_ = self.run(columns, value, found, tol)
            predicted = self._left_out(columns, found, left)
            squares = (self.targets - predicted).double().square()
            error = (left.sum(1) * self.weights).double() @ squares
            errors.append(self._sum_of([float(error.sum())])[0] / float(counts[judged].sum()))
            if errors[-1] == min(errors):
                kept, outputs = found.clone(), predicted.double()
            if len(errors) > ENOUGH and min(errors[-ENOUGH:]) > WORSE * min(errors):
                log.info("values of alpha below %.3g are not tried: their errors rise", value)
                break
        outputs[left.sum(1) == 0] = math.nan
        scale = 2.0 ** (-2 * self.r)
        path = tuple((v, e * scale) for v, e in zip(values, errors, strict=False))
        best = least_error(values[: len(errors)], errors) if len(values) > 1 else values[0]
        guess = kept.view(*kept.shape[:-1], left.shape[1], self.out).mean(-2)
        outputs = outputs * 2.0**-self.r
        return best, path if len(values) > 1 else (), guess, outputs

    def _left_out(self, columns: _Columns, found: Tensor, left: Tensor) -> Tensor:
        """Return the outputs for each row of the readout that has not seen it, otherwise zero."""
        outputs = self.z.forward(found).view(len(left), left.shape[1], -1)
        centre = self._means(columns, found)
        if centre is not None:
            assert columns.target_mean is not None
            outputs = outputs - centre.view(*outputs.shape[1:]) + columns.target_mean.to(outputs)
        return (outputs * left[:, :, None]).sum(1)

    def by_gcv(
        self, values: Sequence[float], found: Tensor | None
    ) -> tuple[float, tuple[tuple[float, float], ...], Tensor | None]:
        """Choose λ by generalised cross-validation; also returns a solution to start from.

        The degrees of freedom, tr Z (ZᵀZ + λI)⁻¹ Zᵀ, are estimated by fitting random signs v on
        the rows: with the solution u, they are the mean of vᵀ Z u.
        """
        # The adjoint multiplies by s, and the estimate needs √s.
        root = self.weights.sqrt().clamp_min(torch.finfo(self.like.dtype).tiny)
        signs = torch.where(
            self.weights[:, None] > 0, probes(len(root), self.like) / root[:, None], 0
        )
        whole = self.columns()
        if self.options.fit_intercept:
            mean = self.total(self.weights.double() @ signs.double()) / self.weight_sum
            signs = signs - mean.to(signs)
        noise = whole._replace(goal=self.total(self.z.adjoint(signs)))
        explained, errors, best = None, [], None
        for value in values:
            found, *_ = self.run(whole, value, found, self.options.tol)
            explained, *_ = self.run(noise, value, explained, self.options.tol)
            outputs, centre = self.z.forward(found), self._means(whole, found)
            if centre is not None:
                assert whole.target_mean is not None
                outputs = outputs - centre + whole.target_mean.to(outputs)
            squares = self.weights[:, None] * (self.targets - outputs).double().square()
            error = self._sum_of([float(squares.sum())])[0] * 2.0 ** (-2 * self.r - self.q)
            freedom = float(dot(noise.goal.double(), explained.double()).mean())
            errors.append(gcv_score(error, freedom + self.options.fit_intercept, self.rows))
            best = found if errors[-1] == min(errors) else best
        return least_error(values, errors), tuple(zip(values, errors, strict=True)), best

    def scaled(self, weight: Tensor) -> Tensor:
        """Return a readout of the problem in the units and the layout of this one."""
        return times_power(inner_first(weight), self.r - self.p)

    def unscaled(self, columns: _Columns, found: Tensor) -> tuple[Tensor, Tensor | None]:
        """Return the readout and the intercept in the units of the problem."""
        intercept, centre = None, self._means(columns, found)
        if centre is not None:
            assert columns.target_mean is not None
            intercept = (columns.target_mean[0] - centre.double()) * 2.0**-self.r
        weight = times_power(found, self.p - self.r)
        return outer_first(weight, self.z.sizes[1:]), intercept


def _exponent(value: float) -> int:
    return math.frexp(value)[1]
