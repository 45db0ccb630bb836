"""Sufficient statistics of ridge regression, summed over data that streams past once."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import torch
from torch import Tensor

from tensorswitch._checks import check_positive
from tensorswitch._files import read_tensors, write_tensors
from tensorswitch.ridge._cholesky import CholeskyFactor, SingularError, SymmetricPanels
from tensorswitch.ridge._gram import add_gram, gram_rows, packed_shape, pair_index
from tensorswitch.ridge._penalty import Alpha, check_alphas, effective_rows, least_gcv, log, probes
from tensorswitch.ridge._quadrature import Quadrature, pieces
from tensorswitch.ridge._solution import Fit, Solution
from tensorswitch.ridge._validation import (
    check_gate_weights,
    check_rows,
    check_some_rows,
    column_energies,
)
from tensorswitch.switches import Switch, as_switch, combine_gates, deep_gates, switch_name

FORMAT = "tensorswitch.RidgeStatistics"
GRAM_ROWS = 1 << 16
FACTORISE_EACH = 3  # fewer values of λ than this have a factorisation each


class RidgeStatistics:
    """Mergeable sufficient statistics of ridge regression on a TS representation.

    Parameters
    ----------
    gate_weights : for each layer (n_l, n_{l-1}), fixed
    out_features : columns of the targets
    dtype : type of the sums; float32 is good to a relative 1e-4 for up to thousands of updates, float64 takes twice the memory
    forgetting : factor on what was summed before, applied at each update, for streams that drift
    switch : what opens the gates

    >>> statistics = RidgeStatistics([torch.randn(8, 4)], 1)
    >>> x = torch.randn(100, 4)
    >>> statistics.update(x, x[:, :1]).solve().weight.shape
    torch.Size([8, 4, 1])
    """

    def __init__(
        self,
        gate_weights: Sequence[Tensor],
        out_features: int,
        *,
        dtype: torch.dtype = torch.float32,
        forgetting: float = 1.0,
        switch: Switch | str = "relu",
    ) -> None:
        if not 0 < forgetting <= 1:
            raise ValueError(f"forgetting must be above 0 and at most 1, got {forgetting}")
        if dtype not in (torch.float32, torch.float64):
            raise ValueError(f"dtype must be torch.float32 or torch.float64, got {dtype}")
        check_positive(out_features=out_features)
        self.switch = as_switch(switch)
        self.gate_weights = [
            w.detach().clone(memory_format=torch.contiguous_format)
            for w in check_gate_weights(gate_weights, self.switch)
        ]
        self.out_features, self.forgetting = out_features, forgetting
        self.in_features = self.gate_weights[0].shape[1]
        self.units = math.prod(len(w) for w in self.gate_weights)
        device = self.gate_weights[0].device
        self.gram = torch.zeros(
            packed_shape(self.units, self.in_features), dtype=dtype, device=device
        )
        self.cross = torch.zeros(
            self.units, self.in_features, out_features, dtype=dtype, device=device
        )
        self.target_energy = torch.zeros(out_features, dtype=torch.float64, device=device)
        self.rows = self.weight_squares = 0.0  # the sums of the weights and of their squares
        self._torn = False

    @torch.no_grad()
    def update(
        self, x: Tensor, targets: Tensor, sample_weight: Tensor | None = None
    ) -> RidgeStatistics:
        """Add rows ``x`` (rows, in_features) with ``targets`` (rows, out_features). Nothing changes if they are refused."""
        self._check_whole()
        x, targets, sample_weight = check_rows(
            x, targets, sample_weight, self.gate_weights, self.out_features
        )
        return self.add(x, targets, sample_weight)

    @torch.no_grad()
    def add(self, x: Tensor, targets: Tensor, sample_weight: Tensor | None) -> RidgeStatistics:
        """Add rows that have been checked; :meth:`update` checks them first."""
        self._check_whole()
        self._check_range(
            column_energies(x, sample_weight), column_energies(targets, sample_weight)
        )
        self._torn = True
        if self.forgetting < 1:
            for total in self._sums():
                total *= self.forgetting
            self.rows *= self.forgetting
            self.weight_squares *= self.forgetting**2
        for start in range(0, len(x), GRAM_ROWS):
            part = slice(start, start + GRAM_ROWS)
            rows, goal = x[part], targets[part]
            with torch.autocast(x.device.type, enabled=False):
                gates = combine_gates(deep_gates(rows, self.gate_weights, self.switch))
                s = None if sample_weight is None else sample_weight[part, None]
                if s is not None:
                    rows, goal = rows * s.sqrt(), goal * s.sqrt()
                add_gram(self.gram, self.cross, rows, gates, goal)
            self.target_energy += goal.double().square().sum(0)
            self.rows += float(len(rows) if s is None else s.double().sum())
            self.weight_squares += float(len(rows) if s is None else s.double().square().sum())
        self._torn = False
        return self

    def _check_range(self, *energies: Tensor) -> None:
        """Raise if sums of squares, with what was summed before, leave the range of the type."""
        limits = torch.finfo(self.gram.dtype)
        before = (self._largest_diagonal(), float(self.target_energy.max()))
        for name, energy, old in zip(("x", "targets"), energies, before, strict=True):
            new = float(energy.max()) if len(energy) else 0.0
            if not new + old < limits.max / 4:
                raise ValueError(
                    f"{name} is so large that sums of its squares overflow {self.gram.dtype}, "
                    "together with what was summed before; scale it down, or use float64"
                )
            if name == "x" and 0 < new + old < limits.tiny / limits.eps:
                raise ValueError(
                    f"x is so small that its squares, times their sample weights, underflow {self.gram.dtype}; scale it up, or use float64"
                )

    def _largest_diagonal(self) -> float:
        return float(self._diagonal().max())

    def _diagonal(self) -> Tensor:
        """The diagonal of ``C``: (units, inputs)."""
        own = pair_index(self.units, self.gram.device).diagonal()
        square = pair_index(self.in_features, self.gram.device).diagonal()
        return self.gram[own][:, square].double()

    def merge(self, other: RidgeStatistics) -> RidgeStatistics:
        """Add what another one has summed over other rows with the same gates."""
        self._check_whole()
        other._check_whole()
        same = len(self.gate_weights) == len(other.gate_weights)
        if not same or any(
            not torch.equal(a, b)
            for a, b in zip(self.gate_weights, other.gate_weights, strict=True)
        ):
            raise ValueError(
                "the statistics were summed with different gate weights and cannot be merged"
            )
        if self.switch != other.switch:
            raise ValueError(f"the switches differ: {self.switch} and {other.switch}")
        if self.out_features != other.out_features:
            raise ValueError(f"out_features differ: {self.out_features} and {other.out_features}")
        if self.gram.device != other.gram.device:
            raise ValueError(f"the statistics are on {self.gram.device} and {other.gram.device}")
        self._check_range(other._diagonal().flatten(), other.target_energy)
        self._torn = True
        for mine, theirs in zip(self._sums(), other._sums(), strict=True):
            mine += theirs
        self.rows += other.rows
        self.weight_squares += other.weight_squares
        self._torn = False
        return self

    def all_reduce(self) -> RidgeStatistics:
        """Sum over all ranks of ``torch.distributed``, each of which has updated with its own rows."""
        from torch import distributed

        self._check_whole()
        self._torn = True
        for total in self._sums():
            distributed.all_reduce(total)
        counts = torch.tensor(
            [self.rows, self.weight_squares], dtype=torch.float64, device=self.gram.device
        )
        distributed.all_reduce(counts)
        self.rows, self.weight_squares = counts.tolist()
        self._torn = False
        return self

    def mean_diagonal(self) -> float:
        """The paper's λ."""
        return float(self._diagonal().mean())

    def solve(self, alpha: Alpha = "mean") -> Solution:
        """``(C + λI)⁻¹ S`` by Cholesky's factorisation; of several λ, the one with the least generalised cross-validation error."""
        self._check_whole()
        check_some_rows(self.rows)
        mean, rows = self.mean_diagonal(), effective_rows(self.rows, self.weight_squares)
        values = check_alphas(alpha, mean)
        if len(values) < FACTORISE_EACH or self.rows <= 4 * self.cross.flatten(0, 1).shape[0]:
            return least_gcv(values, mean, rows, self._fit)
        while True:
            best = least_gcv(values, mean, rows, self._judge(values))
            try:
                return self._fit(best.alpha, False).solution._replace(path=best.path)
            except SingularError:
                values = [v for v in values if v > best.alpha]
                if not values:
                    raise
                log.info(
                    "alpha %.3g is too small for working precision, and so are smaller ones; they are left out",
                    best.alpha,
                )

    def _judge(self, values: list[float]) -> Callable[[float, bool], Fit]:
        """What tells error and freedom of each λ, in pieces of the path that share a factorisation; without the solution."""
        piece_of = {value: piece for piece in pieces(values) for value in piece}
        tools: dict[float, Callable[[float], Fit]] = {}

        def judge(alpha: float, judged: bool) -> Fit:
            piece = piece_of[alpha]
            if len(piece) < FACTORISE_EACH:
                return self._fit(alpha, judged)
            if piece[0] not in tools:
                try:
                    tools[piece[0]] = self._judge_piece(math.sqrt(piece[0] * piece[-1]))
                except SingularError:  # at the middle; the larger ones may still do
                    tools[piece[0]] = partial(self._fit, judged=True)
            return tools[piece[0]](alpha)

        return judge

    def _judge_piece(self, middle: float) -> Callable[[float], Fit]:
        cross, energy = self.cross.flatten(0, 1), float(self.target_energy.sum())
        quadrature = Quadrature(
            self._factorise(middle).solve, torch.cat([cross, probes(len(cross), cross)], dim=1)
        )

        def judge(alpha: float) -> Fit:
            first, second = quadrature.sums(alpha - middle)
            products, trace = first[: self.out_features].sum(), first[self.out_features :].mean()
            error = energy - float(products) - alpha * float(second[: self.out_features].sum())
            least = 100 * torch.finfo(self.gram.dtype).eps * energy  # below that it is rounding
            return Fit(
                Solution(cross[:0], alpha), max(error, least), len(cross) - alpha * float(trace)
            )

        return judge

    def _factorise(self, shift: float) -> CholeskyFactor:
        """Factorise ``C + shift · I``."""
        rows = gram_rows(self.gram, self.units, self.in_features)
        order = self.units * self.in_features
        return SymmetricPanels.from_rows(order, rows, self.gram, self.in_features).cholesky(shift)

    def _fit(self, alpha: float, judged: bool) -> Fit:
        cross = self.cross.flatten(0, 1)
        features = len(cross)
        # With many more rows than features an estimated trace will do; else what it leaves of the rows would drown in its error.
        guess = judged and self.rows > 4 * features
        g = probes(features, cross) if guess else cross[:, :0]
        factor = self._factorise(alpha)
        answer = factor.solve(torch.cat([cross, g], dim=1))
        weight, u = answer.split([self.out_features, g.shape[1]], dim=1)
        solution = Solution(weight.contiguous().view(*self._shape()), alpha)
        if not judged:
            return Fit(solution)
        trace = float((g.double() * u).sum(0).mean()) if guess else factor.inverse_trace()
        # At the solution C w = S − λw, so that tt − 2 w·S + w·Cw is
        energy = float(self.target_energy.sum())
        error = (
            energy
            - float((weight.double() * cross).sum())
            - alpha * float(weight.double().square().sum())
        )
        least = 100 * torch.finfo(self.gram.dtype).eps * energy  # below that it is rounding
        return Fit(solution, max(error, least), features - alpha * trace)

    def save(self, path: str | Path) -> None:
        """Write as safetensors: whole or not at all."""
        self._check_whole()
        tensors = {"gram": self.gram, "cross": self.cross, "target_energy": self.target_energy}
        tensors.update({f"gate_weight.{i}": w for i, w in enumerate(self.gate_weights)})
        header = {name: getattr(self, name) for name in ("rows", "weight_squares", "forgetting")}
        write_tensors(path, FORMAT, tensors, {**header, "switch": switch_name(self.switch)})

    @classmethod
    def load(cls, path: str | Path) -> RidgeStatistics:
        """Read what :meth:`save` wrote."""
        tensors, header = read_tensors(path, FORMAT)
        layers = sum(name.startswith("gate_weight.") for name in tensors)
        expected = {
            "gram",
            "cross",
            "target_energy",
            *(f"gate_weight.{i}" for i in range(max(1, layers))),
        }
        try:
            if expected != set(tensors):
                raise ValueError(
                    f"it holds {', '.join(sorted(tensors))}; expected {', '.join(sorted(expected))}"
                )
            weights = [tensors[f"gate_weight.{i}"] for i in range(layers)]
            result = cls(
                weights,
                tensors["cross"].shape[-1],
                dtype=tensors["gram"].dtype,
                forgetting=header["forgetting"],
                switch=header.get("switch", "relu"),
            )
            for name in ("gram", "cross", "target_energy"):
                mine, theirs = getattr(result, name), tensors[name]
                if (theirs.shape, theirs.dtype) != (mine.shape, mine.dtype):
                    raise ValueError(
                        f"{name} is {theirs.dtype} of {tuple(theirs.shape)}, expected {mine.dtype} of {tuple(mine.shape)}"
                    )
                if not theirs.isfinite().all():
                    raise ValueError(f"{name} contains NaN or infinity")
                setattr(result, name, theirs)
            result.rows, result.weight_squares = (
                float(header["rows"]),
                float(header["weight_squares"]),
            )
            if not (0 <= result.rows < math.inf and 0 <= result.weight_squares < math.inf):
                raise ValueError(f"it says that it holds {result.rows} rows")
        except (KeyError, IndexError, TypeError, ValueError) as error:
            raise ValueError(f"{path} does not hold whole ridge statistics: {error}") from error
        return result

    def _sums(self) -> tuple[Tensor, Tensor, Tensor]:
        return self.gram, self.cross, self.target_energy

    def _shape(self) -> tuple[int, ...]:
        return (*(len(w) for w in reversed(self.gate_weights)), self.in_features, self.out_features)

    def _check_whole(self) -> None:
        if self._torn:
            raise RuntimeError(
                "an update was interrupted half-way, so the sums are no longer whole; start again, or load a saved state"
            )
