"""Dual ridge regression: a linear system in the rows rather than in the features.

    (A + λI) β = P (r ∘ T),        W = Zᵀ (r ∘ β),        A = P R Z Zᵀ R P

for distinct rows, with P and the leave-one-out errors of :mod:`tensorswitch.linear._loo`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from tensorswitch.linear._cholesky import CholeskyFactor, SingularError, SymmetricPanels
from tensorswitch.linear._loo import Centred, Centring, LeaveOneOut, Spectrum
from tensorswitch.linear._penalty import Alpha, least_error, log, penalties
from tensorswitch.linear._problem import Gates, Problem, Solution, check_some_rows
from tensorswitch.linear._rows import distinct_rows
from tensorswitch.switches import Switch


@dataclass(frozen=True)
class Settings:
    """Sizes and precisions, measured by ``benchmarks.ridge`` (the dual solver on MNIST).

    The kernel is computed ``kernel_rows`` at a time. For ``several`` values of λ and more, an
    eigendecomposition of up to ``eigen_rows`` rows, which takes the time of about four of them, is
    faster. With more than ``many_rows`` rows, only ``sampled_rows`` are left out for outputs.

    Targets and rows with a relative deviation of less than ``constant`` count as constant. Rounding
    may cause a relative error of ``most_error`` of the solution. A λ of less than ``precision``
    times the largest eigenvalue is lost in rounding errors.
    """

    kernel_rows: int = 512
    eigen_rows: int = 4_000
    several: int = 4
    many_rows: int = 4_000
    sampled_rows: int = 1_000
    constant: float = 1e-13
    most_error: float = 1e-4
    precision: float = 1e-13


SETTINGS = Settings()


@torch.no_grad()
def solve_dual(
    x: Tensor,
    targets: Tensor,
    gate_weights: Gates,
    alpha: Alpha = "mean",
    *,
    sample_weight: Tensor | None = None,
    switch: Switch | str = "relu",
    fit_intercept: bool = False,
) -> Solution:
    """Solve for ``W = Zᵀ (K + λI)⁻¹ T`` with the kernel ``K = Z Zᵀ``, in float64.

    The kernel of copies is ``(X Xᵀ) ∘ Π_l (H_l H_lᵀ)``, which suits problems with many more
    features than rows. With sample weights s, rows and targets are scaled by ``√s``. Identical rows
    are merged first.

    Parameters
    ----------
    x, targets, gate_weights, sample_weight, switch, fit_intercept : as for :func:`solve`
        The rows and their representation.
    alpha : float, str or a sequence of these, default="mean"
        The penalty λ, or several, as for :func:`solve`. One of several is chosen by exact
        leave-one-out error; copies of a row are left out together. The kernel matrix must not be
        too ill-conditioned for λ.

    Examples
    --------
    >>> import torch
    >>> from tensorswitch.linear import draw_gates, solve_dual
    >>> generator = torch.Generator().manual_seed(0)
    >>> x = torch.randn(50, 4, generator=generator)
    >>> gate_weights = draw_gates(4, [16, 8], generator)
    >>> solve_dual(x, x[:, :1].abs(), gate_weights).weight.shape
    torch.Size([8, 16, 4, 1])
    """
    problem = Problem.checked(x, targets, gate_weights, sample_weight, switch)
    return dual(problem, alpha, fit_intercept)[0]


def dual(
    problem: Problem, alpha: Alpha, fit_intercept: bool = False, left_out: bool = False
) -> tuple[Solution, Tensor | None]:
    """Choose λ and solve; with ``left_out`` as in :class:`tensorswitch.linear._solve.Solved`."""
    with torch.autocast(problem.rows.x.device.type, enabled=False):
        system = _DualSystem(problem, fit_intercept)
        values = penalties(alpha, system.mean)
        errors = system.errors(values) if len(values) > 1 else []
        values = values[: len(errors)] if errors else values
        best = least_error(values, errors) if errors else values[0]
        path = tuple(zip(values, errors, strict=True)) if errors else ()
        solution, beta, factor = system.solve(best)
        outputs = system.left_out(best, beta, factor) if left_out else None
        return solution._replace(path=path).shaped(problem.representation), outputs


def leave_one_out(problem: Problem, alpha: Alpha, fit_intercept: bool) -> float:
    """Return the least leave-one-out error of several λ, without the readout."""
    with torch.autocast(problem.rows.x.device.type, enabled=False):
        system = _DualSystem(problem, fit_intercept)
        return min(system.errors(penalties(alpha, system.mean)))


class _DualSystem:
    """The normal equations of distinct rows."""

    def __init__(self, problem: Problem, fit_intercept: bool) -> None:
        self.fit_intercept, self.like = fit_intercept, problem.targets
        self.representation = problem.representation
        merged = distinct_rows(
            problem.rows.x, problem.hashes, problem.targets, problem.sample_weight
        )
        self.targets, self.weight = merged.targets, merged.weight
        self.place, self.observations = merged.place, merged.observations
        check_some_rows(float(self.weight.sum()))
        self.rows = problem.rows[merged.first].to(torch.float64)
        self.weighted = self.rows.times(self.weight.sqrt()[:, None])
        features = self.representation.features
        whole = self.representation.mean_square(self.rows, self.weight) * features
        trace = self.weight.new_tensor(whole)
        count = len(self.weight)
        self.centring = Centring.of(self.weight, count, trace, self._product, fit_intercept)
        centred = whole - float(self.centring.direction @ self.centring.sums)
        self.mean = centred / features if centred > SETTINGS.constant * whole else 0.0
        self.goal = self.centring.goal(self.targets)
        if fit_intercept:
            # What is left of constant targets is rounding, whose solution has no correct digit.
            spread = self.observations.weight @ self.observations.offset.square()
            size = (self.weight @ self.targets.square() + spread).sqrt()
            self.goal *= self.goal.norm(dim=0) > SETTINGS.constant * size

    def _product(self, v: Tensor) -> Tensor:
        """Return ``R K R v``, a few rows of the kernel at a time."""
        starts = range(0, len(self.weight), SETTINGS.kernel_rows)
        return torch.cat([self._kernel(s, s + SETTINGS.kernel_rows) @ v for s in starts])

    def _kernel(self, start: int, stop: int) -> Tensor:
        """Return rows of ``R K R``."""
        return self.representation.gram(self.weighted[start:stop], self.weighted)

    def _centred(self, start: int, stop: int) -> Tensor:
        """Return rows of A."""
        rows = self._kernel(start, stop)
        return self.centring.take_out(rows, slice(start, stop)) if self.fit_intercept else rows

    def solve(self, value: float) -> tuple[Solution, Tensor, CholeskyFactor]:
        """Factorise and solve for one λ, with a step of iterative refinement."""
        order, roots = len(self.goal), self.centring.roots[:, None]
        panels = SymmetricPanels.from_rows(order, self._centred, self.goal, SETTINGS.kernel_rows)
        factor = panels.cholesky(value)
        beta = factor.solve(self.goal)
        # The size of the correction estimates the rounding error.
        project = self.centring.project
        weight = self.representation.adjoint(self.rows, project(beta) * roots)
        image = self.representation.apply(self.rows, weight)
        correction = factor.solve(self.goal - project(roots * image) - value * beta)
        if not correction.norm() <= SETTINGS.most_error * beta.norm():  # so that NaN raises too
            raise _ill_conditioned(value)
        beta = project(beta + correction)
        weight = self.representation.adjoint(self.rows, beta * roots)
        intercept = None
        if self.fit_intercept:
            outputs = self.representation.apply(self.rows, weight)
            intercept = (self.weight @ (self.targets - outputs)) / self.weight.sum()
        return Solution(weight.to(self.like.dtype), value, intercept=intercept), beta, factor

    @cached_property
    def spectrum(self) -> Spectrum:
        """The eigendecomposition of A, for all values of λ."""
        matrix = self._centred(0, len(self.goal))
        return Spectrum(Centred((matrix + matrix.t()) / 2, self.centring))  # eigh reads one half

    def errors(self, values: Sequence[float]) -> list[float]:
        """Return the leave-one-out error of each λ, largest first, as far as precision allows."""
        several = len(values) >= SETTINGS.several and len(self.goal) <= SETTINGS.eigen_rows
        errors: list[float] = []
        for value in values:
            try:
                found = self._left_out_residuals(value, several)
            except SingularError:  # smaller values are worse conditioned, so they would fail too
                if not errors:
                    raise
                log.info("alpha %.3g or more is too small for working precision; skipped", value)
                break
            outputs = found.residuals.shape[1]
            errors.append(found.error(self.observations) * outputs)
        return errors

    def _left_out_residuals(self, value: float, several: bool) -> LeaveOneOut:
        # Zeros stand in place of targets that are constant but for rounding.
        targets = self.targets * (self.goal != 0).any(0)
        if not several:
            _, beta, factor = self.solve(value)
            return self.centring.result(value, beta, factor.inverse_diagonal(), targets)
        if not value > SETTINGS.precision * float(self.spectrum.values[-1]):
            raise _ill_conditioned(value)
        return self.spectrum.path([value], targets)[0]

    def left_out(self, value: float, beta: Tensor, factor: CholeskyFactor) -> Tensor:
        """Return outputs for rows left out, of a sample of rows if there are many."""
        count = len(self.goal)
        diagonal = torch.full_like(self.weight, torch.nan)
        if count > SETTINGS.many_rows:
            some = torch.arange(0, count, count // SETTINGS.sampled_rows, device=self.goal.device)
            unit = self.goal.new_zeros(count, len(some))
            unit[some, torch.arange(len(some), device=some.device)] = 1
            diagonal[some] = factor.solve(unit)[some].diagonal()
        elif "spectrum" in vars(self):
            diagonal = self.spectrum.vectors.square() @ (1 / (self.spectrum.values + value))
        else:
            diagonal = factor.inverse_diagonal()
        found = self.centring.result(value, beta, diagonal, self.targets)
        o = self.observations
        outputs = self.targets[o.row] + o.offset - found.unseen(o)[0]
        outputs = torch.cat([outputs, torch.full_like(outputs[:1], torch.nan)])  # place −1
        return outputs[self.place]


def _ill_conditioned(value: float) -> SingularError:
    return SingularError(
        f"the kernel matrix of these rows is too ill-conditioned for alpha {value:.3g}; "
        "use a larger alpha, or centre and scale x"
    )
