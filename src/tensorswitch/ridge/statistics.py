"""Sufficient statistics of ridge regression, accumulated in a single pass over the data."""

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
FACTORISE_EACH = 3  # fewer values of λ than this are factorised one by one


class RidgeStatistics:
    """Accumulate the sufficient statistics of ridge regression on a TS representation.

        C = Σ s z zᵀ,        S = Σ s z tᵀ,        z = h_L ⊗ … ⊗ h_1 ⊗ x

    They are all that one-pass training [1]_ needs, and their size does not depend on the number of
    rows. Statistics of different rows with the same gates can be merged.

    Parameters
    ----------
    gate_weights : sequence of Tensor
        The fixed gate weights of each layer, of shape (n_l, units below).
    out_features : int
        Number of columns of the targets.
    dtype : {torch.float32, torch.float64}, default=torch.float32
        Data type of the sums. With float32 their relative error stays around 1e-4 over thousands of
        updates; float64 needs twice the memory.
    forgetting : float, default=1.0
        Factor in (0, 1] by which each update multiplies the previous sums, for streams that drift.
    switch : Switch or str, default="relu"
        The switch that opens the gates.

    Attributes
    ----------
    gram : Tensor of shape (units * (units + 1) / 2, n_0 * (n_0 + 1) / 2)
        The matrix C, packed: a row per pair of units and a column per pair of inputs.
    cross : Tensor of shape (units, n_0, out_features)
        The matrix S.
    target_energy : Tensor of shape (out_features,)
        ``Σ s t²``, in float64.
    rows : float
        Sum of the sample weights.
    weight_squares : float
        Sum of the squared sample weights.
    units : int
        Product of the numbers of gates of all layers.
    in_features : int
        Number of inputs n_0.

    References
    ----------
    .. [1] C.-Y. Tsai, A. Saxe and D. Cox, "Tensor Switching Networks", NIPS 2016, arXiv:1610.10087.

    Examples
    --------
    >>> import torch
    >>> from tensorswitch.ridge import RidgeStatistics
    >>> gate_weights = [torch.randn(8, 4)]
    >>> x = torch.randn(100, 4)
    >>> first = RidgeStatistics(gate_weights, 1).update(x[:50], x[:50, :1])
    >>> second = RidgeStatistics(gate_weights, 1).update(x[50:], x[50:, :1])
    >>> first.merge(second).rows
    100.0
    >>> first.solve().weight.shape
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
            raise ValueError(f"forgetting must be in (0, 1], got {forgetting}")
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
        self.rows = self.weight_squares = 0.0
        self._torn = False

    @torch.no_grad()
    def update(
        self, x: Tensor, targets: Tensor, sample_weight: Tensor | None = None
    ) -> RidgeStatistics:
        """Add rows to the statistics, which stay unchanged if the rows are invalid.

        Parameters
        ----------
        x : Tensor of shape (rows, n_0)
            The inputs.
        targets : Tensor of shape (rows, out_features)
            The targets.
        sample_weight : Tensor of shape (rows,), optional
            Weights of the rows, 1 by default.

        Returns
        -------
        RidgeStatistics
            The statistics themselves.

        Raises
        ------
        TypeError, ValueError
            If the rows have the wrong shape or type, contain NaN or infinity, or would make the
            sums leave the range of their type.
        """
        self._check_whole()
        x, targets, sample_weight = check_rows(
            x, targets, sample_weight, self.gate_weights, self.out_features
        )
        return self.add(x, targets, sample_weight)

    @torch.no_grad()
    def add(self, x: Tensor, targets: Tensor, sample_weight: Tensor | None) -> RidgeStatistics:
        """Add rows that have been validated, without the checks of :meth:`update`.

        Parameters
        ----------
        x : Tensor of shape (rows, n_0)
            The inputs.
        targets : Tensor of shape (rows, out_features)
            The targets.
        sample_weight : Tensor of shape (rows,) or None
            Weights of the rows.

        Returns
        -------
        RidgeStatistics
            The statistics themselves.
        """
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
        """Raise if adding sums of squares to the present ones would leave the range of the type."""
        limits = torch.finfo(self.gram.dtype)
        before = (self._largest_diagonal(), float(self.target_energy.max()))
        for name, energy, old in zip(("x", "targets"), energies, before, strict=True):
            new = float(energy.max()) if len(energy) else 0.0
            if not new + old < limits.max / 4:
                raise ValueError(
                    f"{name} is so large that sums of its squares, added to the previous sums, "
                    f"overflow {self.gram.dtype}; scale it down or use float64"
                )
            if name == "x" and 0 < new + old < limits.tiny / limits.eps:
                raise ValueError(
                    "x is so small that its squares, multiplied by the sample weights, underflow "
                    f"{self.gram.dtype}; scale it up or use float64"
                )

    def _largest_diagonal(self) -> float:
        return float(self._diagonal().max())

    def _diagonal(self) -> Tensor:
        """Return the diagonal of ``C``, of shape (units, inputs)."""
        own = pair_index(self.units, self.gram.device).diagonal()
        square = pair_index(self.in_features, self.gram.device).diagonal()
        return self.gram[own][:, square].double()

    def merge(self, other: RidgeStatistics) -> RidgeStatistics:
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
            If gates, switches, outputs or devices differ.
        """
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
        """Sum the statistics over all ranks of ``torch.distributed``.

        Each rank updates with its own rows first. Afterwards all ranks hold the same sums.

        Returns
        -------
        RidgeStatistics
            The statistics themselves.
        """
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
        """Return the mean of the diagonal of ``C``, the paper's choice of λ.

        Returns
        -------
        float
            The mean.
        """
        return float(self._diagonal().mean())

    def solve(self, alpha: Alpha = "mean") -> Solution:
        """Return ``W = (C + λI)⁻¹ S``, by Cholesky factorisation.

        The statistics stay as they are and can be updated further.

        Parameters
        ----------
        alpha : float, "mean" or a sequence of these, default="mean"
            The penalty λ; "mean" is the mean of the diagonal of C. Of several values, the one with
            the lowest generalised cross-validation error is used.

        Returns
        -------
        Solution
            The readout, with the λ that was used.

        Raises
        ------
        ValueError
            If there are no rows, or the system is singular to working precision.

        Notes
        -----
        With many more rows than features, traces are estimated with random signs [1]_, and Gauss
        quadrature [2]_ evaluates values of λ over three decades with one factorisation.

        References
        ----------
        .. [1] M. F. Hutchinson, "A Stochastic Estimator of the Trace of the Influence Matrix for
           Laplacian Smoothing Splines", Communications in Statistics 19(2), 1990.
        .. [2] G. H. Golub and G. Meurant, "Matrices, Moments and Quadrature with Applications",
           Princeton University Press, 2010.
        """
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
                    "alpha %.3g and smaller values are too small for working precision; skipped",
                    best.alpha,
                )

    def _judge(self, values: list[float]) -> Callable[[float, bool], Fit]:
        """Return a function that computes error and degrees of freedom without the solution.

        Values of λ in the same piece of the path share a factorisation.
        """
        piece_of = {value: piece for piece in pieces(values) for value in piece}
        tools: dict[float, Callable[[float], Fit]] = {}

        def judge(alpha: float, judged: bool) -> Fit:
            piece = piece_of[alpha]
            if len(piece) < FACTORISE_EACH:
                return self._fit(alpha, judged)
            if piece[0] not in tools:
                try:
                    tools[piece[0]] = self._judge_piece(math.sqrt(piece[0] * piece[-1]))
                except SingularError:  # at the middle; larger values may still work
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
            least = 100 * torch.finfo(self.gram.dtype).eps * energy  # less is rounding error
            freedom = len(cross) - alpha * float(trace)
            return Fit(Solution(cross[:0], alpha), max(error, least), freedom)

        return judge

    def _factorise(self, shift: float) -> CholeskyFactor:
        """Factorise ``C + shift · I``."""
        rows = gram_rows(self.gram, self.units, self.in_features)
        order = self.units * self.in_features
        return SymmetricPanels.from_rows(order, rows, self.gram, self.in_features).cholesky(shift)

    def _fit(self, alpha: float, judged: bool) -> Fit:
        cross = self.cross.flatten(0, 1)
        features = len(cross)
        # An estimated trace is accurate enough if there are many more rows than features. Otherwise
        # its error could exceed the residual degrees of freedom, rows − freedom.
        guess = judged and self.rows > 4 * features
        g = probes(features, cross) if guess else cross[:, :0]
        factor = self._factorise(alpha)
        answer = factor.solve(torch.cat([cross, g], dim=1))
        weight, u = answer.split([self.out_features, g.shape[1]], dim=1)
        solution = Solution(weight.contiguous().view(*self._shape()), alpha)
        if not judged:
            return Fit(solution)
        trace = float((g.double() * u).sum(0).mean()) if guess else factor.inverse_trace()
        # At the solution C w = S − λw, which gives t·t − 2 w·S + w·Cw = t·t − w·S − λ w·w.
        energy = float(self.target_energy.sum())
        explained, norm = float((weight.double() * cross).sum()), weight.double().square().sum()
        error = energy - explained - alpha * float(norm)
        least = 100 * torch.finfo(self.gram.dtype).eps * energy  # less is rounding error
        return Fit(solution, max(error, least), features - alpha * trace)

    def save(self, path: str | Path) -> None:
        """Save the statistics as a safetensors file, atomically.

        Parameters
        ----------
        path : str or Path
            The file to write. An existing file is replaced only when the new one is complete.
        """
        self._check_whole()
        tensors = {"gram": self.gram, "cross": self.cross, "target_energy": self.target_energy}
        tensors.update({f"gate_weight.{i}": w for i, w in enumerate(self.gate_weights)})
        header = {name: getattr(self, name) for name in ("rows", "weight_squares", "forgetting")}
        write_tensors(path, FORMAT, tensors, {**header, "switch": switch_name(self.switch)})

    @classmethod
    def load(cls, path: str | Path) -> RidgeStatistics:
        """Load statistics that :meth:`save` wrote.

        Parameters
        ----------
        path : str or Path
            The file to read.

        Returns
        -------
        RidgeStatistics
            The statistics, which can be updated further.

        Raises
        ------
        ValueError
            If the file is damaged or holds something else.
        """
        tensors, header = read_tensors(path, FORMAT)
        layers = sum(name.startswith("gate_weight.") for name in tensors)
        names = [f"gate_weight.{i}" for i in range(max(1, layers))]
        expected = {"gram", "cross", "target_energy", *names}
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
                        f"{name} is {theirs.dtype} of shape {tuple(theirs.shape)}, "
                        f"expected {mine.dtype} of shape {tuple(mine.shape)}"
                    )
                if not theirs.isfinite().all():
                    raise ValueError(f"{name} contains NaN or infinity")
                setattr(result, name, theirs)
            result.rows = float(header["rows"])
            result.weight_squares = float(header["weight_squares"])
            if not (0 <= result.rows < math.inf and 0 <= result.weight_squares < math.inf):
                raise ValueError(f"the number of rows is {result.rows}")
        except (KeyError, IndexError, TypeError, ValueError) as error:
            raise ValueError(f"{path} does not contain valid ridge statistics: {error}") from error
        return result

    def _sums(self) -> tuple[Tensor, Tensor, Tensor]:
        return self.gram, self.cross, self.target_energy

    def _shape(self) -> tuple[int, ...]:
        return (*(len(w) for w in reversed(self.gate_weights)), self.in_features, self.out_features)

    def _check_whole(self) -> None:
        if self._torn:
            raise RuntimeError(
                "an update was interrupted, so the sums are inconsistent; "
                "start again or load saved statistics"
            )
