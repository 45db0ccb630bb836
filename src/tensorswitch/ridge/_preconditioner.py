"""Preconditioners of conjugate gradients: a Kronecker product, and sampled rows.

*Kronecker.* With inputs and gates taken as independent, ``C ≈ A_1 ⊗ Σ ⊗ A_above``, whose inverse is
applied in the eigenbasis of its factors.

*Sampled rows.* With B the centred representations of m random rows, each times ``√(s n / n_m)``,

    P = BᵀB + λI,        P⁻¹ r = (r − Bᵀ (BBᵀ + λI)⁻¹ B r) / λ

where ``BBᵀ = (X_m X_mᵀ) ∘ Π_l (H_l H_lᵀ)``, centred, is cheap at any depth. It is good if m is
larger than the effective dimension ``tr BBᵀ (BBᵀ + λI)⁻¹`` of all rows; if that of a small sample
is close to its size, m would have to be far larger, and the Kronecker product is better. On MNIST
with 64 components, this share of 2,000 rows is 0.92 for 256 gates and 0.996 for 4,096, at a tenth
of the mean.
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
PROBED = 2_000  # rows whose effective dimension says whether sampling pays
LEAST_SAMPLED = 50  # with fewer, it is not worth the trouble
FULL = 0.95  # of these rows: with a larger dimension, far more rows would be needed


def sample_size(rows: float, inputs: int, features: int, most_bytes: float, size: int) -> int:
    """Return how many rows to sample, within a memory budget.

    m rows take ``m · inputs`` numbers, and two and a half matrices of ``m²``.
    """
    numbers = max(0.0, most_bytes) / size
    fitting = ((inputs**2 + 10 * numbers) ** 0.5 - inputs) / 5
    return int(min(MOST_SAMPLED, rows, 4 * features, fitting))


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
    most_bytes : float, default=inf
        Memory that sampled rows may take.
    """

    def __init__(
        self,
        z: ReadoutMap,
        weights: Tensor,
        weight_sum: float,
        feature_mean: Tensor | None,
        total: Total,
        kind: str,
        most_bytes: float = math.inf,
    ) -> None:
        if kind not in KINDS:
            known = ", ".join(map(repr, KINDS))
            raise ValueError(f"preconditioner must be one of {known}, got {kind!r}")
        self.z, self.weights, self.weight_sum = z, weights, weight_sum
        self.feature_mean, self.total, self.kind = feature_mean, total, kind
        self.most_bytes = most_bytes
        self._sample: _Sample | None = None
        self._kronecker: Callable[[float], Operator] | None = None

    def __call__(self, shift: float) -> Operator:
        """Return ``P⁻¹`` for λ = shift."""
        if self.kind != "kronecker" and shift > 0:
            sampled = self._sampled(shift)
            if sampled is not None:
                return sampled
        if not self.z.independent:
            return lambda r: r
        if self._kronecker is None:
            self._kronecker = kronecker_inverse(
                self.z.x, self.z.gates, self.weights, self.weight_sum, self.total
            )
        return self._kronecker(shift)

    def _sampled(self, shift: float) -> Operator | None:
        if self._sample is None:
            self._sample = _Sample(
                self.z,
                self.weights,
                self.weight_sum,
                self.feature_mean,
                self.total,
                self.most_bytes,
            )
        sample = self._sample
        if sample.rows < (LEAST_SAMPLED if self.z.independent else 1):
            return None
        share = sample.dimension(shift, PROBED) / min(PROBED, sample.rows)
        pays = share <= FULL or self.kind == "sampled"
        log.info(
            "the effective dimension of sampled rows is %.3f of their number: %s",
            share,
            f"{sample.rows} are the preconditioner" if pays else "too many would be needed",
        )
        factor = sample.factorise(shift) if pays else None
        return None if factor is None else lambda r: sample.apply(factor, shift, r)


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
        most_bytes: float,
    ) -> None:
        x, gates, s = _gather(z, weights, total, most_bytes)
        self.rows, self.mean = len(x), feature_mean
        self.z = ReadoutMap(x, gates, None)
        self.ratio = weight_sum / max(float(s.double().sum()), 1e-300)
        self.root = (s.double() * self.ratio).sqrt()[:, None].to(x)
        self._kernel: Tensor | None = None
        self.shift: Tensor | None = None
        if feature_mean is not None and len(x):
            q = self.z.forward(feature_mean.to(x)).double()
            self.shift = (q - feature_mean.double().square().sum() / 2).to(x)

    def kernel(self, rows: int) -> Tensor:
        """Return ``BBᵀ`` of the first rows."""
        x = self.z.x[:rows]
        kernel = x @ x.t()
        for h in self.z.gates:
            layer = h[:rows].to(x.dtype)
            kernel *= layer @ layer.t()
        if self.shift is not None:
            kernel -= self.shift[:rows] + self.shift[:rows].t()
        return kernel.mul_(self.root[:rows]).mul_(self.root[:rows].t())

    def dimension(self, shift: float, rows: int) -> float:
        """Return the effective dimension of the first rows, as if there were no others."""
        rows = min(rows, self.rows)
        matrix = self.kernel(rows)
        shift *= rows / self.rows
        matrix.diagonal().add_(shift)
        factor, info = torch.linalg.cholesky_ex(matrix)
        if int(info):
            return math.inf
        g = probes(rows, factor)
        return rows - shift * float((g.double() * torch.cholesky_solve(g, factor)).sum(0).mean())

    def factorise(self, shift: float) -> Tensor | None:
        """Return the Cholesky factor of ``BBᵀ + λI``, None if it fails."""
        if self._kernel is None:
            self._kernel = self.kernel(self.rows)
        matrix = self._kernel.clone()
        matrix.diagonal().add_(shift)
        info = torch.empty((), dtype=torch.int32, device=matrix.device)
        torch.linalg.cholesky_ex(matrix, out=(matrix, info))
        return None if int(info) else matrix

    def apply(self, factor: Tensor, shift: float, r: Tensor) -> Tensor:
        """Return ``(r − Bᵀ (BBᵀ + λI)⁻¹ B r) / λ``."""
        image = self.z.forward(r)
        if self.mean is not None:
            mean = self.mean.to(r).flatten()
            image -= mean @ r.flatten(0, -2)
        # A third of the time of torch.cholesky_solve, which copies the factor.
        half = torch.linalg.solve_triangular(factor, image * self.root, upper=False)
        v = torch.linalg.solve_triangular(factor.mT, half, upper=True) * self.root
        back = self.z.adjoint(v)
        if self.mean is not None:
            back -= (mean[:, None] * v.sum(0)).view(back.shape)
        return (r - back) / shift


def _gather(
    z: ReadoutMap, weights: Tensor, total: Total, most_bytes: float
) -> tuple[Tensor, list[Tensor], Tensor]:
    """Return sampled rows of all processes: inputs, gates and weights.

    Each process fills places of its own in tensors of zeros, whose sum then holds all rows.
    """
    used = (weights > 0).nonzero().flatten()
    counts = torch.zeros(total.size, dtype=torch.float64, device=weights.device)
    counts[total.rank] = len(used)
    rows = total(counts)
    sizes = z.sizes[0], math.prod(z.sizes)
    # Without gates there is no other preconditioner, and more rows are worth their time.
    most = float(rows.sum()) / (4 if z.independent else 1)
    size = sample_size(most, *sizes, most_bytes, z.like.element_size())
    shares = (rows * (size / max(1.0, float(rows.sum())))).floor().long()
    start = int(shares[: total.rank].sum())
    mine = slice(start, start + int(shares[total.rank]))
    generator = torch.Generator("cpu").manual_seed(0)
    order = torch.randperm(len(used), generator=generator, device="cpu")
    chosen = used[order[: int(shares[total.rank])].to(used.device)]
    kept = []
    for part in (*z.rows(chosen), weights[chosen, None]):
        block = z.like.new_zeros(int(shares.sum()), part.shape[1])
        block[mine] = part.to(block)
        kept.append(total(block))
    x, *gates, s = kept
    return x, [h > 0 for h in gates], s[:, 0]
