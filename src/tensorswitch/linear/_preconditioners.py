"""Preconditioners of conjugate gradients: sampled rows, or the Kronecker product.

Sampled rows give a matrix of low rank plus a multiple of the identity,

    (B Bᵀ + λI)⁻¹ r = (r − B (BᵀB + λI)⁻¹ Bᵀ r) / λ

In the features, ``Bᵀ`` are m sampled rows of the centred representation, each times
``√(s n / n_m)``, where n and n_m are the sums of the weights of all and of the sampled rows, and
``BᵀB = φ(X_m) φ(X_m)ᵀ`` is cheap at any depth. In the rows, ``B = A_nm L⁻ᵀ`` with ``A_mm = L Lᵀ``.
Both are good if m is larger than the effective dimension ``tr BᵀB (BᵀB + λI)⁻¹`` of all rows. If
that of a small sample is close to its size, m would have to be far larger: on MNIST with 64
components, this share of 2,000 rows is 0.92 for 256 gates and 0.996 for 4,096, at a tenth of the
mean.

The Kronecker product takes inputs and gates as independent,

    C ≈ A_above ⊗ A_1 ⊗ Σ,        A = mean of h hᵀ,    Σ = Σ_b s x xᵀ

Its inverse is applied in the eigenbasis of its factors. It is cheap at any size, and handles the
directions that all units share.

References
----------
Rudi, Carratino and Rosasco, FALKON: An Optimal Large Scale Kernel Method, NeurIPS 2017.
Frangella, Tropp and Udell, Randomized Nyström Preconditioning, SIAM J. Matrix Anal. Appl. 2023.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from tensorswitch.linear._cg import Operator
from tensorswitch.linear._cholesky import DenseFactor, SingularError
from tensorswitch.linear._ranks import Ranks
from tensorswitch.linear._representation import Representation, RowsOf
from tensorswitch.switches import combine_gates


@dataclass(frozen=True)
class Settings:
    """Sizes of samples, chosen by ``benchmarks.ridge preconditioners`` on MNIST.

    ``most`` rows are sampled at most. The effective dimension of ``probed`` rows says whether
    sampling pays: not if it is more than ``full`` of them, nor with fewer than ``least`` rows.
    """

    most: int = 8_192
    probed: int = 2_000
    least: int = 50
    full: float = 0.95


SETTINGS = Settings()


def low_rank_inverse(
    product: Operator, adjoint: Operator, inner: Tensor, penalty: float
) -> Operator:
    """Return ``r ↦ (B Bᵀ + λI)⁻¹ r`` from ``v ↦ B v``, ``r ↦ Bᵀ r`` and ``BᵀB``."""
    factor = DenseFactor(inner, penalty)
    return lambda r: (r - product(factor.solve(adjoint(r)))) / penalty


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
        share: int,
    ) -> None:
        self.representation, self.mean = representation, feature_mean
        self.rows, s = self._gather(rows, weights, ranks, most_bytes, share)
        ratio = weight_sum / max(float(s.double().sum()), 1e-300)
        self.root = (s.double() * ratio).sqrt()[:, None].to(self.rows.x)
        self._inner: Tensor | None = None
        self.shift: Tensor | None = None
        if feature_mean is not None and len(self.rows):
            mean = feature_mean.to(self.rows.x)
            q = representation.apply(self.rows, mean[:, None]).double()
            self.shift = (q - feature_mean.double().square().sum() / 2).to(mean)

    def _gather(
        self, rows: RowsOf, weights: Tensor, ranks: Ranks, most_bytes: float, share: int
    ) -> tuple[RowsOf, Tensor]:
        """Return one of ``share`` rows of all processes at most: inputs with gates, and weights."""
        used = (weights > 0).nonzero().flatten()
        counts = torch.zeros(ranks.count, dtype=torch.float64, device=weights.device)
        counts[ranks.rank] = len(used)
        counts = ranks.total(counts)
        total, inputs = float(counts.sum()), self.representation.in_features
        # m rows take ``m · inputs`` numbers, and two and a half matrices of ``m²``.
        numbers = max(0.0, most_bytes) / weights.element_size()
        fitting = ((inputs**2 + 10 * numbers) ** 0.5 - inputs) / 5  # the m for which they fit
        size = int(min(SETTINGS.most, total / share, 4 * self.representation.features, fitting))
        shares = (counts * (size / max(1.0, total))).floor().long()
        start, count = int(shares[: ranks.rank].sum()), int(shares[ranks.rank])
        generator = torch.Generator("cpu").manual_seed(0)
        order = torch.randperm(len(used), generator=generator, device="cpu")
        chosen = used[order[:count].to(used.device)]
        picked = rows[chosen]
        kept = []  # each process fills places of its own in zeros, whose sum then holds all rows
        for part in (picked.x, *picked.gates, weights[chosen, None]):
            block = weights.new_zeros(int(shares.sum()), part.shape[1])
            block[start : start + count] = part.to(block)
            kept.append(ranks.total(block))
        x, *gates, s = kept
        return RowsOf(x, tuple(h > 0 for h in gates)), s[:, 0]

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
        # Hutchinson's estimator: tr A ≈ mean gᵀ A g, with columns g of ±1
        generator = torch.Generator("cpu").manual_seed(0)
        bits = torch.randint(0, 2, (rows, 16), generator=generator, device="cpu")
        g = bits.mul_(2).sub_(1).to(self.root)
        return 1 - penalty * float((g.double() * factor.solve(g)).sum(0).mean()) / rows

    def inverse(self, penalty: float) -> Operator | None:
        """Return ``(B Bᵀ + λI)⁻¹``, or None if the sample is too ill-conditioned."""
        if self._inner is None:
            self._inner = self.inner(len(self))
        try:
            return low_rank_inverse(self._product, self._adjoint, self._inner, penalty)
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


def kronecker_inverse(
    rows: RowsOf, sample_weight: Tensor, weight_sum: float, ranks: Ranks
) -> Callable[[float], Operator]:
    """Return a function from λ to ``(A_above ⊗ A_1 ⊗ Σ + λI)⁻¹`` on weights (features, out)."""
    x, first = rows.x, rows.gates[0].to(rows.x.dtype)
    several = len(rows.gates) > 1
    above = combine_gates(rows.gates[1:]).to(x.dtype) if several else x.new_ones(len(x), 1)
    values, bases = [], []
    for part, count in ((above, weight_sum), (first, weight_sum), (x, 1.0)):
        moment = ranks.total((part * sample_weight[:, None]).t() @ part).double()
        try:
            found, vectors = torch.linalg.eigh(moment / max(count, 1e-300))
        except RuntimeError as error:  # LinAlgError is a RuntimeError
            what = "the eigendecomposition of the moments of x and the gates failed"
            raise SingularError(what) from error
        values.append(found.clamp_min(0).to(x.dtype))
        bases.append(vectors.to(x.dtype))
    t, u, v = values
    r, p, q = bases

    def rotate(w: Tensor, c: Tensor, a: Tensor, b: Tensor) -> Tensor:
        w = torch.matmul(b, w.view(-1, len(b), w.shape[-1])).view(w.shape)
        w = torch.matmul(a, w.view(-1, len(a), len(b) * w.shape[-1])).view(w.shape)
        return (c @ w.view(len(c), -1)).view(w.shape) if len(c) > 1 else w * c

    def inverse(alpha: float) -> Operator:
        spectrum = (t[:, None, None] * u[:, None] * v + alpha).view(-1, 1)
        limits = torch.finfo(x.dtype)
        spectrum = spectrum.clamp_min(max(limits.tiny, limits.eps * float(spectrum.max())))
        bases = (r.t().contiguous(), p.t().contiguous(), q.t().contiguous())
        return lambda w: rotate(rotate(w, *bases) / spectrum, r, p, q)

    return inverse
