"""Ridge regression in the space of the rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from tensorswitch.ridge._cholesky import SingularError, SymmetricPanels
from tensorswitch.ridge.problem import (
    Alpha,
    Fit,
    Solution,
    best_of,
    check_gate_weights,
    check_rows,
    check_some_rows,
    deep_gates,
    effective_rows,
    mean_diagonal,
)
from tensorswitch.ridge.readout import ReadoutMap, outer_first

KERNEL_ROWS = 512  # made at a time
MOST_ERROR = 1e-4  # relative, of the answer, that rounding may cause


@torch.no_grad()
def solve_dual(x: Tensor, targets: Tensor, gate_weights: Sequence[Tensor], alpha: Alpha = "mean", *, sample_weight: Tensor | None = None) -> Solution:
    """``W = Zᵀ (K + λI)⁻¹ T`` with ``K = Z Zᵀ``, exactly and in float64; of several λ, the one with the least generalised cross-validation error."""
    gate_weights = check_gate_weights(gate_weights)
    x, targets, sample_weight = check_rows(x, targets, sample_weight, gate_weights)
    with torch.autocast(x.device.type, enabled=False):
        return _solve(x, targets, gate_weights, alpha, sample_weight)


def _solve(x: Tensor, targets: Tensor, gate_weights: Sequence[Tensor], alpha: Alpha, sample_weight: Tensor | None) -> Solution:
    gates = deep_gates(x, gate_weights)
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
    return best_of(alpha, mean_diagonal(x, gates, sample_weight), effective, fit)


def _kernel_rows(x: Tensor, gates: Sequence[Tensor]) -> Callable[[int, int], Tensor]:
    """Return what gives rows of ``(X Xᵀ) ∘ Π_l (H_l H_lᵀ)``."""
    layers = [h.to(x.dtype) for h in gates]

    def rows(start: int, stop: int) -> Tensor:
        kernel = x[start:stop] @ x.t()
        for h in layers:
            kernel *= h[start:stop] @ h.t()
        return kernel

    return rows
