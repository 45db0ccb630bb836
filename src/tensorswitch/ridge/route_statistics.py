"""Sufficient statistics of ridge regression on rows that come with their gates."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from tensorswitch._checks import check_positive
from tensorswitch.ridge._fold_sums import Rows
from tensorswitch.ridge.problem import check_rows, given_gates, routed_hashes
from tensorswitch.ridge.rows import fold_of_hashes
from tensorswitch.ridge.statistics import RidgeStatistics
from tensorswitch.switches import Routes

__all__ = ["RouteStatistics"]


class RouteStatistics(RidgeStatistics):
    """Accumulate the sufficient statistics of ridge regression on a switched representation.

        C = Σ s z zᵀ,        S = Σ s z tᵀ,        z = h ⊗ x

    The gates h of each row are given, for instance by a trained network or by a switch of your own,
    rather than computed from weights. Statistics of different rows can be merged, and rows can be
    removed.

    Parameters
    ----------
    units : int
        Number of gates.
    in_features : int
        Number of inputs n_0.
    out_features : int
        Number of columns of the targets.
    dtype : {torch.float32, torch.float64}, default=torch.float32
        Data type of the sums.
    forgetting : float, default=1.0
        Factor in (0, 1] by which each update multiplies the previous sums.
    folds : int, default=1
        Number of folds of the rows, for the choice of λ. A row's fold is a hash of its inputs and
        gates.
    held_out : bool, default=False
        Keep two sums instead of one per fold: of the first fold, and of all others.
    device : torch.device or str, optional
        Device of the sums.

    See Also
    --------
    RidgeStatistics : The same for gates that follow from weights.
    FeatureStatistics : For features of any kind, such as ``Routes.expand(x)`` of routes that add
        up several rows.

    Examples
    --------
    The regions of a trained network are the gates of a readout that is fitted in one pass:

    >>> import torch
    >>> from tensorswitch import switched_linear
    >>> from tensorswitch.ridge import RouteStatistics
    >>> from tensorswitch.switches import ReLU
    >>> x = torch.randn(300, 4, generator=torch.Generator().manual_seed(0))
    >>> routes = ReLU()(torch.cat([x, -x], dim=1))
    >>> statistics = RouteStatistics(8, 4, 4).update(x, x.abs(), routes=routes)
    >>> weight = statistics.solve(1e-3).weight
    >>> torch.allclose(switched_linear(x, routes, weight), x.abs(), atol=1e-3)
    True
    """

    def __init__(
        self,
        units: int,
        in_features: int,
        out_features: int,
        *,
        dtype: torch.dtype = torch.float32,
        forgetting: float = 1.0,
        folds: int = 1,
        held_out: bool = False,
        device: torch.device | str | None = None,
    ) -> None:
        check_positive(units=units, in_features=in_features)
        unused = [torch.zeros(units, in_features, dtype=dtype, device=device)]
        kept: dict[str, Any] = {"forgetting": forgetting, "folds": folds, "held_out": held_out}
        super().__init__(unused, out_features, dtype=dtype, switch="none", **kept)

    @torch.no_grad()
    def update(
        self,
        x: Tensor,
        targets: Tensor,
        sample_weight: Tensor | None = None,
        fold: Tensor | None = None,
        *,
        routes: Tensor | Routes | None = None,
    ) -> RouteStatistics:
        """Add rows to the statistics, which stay unchanged if the rows are invalid.

        Parameters
        ----------
        x : Tensor of shape (input rows, n_0)
            The inputs.
        targets : Tensor of shape (rows, out_features)
            The targets, one row for each output row of the routes.
        sample_weight : Tensor of shape (rows,), optional
            Weights of the rows, 1 by default.
        fold : Tensor of shape (rows,), optional
            The fold of each row, from 0. By default a hash of the row.
        routes : bool Tensor of shape (rows, units) or Routes
            The gates. Routes must copy at most one input row to each output row.

        Returns
        -------
        RouteStatistics
            The statistics themselves.

        Raises
        ------
        TypeError, ValueError
            If the routes are missing or add up several rows, or if the rows have the wrong shape or
            type, contain NaN or infinity, or would make the sums leave the range of their type.
        """
        self._check_whole()
        rows, fold = self._routed(x, targets, sample_weight, fold, routes)
        self.add(rows.x, rows.targets, rows.sample_weight, fold, rows.gates)
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
    ) -> RouteStatistics:
        """Subtract rows that were added before; see :meth:`RidgeStatistics.remove`.

        Parameters
        ----------
        x : Tensor of shape (input rows, n_0)
            The inputs.
        targets : Tensor of shape (rows, out_features)
            The targets.
        sample_weight : Tensor of shape (rows,), optional
            The weights they were added with, 1 by default.
        fold : Tensor of shape (rows,), optional
            The folds they were added to, by default a hash of the row.
        routes : bool Tensor of shape (rows, units) or Routes
            The gates they were added with.

        Returns
        -------
        RouteStatistics
            The statistics themselves.
        """
        self._check_whole()
        self._subtract(*self._routed(x, targets, sample_weight, fold, routes))
        return self

    def _routed(
        self,
        x: Tensor,
        targets: Tensor,
        sample_weight: Tensor | None,
        fold: Tensor | None,
        routes: Tensor | Routes | None,
    ) -> tuple[Rows, Tensor | None]:
        """Return validated rows with their gates and folds."""
        if routes is None:
            raise TypeError("routes are required: these statistics have no gate weights")
        x, gates = given_gates(x, routes)
        if gates.shape[1] != self.units:
            raise ValueError(
                f"routes must have {self.units} units like the statistics, got {gates.shape[1]}"
            )
        x, targets, weight = check_rows(
            x, targets, sample_weight, self.gate_weights, self.out_features
        )
        if fold is None and self.folds > 1:
            fold = fold_of_hashes(routed_hashes(x, gates), self.folds)
        return Rows(x, targets, weight, gates), fold
