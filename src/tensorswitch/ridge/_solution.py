"""The result of a solver."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from torch import Tensor


class Solution(NamedTuple):
    """Hold the solution of a ridge problem.

    Parameters
    ----------
    weight : Tensor of shape (n_L, …, n_1, n_0, out)
        The readout W, in the layout of :class:`tensorswitch.TensorSwitching`.
    alpha : float
        The penalty λ that was used.
    iterations : int, default=0
        Number of iterations of conjugate gradients; 0 for the direct solvers.
    residual : float, default=0.0
        Norm of the residual relative to ``Zᵀ T``, the largest over the outputs; 0 for the direct
        solvers.
    path : tuple of (float, float), default=()
        If several values of λ were tried, each with its error, in decreasing order of λ. The error
        is the mean squared error of rows that were left out, or the GCV error.
    intercept : Tensor of shape (out,), optional
        The intercept c, in float64. None without one.
    """

    weight: Tensor
    alpha: float
    iterations: int = 0
    residual: float = 0.0
    path: tuple[tuple[float, float], ...] = ()
    intercept: Tensor | None = None


def mean_diagonal(x: Tensor, gates: Sequence[Tensor], sample_weight: Tensor | None = None) -> float:
    """Return the mean of the diagonal of ``Σ s z zᵀ``, the paper's choice of λ.

    Parameters
    ----------
    x : Tensor of shape (rows, n_0)
        The inputs.
    gates : sequence of bool Tensor
        The gates of each layer, of shape (rows, n_l), as returned by :func:`deep_gates`.
    sample_weight : Tensor of shape (rows,), optional
        Weights s of the rows, 1 by default.

    Returns
    -------
    float
        The mean, summed in float64.

    Examples
    --------
    >>> import torch
    >>> from tensorswitch.ridge import mean_diagonal
    >>> x = torch.tensor([[1.0, 2.0], [3.0, 0.0]])
    >>> mean_diagonal(x, [torch.tensor([[True, False], [True, True]])])
    5.75
    """
    energy = x.double().square().sum(1)
    for h in gates:
        energy *= h.sum(1)
    if sample_weight is not None:
        energy *= sample_weight
    return float(energy.sum()) / (x.shape[1] * math.prod(h.shape[1] for h in gates))
