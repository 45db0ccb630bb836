"""Ridge regression in the space of the rows."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from tensorswitch.ridge._cholesky import solve_full
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

KERNEL_ROWS = 512


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

    def fit(value: float, judged: bool) -> Fit:
        matrix = _kernel(rows * root, gates)
        matrix.diagonal().add_(value)
        dual, trace = solve_full(matrix, goal, judged)
        weight = z.adjoint(dual * root).to(x.dtype)
        solution = Solution(outer_first(weight, [len(w) for w in gate_weights]), value)
        # The residuals are λ times the dual variables, and what is left of the rows is λ tr (K + λI)⁻¹.
        return Fit(solution, value**2 * float(dual.square().sum()), len(goal) - value * trace) if judged else Fit(solution)

    effective = effective_rows(float(weights.sum()), float(weights.square().sum()))
    return best_of(alpha, mean_diagonal(x, gates, sample_weight), effective, fit)


def _kernel(x: Tensor, gates: Sequence[Tensor]) -> Tensor:
    """``(X Xᵀ) ∘ Π_l (H_l H_lᵀ)``, some rows at a time so that only the result is large."""
    layers = [h.to(x.dtype) for h in gates]
    kernel = x.new_empty(len(x), len(x))
    for start in range(0, len(x), KERNEL_ROWS):
        part = slice(start, start + KERNEL_ROWS)
        torch.mm(x[part], x.t(), out=kernel[part])
        for h in layers:
            kernel[part] *= h[part] @ h.t()
    return kernel
