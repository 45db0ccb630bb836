"""Kernel ridge regression on many rows: conjugate gradients without the kernel matrix.

The system ``(A + λI) β = P (s ∘ y)``, with the centred kernel A of
:mod:`tensorswitch.kernel_ridge._loo`, is solved with the preconditioner of m sampled rows,

    Â = A_nm A_mm⁻¹ A_mn = B Bᵀ,        (Â + λI)⁻¹ r = (r − B (Bᵀ B + λI)⁻¹ Bᵀ r) / λ

An iteration costs one sweep over the tiles of the kernel, which are kept if there is memory for
them, and else made, used and dropped. Tiles have the type of the rows, float32 for speed; vectors
and preconditioner are float64, since ``r − B …`` cancels all but a part ``λ / ‖A‖`` of r. Under
``torchrun``, where every rank has all rows, the tiles and the rows of B are divided among the
ranks.

References
----------
Rudi, Carratino and Rosasco, FALKON: An Optimal Large Scale Kernel Method, NeurIPS 2017.
Frangella, Tropp and Udell, Randomized Nyström Preconditioning, SIAM J. Matrix Anal. Appl. 2023.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, distributed

from tensorswitch.kernel_ridge._loo import free_intercept, positive_scale
from tensorswitch.kernels import KernelTiles, equivalent_kernels
from tensorswitch.linear import SingularError

log = logging.getLogger("tensorswitch.kernel_ridge")

MOST_SAMPLED = 5_000
FEWER_SAMPLED = 3_000  # where tiles are kept: an iteration is cheap, and memory is short
BLOCK = 2048  # rows of B made at a time
DIVERGED = 10.0  # residual, relative to the targets, that only rounding errors can cause
JITTERS = (1e-6, 1e-5, 1e-4, 1e-3, 1e-2)  # of the scale, one after another


class Ranks:
    """The process among those of ``torch.distributed``, or alone."""

    def __init__(self) -> None:
        several = distributed.is_available() and distributed.is_initialized()
        self.count = distributed.get_world_size() if several else 1
        self.rank = distributed.get_rank() if several else 0

    def total(self, tensor: Tensor) -> Tensor:
        """Return the sum over all ranks, in place."""
        if self.count > 1:
            distributed.all_reduce(tensor)
        return tensor

    def rows(self, count: int) -> slice:
        """Return the rows of this rank."""
        bounds = [count * rank // self.count for rank in (self.rank, self.rank + 1)]
        return slice(*bounds)


class CentredTiles:
    """``A v`` by tiles, and the columns of A that belong to sampled rows."""

    def __init__(
        self, z: Tensor, kind: str, depth: int, weight: Tensor | None, keep: bool = False
    ) -> None:
        self.z, self.kind, self.depth, self.ranks = z, kind, depth, Ranks()
        share = {"part": self.ranks.rank, "parts": self.ranks.count}
        self.tiles = KernelTiles(z, kind, depth, keep=keep, **share)
        ones = torch.ones(len(z), dtype=torch.float64, device=z.device)
        self.roots = ones if weight is None else weight.double().sqrt()
        self.u = self.roots / self.roots.norm()
        self.sums = self._scaled(self.u[:, None])[:, 0]  # S K S u
        self.total = float(self.u @ self.sums)
        diagonal = self.roots.square() * self._kernel_diagonal()
        centred = diagonal - 2 * self.u * self.sums + self.total * self.u.square()
        self.scale = positive_scale(float(centred.mean()), float(diagonal.mean()), z.dtype)

    def _kernel_diagonal(self) -> Tensor:
        factor = self.depth + 1 if self.kind == "ntk" else 1
        return factor * self.z.double().square().sum(1)

    def _scaled(self, v: Tensor) -> Tensor:
        """``S K S v``."""
        product = self.tiles @ (v * self.roots[:, None]).to(self.z)
        return self.ranks.total(product.double()) * self.roots[:, None]

    def project(self, v: Tensor) -> Tensor:
        """``P v``."""
        result: Tensor = v - self.u[:, None] * (self.u @ v)
        return result

    def __matmul__(self, v: Tensor) -> Tensor:
        """Return ``A v``; what rounding adds to v along u would be multiplied by ``‖K u‖``."""
        return self.project(self._scaled(self.project(v)))

    def sampled_factor(self, rows: Tensor) -> Tensor:
        """Rows of this rank of ``B``, (rows, sampled rows), with ``B Bᵀ = A_nm A_mm⁻¹ A_mn``."""
        z, roots, u, sums = self.z[rows], self.roots[rows], self.u[rows], self.sums[rows]
        key = (self.kind, self.depth)
        options: dict[str, Any] = {"kinds": [self.kind], "depths": [self.depth]}

        def centred(block: Tensor, part: slice | Tensor) -> Tensor:
            left, right = self.u[part], self.sums[part]
            block = block * self.roots[part, None] * roots
            block -= torch.outer(left, sums) + torch.outer(right - self.total * left, u)
            return block

        corner = centred(equivalent_kernels(z.double(), **options)[key], rows)
        factor = _factor((corner + corner.t()) / 2, self.scale)
        mine = self.ranks.rows(len(self.z))
        result = factor.new_empty(mine.stop - mine.start, len(rows))
        for start in range(mine.start, mine.stop, BLOCK):
            part = slice(start, min(start + BLOCK, mine.stop))
            block = centred(equivalent_kernels(self.z[part], z, **options)[key].double(), part)
            upper = torch.linalg.solve_triangular(factor.mT, block, upper=True, left=False)
            result[start - mine.start : part.stop - mine.start] = upper
        return result


class SampledRows:
    """The preconditioner ``r ↦ (r − B (Bᵀ B + λI)⁻¹ Bᵀ r) / λ``."""

    def __init__(self, kernel: CentredTiles, rows: Tensor, lam: float) -> None:
        self.ranks, self.lam = kernel.ranks, lam
        self.mine = kernel.ranks.rows(len(kernel.z))
        self.b = kernel.sampled_factor(rows)
        inner = self.ranks.total(self.b.t() @ self.b)
        inner.diagonal().add_(lam)
        self.factor = _factor(inner, 0.0)

    def __call__(self, r: Tensor) -> Tensor:
        inner = self.ranks.total(self.b.t() @ r[self.mine])
        explained = torch.zeros_like(r)
        explained[self.mine] = self.b @ torch.cholesky_solve(inner, self.factor)
        return (r - self.ranks.total(explained)) / self.lam


def _factor(matrix: Tensor, scale: float) -> Tensor:
    """Cholesky factor with as little added to the diagonal as it takes."""
    for jitter in JITTERS:
        matrix.diagonal().add_(jitter * scale)
        factor: Tensor
        factor, info = torch.linalg.cholesky_ex(matrix)
        if not int(info):
            return factor
    raise SingularError("the kernel matrix of the sampled rows cannot be factorised")


def solve_large(
    z: Tensor,
    targets: Tensor,
    kind: str,
    depth: int,
    penalty: float,
    weight: Tensor | None = None,
    *,
    tol: float = 3e-3,
    max_iter: int = 100,
    sampled: int | None = None,
    memory: float = 0.0,
    seed: int = 0,
    watch: Callable[[int, float], None] | None = None,
) -> tuple[Tensor, Tensor, float, int]:
    """Solve for the coefficients by preconditioned conjugate gradients.

    Parameters
    ----------
    z : Tensor of shape (rows, features)
        The scaled rows, in float32 or float64.
    targets : Tensor of shape (rows, outputs)
        The targets.
    kind, depth : str and int
        The kernel.
    penalty : float
        λ in multiples of the mean diagonal of the centred matrix.
    weight : Tensor of shape (rows,), optional
        Sample weights of mean 1.
    tol : float, default=3e-3
        The residual, relative to the targets, at which to stop.
    max_iter : int, default=100
        The largest number of iterations.
    sampled : int, optional
        Rows of the preconditioner, by default a quarter of all and at most 5,000, or 3,000 if the
        tiles of the kernel are kept.
    memory : float, default=0.0
        Bytes that may be used. If they suffice, the tiles of the kernel are kept.
    seed : int, default=0
        Of the sample.
    watch : callable, optional
        Called with the iteration and its residual.

    Returns
    -------
    coef : Tensor of shape (rows, outputs)
        α.
    intercept : Tensor of shape (outputs,)
        b.
    scale : float
        The mean diagonal.
    iterations : int
        How many were needed.
    """
    count = min(FEWER_SAMPLED, max(1, len(z) // 4)) if sampled is None else sampled
    # Beside the tiles there are B, a block of it, and vectors.
    others = 8 * (count * (len(z) + 3 * BLOCK + 2 * count) + 8 * targets.numel())
    keep = KernelTiles.kept_bytes(len(z), z.dtype, Ranks().count) + others <= memory
    if not keep and sampled is None:
        # Columns of B in half of the budget, if there is one.
        fitting = int(memory / 2 / (8 * len(z))) if memory else MOST_SAMPLED
        count = max(1, min(MOST_SAMPLED, len(z) // 4, fitting))
    kernel = CentredTiles(z, kind, depth, weight, keep)
    lam = penalty * kernel.scale
    generator = torch.Generator("cpu").manual_seed(seed)
    rows = torch.randperm(len(z), generator=generator, device="cpu")[:count].to(z.device)
    precondition = SampledRows(kernel, rows, lam)
    tiny = torch.finfo(torch.float64).tiny
    goal = kernel.project(targets.double() * kernel.roots[:, None])
    norm = goal.norm(dim=0).clamp(min=tiny)
    beta, residual = torch.zeros_like(goal), goal.clone()
    ready = kernel.project(precondition(residual))
    direction, rho = ready, (residual * ready).sum(0)
    worst, iteration = float((residual.norm(dim=0) / norm).max()), 0
    while worst > tol and iteration < max_iter:
        image = kernel @ direction
        image += lam * direction
        step = rho / (direction * image).sum(0).clamp(min=tiny)
        beta += step * direction
        residual -= step * image
        ready = kernel.project(precondition(residual))
        new = (residual * ready).sum(0)
        direction = ready + (new / rho.clamp(min=tiny)) * direction
        rho = new
        iteration += 1
        worst = float((residual.norm(dim=0) / norm).max())
        if watch is not None:
            watch(iteration, worst)
        if not worst < DIVERGED and z.dtype == torch.float32:
            log.info("λ is too small for tiles in float32; starting again in float64")
            options: dict[str, Any] = {"tol": tol, "max_iter": max_iter, "sampled": sampled}
            options |= {"memory": memory, "seed": seed, "watch": watch}
            del kernel, precondition  # they take most of the memory
            coef, intercept, scale, more = solve_large(
                z.double(), targets, kind, depth, penalty, weight, **options
            )
            return coef.to(z), intercept.to(z), scale, iteration + more
    if not worst <= tol:
        text = "conjugate gradients stopped after %d iterations at a residual of %.1e, not %.1e"
        log.warning(text, iteration, worst, tol)
    intercept = free_intercept(kernel.roots, kernel.sums, beta, targets.double())
    coef = (beta * kernel.roots[:, None]).to(z)
    return coef, intercept.to(z), kernel.scale, iteration
