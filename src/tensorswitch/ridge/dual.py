"""Ridge regression in the space of the rows."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from tensorswitch.ridge._cholesky import solve_full
from tensorswitch.ridge.matrix_free import _Map, _outer_first
from tensorswitch.ridge.problem import Alpha, Fit, Solution, best_of, check_rows, mean_diagonal, probes

KERNEL_ROWS = 512


@torch.no_grad()
def solve_dual(x: Tensor, targets: Tensor, gate_weights: Sequence[Tensor], alpha: Alpha = "mean", *, sample_weight: Tensor | None = None) -> Solution:
    """``W = Zᵀ (K + λI)⁻¹ T`` with ``K = Z Zᵀ``, exactly and in float64; of several λ, the one with the least generalised cross-validation error."""
    check_rows(x, targets, sample_weight, gate_weights[0].shape[1], None)
    z = _Map(x, gate_weights, None)
    root = x.new_ones(len(x), 1).double() if sample_weight is None else sample_weight.double().sqrt()[:, None]
    goal = targets.double() * root

    def fit(value: float, judged: bool) -> Fit:
        matrix = _kernel(x.double() * root, z.gates)
        matrix.diagonal().add_(value)
        g = probes(len(goal), goal) if judged else goal[:, :0]
        dual, u = solve_full(matrix, torch.cat([goal, g], dim=1)).split([goal.shape[1], g.shape[1]], dim=1)
        weight = z.adjoint((dual * root).to(x.dtype))
        solution = Solution(_outer_first(weight, [len(w) for w in gate_weights]), value)
        if not judged:
            return Fit(solution)
        # The residuals are λ times the dual variables.
        return Fit(solution, value**2 * float(dual.square().sum()), len(goal) - value * float((g * u).sum(0).mean()))

    rows = float(len(x) if sample_weight is None else sample_weight.double().sum())
    return best_of(alpha, mean_diagonal(x, z.gates, sample_weight), rows, fit)


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
