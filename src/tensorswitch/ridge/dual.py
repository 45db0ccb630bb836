"""Ridge regression in the space of the rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from tensorswitch.ridge._cholesky import SingularError, SymmetricPanels
from tensorswitch.ridge._penalty import Alpha, effective_rows, least_gcv
from tensorswitch.ridge._solution import Fit, Solution, mean_diagonal
from tensorswitch.ridge._validation import Problem, check_some_rows
from tensorswitch.ridge.readout import ReadoutMap, outer_first
from tensorswitch.switches import Switch, deep_gates

KERNEL_ROWS = 512  # made at a time
MOST_ERROR = 1e-4  # relative, of the answer, that rounding may cause


@torch.no_grad()
def solve_dual(
    x: Tensor,
    targets: Tensor,
    gate_weights: Sequence[Tensor],
    alpha: Alpha = "mean",
    *,
    sample_weight: Tensor | None = None,
    switch: Switch | str = "relu",
) -> Solution:
    """``W = Zᵀ (K + λI)⁻¹ T`` with ``K = Z Zᵀ``, exactly and in float64; of several λ, the one with the least generalised cross-validation error."""
    problem = Problem.checked(x, targets, gate_weights, sample_weight, switch)
    return dual(problem, alpha)


def dual(problem: Problem, alpha: Alpha) -> Solution:
    """Solve a problem that has been checked."""
    with torch.autocast(problem.x.device.type, enabled=False):
        return _solve(problem, alpha)


def _solve(problem: Problem, alpha: Alpha) -> Solution:
    x, targets, gate_weights, sample_weight, switch = problem
    gates = deep_gates(x, gate_weights, switch)
    weights = x.new_ones(len(x)).double() if sample_weight is None else sample_weight.double()
    check_some_rows(float(weights.sum()))
    rows, root = x.double(), weights.sqrt()[:, None]
    z, goal = ReadoutMap(rows, gates, None), targets.double() * root
    kernel = _kernel_rows(rows * root, gates)

    def fit(value: float, judged: bool) -> Fit:
        factor = SymmetricPanels.from_rows(len(rows), kernel, rows, KERNEL_ROWS).cholesky(value)
        dual = factor.solve(goal)
        # One step of refinement. How far it moves the answer is how far rounding had moved it.
        error = goal - root * z.forward(z.adjoint(dual * root)) - value * dual
        correction = factor.solve(error)
        if not correction.norm() <= MOST_ERROR * dual.norm():  # nor if it is NaN
            raise SingularError(
                f"the kernel matrix of these rows is too ill-conditioned for alpha {value:.3g}; use a larger alpha, or centre and scale x"
            )
        dual += correction
        weight = z.adjoint(dual * root).to(x.dtype)
        solution = Solution(outer_first(weight, [len(w) for w in gate_weights]), value)
        if not judged:
            return Fit(solution)
        # Residuals are λ times the dual variables; λ tr (K + λI)⁻¹ is what is left of the rows.
        freedom = len(goal) - value * factor.inverse_trace()
        return Fit(solution, value**2 * float(dual.square().sum()), freedom)

    effective = effective_rows(float(weights.sum()), float(weights.square().sum()))
    return least_gcv(alpha, mean_diagonal(x, gates, sample_weight), effective, fit)


def _kernel_rows(x: Tensor, gates: Sequence[Tensor]) -> Callable[[int, int], Tensor]:
    """Return what gives rows of ``(X Xᵀ) ∘ Π_l (H_l H_lᵀ)``."""
    layers = [h.to(x.dtype) for h in gates]

    def rows(start: int, stop: int) -> Tensor:
        kernel = x[start:stop] @ x.t()
        for h in layers:
            kernel *= h[start:stop] @ h.t()
        return kernel

    return rows
