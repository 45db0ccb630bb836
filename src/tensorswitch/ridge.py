"""One-pass ridge regression as in Sec. 4.1 of the paper; see :mod:`tensorswitch.linear`.

W = argmin Σ_b s_b ‖Wᵀ z_b − t_b‖² + λ ‖W‖²,        z = h_L ⊗ … ⊗ h_1 ⊗ x
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from tensorswitch.linear import (
    Choice,
    Copies,
    SingularError,
    Solution,
    Sums,
    choose_solver,
    fold_of_rows,
    solve,
    solve_dual,
    solve_matrix_free,
)
from tensorswitch.persistence import saved_as
from tensorswitch.switches import Switch, deep_gates, draw_gates

__all__ = [
    "Choice",
    "RidgeStatistics",
    "SingularError",
    "Solution",
    "choose_solver",
    "deep_gates",
    "draw_gates",
    "fold_of_rows",
    "solve",
    "solve_dual",
    "solve_matrix_free",
]


@saved_as("ridge-statistics")
class RidgeStatistics(Sums):
    """:class:`Sums` of :class:`Copies`, with S in the shape (units, n_0, out_features).

    Parameters
    ----------
    gate_weights, switch : as for :class:`Copies`
        Fixed gate weights of each layer, and the switch that opens the gates.
    out_features, dtype, forgetting, folds, held_out : as for :class:`Sums`
        Number of columns of the targets, and options.

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
    """

    representation: Copies

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
        copies = Copies(gate_weights, switch)
        super().__init__(
            copies,
            out_features,
            dtype=dtype,
            forgetting=forgetting,
            folds=folds,
            held_out=held_out,
            device=copies.gate_weights[0].device,
        )

    @property
    def gate_weights(self) -> list[Tensor]:
        """The gate weights of each layer."""
        return self.representation.gate_weights

    @property
    def switch(self) -> Switch:
        """The switch that opens the gates."""
        return self.representation.switch

    @property
    def units(self) -> int:
        """Product of the numbers of gates of all layers."""
        return self.representation.units

    @property
    def in_features(self) -> int:
        """Number of inputs n_0."""
        return self.representation.in_features

    @property
    def cross(self) -> Tensor:
        """The matrix S, of shape (units, n_0, out_features)."""
        return super().cross.view(self.units, self.in_features, -1)
