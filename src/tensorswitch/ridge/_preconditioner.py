"""Preconditioners of conjugate gradients: a Kronecker product, and sampled rows.

*Kronecker.* With inputs and gates taken as independent, ``C ≈ A_1 ⊗ Σ ⊗ A_above``, whose inverse is
applied in the eigenbasis of its factors.

*Sampled rows.* With ``B`` the centred representations of m random rows, each times ``√(s n / n_m)``,

    P = BᵀB + λI,        P⁻¹ r = (r − Bᵀ (BBᵀ + λI)⁻¹ B r) / λ

where ``BBᵀ = (X_m X_mᵀ) ∘ Π_l (H_l H_lᵀ)``, centred, is cheap at any depth. It is good if m is larger
than the effective dimension ``d = tr BBᵀ (BBᵀ + λI)⁻¹`` of a sample that is large enough; if not,
d is close to m, and the Kronecker product is better.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from tensorswitch.ridge._cholesky import SingularError
from tensorswitch.ridge._conjugate_gradients import Operator
from tensorswitch.ridge._processes import Total
from tensorswitch.ridge.gcv import probes
from tensorswitch.ridge.readout import ReadoutMap
from tensorswitch.switches import combine_gates

log = logging.getLogger("tensorswitch.ridge")

KINDS = ("auto", "kronecker", "sampled")
MOST_SAMPLED = 8_192
FULL = 0.5  # of the sample: a larger effective dimension makes it useless


def sample_size(rows: float, features: int) -> int:
    """Return how many rows to sample."""
    return int(min(MOST_SAMPLED, rows / 4, features))


def sample_bytes(rows: float, features: int, size: int) -> float:
    """Return the memory of the sampled-row preconditioner."""
    return 2.5 * sample_size(rows, features) ** 2 * size


class Preconditioner:
    """Both preconditioners of a problem, for any λ.

    Parameters
    ----------
    z : ReadoutMap
        The representation of the rows of this process.
    weights : Tensor of shape (rows,)
        Sample weights.
    weight_sum : float
        Their sum over all processes.
    feature_mean : Tensor or None
        z̄, in the layout of ``z``, if there is an intercept.
    total : callable
        Sums a tensor over all processes.
    kind : {"auto", "kronecker", "sampled"}
        Which one to use.
    """

    def __init__(
        self,
        z: ReadoutMap,
        weights: Tensor,
        weight_sum: float,
        feature_mean: Tensor | None,
        total: Total,
        kind: str,
    ) -> None:
        if kind not in KINDS:
            known = ", ".join(map(repr, KINDS))
            raise ValueError(f"preconditioner must be one of {known}, got {kind!r}")
        self.z, self.weights, self.weight_sum = z, weights, weight_sum
        self.feature_mean, self.total, self.kind = feature_mean, total, kind
        self._sample: _Sample | None = None
        self._kronecker: Callable[[float], Operator] | None = None

    def __call__(self, shift: float) -> Operator:
        """Return ``P⁻¹`` for λ = shift."""
        if self.kind != "kronecker" and shift > 0:
            sampled = self._sampled(shift)
            if sampled is not None:
                return sampled
        if self._kronecker is None:
            self._kronecker = kronecker_inverse(
                self.z.x, self.z.gates, self.weights, self.weight_sum, self.total
            )
        return self._kronecker(shift)

    def _sampled(self, shift: float) -> Operator | None:
        if self._sample is None:
            self._sample = _Sample(
                self.z, self.weights, self.weight_sum, self.feature_mean, self.total
            )
        sample = self._sample
        if sample.rows < 2:
            return None
        factor, dimension = sample.factorise(shift)
        enough = dimension <= FULL * sample.rows
        log.info(
            "%d sampled rows have an effective dimension of %.0f for this penalty: %s",
            sample.rows,
            dimension,
            "used as preconditioner" if enough or self.kind == "sampled" else "too few",
        )
        if not enough and self.kind == "auto":
            return None
        return lambda r: sample.apply(factor, shift, r)


class _Factor(NamedTuple):
    values: Tensor
    vectors: Tensor


def kronecker_inverse(
    x: Tensor, gates: Sequence[Tensor], sample_weight: Tensor, rows: float, total: Total
) -> Callable[[float], Operator]:
    """Return a function from λ to ``(A_1 ⊗ Σ ⊗ A_above + λI)⁻¹``, applied in the eigenbasis.

    ``Σ = Σ_b s x xᵀ``; the ``A`` are the means of ``h hᵀ`` of the first and of all other layers.
    """
    above = combine_gates(gates[1:]).to(x.dtype) if len(gates) > 1 else x.new_ones(len(x), 1)
    factors = []
    for part, count in ((gates[0].to(x.dtype), rows), (x, 1.0), (above, rows)):
        moment = total((part * sample_weight[:, None]).t() @ part).double() / max(count, 1e-300)
        try:
            values, vectors = torch.linalg.eigh(moment)
        except RuntimeError as error:  # LinAlgError is a RuntimeError
            raise SingularError(
                "the eigendecomposition of the moments of x and the gates failed"
            ) from error
        factors.append(_Factor(values.clamp_min(0).to(x.dtype), vectors.to(x.dtype)))
    (u, p), (v, q), (t, r) = factors

    def rotate(w: Tensor, a: Tensor, b: Tensor, c: Tensor) -> Tensor:
        w = (a @ w.flatten(1)).view(w.shape)
        w = torch.matmul(b, w.flatten(2)).view(w.shape)
        result: Tensor = torch.matmul(c, w) if len(c) > 1 else w * c
        return result

    def inverse(alpha: float) -> Operator:
        spectrum = (u[:, None, None] * v[:, None] * t + alpha).unsqueeze(-1)
        limits = torch.finfo(x.dtype)
        spectrum = spectrum.clamp_min(max(limits.tiny, limits.eps * float(spectrum.max())))
        return lambda w: rotate(rotate(w, p.t(), q.t(), r.t()) / spectrum, p, q, r)

    return inverse




class _Sample:
    """``B``, the centred and weighted representations of sampled rows of all processes."""

    def __init__(
        self,
        z: ReadoutMap,
        weights: Tensor,
        weight_sum: float,
        feature_mean: Tensor | None,
        total: Total,
    ) -> None:
        x, gates, s = _gather(z, weights, total)
        self.rows, self.mean = len(x), feature_mean
        self.z = ReadoutMap(x, gates, None)
        ratio = weight_sum / max(float(s.double().sum()), 1e-300)
        self.root = (s.double() * ratio).sqrt()[:, None]
        kernel = x @ x.t()
        for h in gates:
            kernel *= h.to(x.dtype) @ h.to(x.dtype).t()
        if feature_mean is not None:
            q = self.z.forward(feature_mean.to(x)).double()
            shift = (q - feature_mean.double().square().sum() / 2).to(x)
            kernel -= shift + shift.t()
        self.kernel = kernel.mul_(self.root.to(x)).mul_(self.root.t().to(x))
        self.root = self.root.to(x)

    def factorise(self, shift: float) -> tuple[Tensor, float]:
        """Return the Cholesky factor of ``BBᵀ + λI`` and the effective dimension."""
        matrix = self.kernel.clone()
        matrix.diagonal().add_(shift)
        factor, info = torch.linalg.cholesky_ex(matrix)
        if int(info):
            return factor, math.inf
        g = probes(self.rows, factor)
        trace = float((g.double() * torch.cholesky_solve(g, factor)).sum(0).mean())
        return factor, self.rows - shift * trace

    def apply(self, factor: Tensor, shift: float, r: Tensor) -> Tensor:
        """Return ``(r − Bᵀ (BBᵀ + λI)⁻¹ B r) / λ``."""
        image = self.z.forward(r)
        if self.mean is not None:
            mean = self.mean.to(r).flatten()
            image -= mean @ r.flatten(0, -2)
        v = torch.cholesky_solve(image * self.root, factor) * self.root
        back = self.z.adjoint(v)
        if self.mean is not None:
            back -= (mean[:, None] * v.sum(0)).view(back.shape)
        return (r - back) / shift


def _gather(
    z: ReadoutMap, weights: Tensor, total: Total
) -> tuple[Tensor, list[Tensor], Tensor]:
    """Return sampled rows of all processes: inputs, gates and weights.

    Each process fills places of its own in tensors of zeros, whose sum then holds all rows.
    """
    used = (weights > 0).nonzero().flatten()
    counts = torch.zeros(total.size, dtype=torch.float64, device=weights.device)
    counts[total.rank] = len(used)
    rows = total(counts)
    features = z.x.shape[1] * math.prod(h.shape[1] for h in z.gates)
    size = sample_size(float(rows.sum()), features)
    shares = (rows * (size / max(1.0, float(rows.sum())))).floor().long()
    start = int(shares[: total.rank].sum())
    mine = slice(start, start + int(shares[total.rank]))
    generator = torch.Generator("cpu").manual_seed(0)
    order = torch.randperm(len(used), generator=generator, device="cpu")
    chosen = used[order[: int(shares[total.rank])].to(used.device)]
    kept = []
    for part in (z.x, *z.gates, weights[:, None]):
        block = z.x.new_zeros(int(shares.sum()), part.shape[1])
        block[mine] = part[chosen].to(z.x)
        kept.append(total(block))
    x, *gates, s = kept
    return x, [h > 0 for h in gates], s[:, 0]
