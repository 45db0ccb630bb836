"""Dual ridge regression: a linear system in the rows rather than in the features."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from tensorswitch.ridge._cholesky import CholeskyFactor, SingularError, SymmetricPanels
from tensorswitch.ridge._solution import Solution, mean_diagonal
from tensorswitch.ridge.gcv import gcv_score, while_regular
from tensorswitch.ridge.penalty import Alpha, effective_rows, least_error, penalties
from tensorswitch.ridge.problem import Problem, check_some_rows
from tensorswitch.ridge.readout import ReadoutMap, outer_first
from tensorswitch.ridge.rows import distinct_rows
from tensorswitch.switches import Routes, Switch

KERNEL_ROWS = 512  # computed at a time
CONSTANT = 1e-13  # relative deviation of targets and rows that count as constant
MOST_ERROR = 1e-4  # largest relative error of the solution that rounding may cause
MANY_ROWS = 4_000  # from which a sample of rows is left out for outputs
SAMPLED_ROWS = 1_000
EIGEN_ROWS, SEVERAL = 4_000, 4  # an eigendecomposition takes the time of about four values of λ
PRECISION = 1e-13  # of the largest eigenvalue: a smaller λ is lost in rounding errors


@torch.no_grad()
def solve_dual(
    x: Tensor,
    targets: Tensor,
    gate_weights: Sequence[Tensor] | Tensor | Routes,
    alpha: Alpha = "mean",
    *,
    sample_weight: Tensor | None = None,
    switch: Switch | str = "relu",
    fit_intercept: bool = False,
    selection: str = "cv",
) -> Solution:
    """Solve for ``W = Zᵀ (K + λI)⁻¹ T`` with the kernel ``K = Z Zᵀ``, in float64.

    The kernel is computed as ``(X Xᵀ) ∘ Π_l (H_l H_lᵀ)`` and factorised, which suits problems with
    many more features than rows. With sample weights s, rows and targets are scaled by ``√s``.
    Identical rows are merged first.

    Parameters
    ----------
    x : Tensor of shape (rows, n_0)
        The inputs.
    targets : Tensor of shape (rows, out)
        The targets.
    gate_weights : sequence of Tensor, bool Tensor of shape (rows, gates) or Routes
        The fixed gate weights of each layer, of shape (n_l, units below), or the gates themselves:
        a boolean tensor, or routes that copy one input row to each row of the targets.
    alpha : float, str or a sequence of these, default="mean"
        The penalty λ: a number; "mean", the mean of the diagonal of ``ZᵀZ``, or a multiple of it
        such as "0.1 mean"; several of these; or "cv" or "gcv" for a range of multiples.
    sample_weight : Tensor of shape (rows,), optional
        Weights of the rows, 1 by default.
    switch : Switch or str, default="relu"
        The switch that opens the gates, if they follow from weights.
    fit_intercept : bool, default=False
        Whether to add an intercept that is not penalised.
    selection : {"cv", "gcv"}, default="cv"
        How one of several λ is chosen: by exact leave-one-out error, where identical rows are left
        out together, or by generalised cross-validation.

    Returns
    -------
    Solution
        The readout, with the λ that was used.

    Raises
    ------
    ValueError
        If the arguments are inconsistent, or the kernel matrix is too ill-conditioned for λ.

    Examples
    --------
    >>> import torch
    >>> from tensorswitch.ridge import draw_gates, solve_dual
    >>> generator = torch.Generator().manual_seed(0)
    >>> x = torch.randn(50, 4, generator=generator)
    >>> gate_weights = draw_gates(4, [16, 8], generator)
    >>> solve_dual(x, x[:, :1].abs(), gate_weights).weight.shape
    torch.Size([8, 16, 4, 1])
    """
    problem = Problem.checked(x, targets, gate_weights, sample_weight, switch)
    return dual(problem, alpha, fit_intercept, selection)[0]


def dual(
    problem: Problem,
    alpha: Alpha,
    fit_intercept: bool = False,
    selection: str = "cv",
    left_out: bool = False,
) -> tuple[Solution, Tensor | None]:
    """Solve a validated problem.

    With ``left_out``, also return the outputs for each row of the readout of all other rows, of
    shape (rows, out), with NaN where they are not known.
    """
    with torch.autocast(problem.x.device.type, enabled=False):
        system = _DualSystem(problem, fit_intercept)
        values, selection = penalties(alpha, system.mean, selection)
        errors = system.errors(values, selection) if len(values) > 1 else []
        values = values[: len(errors)] if errors else values
        best = least_error(values, errors) if errors else values[0]
        path = tuple(zip(values, errors, strict=True)) if errors else ()
        solved = system.solve(best)
        outputs = system.left_out(solved, best) if left_out else None
        return system.solution(solved, best, path), outputs


def leave_one_out(problem: Problem, alpha: Alpha, fit_intercept: bool) -> float:
    """Return the least leave-one-out error of several λ, without the readout."""
    with torch.autocast(problem.x.device.type, enabled=False):
        system = _DualSystem(problem, fit_intercept)
        return min(system.errors(penalties(alpha, system.mean).values, "cv"))


class _Solved(NamedTuple):
    factor: CholeskyFactor
    dual: Tensor  # (A + λI)⁻¹ P √s T


class _DualSystem:
    """``(A + λI) β = P √s T`` with ``A = P √s K √s P``, and ``W = Zᵀ √s β``.

    ``P = I − u uᵀ`` with ``u = √s / ‖√s‖`` projects the intercept out; without one it is the
    identity.
    """

    def __init__(self, problem: Problem, fit_intercept: bool) -> None:
        self.problem, self.fit_intercept = problem, fit_intercept
        x, targets, sample_weight = problem.x, problem.targets, problem.sample_weight
        merged = distinct_rows(problem.hashes, targets, sample_weight)
        self.place, self.targets, weight = merged.place, merged.targets, merged.weight
        self.total = float(weight.sum())
        self.spectrum: tuple[Tensor, Tensor] | None = None
        check_some_rows(self.total)
        self.squares = (
            float(len(x)) if sample_weight is None else float(sample_weight.double().square().sum())
        )
        gates = [h[merged.first] for h in problem.gates()]
        rows = x[merged.first].double()
        self.root = weight.sqrt()[:, None]
        self.z = ReadoutMap(rows, gates, None)
        self.mean = mean_diagonal(rows, gates, weight)
        self.features = rows.shape[1] * math.prod(h.shape[1] for h in gates)
        self.goal, self.kernel = self.targets * self.root, _kernel_rows(rows * self.root, gates)
        # No readout can explain how targets of merged rows differ from their mean.
        self.within = self._within(targets, sample_weight)
        if fit_intercept:
            self._centre()

    def _within(self, targets: Tensor, sample_weight: Tensor | None) -> float:
        if len(self.targets) == len(targets):
            return 0.0
        used = self.place >= 0
        squares = (targets[used].double() - self.targets[self.place[used]]).square().sum(1)
        weighted = squares if sample_weight is None else squares * sample_weight[used].double()
        return float(weighted.sum())

    def _centre(self) -> None:
        self.u, raw, count = self.root / math.sqrt(self.total), self.kernel, len(self.root)
        blocks = range(0, count, KERNEL_ROWS)
        sums = torch.cat([raw(s, min(s + KERNEL_ROWS, count)) @ self.u for s in blocks])
        middle = float((self.u * sums).sum())  # n ‖z̄‖²
        # A is zero along u. There, σ takes the place of zero, which changes no solution and keeps
        # the small differences of 1 − h_ii from being lost.
        self.sigma = self.mean * self.features / count
        centred_mean = self.mean - middle / self.features
        self.mean = centred_mean if centred_mean > CONSTANT * self.mean else 0.0
        shifted = sums - (middle + self.sigma) / 2 * self.u
        left, right = torch.cat([self.u, shifted], 1), torch.cat([shifted, self.u], 1)

        def centred(start: int, stop: int) -> Tensor:
            return raw(start, stop).addmm_(left[start:stop], right.t(), alpha=-1)

        self.kernel = centred
        self.target_mean = (self.root * self.goal).sum(0) / self.total
        size = (self.goal.square().sum(0) + self.within).sqrt()
        self.goal = self._project(self.goal)
        # What is left of constant targets is rounding, whose solution would have no correct digit.
        self.goal *= self.goal.norm(dim=0) > CONSTANT * size

    def _project(self, v: Tensor) -> Tensor:
        return v - self.u * (self.u.t() @ v) if self.fit_intercept else v

    def solve(self, value: float) -> _Solved:
        """Factorise and solve for one λ, with a step of iterative refinement."""
        order = len(self.goal)
        panels = SymmetricPanels.from_rows(order, self.kernel, self.goal, KERNEL_ROWS)
        factor = panels.cholesky(value)
        dual = factor.solve(self.goal)
        # The size of the correction estimates the rounding error.
        image = self.z.forward(self.z.adjoint(self._project(dual) * self.root))
        error = self.goal - self._project(self.root * image) - value * dual
        correction = factor.solve(error)
        if not correction.norm() <= MOST_ERROR * dual.norm():  # so that NaN raises too
            raise SingularError(
                f"the kernel matrix of these rows is too ill-conditioned for alpha {value:.3g}; "
                "use a larger alpha, or centre and scale x"
            )
        return _Solved(factor, self._project(dual + correction))

    def errors(self, values: Sequence[float], selection: str) -> list[float]:
        """Return the error of each λ, the largest first, as far as the precision allows.

        It is the leave-one-out error, ``Σ s ‖t − f₋‖² / Σ s``, or the GCV error.
        """
        find = self._by_spectrum if len(values) >= SEVERAL else self._by_factor
        if len(self.goal) > EIGEN_ROWS:
            find = self._by_factor
        errors: list[float] = []
        for value, (dual, diagonal) in while_regular(values, find):
            if selection == "cv":
                residuals = self._residuals(dual, diagonal, value)
                errors.append((float(residuals.square().sum()) + self.within) / self.total)
                continue
            # The residuals are λ times the dual variables, and rows − freedom is λ tr (A + λI)⁻¹.
            freedom = len(self.goal) - value * float(diagonal.sum()) + self._along_u(value)
            squared_error = value**2 * float(dual.square().sum()) + self.within
            rows = effective_rows(self.total, self.squares)
            errors.append(gcv_score(squared_error, freedom, rows))
        return errors

    def _by_factor(self, value: float) -> tuple[Tensor, Tensor]:
        """Return β and the diagonal of ``(A + λI)⁻¹``."""
        solved = self.solve(value)
        return solved.dual, solved.factor.inverse_diagonal()

    def _by_spectrum(self, value: float) -> tuple[Tensor, Tensor]:
        """Return the same for any λ from one eigendecomposition."""
        if self.spectrum is None:
            matrix = self.kernel(0, len(self.goal))
            self.spectrum = torch.linalg.eigh((matrix + matrix.t()) / 2)
        nodes, vectors = self.spectrum
        if not value > PRECISION * float(nodes[-1]):
            raise SingularError(
                f"the kernel matrix of these rows is too ill-conditioned for alpha {value:.3g}; "
                "use a larger alpha, or centre and scale x"
            )
        inverse = 1 / (nodes.clamp(min=0) + value)
        dual = vectors @ (inverse[:, None] * (vectors.t() @ self.goal))
        return self._project(dual), vectors.square() @ inverse

    def _residuals(self, dual: Tensor, diagonal: Tensor, value: float) -> Tensor:
        """Return the residuals of rows left out, times √s.

        They are those of the fit, λβ, divided by ``1 − h_ii = λ (A + λI)⁻¹_ii − u_i²``.
        """
        keep = value * diagonal[:, None]
        if self.fit_intercept:
            keep = keep - self._along_u(value) * self.u.square()
        if not len(keep) > self.fit_intercept:
            return torch.full_like(dual, math.inf)
        return value * dual / keep.clamp(min=1e-12)

    def _along_u(self, value: float) -> float:
        """Return ``λ / (σ + λ)``, what σ in place of zero leaves along u; 0 without intercept."""
        return value / (self.sigma + value) if self.fit_intercept and value > 0 else 0.0

    def left_out(self, solved: _Solved, value: float) -> Tensor:
        """Return outputs for rows left out, of a sample of rows if there are many."""
        count = len(self.goal)
        if count <= MANY_ROWS:
            known = self.spectrum is not None
            diagonal = self._by_spectrum(value)[1] if known else solved.factor.inverse_diagonal()
            residuals = self._residuals(solved.dual, diagonal, value)
        else:
            some = torch.arange(0, count, count // SAMPLED_ROWS, device=self.goal.device)
            unit = self.goal.new_zeros(count, len(some))
            unit[some, torch.arange(len(some), device=some.device)] = 1
            keep = value * solved.factor.solve(unit)[some].diagonal()[:, None]
            if self.fit_intercept:
                keep = keep - self._along_u(value) * self.u[some].square()
            residuals = torch.full_like(solved.dual, math.nan)
            residuals[some] = value * solved.dual[some] / keep.clamp(min=1e-12)
        outputs = self.targets - residuals / self.root
        outputs = torch.cat([outputs, torch.full_like(outputs[:1], math.nan)])  # place −1
        return outputs[self.place]

    def solution(
        self, solved: _Solved, value: float, path: tuple[tuple[float, float], ...]
    ) -> Solution:
        """Return the readout."""
        weight = self.z.adjoint(solved.dual * self.root)
        intercept = None
        if self.fit_intercept:
            mean = (self.root**2 * self.z.forward(weight)).sum(0) / self.total
            intercept = self.target_mean - mean
        readout = outer_first(weight.to(self.problem.x.dtype), self.problem.sizes)
        return Solution(readout, value, path=path, intercept=intercept)


def _kernel_rows(x: Tensor, gates: Sequence[Tensor]) -> Callable[[int, int], Tensor]:
    """Return a function that computes rows of ``(X Xᵀ) ∘ Π_l (H_l H_lᵀ)``."""
    layers = [h.to(x.dtype) for h in gates]

    def rows(start: int, stop: int) -> Tensor:
        kernel = x[start:stop] @ x.t()
        for h in layers:
            kernel *= h[start:stop] @ h.t()
        return kernel

    return rows
