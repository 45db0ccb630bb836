"""Preconditioners made from sampled rows: a matrix of low rank plus a multiple of the identity.

    (B Bᵀ + λI)⁻¹ r = (r − B (BᵀB + λI)⁻¹ Bᵀ r) / λ

In the features, ``Bᵀ`` are m sampled rows of the centred representation, each times
``√(s n / n_m)``, and ``BᵀB = φ(X_m) φ(X_m)ᵀ`` is cheap at any depth. In the rows,
``B = A_nm L⁻ᵀ`` with ``A_mm = L Lᵀ``. Both are good if m is larger than the effective dimension
``tr BᵀB (BᵀB + λI)⁻¹`` of all rows. If that of a small sample is close to its size, m would have to
be far larger: on MNIST with 64 components, this share of 2,000 rows is 0.92 for 256 gates and 0.996
for 4,096, at a tenth of the mean.

References
----------
Rudi, Carratino and Rosasco, FALKON: An Optimal Large Scale Kernel Method, NeurIPS 2017.
Frangella, Tropp and Udell, Randomized Nyström Preconditioning, SIAM J. Matrix Anal. Appl. 2023.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from tensorswitch.linear._cholesky import DenseFactor, SingularError
from tensorswitch.linear._ranks import Ranks
from tensorswitch.linear._representation import Representation, RowsOf

Operator = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Settings:
    """Sizes of samples, chosen by ``benchmarks.ridge`` (preconditioners on MNIST).

    ``most`` rows are sampled at most. The effective dimension of ``probed`` rows says whether
    sampling pays: not if it is more than ``full`` of them, nor with fewer than ``least`` rows.
    """

    most: int = 8_192
    probed: int = 2_000
    least: int = 50
    full: float = 0.95


SETTINGS = Settings()


class LowRankInverse:
    """``r ↦ (B Bᵀ + λI)⁻¹ r``.

    Parameters
    ----------
    product : callable
        ``v ↦ B v``.
    adjoint : callable
        ``r ↦ Bᵀ r``.
    factor : DenseFactor
        The Cholesky factor of ``BᵀB + λI``.
    penalty : float
        λ.
    """

    def __init__(
        self, product: Operator, adjoint: Operator, factor: DenseFactor, penalty: float
    ) -> None:
        self.product, self.adjoint, self.factor, self.penalty = product, adjoint, factor, penalty

    @classmethod
    def of(
        cls, product: Operator, adjoint: Operator, inner: Tensor, penalty: float
    ) -> LowRankInverse:
        """Factorise ``BᵀB + λI``."""
        return cls(product, adjoint, DenseFactor(inner, penalty), penalty)

    def __call__(self, r: Tensor) -> Tensor:
        """Return ``(r − B (BᵀB + λI)⁻¹ Bᵀ r) / λ``."""
        return (r - self.product(self.factor.solve(self.adjoint(r)))) / self.penalty


class SampledRows:
    """``Bᵀ``, the centred and weighted representations of sampled rows of all processes."""

    def __init__(
        self,
        representation: Representation,
        rows: RowsOf,
        weights: Tensor,
        weight_sum: float,
        feature_mean: Tensor | None,
        ranks: Ranks,
        most_bytes: float,
        share: int = 4,
    ) -> None:
        self.representation, self.mean = representation, feature_mean
        self.rows, s = _gather(representation, rows, weights, ranks, most_bytes, share)
        ratio = weight_sum / max(float(s.double().sum()), 1e-300)
        self.root = (s.double() * ratio).sqrt()[:, None].to(self.rows.x)
        self._inner: Tensor | None = None
        self.shift: Tensor | None = None
        if feature_mean is not None and len(self.rows):
            mean = feature_mean.to(self.rows.x)
            q = representation.apply(self.rows, mean[:, None]).double()
            self.shift = (q - feature_mean.double().square().sum() / 2).to(mean)

    def __len__(self) -> int:
        return len(self.rows)

    def inner(self, count: int) -> Tensor:
        """Return ``BᵀB`` of the first rows."""
        kernel = self.representation.gram(self.rows[:count])
        if self.shift is not None:
            kernel -= self.shift[:count] + self.shift[:count].t()
        return kernel.mul_(self.root[:count]).mul_(self.root[:count].t())

    def share_needed(self, penalty: float) -> float:
        """Return the effective dimension of a few rows, as a part of their number."""
        rows = min(SETTINGS.probed, len(self))
        penalty *= rows / len(self)
        try:
            factor = DenseFactor(self.inner(rows), penalty)
        except SingularError:
            return math.inf
        g = _random_signs(rows, self.root)
        return 1 - penalty * float((g.double() * factor.solve(g)).sum(0).mean()) / rows

    def inverse(self, penalty: float) -> LowRankInverse | None:
        """Return ``(B Bᵀ + λI)⁻¹``, or None if the sample is too ill-conditioned."""
        if self._inner is None:
            self._inner = self.inner(len(self))
        try:
            return LowRankInverse.of(self._product, self._adjoint, self._inner, penalty)
        except SingularError:
            return None

    def _adjoint(self, r: Tensor) -> Tensor:
        image = self.representation.apply(self.rows, r)
        if self.mean is not None:
            image = image - self.mean.to(r) @ r
        return image * self.root

    def _product(self, v: Tensor) -> Tensor:
        v = v * self.root
        back = self.representation.adjoint(self.rows, v)
        if self.mean is not None:
            back = back - self.mean.to(v)[:, None] * v.sum(0)
        return back


def _random_signs(length: int, like: Tensor, count: int = 16) -> Tensor:
    """Return columns g of ±1, for Hutchinson's estimator ``tr A ≈ mean gᵀ A g``."""
    generator = torch.Generator("cpu").manual_seed(0)
    bits = torch.randint(0, 2, (length, count), generator=generator, device="cpu")
    return bits.mul_(2).sub_(1).to(like)


def sample_size(rows: float, inputs: int, features: int, most_bytes: float, size: int) -> int:
    """Return how many rows to sample, within a memory budget.

    m rows take ``m · inputs`` numbers, and two and a half matrices of ``m²``.
    """
    numbers = max(0.0, most_bytes) / size
    fitting = ((inputs**2 + 10 * numbers) ** 0.5 - inputs) / 5
    return int(min(SETTINGS.most, rows, 4 * features, fitting))


def _gather(
    representation: Representation,
    rows: RowsOf,
    weights: Tensor,
    ranks: Ranks,
    most_bytes: float,
    share: int,
) -> tuple[RowsOf, Tensor]:
    """Return one of ``share`` rows of all processes at most: inputs with gates, and weights.

    Each process fills places of its own in tensors of zeros, whose sum then holds all rows.
    """
    used = (weights > 0).nonzero().flatten()
    counts = torch.zeros(ranks.count, dtype=torch.float64, device=weights.device)
    counts[ranks.rank] = len(used)
    counts = ranks.total(counts)
    total = float(counts.sum())
    sizes = representation.in_features, representation.features
    size = sample_size(total / share, *sizes, most_bytes, weights.element_size())
    shares = (counts * (size / max(1.0, total))).floor().long()
    start = int(shares[: ranks.rank].sum())
    mine = slice(start, start + int(shares[ranks.rank]))
    generator = torch.Generator("cpu").manual_seed(0)
    order = torch.randperm(len(used), generator=generator, device="cpu")
    chosen = used[order[: int(shares[ranks.rank])].to(used.device)]
    picked = rows[chosen]
    kept = []
    parts: Sequence[Tensor] = (picked.x, *picked.gates, weights[chosen, None])
    for part in parts:
        block = weights.new_zeros(int(shares.sum()), part.shape[1])
        block[mine] = part.to(block)
        kept.append(ranks.total(block))
    x, *gates, s = kept
    return RowsOf(x, tuple(h > 0 for h in gates)), s[:, 0]
