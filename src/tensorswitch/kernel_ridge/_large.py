"""Kernel ridge regression on many rows: conjugate gradients without the kernel matrix.

The system ``(A + λI) β = P (r ∘ y)`` of :mod:`tensorswitch.linear._loo` is solved with the
preconditioner of m sampled rows, ``Â = A_nm A_mm⁻¹ A_mn = B Bᵀ`` (see
:mod:`tensorswitch.linear._preconditioners`). An iteration costs one sweep over the tiles of the
kernel, which are kept if there is memory for them, and else made, used and dropped. Tiles have the
type of the rows, float32 for speed; vectors and preconditioner are float64, since ``r − B …``
cancels all but a part ``λ / ‖A‖`` of r. Under ``torchrun``, where every rank has all rows, the
tiles and the rows of B are divided among the ranks.
"""

import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

import torch
from torch import Tensor

from tensorswitch.kernel_ridge._trials import Candidate
from tensorswitch.kernels import KernelTiles, diagonal_factor, equivalent_kernels
from tensorswitch.linear import SingularError
from tensorswitch.linear._cg import Operator, conjugate_gradients
from tensorswitch.linear._cholesky import DenseFactor
from tensorswitch.linear._loo import Centring
from tensorswitch.linear._preconditioners import low_rank_inverse
from tensorswitch.linear._ranks import Ranks

log = logging.getLogger("tensorswitch.kernel_ridge")

BLOCK = 2048  # rows of B made at a time
DIVERGED = 10.0  # residual, relative to the targets, that only rounding errors can cause
# Of the scale, one after another. The mean of the kernel comes from tiles in float32, and rounding
# can make the matrix of thousands of sampled rows indefinite by a hundredth and more.
JITTERS = (1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 3e-2, 1e-1)


@dataclass(frozen=True)
class Options:
    """When to stop, and how many rows to sample; chosen by ``benchmarks.kernel_ridge`` (mnist).

    At most a quarter of the rows is sampled: ``kept`` where tiles are kept, as an iteration is
    cheap and memory short, else ``most``. ``memory`` is what may be used, in bytes.
    """

    tol: float = 3e-3
    max_iter: int = 100
    most: int = 5_000
    kept: int = 3_000
    memory: float = 0.0
    seed: int = 0
    watch: Callable[[int, float], None] = lambda iteration, residual: None

    def sample(self, rows: int, outputs: int, dtype: torch.dtype) -> tuple[int, bool]:
        """Return how many rows to sample, and whether to keep the tiles."""
        quarter = max(1, rows // 4)
        count = min(self.kept, quarter)
        # Beside the tiles there are B, a block of it, and vectors.
        others = 8 * (count * (rows + 3 * BLOCK + 2 * count) + 8 * rows * outputs)
        if KernelTiles.kept_bytes(rows, dtype, Ranks.found().count) + others <= self.memory:
            return count, True
        # Columns of B in half of the budget, if there is one.
        fitting = int(self.memory / 2 / (8 * rows)) if self.memory else self.most
        return max(1, min(self.most, quarter, fitting)), False


class CentredTiles:
    """``A v`` by tiles, and the columns of A that belong to sampled rows."""

    def __init__(self, z: Tensor, kind: str, depth: int, weight: Tensor | None, keep: bool) -> None:
        self.z, self.kind, self.depth, self.ranks = z, kind, depth, Ranks.found()
        share = {"part": self.ranks.rank, "parts": self.ranks.count}
        self.tiles = KernelTiles(z, kind, depth, keep=keep, **share)
        ones = torch.ones(len(z), dtype=torch.float64, device=z.device)
        self.roots = ones if weight is None else weight.double().sqrt()
        squares = self.roots.square() @ z.double().square().sum(1)
        self.centring = Centring.of(
            weight,
            len(z),
            squares * diagonal_factor(kind, depth),
            lambda u: self._weighted(u[:, None])[:, 0],
            dtype=z.dtype,
        )

    def _weighted(self, v: Tensor) -> Tensor:
        """Return ``R K R v``."""
        product = self.tiles @ (v * self.roots[:, None]).to(self.z)
        return self.ranks.total(product.double()) * self.roots[:, None]

    def __matmul__(self, v: Tensor) -> Tensor:
        """Return ``A v``; what rounding adds to v along u would be multiplied by ``‖K u‖``."""
        project = self.centring.project
        return project(self._weighted(project(v)))

    def _columns(self, z: Tensor, rows: Tensor, part: slice | Tensor) -> Tensor:
        """Return columns of A without ``τ u uᵀ``, for some of its rows."""
        kernels = equivalent_kernels(self.z[part].to(z), z, kinds=[self.kind], depths=[self.depth])
        block = kernels[self.kind, self.depth].double()
        block = block * self.roots[part, None] * self.roots[rows]
        return self.centring.take_out(block, part, rows, scale=0.0)

    def inverse(self, rows: Tensor, penalty: float) -> Operator:
        """Return ``(B Bᵀ + λI)⁻¹`` of sampled rows; this rank has a part of the rows of B."""
        mine = self.ranks.share(len(self.z))
        corner = self._columns(self.z[rows].double(), rows, rows)
        factor = _factor((corner + corner.t()) / 2, self.centring.scale).mT
        b = factor.new_empty(mine.stop - mine.start, len(rows))
        z = self.z[rows]
        for start in range(mine.start, mine.stop, BLOCK):
            part = slice(start, min(start + BLOCK, mine.stop))
            block = self._columns(z, rows, part)
            solved = torch.linalg.solve_triangular(factor, block, upper=True, left=False)
            b[start - mine.start : part.stop - mine.start] = solved

        def adjoint(r: Tensor) -> Tensor:
            return self.ranks.total(b.t() @ r[mine])

        def product(v: Tensor) -> Tensor:
            result = v.new_zeros(len(self.z), v.shape[1])
            result[mine] = b @ v
            return self.ranks.total(result)

        return low_rank_inverse(product, adjoint, self.ranks.total(b.t() @ b), penalty)


def _factor(matrix: Tensor, scale: float) -> Tensor:
    """Return the Cholesky factor with as little added to the diagonal as it takes."""
    for jitter in JITTERS:
        with suppress(SingularError):
            return DenseFactor(matrix, jitter * scale).factor
    raise SingularError("the kernel matrix of the sampled rows cannot be factorised")


class _DivergedError(Exception):
    """Rounding errors of tiles in float32 have taken over."""


def solve_large(
    z: Tensor, targets: Tensor, c: Candidate, weight: Tensor | None, options: Options
) -> tuple[Tensor, Tensor, float]:
    """Return α, b and λ for the kernel and the penalty of a candidate."""
    try:
        return _solve(z, targets, c, weight, options)
    except (_DivergedError, SingularError):
        log.info("tiles in float32 are too coarse; starting again in float64")
    # Outside of the clause: tiles and preconditioner, most of the memory, are free by now.
    coef, intercept, penalty = _solve(z.double(), targets, c, weight, options)
    return coef.to(z), intercept.to(z), penalty


def _solve(
    z: Tensor, targets: Tensor, c: Candidate, weight: Tensor | None, options: Options
) -> tuple[Tensor, Tensor, float]:
    count, keep = options.sample(len(z), targets.shape[1], z.dtype)
    kernel = CentredTiles(z, c.kind, c.depth, weight, keep)
    centring = kernel.centring
    penalty = c.penalty * centring.scale
    generator = torch.Generator("cpu").manual_seed(options.seed)
    rows = torch.randperm(len(z), generator=generator, device="cpu")[:count].to(z.device)
    inverse = kernel.inverse(rows, penalty)

    def tell(iteration: int, residual: float) -> None:
        options.watch(iteration, residual)
        if not residual < DIVERGED and z.dtype == torch.float32:
            raise _DivergedError

    beta, *_ = conjugate_gradients(
        lambda v: (kernel @ v).add_(v, alpha=penalty),
        lambda r: centring.project(inverse(r)),
        centring.goal(targets.double()),
        None,
        options.tol,
        options.max_iter,
        tell,
    )
    coef = (beta * centring.roots[:, None]).to(z)
    return coef, centring.intercept(beta, targets.double()).to(z), penalty
