"""Solve for many values of λ with one factorisation, by Lanczos' algorithm.

With ``A = (C + λ₀I)⁻¹`` and ``δ = λ − λ₀``,

    (C + λI)⁻¹ v = f(A) v,        f(a) = a / (1 + δa)

One run of Lanczos' algorithm on A, started at v, gives a basis Q and a tridiagonal matrix T with
``f(A) v ≈ ‖v‖ Q f(T) e₁`` for every λ [1]_. If λ and λ₀ differ by a factor q, the pole of f is so
far from the spectrum that each step reduces the error by a factor of (√q − 1) / (√q + 1), whatever
the spectrum. A path of values is therefore cut into pieces that reach no further than a factor to
either side of λ₀, each of which has its own factorisation.

References
----------
.. [1] G. H. Golub and G. Meurant, "Matrices, Moments and Quadrature with Applications", Princeton
   University Press, 2010.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor


def pieces(values: Sequence[float], reach: float) -> list[list[float]]:
    """Cut decreasing values into pieces within a factor ``reach`` of their geometric middle."""
    cut: list[list[float]] = []
    for value in values:
        if cut and cut[-1][0] <= reach**2 * value:
            cut[-1].append(value)
        else:
            cut.append([value])
    return cut


class Lanczos:
    """``f(A) v`` of each column of ``starts``, for a symmetric positive operator A and many λ."""

    def __init__(
        self,
        apply: Callable[[Tensor], Tensor],
        starts: Tensor,
        steps: int,
    ) -> None:
        self.basis: list[Tensor] = []
        columns = starts.shape[1]
        norm = starts.double().norm(dim=0)
        self.norm = norm.cpu()
        v = starts / norm.clamp(min=torch.finfo(starts.dtype).tiny).to(starts)
        before = torch.zeros_like(v)
        beta = torch.zeros(columns, dtype=starts.dtype, device=starts.device)
        steps = min(steps, len(starts))
        matrix = torch.zeros(columns, steps, steps, dtype=torch.float64, device="cpu")
        for step in range(steps):
            self.basis.append(v)
            u = apply(v) - beta * before
            alpha = (v * u).sum(0)
            u -= alpha * v
            matrix[:, step, step] = alpha.double().cpu()
            beta = u.norm(dim=0)
            # A smaller norm is rounding error: the Krylov space is exhausted.
            beta = torch.where(beta > torch.finfo(u.dtype).eps * alpha.abs(), beta, 0)
            if step + 1 < steps:
                matrix[:, step, step + 1] = matrix[:, step + 1, step] = beta.double().cpu()
            before, v = v, torch.where(beta > 0, u / beta.clamp(min=torch.finfo(u.dtype).tiny), 0)
        nodes, vectors = torch.linalg.eigh(matrix)
        self.nodes, self.vectors = nodes.clamp(min=0), vectors

    def product(self, shift: float) -> Tensor:
        """Return ``f(A) v`` of each column, for ``δ = shift``."""
        parts = self.vectors * (self._function(shift) * self.vectors[:, 0])[:, None]
        coefficients = parts.sum(2) * self.norm[:, None]
        result = torch.zeros_like(self.basis[0])
        for step, v in enumerate(self.basis):
            result += v * coefficients[:, step].to(v)
        return result

    def _function(self, shift: float) -> Tensor:
        # Where the Krylov space was exhausted T is zero, and those nodes have no weight.
        scale = (1 + shift * self.nodes).clamp(min=torch.finfo(torch.float64).tiny)
        result: Tensor = self.nodes / scale
        return result
