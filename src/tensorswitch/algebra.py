"""The algebra of Tensor Switching networks, written as in the paper: dense, short, and the oracle of the tests.

With rows of inputs ``x`` (rows, n0) and gate weights ``W_l`` (n_l, n_{l-1}):

    expansion            X ⊕ W    = H(W X) ⊗ X
    ternary expansion    Z ⊕_X W  = H(W X) ⊗ Z
    contraction          Z ⊖ W    = sum over the last axis of (Z ∘ W)

    scalar switching     X_L = X_0 ⊕ W_1 ⊖ W_1 … ⊕ W_L ⊖ W_L
    tensor switching     Z_L = Z_0 ⊕_{X_0} W_1 … ⊕_{X_{L-1}} W_L

Everything here stores the expanded tensors. For use, see :mod:`tensorswitch.switched`.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

__all__ = [
    "auxiliary",
    "contract",
    "expand",
    "gates",
    "pseudo_gradients",
    "scalar_switching",
    "tensor_switching",
]


def gates(x: Tensor, w: Tensor) -> Tensor:
    """``H(W X)``, one where a unit is strictly positive: (rows, n1)."""
    return (x @ w.T > 0).to(x.dtype)


def expand(z: Tensor, w: Tensor, x: Tensor | None = None) -> Tensor:
    """``Z ⊕_X W = H(W X) ⊗ Z``: (rows, n, …) becomes (rows, n1, n, …). Without ``x`` the tensor switches itself: ``X ⊕ W``."""
    h = gates(z if x is None else x, w)
    return torch.einsum("bj,b...->bj...", h, z)


def contract(z: Tensor, w: Tensor) -> Tensor:
    """``Z ⊖ W``: (rows, …, n1, n0) with ``w`` (n1, n0) becomes (rows, …, n1)."""
    return (z * w).sum(-1)


def scalar_switching(x: Tensor, weights: Sequence[Tensor]) -> list[Tensor]:
    """``[X_0, …, X_L]``, the activities of a ReLU network, as alternating expansion and contraction."""
    activities = [x]
    for w in weights:
        activities.append(contract(expand(activities[-1], w), w))
    return activities


def tensor_switching(x: Tensor, weights: Sequence[Tensor]) -> list[Tensor]:
    """``[Z_0, …, Z_L]``; ``Z_l`` is (rows, n_l, …, n_1, n_0), newest layer first."""
    tensors = [x]
    for w, activity in zip(weights, scalar_switching(x, weights), strict=False):
        tensors.append(expand(tensors[-1], w, activity))
    return tensors


def auxiliary(x: Tensor, weights: Sequence[Tensor]) -> list[Tensor]:
    """``A_0 = Z_L`` and ``A_l = A_{l-1} ⊖ W_l``, down to ``A_L = X_L``."""
    tensors = [tensor_switching(x, weights)[-1]]
    for w in weights:
        tensors.append(contract(tensors[-1], w))
    return tensors


def pseudo_gradients(x: Tensor, weights: Sequence[Tensor], error: Tensor) -> list[Tensor]:
    """Inverted backpropagation: the pseudo-gradients of ``W_1 … W_L`` summed over rows.

    ``error`` is the derivative of the loss by ``A_0 = Z_L``. The pseudoinverse of a contraction by ``W_l`` is a contraction by the rows of
    ``W_l`` divided by their squared lengths; it takes the error from ``A_{l-1}`` to ``A_l``, where it meets ``∂A_l / ∂W_l = A_{l-1}``.
    """
    results = []
    for w, a in zip(weights, auxiliary(x, weights), strict=False):
        error = contract(error, w / w.square().sum(1, keepdim=True))
        results.append(
            torch.einsum(
                "buj,buji->ji", error.reshape(len(x), -1, len(w)), a.reshape(len(x), -1, *w.shape)
            )
        )
    return results
