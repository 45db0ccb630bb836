"""Tensor Switching algebra as written in the paper: short, dense, the reference for the tests.

With input rows ``X_0`` of shape (rows, n_0), gate weights ``W_l`` of shape (n_l, n_{l-1}) and the
Heaviside step function ``H``:

==================================  ================================================  ===========
``H(W X)``                          :func:`gates`                                     Sec. 2.1
``X ⊕ W    = H(W X) ⊗ X``           :func:`expand`                                    Sec. 2.2
``Z ⊕_X W  = H(W X) ⊗ Z``           :func:`expand` with ``x``                         Sec. 2.2
``Z ⊖ W    = (Z ⊙ W) × 1``          :func:`contract`                                  Sec. 2.2
``X_1``, a ReLU layer               ``contract(expand(x, w), w)``                     Eq. (1)
``X_L``, a ReLU network             :func:`scalar_switching`                          Eq. (2)
``Z_L``, a TS network               :func:`tensor_switching`                          Eq. (3)
``k_SS`` and ``k_TS``               :func:`tensorswitch.kernels.equivalent_kernels`   Eq. (4), (5)
one-pass ridge regression           :mod:`tensorswitch.ridge`                         Sec. 4.1
``A_l = A_{l-1} ⊖ W_l``             :func:`auxiliary`                                 Sec. 4.2
inverted backpropagation            :func:`pseudo_gradients`                          Eq. (6)
backpropagation, same factors       :func:`backpropagate`, :func:`pseudo_gradients`   Eq. (7)
linear rotation-compression         :func:`rotate_compress`                           Sec. 4.3
==================================  ================================================  ===========

These functions store the expanded tensors, whose size is the product of all widths. The functions
in :mod:`tensorswitch.switched` compute the same results without storing them.

References
----------
Tsai, Saxe and Cox, Tensor Switching Networks, NIPS 2016, arXiv:1610.10087.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

__all__ = [
    "auxiliary",
    "backpropagate",
    "contract",
    "expand",
    "gates",
    "pseudo_gradients",
    "rotate_compress",
    "scalar_switching",
    "tensor_switching",
]


def gates(x: Tensor, w: Tensor) -> Tensor:
    """Return ``H(W X)``, (rows, n_1): one where a unit's score is strictly positive, else zero.

    Parameters
    ----------
    x, w : Tensor
        Input rows, of shape (rows, n_0), and gate weights, of shape (n_1, n_0).
    """
    return (x @ w.T > 0).to(x.dtype)


def expand(z: Tensor, w: Tensor, x: Tensor | None = None) -> Tensor:
    """Return the expansion ``Z ⊕_X W = H(W X) ⊗ Z``, (rows, n_1, ...) (Sec. 2.2).

    It has a copy of ``z`` for every open unit, and zeros for every closed one.

    Parameters
    ----------
    z, w : Tensor of shape (rows, ...) and (n_1, n_0)
        What the open units copy, and gate weights.
    x : Tensor of shape (rows, n_0), optional
        What decides which units are open. By default ``z`` itself, the binary expansion ``X ⊕ W``.

    Examples
    --------
    >>> import torch
    >>> from tensorswitch.algebra import expand
    >>> expand(torch.tensor([[1.0, 2.0]]), torch.tensor([[1.0, 0.0], [-1.0, 0.0]]))
    tensor([[[1., 2.],
             [0., 0.]]])
    """
    h = gates(z if x is None else x, w)
    return torch.einsum("bj,b...->bj...", h, z)


def contract(z: Tensor, w: Tensor) -> Tensor:
    """Return ``Z ⊖ W = (Z ⊙ W) × 1``, (rows, ..., n_1), summed over the last axis (Sec. 2.2).

    Parameters
    ----------
    z, w : Tensor
        Expanded tensor, of shape (rows, ..., n_1, n_0), and weights, of shape (n_1, n_0).
    """
    return (z * w).sum(-1)


def scalar_switching(x: Tensor, weights: Sequence[Tensor]) -> list[Tensor]:
    """Return ``[X_0, …, X_L]``, ``X_L = X_0 ⊕ W_1 ⊖ W_1 … ⊕ W_L ⊖ W_L``, a ReLU network (Eq. 2).

    Parameters
    ----------
    x, weights : Tensor of shape (rows, n_0), and sequence of Tensor
        Input rows, and ``W_1, …, W_L``, of shape (n_l, n_{l-1}).
    """
    activities = [x]
    for w in weights:
        activities.append(contract(expand(activities[-1], w), w))
    return activities


def tensor_switching(x: Tensor, weights: Sequence[Tensor]) -> list[Tensor]:
    """Return ``[Z_0, …, Z_L]``, ``Z_L = Z_0 ⊕_{X_0} W_1 … ⊕_{X_{L-1}} W_L``, ``Z_0 = X_0`` (Eq. 3).

    ``Z_l`` has the shape (rows, n_l, …, n_1, n_0).

    Parameters
    ----------
    x, weights : Tensor and sequence of Tensor
        As in :func:`scalar_switching`.
    """
    tensors = [x]
    for w, activity in zip(weights, scalar_switching(x, weights), strict=False):
        tensors.append(expand(tensors[-1], w, activity))
    return tensors


def auxiliary(x: Tensor, weights: Sequence[Tensor]) -> list[Tensor]:
    """Return ``A_0 = Z_L`` and ``A_l = A_{l-1} ⊖ W_l``, down to ``A_L = X_L`` (Sec. 4.2).

    ``A_l`` has the shape (rows, n_L, …, n_l).

    Parameters
    ----------
    x, weights : Tensor and sequence of Tensor
        As in :func:`scalar_switching`.
    """
    tensors = [tensor_switching(x, weights)[-1]]
    for w in weights:
        tensors.append(contract(tensors[-1], w))
    return tensors


def backpropagate(weights: Sequence[Tensor], error: Tensor) -> Tensor:
    """Return ``∂L/∂A_0 = ∂L/∂A_L · ∂A_L/∂A_{L-1} … ∂A_1/∂A_0`` (underbraced in Eq. 7).

    It has the shape of ``A_0``, (rows, n_L, …, n_1, n_0). Given to :func:`pseudo_gradients`, it
    yields the gradients of the ReLU network.

    Parameters
    ----------
    weights : sequence of Tensor
        ``W_1, …, W_L``.
    error : Tensor of shape (rows, n_L)
        ``∂L/∂A_L``, the derivative of the loss with respect to ``A_L = X_L``.
    """
    for w in reversed(weights):
        error = error.unsqueeze(-1) * w
    return error


def pseudo_gradients(x: Tensor, weights: Sequence[Tensor], error: Tensor) -> list[Tensor]:
    """Return ``∂L/∂W_l = ∂L/∂A_0 · (∂A_1/∂A_0)† … (∂A_l/∂A_{l-1})† · ∂A_l/∂W_l`` (Eq. 6).

    The pseudoinverse of the contraction with ``W_l`` is the contraction with the rows of ``W_l``,
    each divided by its squared length; rows of zeros stay as they are. It takes the error from
    ``A_{l-1}`` to ``A_l``, where it meets ``∂A_l/∂W_l = A_{l-1}``. The results are sums over rows.

    Parameters
    ----------
    x, weights : Tensor and sequence of Tensor
        As in :func:`scalar_switching`.
    error : Tensor of shape (rows, n_L, …, n_1, n_0)
        ``∂L/∂A_0``, the derivative of the loss with respect to ``A_0 = Z_L``.
    """
    rows, results = len(x), []
    for w, a in zip(weights, auxiliary(x, weights), strict=False):
        squared = w.square().sum(1, keepdim=True)
        zero = squared < torch.finfo(w.dtype).tiny
        error = contract(error, torch.where(zero, 0, w / squared))
        # One axis for the chains of units above layer l, over which the product is summed.
        chains = error.reshape(rows, -1, len(w)), a.reshape(rows, -1, *w.shape)
        results.append(torch.einsum("buj,buji->ji", *chains))
    return results


def rotate_compress(x: Tensor, w: Tensor, w_star: Tensor) -> Tensor:
    """Return ``X_l = W*_l vec(X_{l-1} ⊕ W_l)``, (rows, n*), linear rotation-compression (Sec. 4.3).

    :class:`tensorswitch.SwitchedLinear` is this layer, with ``W*`` as ``weight`` of shape
    (n_1, n_0, n*).

    Parameters
    ----------
    x, w : Tensor
        As in :func:`gates`.
    w_star : Tensor of shape (n*, n_1 · n_0)
        Analysis weights.
    """
    return expand(x, w).flatten(1) @ w_star.T
