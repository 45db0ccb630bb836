"""Sufficient statistics of ridge regression, summed over data that streams past once."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from tensorswitch._checks import check_dtype_device, check_positive, check_shape
from tensorswitch._files import read_tensors, write_tensors
from tensorswitch.inverted import combine_gates
from tensorswitch.ridge._cholesky import packed_rows, solve_full, solve_packed
from tensorswitch.ridge._gram import add_gram, gram_rows, packed_shape, pair_index, unpack
from tensorswitch.ridge.problem import Alpha, Fit, Solution, best_of, check_rows, deep_gates, probes

FORMAT = "tensorswitch.RidgeStatistics"
GRAM_ROWS = 1 << 16
SOLVE_BYTES = 1 << 21  # of the matrix unpacked at a time


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
        check_positive(out_features=out_features)
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
        check_rows(x, targets, sample_weight, self.in_features, self.out_features)
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
            if s is not None:
                rows, goal = rows * s.sqrt(), goal * s.sqrt()
            add_gram(self.gram, self.cross, rows, gates, goal)
            self.target_energy += goal.double().square().sum(0)
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
        count = torch.tensor(self.rows, dtype=torch.float64, device=self.gram.device)
        distributed.all_reduce(count)
        self.rows = float(count)
        self._torn = False
        return self

    def mean_diagonal(self) -> float:
        """The paper's λ."""
        own = pair_index(self.units, self.gram.device).diagonal()
        square = pair_index(self.in_features, self.gram.device).diagonal()
        return float(self.gram[own][:, square].double().mean())

    def solve(self, alpha: Alpha = "mean") -> Solution:
        """``(C + λI)⁻¹ S`` by Cholesky's factorisation; of several λ, the one with the least generalised cross-validation error."""
        self._check_whole()
        if not self.rows:
            raise ValueError("nothing to solve: no rows have been added yet")
        return best_of(alpha, self.mean_diagonal(), self.rows, self._fit)

    def _fit(self, alpha: float, judged: bool) -> Fit:
        cross = self.cross.flatten(0, 1)
        g = probes(len(cross), cross) if judged else cross[:, :0]
        answer = self._solve(torch.cat([cross, g], dim=1), alpha)
        weight, u = answer.split([self.out_features, g.shape[1]], dim=1)
        solution = Solution(weight.contiguous().view(*self._shape()), alpha)
        if not judged:
            return Fit(solution)
        # At the solution C w = S − λw, so that tt − 2 w·S + w·Cw is
        error = float(self.target_energy.sum() - (weight.double() * cross).sum() - alpha * weight.double().square().sum())
        return Fit(solution, max(error, 0.0), len(cross) - alpha * float((g.double() * u).sum(0).mean()))

    def _solve(self, right: Tensor, shift: float) -> Tensor:
        if not self.gram.is_cpu:
            matrix = unpack(self.gram, self.units, self.in_features)
            matrix.diagonal().add_(shift)
            return solve_full(matrix, right)
        order = len(right)
        step = max(1, SOLVE_BYTES // (order * self.in_features * self.gram.element_size())) * self.in_features
        rows = gram_rows(self.gram, self.units, self.in_features)
        return solve_packed(packed_rows(order, rows, step, self.gram), order, right, shift)

    def save(self, path: str | Path) -> None:
        """Write as safetensors: whole or not at all."""
        self._check_whole()
        tensors = {"gram": self.gram, "cross": self.cross, "target_energy": self.target_energy}
        tensors.update({f"gate_weight.{i}": w for i, w in enumerate(self.gate_weights)})
        write_tensors(path, FORMAT, tensors, {"rows": self.rows, "forgetting": self.forgetting})

    @classmethod
    def load(cls, path: str | Path) -> RidgeStatistics:
        """Read what :meth:`save` wrote."""
        tensors, header = read_tensors(path, FORMAT)
        try:
            weights = [tensors[f"gate_weight.{i}"] for i in range(len(tensors) - 3)]
            result = cls(weights, tensors["cross"].shape[2], dtype=tensors["gram"].dtype, forgetting=header["forgetting"])
            for name in ("gram", "cross", "target_energy"):
                if tensors[name].shape != getattr(result, name).shape:
                    raise ValueError(f"{name} has shape {tuple(tensors[name].shape)}, expected {tuple(getattr(result, name).shape)}")
                setattr(result, name, tensors[name])
            result.rows = float(header["rows"])
        except (KeyError, IndexError, TypeError, ValueError) as error:
            raise ValueError(f"{path} does not hold whole ridge statistics: {error}") from error
        return result

    def _sums(self) -> tuple[Tensor, Tensor, Tensor]:
        return self.gram, self.cross, self.target_energy

    def _shape(self) -> tuple[int, ...]:
        return (*(len(w) for w in reversed(self.gate_weights)), self.in_features, self.out_features)

    def _check_whole(self) -> None:
        if self._torn:
            raise RuntimeError("an update was interrupted half-way, so the sums are no longer whole; start again, or load a saved state")
