"""Preconditioned conjugate gradients for several right-hand sides at once.

w += τ d,    r −= τ A d,    d = P⁻¹ r + (r · P⁻¹ r / r₋ · P⁻¹ r₋) d₋,    τ = r · P⁻¹ r / d · A d
"""

import math
from collections.abc import Callable

import torch
from torch import Tensor

from tensorswitch.linear._cholesky import SingularError
from tensorswitch.linear._penalty import log

Operator = Callable[[Tensor], Tensor]


def conjugate_gradients(
    operator: Operator,
    precondition: Operator,
    goal: Tensor,
    start: Tensor | None,
    tol: float,
    max_iter: int,
    tell: Callable[[int, float], None],
) -> tuple[Tensor, int, float]:
    """Return the solution for the columns of ``goal``, iterations and largest relative residual."""
    tiny = torch.finfo(goal.dtype).tiny
    scale = goal.norm(dim=0).clamp_min(tiny)
    weight = torch.zeros_like(goal) if start is None else start.clone()
    residual = goal.clone() if start is None else goal - operator(weight)
    worst, iteration = float((residual.norm(dim=0) / scale).max()), 0
    if worst <= tol:
        return weight, iteration, worst
    direction = precondition(residual)
    steepness = (residual * direction).sum(0)
    while worst > tol and iteration < max_iter:
        image = operator(direction)
        # Columns that are done stand still.
        step = steepness / (direction * image).sum(0).clamp_min(tiny)
        weight += step * direction
        residual -= step * image
        iteration += 1
        worst = float((residual.norm(dim=0) / scale).max())
        tell(iteration, worst)
        if worst <= tol:
            break
        ready = precondition(residual)
        new = (residual * ready).sum(0)
        direction = ready + (new / steepness.clamp_min(tiny)) * direction
        steepness = new
    if not math.isfinite(worst):
        raise SingularError("the system is singular to working precision; use a larger alpha")
    if worst > tol:
        log.warning(
            "conjugate gradients stopped after %d iterations with residual %.1e, above tol=%.1e",
            iteration,
            worst,
            tol,
        )
    return weight, iteration, worst
