"""Many λ for one factorisation.

With ``A = (C + λ₀I)⁻¹`` and ``δ = λ − λ₀``,   (C + λI)⁻¹ = f(A),   f(a) = a / (1 + δa),

so that ``vᵀ f(A) v`` and ``vᵀ f(A)² v``, of which generalised cross-validation is made, come for every λ from one run of Lanczos' algorithm with A:
its tridiagonal matrix T, begun at v, has ``vᵀ f(A) v ≈ ‖v‖² [f(T)]₁₁`` (Gauss quadrature). Where λ and λ₀ differ by a factor q, the pole of f is so
far from the spectrum that each step takes a factor ((√q − 1) / (√q + 1))² off the error, whatever the spectrum: with q up to ``REACH`` twelve steps
leave less than a thousandth. So a path is cut into pieces no longer than that to either side, each with a factorisation of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

__all__ = ["Quadrature", "pieces"]

STEPS, REACH = 12, 32.0  # 32² is a little more than three decades


def pieces(values: Sequence[float]) -> list[list[float]]:
    """Values from the largest down, cut so that none is further than ``REACH`` from the (geometric) middle of its piece."""
    cut: list[list[float]] = []
    for value in values:
        if cut and cut[-1][0] <= REACH**2 * value:
            cut[-1].append(value)
        else:
            cut.append([value])
    return cut


class Quadrature:
    """The nodes and weights of each column of ``starts`` for an operator that is symmetric and positive."""

    def __init__(
        self, apply: Callable[[Tensor], Tensor], starts: Tensor, steps: int = STEPS
    ) -> None:
        columns = starts.shape[1]
        norm = starts.double().norm(dim=0)
        self.squares = norm.square()
        v = starts / norm.clamp(min=torch.finfo(starts.dtype).tiny).to(starts)
        before, beta = (
            torch.zeros_like(v),
            torch.zeros(columns, dtype=starts.dtype, device=starts.device),
        )
        steps = min(steps, len(starts))
        matrix = torch.zeros(columns, steps, steps, dtype=torch.float64, device="cpu")
        for step in range(steps):
            u = apply(v) - beta * before
            alpha = (v * u).sum(0)
            u -= alpha * v
            matrix[:, step, step] = alpha.double().cpu()
            beta = u.norm(dim=0)
            beta = torch.where(
                beta > torch.finfo(u.dtype).eps * alpha.abs(), beta, 0
            )  # below that it is rounding: the space is used up
            if step + 1 < steps:
                matrix[:, step, step + 1] = matrix[:, step + 1, step] = beta.double().cpu()
            before, v = v, torch.where(beta > 0, u / beta.clamp(min=torch.finfo(u.dtype).tiny), 0)
        nodes, vectors = torch.linalg.eigh(matrix)
        self.nodes, self.weights = nodes.clamp(min=0), vectors[:, 0].square()

    def sums(self, shift: float) -> tuple[Tensor, Tensor]:
        """``vᵀ f(A) v`` and ``vᵀ f(A)² v`` of each column, for ``δ = shift``."""
        # where the space was used up zeros stand in T, whose vectors have no weight
        f = self.nodes / (1 + shift * self.nodes).clamp(min=torch.finfo(torch.float64).tiny)
        squares = self.squares.cpu()
        return squares * (self.weights * f).sum(1), squares * (self.weights * f.square()).sum(1)
