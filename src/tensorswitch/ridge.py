"""One-pass ridge regression: the readout of a TS network with fixed gates, solved exactly, at any depth.

    W = argmin Σ_b s_b ‖Wᵀ z_b − t_b‖² + λ ‖W‖²,        z = h_L ⊗ … ⊗ h_1 ⊗ x

Three solvers, one answer:

- :class:`RidgeStatistics` (*streaming*) sums ``C = Σ s z zᵀ`` and ``S = Σ s z tᵀ`` over data that streams past once; two of them can be merged.
- :func:`solve_matrix_free` runs conjugate gradients on data at hand: two switched maps an iteration, no Gram matrix.
- :func:`solve_dual` is for few rows: ``K = (X Xᵀ) ∘ Π_l (H_l H_lᵀ)``, so that depth costs nothing.

``alpha="mean"`` takes the paper's λ, the mean of the diagonal of ``C``.
"""

from __future__ import annotations

import json
import logging
import math
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from tensorswitch._checks import check_dtype_device, check_floating, check_shape
from tensorswitch._gram import add_gram, packed_shape, pair_index, unpack
from tensorswitch._progress import progress_bar
from tensorswitch.inverted import combine_gates
from tensorswitch.switched import switched_linear, switched_outer

__all__ = ["RidgeStatistics", "Solution", "apply_readout", "deep_gates", "mean_diagonal", "solve_dual", "solve_matrix_free"]

log = logging.getLogger(__name__)

BLOCK_BYTES = 1 << 26  # of expanded errors held at a time
GRAM_ROWS = 1 << 16


class Solution(NamedTuple):
    """``weight`` is (n_L, …, n_1, n_0, out), as in :class:`tensorswitch.TensorSwitching`."""

    weight: Tensor
    alpha: float
    iterations: int = 0
    residual: float = 0.0


def deep_gates(x: Tensor, gate_weights: Sequence[Tensor]) -> list[Tensor]:
    """The gates of each layer, boolean (rows, n_l), which follow the ReLU network of the gate weights."""
    gates = []
    for w in gate_weights:
        x = (x @ w.t()).relu()
        gates.append(x > 0)
    return gates


def apply_readout(x: Tensor, gate_weights: Sequence[Tensor], weight: Tensor) -> Tensor:
    """``Wᵀ z`` for each row: (rows, out)."""
    return _Map(x, gate_weights, None).forward(_inner_first(weight))


def mean_diagonal(x: Tensor, gates: Sequence[Tensor], sample_weight: Tensor | None = None) -> float:
    """The mean of the diagonal of ``Σ s z zᵀ``."""
    energy = x.double().square().sum(1)
    for h in gates:
        energy *= h.sum(1)
    if sample_weight is not None:
        energy *= sample_weight
    return float(energy.sum()) / (x.shape[1] * math.prod(h.shape[1] for h in gates))


class RidgeStatistics:
    """Mergeable sufficient statistics of ridge regression on a TS representation.

    Parameters
    ----------
    gate_weights : for each layer (n_l, n_{l-1}), fixed
    out_features : columns of the targets
    dtype : type of the sums; float32 is good to a relative 1e-4 for up to thousands of updates, float64 takes twice the memory
    forgetting : factor on what was summed before, applied at each update, for streams that drift

    >>> statistics = RidgeStatistics([torch.randn(8, 4)], 1)
    >>> x = torch.randn(100, 4)
    >>> statistics.update(x, x[:, :1]).solve().weight.shape
    torch.Size([8, 4, 1])
    """

    def __init__(self, gate_weights: Sequence[Tensor], out_features: int, *, dtype: torch.dtype = torch.float32, forgetting: float = 1.0) -> None:
        if not gate_weights:
            raise ValueError("gate_weights must hold at least one layer")
        if not 0 < forgetting <= 1:
            raise ValueError(f"forgetting must be above 0 and at most 1, got {forgetting}")
        self.gate_weights = [w.detach().clone() for w in gate_weights]
        for below, w in zip(self.gate_weights, self.gate_weights[1:], strict=False):
            check_shape("gate_weights", w, (None, len(below)), "(gates, gates below)")
        self.out_features, self.forgetting = out_features, forgetting
        self.in_features = self.gate_weights[0].shape[1]
        self.units = math.prod(len(w) for w in self.gate_weights)
        device = self.gate_weights[0].device
        self.gram = torch.zeros(packed_shape(self.units, self.in_features), dtype=dtype, device=device)
        self.cross = torch.zeros(self.units, self.in_features, out_features, dtype=dtype, device=device)
        self.target_energy = torch.zeros(out_features, dtype=torch.float64, device=device)
        self.rows = 0.0
        self._torn = False

    def update(self, x: Tensor, targets: Tensor, sample_weight: Tensor | None = None) -> RidgeStatistics:
        """Add rows ``x`` (rows, in_features) with ``targets`` (rows, out_features). Nothing changes if they are refused."""
        self._check_whole()
        _check_rows(x, targets, sample_weight, self.in_features, self.out_features)
        check_dtype_device("x", x, "gate_weights", self.gate_weights[0])
        self._torn = True
        if self.forgetting < 1:
            for total in (self.gram, self.cross, self.target_energy):
                total *= self.forgetting
            self.rows *= self.forgetting
        for start in range(0, len(x), GRAM_ROWS):
            part = slice(start, start + GRAM_ROWS)
            rows, goal = x[part], targets[part]
            gates = combine_gates(deep_gates(rows, self.gate_weights))
            s = None if sample_weight is None else sample_weight[part, None]
            add_gram(self.gram, rows if s is None else rows * s.sqrt(), gates)
            weighted = goal if s is None else goal * s
            self.cross += switched_outer(rows, gates, weighted)
            self.target_energy += (goal.double() * weighted).sum(0)
            self.rows += float(len(rows) if s is None else s.sum())
        self._torn = False
        return self

    def merge(self, other: RidgeStatistics) -> RidgeStatistics:
        """Add what another one has summed over other rows with the same gates."""
        self._check_whole()
        other._check_whole()
        same = len(self.gate_weights) == len(other.gate_weights)
        if not same or any(not torch.equal(a, b) for a, b in zip(self.gate_weights, other.gate_weights, strict=True)):
            raise ValueError("the statistics were summed with different gate weights and cannot be merged")
        if self.out_features != other.out_features:
            raise ValueError(f"out_features differ: {self.out_features} and {other.out_features}")
        for mine, theirs in zip(self._sums(), other._sums(), strict=True):
            mine += theirs
        self.rows += other.rows
        return self

    def all_reduce(self) -> RidgeStatistics:
        """Sum over all ranks of ``torch.distributed``, each of which has updated with its own rows."""
        from torch import distributed

        self._check_whole()
        self._torn = True
        for total in self._sums():
            distributed.all_reduce(total)
        count = torch.tensor(self.rows, dtype=torch.float64)
        distributed.all_reduce(count)
        self.rows = float(count)
        self._torn = False
        return self

    def mean_diagonal(self) -> float:
        """The paper's λ."""
        own = pair_index(self.units, self.gram.device).diagonal()
        square = pair_index(self.in_features, self.gram.device).diagonal()
        return float(self.gram[own][:, square].double().mean())

    def solve(self, alpha: float | str = "mean") -> Solution:
        """``(C + λI)⁻¹ S`` by Cholesky's factorisation."""
        self._check_whole()
        if not self.rows:
            raise ValueError("nothing to solve: no rows have been added yet")
        value = _check_alpha(alpha, self.mean_diagonal())
        matrix = unpack(self.gram, self.units, self.in_features)
        matrix.diagonal().add_(value)
        weight = _cholesky_solve(matrix, self.cross.flatten(0, 1))
        return Solution(weight.view(*self._shape()), value)

    def save(self, path: str | Path) -> None:
        """Write as safetensors: whole or not at all."""
        from safetensors.torch import save_file

        self._check_whole()
        tensors = {"gram": self.gram, "cross": self.cross, "target_energy": self.target_energy}
        tensors.update({f"gate_weight.{i}": w for i, w in enumerate(self.gate_weights)})
        meta = {"format": "tensorswitch.RidgeStatistics", "rows": repr(self.rows), "forgetting": repr(self.forgetting)}
        path = Path(path)
        partial = path.with_name(f"{path.name}.{os.getpid()}.part")
        try:
            save_file(tensors, partial, {"tensorswitch": json.dumps(meta)})
            partial.replace(path)
        finally:
            partial.unlink(missing_ok=True)

    @classmethod
    def load(cls, path: str | Path) -> RidgeStatistics:
        """Read what :meth:`save` wrote."""
        from safetensors import SafetensorError, safe_open

        try:
            with safe_open(path, "pt") as file:
                meta = json.loads((file.metadata() or {}).get("tensorswitch", "{}"))
                if meta.get("format") != "tensorswitch.RidgeStatistics":
                    raise ValueError(f"{path} does not hold ridge statistics")
                tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
        except SafetensorError as error:
            raise ValueError(f"{path} is not a whole safetensors file: {error}") from error
        weights = [tensors[f"gate_weight.{i}"] for i in range(len(tensors) - 3)]
        result = cls(weights, tensors["cross"].shape[2], dtype=tensors["gram"].dtype, forgetting=float(meta["forgetting"]))
        result.gram, result.cross, result.target_energy = tensors["gram"], tensors["cross"], tensors["target_energy"]
        result.rows = float(meta["rows"])
        return result

    def _sums(self) -> tuple[Tensor, Tensor, Tensor]:
        return self.gram, self.cross, self.target_energy

    def _shape(self) -> tuple[int, ...]:
        return (*(len(w) for w in reversed(self.gate_weights)), self.in_features, self.out_features)

    def _check_whole(self) -> None:
        if self._torn:
            raise RuntimeError("an update was interrupted half-way, so the sums are no longer whole; start again, or load a saved state")


@torch.no_grad()
def solve_matrix_free(
    x: Tensor,
    targets: Tensor,
    gate_weights: Sequence[Tensor],
    alpha: float | str = "mean",
    *,
    sample_weight: Tensor | None = None,
    tol: float = 1e-3,
    max_iter: int = 500,
    start: Tensor | None = None,
    distributed: bool = False,
    progress: bool = False,
) -> Solution:
    """Preconditioned conjugate gradients on ``(ZᵀZ + λI) W = Zᵀ T``, all outputs at once.

    Parameters
    ----------
    x, targets : (rows, n_0) and (rows, out)
    gate_weights : for each layer (n_l, n_{l-1})
    alpha : λ, or "mean"
    sample_weight : (rows,)
    tol : stop when the residual is this small relative to ``Zᵀ T``, for every output
    max_iter : or after so many iterations, with a warning in the log
    start : weights to start from, such as those of a neighbouring λ
    distributed : each rank of ``torch.distributed`` has its own rows; all get the same answer
    progress : show a bar with the residual

    The preconditioner takes gates and inputs for independent, which makes the Gram matrix a Kronecker product of one small matrix for each layer:
    its inverse costs next to nothing and takes care of the directions that all units share.
    """
    _check_rows(x, targets, sample_weight, gate_weights[0].shape[1], targets.shape[1] if targets.dim() == 2 else 0)
    total = _all_reduce if distributed else _alone
    z = _Map(x, gate_weights, sample_weight)
    energy = torch.tensor([mean_diagonal(x, z.gates, sample_weight)], dtype=torch.float64)
    value = _check_alpha(alpha, float(total(energy)))
    precondition = _kronecker_preconditioner(x, z.gates, sample_weight, value, total)
    goal = total(z.adjoint(targets))
    scale = goal.flatten(0, -2).norm(dim=0).clamp_min(torch.finfo(x.dtype).tiny)
    if start is None:
        weight, residual = torch.zeros_like(goal), goal.clone()
    else:
        weight = _inner_first(start).clone()
        residual = goal - total(z.normal(weight)) - value * weight
    direction = precondition(residual)
    steepness = _dot(residual, direction)
    worst, iteration = float((residual.flatten(0, -2).norm(dim=0) / scale).max()), 0
    with progress_bar("conjugate gradients", progress) as bar:
        while worst > tol and iteration < max_iter:
            image = total(z.normal(direction)).add_(direction, alpha=value)
            step = steepness / _dot(direction, image).clamp_min(torch.finfo(x.dtype).tiny)
            weight += step * direction
            residual -= step * image
            ready = precondition(residual)
            new = _dot(residual, ready)
            direction = ready + (new / steepness.clamp_min(torch.finfo(x.dtype).tiny)) * direction
            steepness = new
            iteration += 1
            worst = float((residual.flatten(0, -2).norm(dim=0) / scale).max())
            bar(f"residual {worst:.1e}")
    if worst > tol:
        log.warning("conjugate gradients stopped after %d iterations at a residual of %.1e, not the %.1e asked for", iteration, worst, tol)
    return Solution(_outer_first(weight, [len(w) for w in gate_weights]), value, iteration, worst)


@torch.no_grad()
def solve_dual(
    x: Tensor, targets: Tensor, gate_weights: Sequence[Tensor], alpha: float | str = "mean", *, sample_weight: Tensor | None = None
) -> Solution:
    """Exact solution in the space of the rows: ``W = Zᵀ (K + λI)⁻¹ T``, in float64."""
    _check_rows(x, targets, sample_weight, gate_weights[0].shape[1], targets.shape[1] if targets.dim() == 2 else 0)
    z = _Map(x, gate_weights, None)
    value = _check_alpha(alpha, mean_diagonal(x, z.gates, sample_weight))
    root = None if sample_weight is None else sample_weight.double().sqrt()[:, None]
    rows = x.double() if root is None else x.double() * root
    kernel = rows @ rows.t()
    for h in z.gates:
        kernel *= h.double() @ h.double().t()
    kernel.diagonal().add_(value)
    goal = targets.double() if root is None else targets.double() * root
    dual = _cholesky_solve(kernel, goal)
    weight = z.adjoint((dual if root is None else dual * root).to(x.dtype))
    return Solution(_outer_first(weight, [len(w) for w in gate_weights]), value)


class _Map:
    """``Z`` as a linear map, for weights in the order (n_1, n_0, n_L, …, n_2, out): a switched linear map, then the gates above."""

    def __init__(self, x: Tensor, gate_weights: Sequence[Tensor], sample_weight: Tensor | None) -> None:
        self.x, self.sample_weight = x, sample_weight
        self.gates = deep_gates(x, gate_weights)
        self.above = combine_gates(self.gates[1:]) if len(self.gates) > 1 else None

    def forward(self, weight: Tensor) -> Tensor:
        return torch.cat([self._forward(part, weight.flatten(2)) for part in self._parts(weight.shape[-1])])

    def adjoint(self, errors: Tensor) -> Tensor:
        return self._sum(errors.shape[1], lambda part: errors[part])

    def normal(self, weight: Tensor) -> Tensor:
        """``Zᵀ diag(s) Z W``, block by block."""
        flat = weight.flatten(2)
        return self._sum(weight.shape[-1], lambda part: self._forward(part, flat))

    def _sum(self, out: int, errors: Callable[[slice], Tensor]) -> Tensor:
        above = 1 if self.above is None else self.above.shape[1]
        result = self.x.new_zeros(self.gates[0].shape[1], self.x.shape[1], above * out)
        for part in self._parts(out):
            r = errors(part)
            if self.sample_weight is not None:
                r = r * self.sample_weight[part, None]
            if self.above is not None:
                r = (self.above[part, :, None] * r[:, None, :]).flatten(1)
            result += switched_outer(self.x[part], self.gates[0][part], r)
        return result.view(*result.shape[:2], above, out)

    def _forward(self, part: slice, weight: Tensor) -> Tensor:
        y = switched_linear(self.x[part], self.gates[0][part], weight)
        if self.above is None:
            return y
        above = self.above[part]
        return torch.bmm(above.to(y.dtype).unsqueeze(1), y.view(len(y), above.shape[1], -1)).squeeze(1)

    def _parts(self, out: int) -> list[slice]:
        width = out * (1 if self.above is None else self.above.shape[1])
        step = max(64, min(8192, BLOCK_BYTES // (width * self.x.element_size())))
        return [slice(s, s + step) for s in range(0, max(1, len(self.x)), step)]


def _inner_first(weight: Tensor) -> Tensor:
    """(n_L, …, n_2, n_1, n_0, out) to (n_1, n_0, n_L · … · n_2, out)."""
    *_, n1, n0, out = weight.shape
    return weight.reshape(-1, n1, n0, out).permute(1, 2, 0, 3).contiguous()


def _outer_first(weight: Tensor, gates: Sequence[int]) -> Tensor:
    """The reverse of :func:`_inner_first`."""
    n1, n0, _, out = weight.shape
    return weight.permute(2, 0, 1, 3).reshape(*reversed(gates[1:]), n1, n0, out)


def _dot(a: Tensor, b: Tensor) -> Tensor:
    """The scalar product of each output."""
    return (a * b).flatten(0, -2).sum(0)


def _kronecker_preconditioner(
    x: Tensor, gates: Sequence[Tensor], sample_weight: Tensor | None, alpha: float, total: Callable[[Tensor], Tensor]
) -> Callable[[Tensor], Tensor]:
    """``(A_1 ⊗ Σ ⊗ A_above + λI)⁻¹`` with ``Σ = Σ_b s x xᵀ`` and ``A`` the mean of ``h hᵀ``, through the eigenvectors of each."""
    s = x.new_ones(len(x)) if sample_weight is None else sample_weight
    weight = float(total(s.double().sum()[None]))
    above = combine_gates(gates[1:]).to(x.dtype) if len(gates) > 1 else x.new_ones(len(x), 1)
    factors = []
    for rows, count in ((gates[0].to(x.dtype), weight), (x, 1.0), (above, weight)):
        moment = total((rows * s[:, None]).t() @ rows).double() / max(count, 1e-300)
        values, vectors = torch.linalg.eigh(moment)
        factors.append((values.clamp_min(0).to(x.dtype), vectors.to(x.dtype)))
    (u, p), (v, q), (t, r) = factors
    spectrum = (u[:, None, None] * v[:, None] * t + alpha).unsqueeze(-1)

    def rotate(w: Tensor, a: Tensor, b: Tensor, c: Tensor) -> Tensor:
        w = (a @ w.flatten(1)).view(w.shape)
        w = torch.matmul(b, w.flatten(2)).view(w.shape)
        result: Tensor = torch.matmul(c, w) if len(c) > 1 else w * c
        return result

    return lambda w: rotate(rotate(w, p.t(), q.t(), r.t()) / spectrum, p, q, r)


def _cholesky_solve(matrix: Tensor, right: Tensor) -> Tensor:
    factor, failed = torch.linalg.cholesky_ex(matrix)
    if int(failed):
        raise ValueError("the system is singular to working precision; use a larger alpha, or dtype=torch.float64")
    return torch.cholesky_solve(right.to(matrix.dtype), factor)


def _check_alpha(alpha: float | str, mean: float) -> float:
    if alpha == "mean":
        return mean if mean > 0 else 1.0
    if isinstance(alpha, str) or not math.isfinite(alpha) or alpha < 0:
        raise ValueError(f"alpha must be 'mean' or a number of at least 0, got {alpha!r}")
    return float(alpha)


def _check_rows(x: Tensor, targets: Tensor, sample_weight: Tensor | None, n_in: int, n_out: int) -> None:
    check_floating("x", x)
    check_shape("x", x, (None, n_in), "(rows, in_features)")
    check_shape("targets", targets, (len(x), n_out), "(rows, out_features)")
    check_dtype_device("targets", targets, "x", x)
    for name, tensor in (("x", x), ("targets", targets), ("sample_weight", sample_weight)):
        if tensor is not None and not tensor.isfinite().all():
            raise ValueError(f"{name} contains NaN or infinity")
    if sample_weight is not None:
        check_shape("sample_weight", sample_weight, (len(x),), "(rows,)")
        if (sample_weight < 0).any():
            raise ValueError("sample_weight must not be negative")


def _alone(tensor: Tensor) -> Tensor:
    return tensor


def _all_reduce(tensor: Tensor) -> Tensor:
    from torch import distributed

    distributed.all_reduce(tensor)
    return tensor
