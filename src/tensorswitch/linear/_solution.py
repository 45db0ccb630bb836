"""The result of a solver."""

from __future__ import annotations

from typing import Any, NamedTuple, Self

import torch
from torch import Tensor

from tensorswitch.linear._representation import Representation, RowsOf
from tensorswitch.persistence import saved_as


@saved_as("solution")
class Solution(NamedTuple):
    """Hold the solution of a ridge problem.

    Parameters
    ----------
    weight : Tensor of shape (n_L, …, n_1, n_0, out) or (features, out)
        The readout W, for copies in the layout of :class:`tensorswitch.TensorSwitching`.
    alpha : float
        The penalty λ that was used.
    iterations : int, default=0
        Number of iterations of conjugate gradients; 0 for the direct solvers.
    residual : float, default=0.0
        Norm of the residual relative to ``Zᵀ T``, the largest over the outputs; 0 for the direct
        solvers.
    path : tuple of (float, float), default=()
        If several values of λ were tried, each with its error, in decreasing order of λ. The error
        is the mean squared error of rows that were left out.
    intercept : Tensor of shape (out,), optional
        The intercept c, in float64. None without one.

    Examples
    --------
    >>> import torch
    >>> from tensorswitch.linear import Columns, solve
    >>> z = torch.tensor([[0.0], [1.0], [2.0]])
    >>> solution = solve(z, 3 * z + 1, Columns(1), 1e-6, fit_intercept=True)
    >>> solution.weight.round(decimals=2), solution.intercept.round(decimals=2)
    (tensor([[3.]]), tensor([1.], dtype=torch.float64))
    """

    weight: Tensor
    alpha: float
    iterations: int = 0
    residual: float = 0.0
    path: tuple[tuple[float, float], ...] = ()
    intercept: Tensor | None = None

    def state(self) -> dict[str, Any]:
        """Return the fields."""
        return self._asdict()

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> Self:
        """Return the solution of a state."""
        return cls(**state)

    def shaped(self, representation: Representation) -> Solution:
        """Return the solution with weights in the axes of a representation.

        Parameters
        ----------
        representation : Representation
            What the weights belong to.

        Returns
        -------
        Solution
        """
        weight = self.weight.reshape(*representation.shape, self.weight.shape[-1])
        return self._replace(weight=weight)

    def outputs(self, representation: Representation, rows: RowsOf) -> Tensor:
        """Return ``Wᵀ φ(x) + c`` for each row.

        Parameters
        ----------
        representation : Representation
            The map φ.
        rows : RowsOf
            The rows.

        Returns
        -------
        Tensor of shape (rows, out)
        """
        with torch.autocast(rows.x.device.type, enabled=False):
            flat = self.weight.reshape(-1, self.weight.shape[-1])
            found = representation.apply(rows, flat)
        return found if self.intercept is None else found + self.intercept.to(found)
