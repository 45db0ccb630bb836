"""Sufficient statistics of ridge regression, accumulated in a single pass over the data."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from tensorswitch._checks import check_factor, check_positive
from tensorswitch.ridge._fold_sums import FoldSums, Rows
from tensorswitch.ridge._gram import add_gram
from tensorswitch.ridge._solution import Solution
from tensorswitch.ridge.penalty import Alpha
from tensorswitch.ridge.problem import (
    check_gate_weights,
    check_rows,
    check_some_rows,
    column_energies,
)
from tensorswitch.ridge.solving import solve_moments
from tensorswitch.switches import Switch, as_switch, combine_gates, deep_gates


class RidgeStatistics(FoldSums):
    """Accumulate the sufficient statistics of ridge regression on a TS representation.

        C = Σ s z zᵀ,        S = Σ s z tᵀ,        z = h_L ⊗ … ⊗ h_1 ⊗ x

    They are all that one-pass training [1]_ needs, and their size does not depend on the number of
    rows. Statistics of different rows with the same gates can be merged, and rows can be removed.

    Parameters
    ----------
    gate_weights : sequence of Tensor
        The fixed gate weights of each layer, of shape (n_l, units below).
    out_features : int
        Number of columns of the targets.
    dtype : {torch.float32, torch.float64}, default=torch.float32
        Data type of the sums. With float32 their relative error stays around 1e-4 over thousands of
        updates; float64 needs twice the memory and time. With an intercept, the error grows with
        the ratio of mean and standard deviation of the targets, so float32 needs targets that are
        roughly centred.
    forgetting : float, default=1.0
        Factor in (0, 1] by which each update multiplies the previous sums, for streams that drift.
    switch : Switch or str, default="relu"
        The switch that opens the gates.
    folds : int, default=1
        Number of folds of the rows. With 2 or more, the sums of each fold are kept, and
        :meth:`solve` chooses among several λ by exact cross-validation. A row's fold is a hash of
        its content (:func:`tensorswitch.ridge.rows.fold_of_rows`).
    held_out : bool, default=False
        Keep two sums instead of one per fold: of the first fold, and of all others. λ is then
        chosen by its error on the first fold.

    Attributes
    ----------
    gram : Tensor of shape (units * (units + 1) / 2, n_0 * (n_0 + 1) / 2)
        The matrix C, packed: a row per pair of units and a column per pair of inputs.
    cross : Tensor of shape (units, n_0, out_features)
        The matrix S.
    target_energy, target_sum : Tensor of shape (out_features,)
        ``Σ s t²`` and ``Σ s t``, in float64.
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
        folds: int = 1,
        held_out: bool = False,
    ) -> None:
        check_factor(forgetting=forgetting)
        if dtype not in (torch.float32, torch.float64):
            raise ValueError(f"dtype must be torch.float32 or torch.float64, got {dtype}")
        check_positive(out_features=out_features, folds=folds)
        self.switch = as_switch(switch)
        self.gate_weights = [
            w.detach().clone(memory_format=torch.contiguous_format)
            for w in check_gate_weights(gate_weights, self.switch)
        ]
        self.forgetting, self.folds = forgetting, folds
        self.held_out = bool(held_out) and folds > 2
        device = self.gate_weights[0].device
        super().__init__(self.gate_weights, out_features, dtype, device)
        self.has_means = True  # files of older versions lack the sums of z and t
        self._torn = False

    @torch.no_grad()
    def update(
        self,
        x: Tensor,
        targets: Tensor,
        sample_weight: Tensor | None = None,
        fold: Tensor | None = None,
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
        fold : Tensor of shape (rows,), optional
            The fold of each row, from 0. By default a hash of the row.

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
        return self.add(x, targets, sample_weight, fold)

    @torch.no_grad()
    def add(
        self,
        x: Tensor,
        targets: Tensor,
        sample_weight: Tensor | None,
        fold: Tensor | None = None,
        gates: Tensor | None = None,
    ) -> RidgeStatistics:
        """Add rows that have been validated, without the checks of :meth:`update`.

        Parameters
        ----------
        x : Tensor of shape (rows, n_0)
            The inputs.
        targets : Tensor of shape (rows, out_features)
            The targets.
        sample_weight : Tensor of shape (rows,) or None
            Weights of the rows.
        fold : Tensor of shape (rows,), optional
            The fold of each row.
        gates : bool Tensor of shape (rows, units), optional
            The gates, by default those of the gate weights.

        Returns
        -------
        RidgeStatistics
            The statistics themselves.
        """
        self._check_whole()
        self._check_range(
            column_energies(x, sample_weight), column_energies(targets, sample_weight)
        )
        places = self._places(x, fold)
        self._torn = True
        if self.forgetting < 1:
            for total in self._sums()[:-1]:
                total *= self.forgetting
            self._counts *= self._counts.new_tensor([self.forgetting, self.forgetting**2])
        self._accumulate(Rows(x, targets, sample_weight, gates), places, 1)
        self._torn = False
        return self

    @torch.no_grad()
    def remove(
        self,
        x: Tensor,
        targets: Tensor,
        sample_weight: Tensor | None = None,
        fold: Tensor | None = None,
    ) -> RidgeStatistics:
        """Subtract rows that were added before, as if they had never been there.

        The sums then differ from those of the other rows by rounding errors only, so float64 is
        advisable.

        Parameters
        ----------
        x : Tensor of shape (rows, n_0)
            The inputs.
        targets : Tensor of shape (rows, out_features)
            The targets.
        sample_weight : Tensor of shape (rows,), optional
            The weights they were added with, 1 by default.
        fold : Tensor of shape (rows,), optional
            The folds they were added to, by default a hash of the row.

        Returns
        -------
        RidgeStatistics
            The statistics themselves.

        Raises
        ------
        TypeError, ValueError
            If the rows are invalid, if the sums cannot contain them because more would be removed
            than were added, or if previous rows have been forgotten in part.
        """
        self._check_whole()
        rows = check_rows(x, targets, sample_weight, self.gate_weights, self.out_features)
        self._subtract(Rows(*rows), fold)
        return self

    def solve(
        self, alpha: Alpha = "mean", *, fit_intercept: bool = False, selection: str = "cv"
    ) -> Solution:
        """Return ``W = (C + λI)⁻¹ S``, by Cholesky factorisation.

        The statistics stay as they are and can be updated further.

        Parameters
        ----------
        alpha : float, str or a sequence of these, default="mean"
            The penalty λ: a number; "mean", the mean of the diagonal of C, or a multiple of it such
            as "0.1 mean"; several of these; or "cv" or "gcv" for a range of multiples.
        fit_intercept : bool, default=False
            Whether to add an intercept that is not penalised. C and S are then centred.
        selection : {"cv", "gcv"}, default="cv"
            How one of several λ is chosen: by exact cross-validation with the sums of the folds, or
            by generalised cross-validation (GCV). Without folds it is GCV, with a warning.

        Returns
        -------
        Solution
            The readout, with the λ that was used.

        Raises
        ------
        ValueError
            If there are no rows, or the system is singular to working precision.
        """
        self._check_whole()
        check_some_rows(self.rows)
        if fit_intercept:
            self._check_means("an intercept")
        solution = solve_moments(
            self.moments(), alpha, fit_intercept, selection, first_only=self.held_out
        )
        shape = (*(len(w) for w in reversed(self.gate_weights)), self.in_features)
        return solution._replace(weight=solution.weight.view(*shape, self.out_features))

    def save(self, path: str | Path) -> None:
        """Save the statistics as a safetensors file, atomically.

        Parameters
        ----------
        path : str or Path
            The file to write. An existing file is replaced only when the new one is complete.
        """
        from tensorswitch.ridge.files import save_statistics

        self._check_whole()
        save_statistics(self, path)

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
        from tensorswitch.ridge.files import load_statistics

        return load_statistics(path)

    def _add_products(
        self, part: int, rows: Rows, goal: Tensor, root: Tensor | None, sign: int
    ) -> None:
        x, gates = rows.x, rows.gates
        if gates is None:
            gates = combine_gates(deep_gates(x, self.gate_weights, self.switch))
        if root is not None:
            x, goal = x * root, goal * root
        kind = torch.promote_types(x.dtype, self.dtype)  # gates are those of the rows as given
        x, goal = x.to(kind), goal.to(kind)
        add_gram(self._gram[part], self._cross[part], x, gates, goal, sign)
