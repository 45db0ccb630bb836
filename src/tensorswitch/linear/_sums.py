"""The sums of ridge regression: what one pass over the rows leaves behind.

C = Σ s z zᵀ,        S = Σ s z tᵀ,        Σ s z,        Σ s t,        Σ s t²,        Σ s
"""

from collections.abc import Sequence
from copy import copy
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

import torch
from torch import Tensor

from tensorswitch import persistence
from tensorswitch._checks import check_factor, check_positive, check_shape
from tensorswitch.linear._columns import Columns
from tensorswitch.linear._penalty import Alpha
from tensorswitch.linear._problem import Problem, Solution, check_some_rows
from tensorswitch.linear._representation import Representation
from tensorswitch.linear._rows import fold_of_hashes
from tensorswitch.linear._streaming import Moments, solve_moments
from tensorswitch.persistence import saved_as
from tensorswitch.switches import Routes

BLOCK_ROWS = 1 << 16


@saved_as("sums")
class Sums:
    """Accumulate the sufficient statistics of ridge regression in a single pass over the data.

        C = Σ s z zᵀ,        S = Σ s z tᵀ,        z = φ(x)

    They are all that one-pass training [1]_ needs, and their size does not depend on the number of
    rows. Sums of different rows can be merged, and rows can be removed.

    Parameters
    ----------
    representation : Representation
        The map φ: :class:`Copies` or :class:`Columns`.
    out_features : int
        Number of columns of the targets.
    dtype : {torch.float32, torch.float64}, default=torch.float32
        Data type of the sums. With float32 their relative error stays around 1e-4 over thousands of
        updates; float64 needs twice the memory and time. With an intercept they are centred when
        they are solved, so float32 needs features and targets that are roughly centred.
    forgetting : float, default=1.0
        Factor in (0, 1] by which each update multiplies the previous sums, for streams that drift.
    folds : int, default=1
        Number of folds of the rows, by :func:`fold_of_rows`. With 2 or more, the sums of each are
        kept, and :meth:`solve` chooses among several λ by exact cross-validation.
    held_out : bool, default=False
        Keep two sums instead of one per fold: of the first fold, and of all others. λ is then
        chosen by its error on the first fold.
    device : torch.device or str, optional
        Device of the sums.

    Attributes
    ----------
    gram : Tensor
        The matrix C, packed as the representation does it.
    cross : Tensor of shape (features, out_features)
        The matrix S.
    target_energy, target_sum : Tensor of shape (out_features,)
        ``Σ s t²`` and ``Σ s t``, in float64.
    rows : float
        Sum of the sample weights.
    weight_squares : float
        Sum of the squared sample weights.

    References
    ----------
    .. [1] C.-Y. Tsai, A. Saxe and D. Cox, "Tensor Switching Networks", NIPS 2016, arXiv:1610.10087.

    Examples
    --------
    >>> import torch
    >>> from tensorswitch.linear import Columns, Sums
    >>> z = torch.randn(300, 20, generator=torch.Generator().manual_seed(0))
    >>> sums = Sums(Columns(20), 1, folds=5)
    >>> for chunk in z.split(100):
    ...     sums = sums.update(chunk, chunk[:, :1] + 3)
    >>> solution = sums.solve("cv", fit_intercept=True)
    >>> outputs = z @ solution.weight + solution.intercept.float()
    >>> torch.allclose(outputs, z[:, :1] + 3, atol=0.1)
    True
    """

    def __init__(
        self,
        representation: Representation,
        out_features: int,
        *,
        dtype: torch.dtype = torch.float32,
        forgetting: float = 1.0,
        folds: int = 1,
        held_out: bool = False,
        device: torch.device | str | None = None,
    ) -> None:
        check_factor(forgetting=forgetting)
        if dtype not in (torch.float32, torch.float64):
            raise ValueError(f"dtype must be torch.float32 or torch.float64, got {dtype}")
        check_positive(out_features=out_features, folds=folds)
        self.representation, self.forgetting, self.folds = representation, forgetting, folds
        self.held_out = bool(held_out) and folds > 2
        parts, features = 2 if self.held_out else folds, representation.features

        def zeros(*shape: int, kind: torch.dtype = torch.float64) -> Tensor:
            return torch.zeros(parts, *shape, dtype=kind, device=device)

        self._kept = Moments(
            representation.packing,
            gram=zeros(*representation.gram_shape, kind=dtype),
            cross=zeros(features, out_features + 1, kind=dtype),
            target_sum=zeros(out_features),
            target_energy=zeros(out_features),
            counts=zeros(2),
        )
        self._torn = False

    @torch.no_grad()
    def update(
        self,
        x: Tensor,
        targets: Tensor,
        sample_weight: Tensor | None = None,
        fold: Tensor | None = None,
        *,
        routes: Tensor | Routes | None = None,
        forget: bool = True,
    ) -> Self:
        """Add rows and return the sums, which stay unchanged if the rows are invalid.

        Parameters
        ----------
        x, targets : Tensor of shape (rows, n_0) and (rows, out_features)
            The inputs and targets.
        sample_weight : Tensor of shape (rows,), optional
            Weights of the rows, 1 by default.
        fold : Tensor of shape (rows,), optional
            The fold of each row, from 0. By default a hash of the row.
        routes : bool Tensor of shape (rows, units) or Routes, optional
            The gates, where the representation has no weights for them. Routes must copy at most
            one input row to each row of the targets.
        forget : bool, default=True
            Whether previous rows decay by ``forgetting``: not within rows that arrive together.

        Raises
        ------
        TypeError, ValueError
            If the rows have the wrong shape or type, are not finite, or make the sums overflow.
        """
        self._check_whole()
        return self.add(self._problem(x, targets, sample_weight, routes), fold, forget)

    @torch.no_grad()
    def add(self, problem: Problem, fold: Tensor | None = None, forget: bool = True) -> Self:
        """Add rows that have been validated; see :meth:`update`.

        Parameters
        ----------
        problem : Problem
            The rows.
        fold, forget : optional
            As for :meth:`update`.
        """
        self._check_whole()
        self._check_range(problem.input_energies, problem.target_energies)
        places = self._places(problem, fold)
        self._torn = True
        if self.forgetting < 1 and forget:
            for total in self._kept.tensors().values():
                total *= self.forgetting
            self._kept.counts[:, 1] *= self.forgetting  # of squares
        self._accumulate(problem, places, 1)
        self._torn = False
        return self

    @torch.no_grad()
    def remove(
        self,
        x: Tensor,
        targets: Tensor,
        sample_weight: Tensor | None = None,
        fold: Tensor | None = None,
        *,
        routes: Tensor | Routes | None = None,
    ) -> Self:
        """Subtract rows as if they had never been added, and return the sums.

        They then differ from those of the other rows by rounding errors only, so float64 is
        advisable.

        Parameters
        ----------
        x, targets : Tensor of shape (rows, n_0) and (rows, out_features)
            The inputs and targets.
        sample_weight, fold, routes : optional
            What they were added with; see :meth:`update`.

        Raises
        ------
        TypeError, ValueError
            If the rows are invalid, if the sums cannot contain them because more would be removed
            than were added, or if previous rows have been forgotten in part.
        """
        self._check_whole()
        problem, kept = self._problem(x, targets, sample_weight, routes), self._kept
        if self.forgetting < 1:
            raise ValueError(
                f"rows cannot be removed with forgetting={self.forgetting}: their present weight "
                "is unknown"
            )
        places, s = self._places(problem, fold), problem.weights().double()
        removed = torch.zeros_like(kept.counts)
        removed.index_add_(0, places, torch.stack([s, s.square()], 1))
        # Sums cannot tell which rows they have, but their energies may not become negative.
        tolerance = 1e-9 * kept.counts.clamp(min=1)
        more = (removed - kept.counts).sum(0) > tolerance.sum(0)
        too_large = problem.target_energies > self.target_energy * (1 + 1e-6) + 1e-9
        if more.any() or too_large.any() or self._lacks(problem.input_energies):
            raise ValueError(
                f"{len(s)} rows cannot be removed from {self.rows:g}: at least one of them "
                "was not added with these values, targets and weights"
            )
        self._torn = True
        self._accumulate(problem, places, -1)
        # What is left of an empty fold is rounding error. Observations of one row may have been
        # numbered in another way when they were added, and a fold has then lost more than it had.
        empty = kept.counts[:, 0].abs() <= tolerance[:, 0]
        for total in kept.tensors().values():
            total[empty & (removed[:, 0] > 0)] = 0
        self._torn = False
        return self

    def solve(self, alpha: Alpha = "mean", *, fit_intercept: bool = False) -> Solution:
        """Return ``W = (C + λI)⁻¹ S``, by Cholesky factorisation.

        The sums stay as they are and can be updated further.

        Parameters
        ----------
        alpha : float, str or a sequence of these, default="mean"
            The penalty λ: a number; "mean", the mean of the diagonal of C, or a multiple of it such
            as "0.1 mean"; several of these; or "cv" for a range of multiples. One of several is
            chosen by exact cross-validation with the sums of the folds.
        fit_intercept : bool, default=False
            Whether to add an intercept that is not penalised. C and S are then centred.
        """
        self._check_whole()
        check_some_rows(self.rows)
        solution = solve_moments(
            self.moments(),
            alpha,
            fit_intercept,
            first_only=self.held_out,
            warn=isinstance(self.representation, Columns),
        )
        return solution.shaped(self.representation)

    def moments(self) -> list[Moments]:
        """Return the sums of each fold, without copying them.

        With ``held_out`` there are two: those of the first fold, and those of all others.
        """
        return [self._kept[part] for part in range(len(self._kept.gram))]

    def merge(self, other: Self) -> Self:
        """Add the sums of other rows, which are not modified, and return these.

        Representations, outputs, folds, forgetting and devices must be the same.
        """
        self._check_whole()
        other._check_whole()
        if different := self.representation.differences(other.representation):
            raise ValueError(f"the sums cannot be merged: {different}")
        for name in ("out_features", "folds", "held_out", "forgetting"):
            if getattr(self, name) != getattr(other, name):
                mine, theirs = getattr(self, name), getattr(other, name)
                raise ValueError(f"{name} differ: {mine} and {theirs}")
        if self.device != other.device:
            raise ValueError(f"the sums are on {self.device} and {other.device}")
        self._check_range(other._diagonal(), other.target_energy)
        self._torn = True
        self._kept.add(other._kept)
        self._torn = False
        return self

    def all_reduce(self) -> Self:
        """Sum over all ranks of ``torch.distributed``, which then hold the same sums.

        Each rank updates with its own rows first.
        """
        from torch import distributed

        self._check_whole()
        if not distributed.is_initialized():
            raise ValueError(
                "there is no process group to sum over; call "
                "torch.distributed.init_process_group first"
            )
        self._torn = True
        for total in self._kept.tensors().values():
            distributed.all_reduce(total)
        self._torn = False
        return self

    def retarget(
        self, columns: Sequence[int], signs: Sequence[float], offsets: Sequence[float]
    ) -> Self:
        """Return the sums of ``t'_j = signs_j · t_{columns_j} + offsets_j`` in place of t.

        Parameters
        ----------
        columns : sequence of int
            For each new output, the old one it comes from.
        signs : sequence of float
            Its factors; 0 gives a constant target, such as −1 for a class without rows.
        offsets : sequence of float
            What is added.
        """
        self._check_whole()
        kept, result = self._kept.copy(), copy(self)
        sign = torch.tensor(signs, dtype=torch.float64, device=self.device)
        offset = torch.tensor(offsets, dtype=torch.float64, device=self.device)
        index = torch.tensor(columns, device=self.device)
        rows, z = kept.counts[:, :1], kept.cross[..., -1:]
        sums, energy = sign * kept.target_sum[:, index], sign**2 * kept.target_energy[:, index]
        cross = kept.cross[..., index] * sign.to(z) + z * offset.to(z)
        result._kept = replace(
            kept,
            cross=torch.cat([cross, z], dim=-1),
            target_sum=sums + rows * offset,
            target_energy=energy + 2 * offset * sums + rows * offset**2,
        )
        return result

    def copy(self) -> Self:
        """Return sums with memory of their own."""
        result = copy(self)
        result._kept = self._kept.copy()
        return result

    def empty(self, out_features: int | None = None) -> Self:
        """Return the same sums without rows, with another number of outputs if it is given."""
        result = copy(self)
        Sums.__init__(
            result,
            self.representation,
            self.out_features if out_features is None else out_features,
            dtype=self.dtype,
            forgetting=self.forgetting,
            folds=self.folds,
            held_out=self.held_out,
            device=self.device,
        )
        return result

    def save(self, path: str | Path) -> None:
        """Save the sums to a safetensors file, atomically."""
        self._check_whole()
        persistence.save(self, path)

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Load sums that :meth:`save` wrote, or raise ``ValueError`` if the file is damaged."""
        return persistence.load(path, cls)

    def state(self) -> dict[str, Any]:
        """Return representation, options and sums."""
        kept = {name: getattr(self, name) for name in ("forgetting", "folds", "held_out")}
        return {"representation": self.representation, **kept, "sums": self._kept.tensors()}

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> Self:
        """Return the sums of a state, or raise if they are inconsistent."""
        parts: dict[str, Tensor] = state["sums"]
        kept = {name: state[name] for name in ("forgetting", "folds", "held_out")}
        out, gram = parts["target_energy"].shape[-1], parts["gram"]
        result = cls.__new__(cls)
        Sums.__init__(
            result, state["representation"], out, dtype=gram.dtype, device=gram.device, **kept
        )
        for name, mine in result._kept.tensors().items():
            theirs = parts[name]
            if (theirs.shape, theirs.dtype) != (mine.shape, mine.dtype):
                raise ValueError(
                    f"{name} is {theirs.dtype} of shape {tuple(theirs.shape)}, "
                    f"expected {mine.dtype} of shape {tuple(mine.shape)}"
                )
            if not theirs.isfinite().all():
                raise ValueError(f"{name} contains NaN or infinity")
        if (parts["counts"] < 0).any():
            raise ValueError(f"the number of rows is {float(parts['counts'][:, 0].sum())}")
        result._kept = Moments(result.representation.packing, **parts)
        return result

    @property
    def out_features(self) -> int:
        """Number of columns of the targets."""
        return self._kept.target_sum.shape[1]

    @property
    def dtype(self) -> torch.dtype:
        """Data type of the sums."""
        return self._kept.gram.dtype

    @property
    def device(self) -> torch.device:
        """Device of the sums."""
        return self._kept.gram.device

    @property
    def gram(self) -> Tensor:
        """The matrix C, packed."""
        gram = self._kept.gram
        return gram[0] if len(gram) == 1 else gram.sum(0)

    @property
    def cross(self) -> Tensor:
        """The matrix S."""
        return self._kept.right.sum(0)

    @property
    def target_energy(self) -> Tensor:
        """``Σ s t²`` over all rows, in float64."""
        return self._kept.target_energy.sum(0)

    @property
    def target_sum(self) -> Tensor:
        """``Σ s t`` over all rows, in float64."""
        return self._kept.target_sum.sum(0)

    @property
    def rows(self) -> float:
        """Sum of the sample weights."""
        return self._kept.rows

    @property
    def weight_squares(self) -> float:
        """Sum of the squared sample weights."""
        return self._kept.squares

    def mean_diagonal(self) -> float:
        """Return the mean of the diagonal of ``C``, the paper's choice of λ."""
        return float(self._diagonal().mean())

    def _diagonal(self) -> Tensor:
        return torch.stack([fold.diagonal() for fold in self.moments()]).sum(0)

    def _problem(
        self,
        x: Tensor,
        targets: Tensor,
        sample_weight: Tensor | None,
        routes: Tensor | Routes | None,
    ) -> Problem:
        """Return validated rows with their gates."""
        representation, out = self.representation, self.out_features
        problem = Problem.checked(x, targets, representation, sample_weight, routes=routes, out=out)
        if x.device != self.device:
            raise ValueError(f"x is on {x.device}, but the sums are on {self.device}")
        if self.representation.dtype is None and x.dtype != self.dtype:
            raise TypeError(f"x is {x.dtype}, but the sums are {self.dtype}; convert it with .to()")
        return problem

    def _places(self, problem: Problem, fold: Tensor | None) -> Tensor:
        """Return which of the kept sums each row belongs to."""
        count = len(problem)
        if len(self._kept.gram) == 1:
            return torch.zeros(count, dtype=torch.int64, device=self.device)
        if fold is None:
            fold = fold_of_hashes(problem.fold_hashes, self.folds)
        if not isinstance(fold, Tensor) or fold.is_floating_point():
            kind = f"{fold.dtype}" if isinstance(fold, Tensor) else type(fold).__name__
            raise TypeError(f"fold must be a tensor of integers, got {kind}")
        check_shape("fold", fold, (count,), "(rows,)")
        if len(fold) and not 0 <= int(fold.min()) <= int(fold.max()) < self.folds:
            raise ValueError(f"fold must contain numbers from 0 to {self.folds - 1}")
        return (fold > 0).long() if self.held_out else fold.long()

    def _accumulate(self, problem: Problem, places: Tensor, sign: int) -> None:
        """Add rows, or subtract them, to the sums of their folds."""
        parts = len(self._kept.gram)
        for part in range(parts):
            rows = problem if parts == 1 else problem[(places == part).nonzero().flatten()]
            for start in range(0, len(rows), BLOCK_ROWS):
                self._accumulate_block(part, rows[start : start + BLOCK_ROWS], sign)

    def _accumulate_block(self, part: int, problem: Problem, sign: int) -> None:
        kept, rows, goal = self._kept, problem.rows, problem.targets
        exact = problem.weights().double()
        kept.target_sum[part] += sign * (exact @ goal.double())
        kept.target_energy[part] += sign * (exact @ goal.double().square())
        kept.counts[part] += sign * torch.stack([exact.sum(), exact.square().sum()])
        goal = torch.nn.functional.pad(goal, (0, 1), value=1.0)  # whose products with z are Σ s z
        with torch.autocast(goal.device.type, enabled=False):
            if problem.sample_weight is not None:  # rows and targets times √s
                root = problem.sample_weight[:, None].sqrt()
                rows, goal = rows.times(root), goal * root
            self.representation.accumulate(kept.gram[part], kept.cross[part], rows, goal, sign)

    def _check_range(self, *energies: Tensor) -> None:
        """Raise if adding sums of squares to the present ones would leave the range of the type."""
        limits = torch.finfo(self.dtype)
        before = float(self._diagonal().max()), float(self.target_energy.max())
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

    def _lacks(self, energies: Tensor) -> bool:
        """Return whether inputs have more energy than the sums, where features are inputs."""
        diagonal = self._diagonal()
        same = isinstance(self.representation, Columns) and energies.shape == diagonal.shape
        return same and bool((energies > diagonal * (1 + 1e-3) + 1e-9).any())

    def _check_whole(self) -> None:
        if self._torn:
            raise RuntimeError(
                "an update was interrupted, so the sums are inconsistent; "
                "start again or load saved sums"
            )
