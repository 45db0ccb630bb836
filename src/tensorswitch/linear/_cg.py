"""Preconditioned conjugate gradients for several right-hand sides at once."""

from __future__ import annotations

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
    """Return the solution, the number of iterations, and the largest relative residual.

    The last axis of ``goal`` holds the right-hand sides.
    """
    tiny = torch.finfo(goal.dtype).tiny
    scale = goal.flatten(0, -2).norm(dim=0).clamp_min(tiny)
    weight = torch.zeros_like(goal) if start is None else start.clone()
    residual = goal.clone() if start is None else goal - operator(weight)
    worst, iteration = float((residual.flatten(0, -2).norm(dim=0) / scale).max()), 0
    if worst <= tol:
        return weight, iteration, worst
    direction = precondition(residual)
    steepness = dot(residual, direction)
    while worst > tol and iteration < max_iter:
        image = operator(direction)
        step = steepness / dot(direction, image).clamp_min(tiny)
        weight += step * direction
        residual -= step * image
        iteration += 1
        worst = float((residual.flatten(0, -2).norm(dim=0) / scale).max())
        tell(iteration, worst)
        if worst <= tol:
            break
        ready = precondition(residual)
        new = dot(residual, ready)
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


def dot(a: Tensor, b: Tensor) -> Tensor:
    """Return the scalar product of each right-hand side."""
    return (a * b).flatten(0, -2).sum(0)
