"""The sums of each fold: their memory, and how rows are added to them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from copy import copy
from typing import Any, NamedTuple, Self

import torch
from torch import Tensor

from tensorswitch._checks import check_shape
from tensorswitch.ridge._gram import packed_shape
from tensorswitch.ridge._layouts import Layout, Packed
from tensorswitch.ridge.moments import Moments
from tensorswitch.ridge.problem import column_energies
from tensorswitch.ridge.rows import fold_of_rows
from tensorswitch.switches import Switch

GRAM_ROWS = 1 << 16


class Rows(NamedTuple):
    """Validated rows: inputs, targets, weights, and gates if they do not follow from weights."""

    x: Tensor
    targets: Tensor
    sample_weight: Tensor | None = None
    gates: Tensor | None = None

    def at(self, index: slice | Tensor) -> Rows:
        """Return some of the rows."""
        return Rows(*(None if part is None else part[index] for part in self))  # type: ignore[arg-type]

    def weights(self) -> Tensor:
        """Return the weights, which are 1 by default."""
        weight = self.sample_weight
        return self.x.new_ones(len(self.x)) if weight is None else weight


class FoldSums:
    """Sums over the rows of each fold, as :class:`RidgeStatistics` keeps them."""

    gate_weights: list[Tensor]
    switch: Switch
    forgetting: float
    folds: int
    held_out: bool
    has_means: bool
    _torn: bool

    def __init__(
        self,
        gate_weights: Sequence[Tensor],
        out_features: int,
        dtype: torch.dtype,
        device: torch.device,
    ) -> None:
        self.in_features = gate_weights[0].shape[1]
        self.units = math.prod(len(w) for w in gate_weights)
        parts = 2 if self.held_out else self.folds
        exact: dict[str, Any] = {"dtype": torch.float64, "device": device}
        kept: dict[str, Any] = {**exact, "dtype": dtype}
        self._gram = torch.zeros(parts, *self._gram_shape(), **kept)
        # The last column is the sum of z, as if there were a target of 1.
        self._cross = torch.zeros(parts, self.units, self.in_features, out_features + 1, **kept)
        self._target_sum = torch.zeros(parts, out_features, **exact)
        self._target_energy = torch.zeros(parts, out_features, **exact)
        self._counts = torch.zeros(parts, 2, **exact)  # Σ s and Σ s²

    @property
    def out_features(self) -> int:
        """Number of columns of the targets."""
        return self._target_sum.shape[1]

    @property
    def dtype(self) -> torch.dtype:
        """Data type of the sums."""
        return self._gram.dtype

    @property
    def gram(self) -> Tensor:
        """The matrix C, packed."""
        return self._gram[0] if len(self._gram) == 1 else self._gram.sum(0)

    @property
    def cross(self) -> Tensor:
        """The matrix S."""
        return self._cross.sum(0)[..., :-1]

    @property
    def target_energy(self) -> Tensor:
        """Σ s t²."""
        return self._target_energy.sum(0)

    @property
    def target_sum(self) -> Tensor:
        """``Σ s t`` over all rows, in float64."""
        return self._target_sum.sum(0)

    @property
    def rows(self) -> float:
        """Sum of the sample weights."""
        return float(self._counts[:, 0].sum())

    @property
    def weight_squares(self) -> float:
        """Sum of the squared sample weights."""
        return float(self._counts[:, 1].sum())

    @property
    def _layout(self) -> Layout:
        """How C is stored."""
        return Packed(self.units, self.in_features)

    def _gram_shape(self) -> tuple[int, ...]:
        return packed_shape(self.units, self.in_features)

    def _places(self, x: Tensor, fold: Tensor | None) -> Tensor:
        """Return which of the kept sums each row belongs to."""
        if len(self._gram) == 1:
            return torch.zeros(len(x), dtype=torch.int64, device=x.device)
        if fold is None:
            fold = fold_of_rows(x, self.folds)
        if not isinstance(fold, Tensor) or fold.is_floating_point():
            kind = f"{fold.dtype}" if isinstance(fold, Tensor) else type(fold).__name__
            raise TypeError(f"fold must be a tensor of integers, got {kind}")
        check_shape("fold", fold, (len(x),), "(rows,)")
        if len(fold) and not 0 <= int(fold.min()) <= int(fold.max()) < self.folds:
            raise ValueError(f"fold must contain numbers from 0 to {self.folds - 1}")
        return (fold > 0).long() if self.held_out else fold.long()

    def _accumulate(self, rows: Rows, places: Tensor, sign: int) -> None:
        """Add rows, or subtract them, to the sums of their folds."""
        if len(self._gram) == 1:
            self._accumulate_part(0, rows, sign)
            return
        for part in range(len(self._gram)):
            self._accumulate_part(part, rows.at((places == part).nonzero().flatten()), sign)

    def _accumulate_part(self, part: int, rows: Rows, sign: int) -> None:
        for start in range(0, len(rows.x), GRAM_ROWS):
            block = rows.at(slice(start, start + GRAM_ROWS))
            goal, s = block.targets, block.weights()
            exact = s.double()
            self._target_sum[part] += sign * (exact @ goal.double())
            self._target_energy[part] += sign * (exact @ goal.double().square())
            counts = torch.stack([exact.sum(), exact.square().sum()])
            self._counts[part] += sign * counts
            goal = torch.nn.functional.pad(goal, (0, 1), value=1.0)
            with torch.autocast(goal.device.type, enabled=False):
                root = None if block.sample_weight is None else s[:, None].sqrt()
                self._add_products(part, block, goal, root, sign)

    def _add_products(
        self, part: int, rows: Rows, goal: Tensor, root: Tensor | None, sign: int
    ) -> None:
        """Add ``Σ s z zᵀ`` and ``Σ s z tᵀ`` of some rows; ``root`` is ``√s``."""
        raise NotImplementedError

    def _subtract(self, rows: Rows, fold: Tensor | None) -> None:
        """Subtract rows, or raise if the sums cannot contain them."""
        if self.forgetting < 1:
            raise ValueError(
                f"rows cannot be removed with forgetting={self.forgetting}: their present weight "
                "is unknown"
            )
        places = self._places(rows.x, fold)
        s = rows.weights()
        removed = torch.zeros_like(self._counts)
        removed.index_add_(0, places, torch.stack([s.double(), s.double().square()], 1))
        tolerance = 1e-9 * self._counts.clamp(min=1)
        energies = column_energies(rows.targets, rows.sample_weight)
        if ((removed - self._counts) > tolerance).any() or (
            energies > self.target_energy * (1 + 1e-6) + 1e-9
        ).any():
            raise ValueError(
                f"{len(rows.x)} rows cannot be removed from {self.rows:g}: at least one of them "
                "was not added with these values, targets and weights"
            )
        self._torn = True
        self._accumulate(rows, places, -1)
        empty = self._counts[:, 0] <= tolerance[:, 0]
        for total in self._sums():  # what is left of an empty fold is rounding error
            total[empty] = 0
        self._torn = False

    def _check_range(self, *energies: Tensor) -> None:
        """Raise if adding sums of squares to the present ones would leave the range of the type."""
        limits = torch.finfo(self.dtype)
        before = (self._largest_diagonal(), float(self.target_energy.max()))
        for name, energy, old in zip(("x", "targets"), energies, before, strict=True):
            new = float(energy.max()) if len(energy) else 0.0
            if not new + old < limits.max / 4:
                raise ValueError(
                    f"{name} is so large that sums of its squares, added to the previous sums, "
                    f"overflow {self.dtype}; scale it down or use float64"
                )
            if name == "x" and 0 < new + old < limits.tiny / limits.eps:
                raise ValueError(
                    "x is so small that its squares, multiplied by the sample weights, underflow "
                    f"{self.dtype}; scale it up or use float64"
                )

    def _diagonals(self) -> Tensor:
        return torch.stack([self._layout.diagonal(gram) for gram in self._gram])

    def _largest_diagonal(self) -> float:
        return float(self._diagonals().sum(0).max())

    def mean_diagonal(self) -> float:
        """Return the mean of the diagonal of ``C``, the paper's choice of λ.

        Returns
        -------
        float
            The mean.
        """
        return float(self._diagonals().sum(0).mean())

    def moments(self) -> list[Moments]:
        """Return the sums of each fold, without copying them.

        Returns
        -------
        list of Moments
            One per fold; with ``held_out``, those of the first fold and those of all others.
        """
        layout, result = self._layout, []
        for gram, cross, sums, energy, counts in zip(*self._sums(), strict=True):
            flat = cross.flatten(0, 1)
            rows, squares = counts.tolist()
            parts = (flat[:, :-1], flat[:, -1], sums, energy)
            result.append(Moments(gram, *parts, rows, squares, layout))
        return result

    def _sums(self) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
        return self._gram, self._cross, self._target_sum, self._target_energy, self._counts

    def copy(self) -> Self:
        """Return statistics with sums of their own.

        Returns
        -------
        RidgeStatistics
            The copy.
        """
        result = copy(self)
        result._gram, result._cross, *rest = (total.clone() for total in self._sums())
        result._target_sum, result._target_energy, result._counts = rest
        return result

    def merge(self, other: Self) -> Self:
        """Add the statistics of other rows with the same gates.

        Parameters
        ----------
        other : RidgeStatistics
            The statistics to add. They are not modified.

        Returns
        -------
        RidgeStatistics
            The statistics themselves.

        Raises
        ------
        ValueError
            If gates, switches, outputs, folds, forgetting or devices differ.
        """
        self._check_whole()
        other._check_whole()
        if type(self) is not type(other):
            names = type(other).__name__, type(self).__name__
            raise ValueError("{} cannot be merged into {}".format(*names))
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
        for name in ("out_features", "folds", "held_out", "forgetting"):
            if getattr(self, name) != getattr(other, name):
                mine, theirs = getattr(self, name), getattr(other, name)
                raise ValueError(f"{name} differ: {mine} and {theirs}")
        if self._gram.device != other._gram.device:
            raise ValueError(f"the statistics are on {self._gram.device} and {other._gram.device}")
        self._check_range(other._diagonals().sum(0), other.target_energy)
        self._torn = True
        for mine, theirs in zip(self._sums(), other._sums(), strict=True):
            mine += theirs
        self.has_means &= other.has_means
        self._torn = False
        return self

    def all_reduce(self) -> Self:
        """Sum the statistics over all ranks of ``torch.distributed``.

        Each rank updates with its own rows first. Afterwards all ranks hold the same sums.

        Returns
        -------
        RidgeStatistics
            The statistics themselves.

        Raises
        ------
        ValueError
            If there is no process group. The sums stay as they are.
        """
        from torch import distributed

        self._check_whole()
        if not distributed.is_initialized():
            raise ValueError(
                "there is no process group to sum over; call "
                "torch.distributed.init_process_group first"
            )
        means = torch.tensor(int(self.has_means), device=self._gram.device)
        self._torn = True
        for total in self._sums():
            distributed.all_reduce(total)
        distributed.all_reduce(means, distributed.ReduceOp.MIN)
        self.has_means = bool(means)
        self._torn = False
        return self

    def retarget(
        self, columns: Sequence[int], signs: Sequence[float], offsets: Sequence[float]
    ) -> None:
        """Replace the targets of all rows by ``t'_j = signs_j · t_{columns_j} + offsets_j``.

        The statistics are then those of the new targets. A sign of 0 gives a constant target, such
        as −1 for a class that no row belonged to.

        Parameters
        ----------
        columns : sequence of int
            For each new output, the old one it comes from.
        signs : sequence of float
            Its factors.
        offsets : sequence of float
            What is added.
        """
        self._check_whole()
        self._check_means("new targets")
        device = self._cross.device
        sign = torch.tensor(signs, dtype=torch.float64, device=device)
        offset = torch.tensor(offsets, dtype=torch.float64, device=device)
        index, rows = torch.tensor(columns, device=device), self._counts[:, :1]
        sums, energy = sign * self._target_sum[:, index], sign**2 * self._target_energy[:, index]
        z = self._cross[..., -1:]
        cross = self._cross[..., index] * sign.to(z) + z * offset.to(z)
        self._target_energy = energy + 2 * offset * sums + rows * offset**2
        self._target_sum = sums + rows * offset
        self._cross = torch.cat([cross, z], dim=-1)

    def _check_means(self, what: str) -> None:
        if not self.has_means:
            raise ValueError(
                f"{what} needs the sums of features and targets, which files of older versions "
                "lack; sum the rows again"
            )

    def _check_whole(self) -> None:
        if self._torn:
            raise RuntimeError(
                "an update was interrupted, so the sums are inconsistent; "
                "start again or load saved statistics"
            )
