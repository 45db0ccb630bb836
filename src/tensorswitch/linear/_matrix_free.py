"""Ridge regression without a Gram matrix: conjugate gradients on the products of z.

    Zᵀ diag(s) (Z W − 1 z̄ᵀ W) + λ W = Zᵀ diag(s) (T − 1 t̄ᵀ),        c = t̄ − Wᵀ z̄

with z̄ and t̄ the weighted means, or zero without an intercept.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from tensorswitch._checks import check_dtype_device, check_shape
from tensorswitch._memory import available_memory
from tensorswitch.linear._cg import Operator, conjugate_gradients
from tensorswitch.linear._copies import Copies
from tensorswitch.linear._penalty import Alpha, effective_rows, least_error, log, penalties
from tensorswitch.linear._preconditioners import SETTINGS as SAMPLES
from tensorswitch.linear._preconditioners import SampledRows, kronecker_inverse
from tensorswitch.linear._problem import Gates, Problem, Solution, check_some_rows
from tensorswitch.linear._ranks import Ranks
from tensorswitch.linear._rows import fold_of_hashes
from tensorswitch.linear._streaming import FOLDS, judged_folds
from tensorswitch.switches import Switch

Watch = Callable[[str], None]
KINDS = ("auto", "kronecker", "sampled")


@dataclass(frozen=True)
class Settings:
    """How far a path of λ is followed, measured by ``benchmarks.ridge_choice``.

    A λ is judged at a residual of ``judged``, and outputs for rows left out are good enough to
    calibrate with at ``outputs``. The path ends after ``enough`` values in a row whose errors are
    ``worse`` than the least.
    """

    judged: float = 1e-3
    outputs: float = 1e-2
    worse: float = 1.05
    enough: int = 3


SETTINGS = Settings()


@dataclass(frozen=True)
class Options:
    """The options of :func:`solve_matrix_free`."""

    tol: float = 1e-3
    max_iter: int = 500
    fit_intercept: bool = False
    preconditioner: str = "auto"
    watch: Watch | None = None
    sample_bytes: float | None = None  # of sampled rows; by default a quarter of what is available

    def __post_init__(self) -> None:
        if not self.tol > 0:
            raise ValueError(f"tol must be above 0, got {self.tol}")
        if self.preconditioner not in KINDS:
            known = ", ".join(map(repr, KINDS))
            raise ValueError(f"preconditioner must be one of {known}, got {self.preconditioner!r}")


@torch.no_grad()
def solve_matrix_free(
    x: Tensor,
    targets: Tensor,
    gate_weights: Gates,
    alpha: Alpha = "mean",
    *,
    sample_weight: Tensor | None = None,
    tol: float = 1e-3,
    max_iter: int = 500,
    start: Tensor | None = None,
    distributed: bool = False,
    watch: Watch | None = None,
    switch: Switch | str = "relu",
    fit_intercept: bool = False,
    preconditioner: str = "auto",
) -> Solution:
    """Solve ``(ZᵀZ + λI) W = Zᵀ T`` by preconditioned conjugate gradients, all outputs at once.

    Parameters
    ----------
    x, targets, gate_weights, sample_weight, switch, fit_intercept : as for :func:`solve`
        The rows and their representation.
    alpha : float, str or a sequence of these, default="mean"
        The penalty λ, or several, as for :func:`solve`. One of several is chosen by
        cross-validation with the folds of :func:`fold_of_rows`, of which only the first is left out
        if there are more than 20,000 rows. Each starts from the solution of the next larger one.
    tol, max_iter : float, default=1e-3, and int, default=500
        Stop when the norm of the residual relative to ``Zᵀ T`` is at most ``tol`` for every output,
        or with a warning after ``max_iter`` iterations.
    start : Tensor of shape (n_L, …, n_1, n_0, out), optional
        Weights to start from, such as the solution for a similar λ. By default zero.
    distributed : bool, default=False
        Whether each rank of ``torch.distributed`` holds its own rows. All ranks return the same
        solution.
    watch : callable, optional
        Called with a note on the residual after each iteration.
    preconditioner : {"auto", "kronecker", "sampled"}, default="auto"
        See the notes. "auto" takes sampled rows where there are more than the effective dimension.

    Notes
    -----
    The Kronecker preconditioner treats inputs and gates as independent, and its inverse is cheap.
    The other is the Gram matrix of a sample of rows, as in [1]_, and needs far fewer iterations if
    the sample is larger than the effective number of features at this λ. If λ = 0 leaves the
    solution undetermined, one of the solutions is returned, where the direct solvers raise.

    References
    ----------
    .. [1] A. Rudi, L. Carratino and L. Rosasco, "FALKON: An Optimal Large Scale Kernel Method",
       NeurIPS 2017.

    Examples
    --------
    >>> import torch
    >>> from tensorswitch.linear import draw_gates, solve_dual, solve_matrix_free
    >>> generator = torch.Generator().manual_seed(0)
    >>> x = torch.randn(200, 4, generator=generator)
    >>> gate_weights = draw_gates(4, [16], generator)
    >>> solution = solve_matrix_free(x, x.abs(), gate_weights, tol=1e-5)
    >>> direct = solve_dual(x, x.abs(), gate_weights)
    >>> torch.allclose(solution.weight, direct.weight, atol=1e-4)
    True
    """
    options = Options(tol, max_iter, fit_intercept, preconditioner, watch)
    problem = Problem.checked(x, targets, gate_weights, sample_weight, switch)
    if start is not None:
        shape = (*problem.representation.shape, problem.targets.shape[1])
        check_shape("start", start, shape, "(n_L, …, n_1, n_0, out)")
        check_dtype_device("start", start, "targets", problem.targets)
    return matrix_free(problem, alpha, options, start, Ranks(distributed))[0]


def matrix_free(
    problem: Problem,
    alpha: Alpha,
    options: Options,
    start: Tensor | None = None,
    ranks: Ranks | None = None,
    left_out: bool = False,
) -> tuple[Solution, Tensor | None]:
    """Choose λ and solve; with ``left_out`` as in :class:`tensorswitch.linear._solve.Solved`."""
    with torch.autocast(problem.targets.device.type, enabled=False):
        system = _System(problem, alpha, options, ranks or Ranks())
        values, outputs = system.values, None
        path: tuple[tuple[float, float], ...] = ()
        best, found = values[0], None
        if start is not None:
            flat = start.reshape(-1, start.shape[-1])
            found = _times_power(flat, system.r - system.p)
        if len(values) > 1 or left_out:
            one = len(values) == 1
            tol = SETTINGS.outputs if one else min(SETTINGS.judged, 10 * options.tol)
            best, path, guess, outputs = system.by_folds(values, tol)
            found = guess if found is None else found
        whole = system.sides()
        found, iterations, residual = system.run(whole, best, found, options.tol)
        weight, intercept = system.unscaled(whole, found)
    solution = Solution(weight, best, iterations, residual, path, intercept)
    return solution.shaped(problem.representation), outputs


@dataclass(frozen=True)
class _Sides:
    """Right-hand sides of one or several sets of rows, one after the other."""

    keep: Tensor | None  # which rows belong to each set, (rows, sets); None is one set of all rows
    goal: Tensor  # Zᵀ s (T − t̄), (features, sets · out)
    feature_mean: Tensor | None  # z̄, (features, sets)
    target_mean: Tensor | None  # t̄, (sets, out)

    def mean_outputs(self, w: Tensor) -> Tensor | None:
        """Return the mean of ``Z w`` over the rows of each set, for each column."""
        if self.feature_mean is None:
            return None
        each = w.view(len(w), self.feature_mean.shape[1], -1)
        result = torch.einsum("fs,fso->so", self.feature_mean.double(), each.double())
        return result.flatten().to(w)


class _System:
    """The normal equations as an operator, in units in which nothing overflows or underflows.

    Scaling by powers of two is exact. With 2^p x, 2^q s and 2^r t the system has λ' = 2^(2p + q) λ
    and W' = 2^(r − p) W.
    """

    def __init__(self, problem: Problem, alpha: Alpha, options: Options, ranks: Ranks) -> None:
        self.options, self.ranks, self.problem = options, ranks, problem
        self.representation, self.like = problem.representation, problem.targets[:0]
        targets, weights = problem.targets, problem.weights()
        self.weighted = problem.sample_weight is not None
        sums = [
            self.representation.mean_square(problem.rows, problem.sample_weight),
            float(problem.target_energies.sum()),
            float(weights.double().sum()),
            float(weights.double().square().sum()),
            len(targets),
        ]
        mean, energy, weight_sum, squares, rows = self._sum_of(sums)
        check_some_rows(weight_sum)
        self.effective, self.out = effective_rows(weight_sum, squares), targets.shape[1]
        self.q = -_exponent(weight_sum / rows) if self.weighted else 0
        largest = max(penalties(alpha, mean))
        self.p = -(_exponent(max(mean, largest)) + self.q) // 2
        self.r = -(_exponent(energy) + self.q) // 2
        self.weights = _times_power(weights, self.q)
        self.targets, self.weight_sum = _times_power(targets, self.r), weight_sum * 2.0**self.q
        half = self.p // 2  # in two steps, since the power alone may overflow
        self.rows = problem.rows.times(2.0**half).times(2.0 ** (self.p - half))
        self.feature_mean: Tensor | None = None
        if options.fit_intercept:
            ones = self.like.new_ones(len(targets), 1)
            self.feature_mean = self._adjoint(ones).double()[:, 0] / self.weight_sum
            norm = float(self.feature_mean.square().sum()) / len(self.feature_mean)
            # Of the centred matrix.
            mean = max(0.0, mean - weight_sum * norm * 2.0 ** (-2 * self.p))
        self.values = penalties(alpha, mean)
        # The goal may be far smaller if λ dominates, and is brought to the order of 1.
        rest = -_exponent(float(self.sides().goal.abs().max()))
        self.targets, self.r = _times_power(self.targets, rest), self.r + rest
        self._sample: SampledRows | None = None
        self._kronecker: Callable[[float], Operator] | None = None

    def _sum_of(self, numbers: Sequence[float]) -> list[float]:
        kept = torch.tensor(numbers, dtype=torch.float64, device=self.like.device)
        return self.ranks.total(kept).tolist()

    def _adjoint(self, errors: Tensor) -> Tensor:
        """Return ``Zᵀ diag(s) E`` over all ranks."""
        weighted = errors * self.weights[:, None] if self.weighted else errors
        return self.ranks.total(self.representation.adjoint(self.rows, weighted))

    def sides(self, keep: Tensor | None = None) -> _Sides:
        """Return the right-hand side of all rows, or of each of several sets."""
        mask = self.like.new_ones(len(self.targets), 1) if keep is None else keep
        goal, feature_mean, target_mean = self.targets[:, None, :], None, None
        if self.feature_mean is not None:
            weights = self.weights.double()[:, None] * mask
            n = self.ranks.total(weights.sum(0)).clamp_min(1e-300)
            target_mean = self.ranks.total(weights.t() @ self.targets.double()) / n[:, None]
            goal = goal - target_mean.to(goal)
            mean = self.feature_mean[:, None] if keep is None else self._adjoint(mask).double() / n
            feature_mean = mean.to(self.like)
        goal = (goal * mask[:, :, None]).flatten(1)
        return _Sides(keep, self._adjoint(goal), feature_mean, target_mean)

    def run(
        self, sides: _Sides, value: float, start: Tensor | None, tol: float
    ) -> tuple[Tensor, int, float]:
        """Solve for one λ by conjugate gradients."""
        shift = value * 2.0 ** (2 * self.p + self.q)
        watch = self.options.watch

        def operator(w: Tensor) -> Tensor:
            centre = sides.mean_outputs(w)

            def change(part: slice, outputs: Tensor) -> Tensor:
                if centre is not None:
                    outputs = outputs - centre
                if sides.keep is not None:
                    keep = sides.keep[part]
                    sets = outputs.view(len(outputs), keep.shape[1], -1)
                    outputs = (sets * keep[:, :, None]).flatten(1)
                return outputs * self.weights[part, None] if self.weighted else outputs

            plain = centre is None and sides.keep is None and not self.weighted
            found = self.representation.normal(self.rows, w, None if plain else change)
            return self.ranks.total(found).add_(w, alpha=shift)

        def tell(iteration: int, residual: float) -> None:
            if watch is not None:
                watch(f"alpha {value:.3g}, iteration {iteration}, residual {residual:.1e}")

        inverse, limits = self._precondition(shift), (tol, self.options.max_iter)
        return conjugate_gradients(operator, inverse, sides.goal, start, *limits, tell)

    def _precondition(self, shift: float) -> Operator:
        """Return P⁻¹ for λ = shift: sampled rows where they pay, or the Kronecker product."""
        independent = isinstance(self.representation, Copies)
        if self.options.preconditioner != "kronecker" and shift > 0:
            sampled = self._sampled(shift, independent)
            if sampled is not None:
                return sampled
        if not independent:
            return lambda r: r
        if self._kronecker is None:
            self._kronecker = kronecker_inverse(
                self.rows, self.weights, self.weight_sum, self.ranks
            )
        return self._kronecker(shift)

    def _sampled(self, shift: float, independent: bool) -> Operator | None:
        if self._sample is None:
            given = self.options.sample_bytes
            self._sample = SampledRows(
                self.representation,
                self.rows,
                self.weights,
                self.weight_sum,
                self.feature_mean,
                self.ranks,
                available_memory() / 4 if given is None else given,
                # Without gates there is no other preconditioner, and more rows are worth the time.
                share=4 if independent else 1,
            )
        if len(self._sample) < (SAMPLES.least if independent else 1):
            return None
        share = self._sample.share_needed(shift)
        pays = share <= SAMPLES.full or self.options.preconditioner == "sampled"
        log.info(
            "the effective dimension of sampled rows is %.3f of their number: %s",
            share,
            f"{len(self._sample)} are the preconditioner" if pays else "too many would be needed",
        )
        return self._sample.inverse(shift) if pays else None

    def by_folds(
        self, values: Sequence[float], tol: float
    ) -> tuple[float, tuple[tuple[float, float], ...], Tensor | None, Tensor]:
        """Choose λ by its error on folds left out; also return path, start and outputs for them."""
        folds = fold_of_hashes(self.problem.fold_hashes, FOLDS)
        left = torch.nn.functional.one_hot(folds, FOLDS).to(self.like)
        left = left[:, list(judged_folds(FOLDS, self.effective))]
        counts = self.ranks.total(self.weights.double() @ left.double())
        judged = (counts > 0) & (counts < self.weight_sum * (1 - 1e-12))
        left = left[:, judged]
        outputs = self.targets.new_full(self.targets.shape, math.nan).double()
        if not judged.any():
            return least_error(values, [math.inf] * len(values)), (), None, outputs
        sides, found, errors = self.sides(1 - left), None, []
        for value in values:
            found, *_ = self.run(sides, value, found, tol)
            predicted = self._left_out(sides, found, left)
            squares = (self.targets - predicted).double().square()
            error = (left.sum(1) * self.weights).double() @ squares
            errors.append(self._sum_of([float(error.sum())])[0] / float(counts[judged].sum()))
            if errors[-1] == min(errors):
                kept, outputs = found.clone(), predicted.double()
            recent = errors[-SETTINGS.enough :]
            if len(errors) > len(recent) and min(recent) > SETTINGS.worse * min(errors):
                log.info("values of alpha below %.3g are not tried: their errors rise", value)
                break
        outputs[left.sum(1) == 0] = math.nan
        outputs = outputs * 2.0**-self.r
        # All folds are close to the whole.
        guess = kept.view(len(kept), left.shape[1], self.out).mean(1)
        if len(values) == 1:
            return values[0], (), guess, outputs
        scale = 2.0 ** (-2 * self.r)
        path = tuple((v, e * scale) for v, e in zip(values, errors, strict=False))
        return least_error(values[: len(errors)], errors), path, guess, outputs

    def _left_out(self, sides: _Sides, found: Tensor, left: Tensor) -> Tensor:
        """Return the outputs for each row of the readout that has not seen it, otherwise zero."""
        outputs = self.representation.apply(self.rows, found).view(*left.shape, -1)
        centre = sides.mean_outputs(found)
        if centre is not None:
            assert sides.target_mean is not None
            outputs = outputs - centre.view(*outputs.shape[1:]) + sides.target_mean.to(outputs)
        return (outputs * left[:, :, None]).sum(1)

    def unscaled(self, sides: _Sides, found: Tensor) -> tuple[Tensor, Tensor | None]:
        """Return the readout and the intercept in the units of the problem."""
        intercept, centre = None, sides.mean_outputs(found)
        if centre is not None:
            assert sides.target_mean is not None
            intercept = (sides.target_mean[0] - centre.double()) * 2.0**-self.r
        return _times_power(found, self.p - self.r), intercept


def _times_power(tensor: Tensor, exponent: int) -> Tensor:
    """Multiply by ``2^exponent`` in two steps, since the power alone may overflow."""
    half = exponent // 2
    return tensor * 2.0**half * 2.0 ** (exponent - half)


def _exponent(value: float) -> int:
    return math.frexp(value)[1]
