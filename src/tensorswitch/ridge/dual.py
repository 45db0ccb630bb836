"""Dual ridge regression: a linear system in the rows rather than in the features."""

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

KERNEL_ROWS = 512  # computed at a time
MOST_ERROR = 1e-4  # largest relative error of the solution that rounding may cause


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
    """Solve for ``W = Zᵀ (K + λI)⁻¹ T`` with the kernel ``K = Z Zᵀ``, in float64.

    The kernel is computed as ``(X Xᵀ) ∘ Π_l (H_l H_lᵀ)`` and factorised, which suits problems with
    many more features than rows. With sample weights s, rows and targets are scaled by ``√s``.

    Parameters
    ----------
    x : Tensor of shape (rows, n_0)
        The inputs.
    targets : Tensor of shape (rows, out)
        The targets.
    gate_weights : sequence of Tensor
        The fixed gate weights of each layer, of shape (n_l, units below).
    alpha : float, "mean" or a sequence of these, default="mean"
        The penalty λ; "mean" is the mean of the diagonal of ``ZᵀZ``. Of several values, the one
        with the lowest generalised cross-validation error is used.
    sample_weight : Tensor of shape (rows,), optional
        Weights of the rows, 1 by default.
    switch : Switch or str, default="relu"
        The switch that opens the gates.

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
    return dual(problem, alpha)


def dual(problem: Problem, alpha: Alpha) -> Solution:
    """Solve a validated problem."""
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
        # One step of iterative refinement. The size of the correction estimates the rounding error.
        error = goal - root * z.forward(z.adjoint(dual * root)) - value * dual
        correction = factor.solve(error)
        if not correction.norm() <= MOST_ERROR * dual.norm():  # so that NaN raises too
            raise SingularError(
                f"the kernel matrix of these rows is too ill-conditioned for alpha {value:.3g}; "
                "use a larger alpha, or centre and scale x"
            )
        dual += correction
        weight = z.adjoint(dual * root).to(x.dtype)
        solution = Solution(outer_first(weight, [len(w) for w in gate_weights]), value)
        if not judged:
            return Fit(solution)
        # The residuals are λ times the dual variables, and rows − freedom is λ tr (K + λI)⁻¹.
        freedom = len(goal) - value * factor.inverse_trace()
        return Fit(solution, value**2 * float(dual.square().sum()), freedom)

    effective = effective_rows(float(weights.sum()), float(weights.square().sum()))
    return least_gcv(alpha, mean_diagonal(x, gates, sample_weight), effective, fit)


def _kernel_rows(x: Tensor, gates: Sequence[Tensor]) -> Callable[[int, int], Tensor]:
    """Return a function that computes rows of ``(X Xᵀ) ∘ Π_l (H_l H_lᵀ)``."""
    layers = [h.to(x.dtype) for h in gates]

    def rows(start: int, stop: int) -> Tensor:
        kernel = x[start:stop] @ x.t()
        for h in layers:
            kernel *= h[start:stop] @ h.t()
        return kernel

    return rows
