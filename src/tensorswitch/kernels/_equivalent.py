"""Kernel matrices of random networks, tile by tile."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import product
from typing import TYPE_CHECKING, TypeVar

import numpy as np
import torch
from torch import Tensor

from tensorswitch._memory import empty
from tensorswitch.kernels._inputs import (
    UnitRows,
    as_tensors,
    check_depth,
    check_kind,
    diagonal_factor,
)
from tensorswitch.kernels._sweep import sweep
from tensorswitch.kernels._tiles import tile_size
from tensorswitch.switches import deep_gates

if TYPE_CHECKING:
    from tensorswitch.nn import TensorSwitching

Array = TypeVar("Array", np.ndarray, Tensor)


def ss_kernel(X: Array, Y: Array | None = None, depth: int = 1) -> Array:
    """Return the scalar switching (ReLU) kernel, Eq. (4), of shape (rows, other rows).

    ``‖x‖ ‖y‖ (sin θ + (π − θ) cos θ) / π`` at depth 1: the arc-cosine kernel of degree 1, composed
    ``depth`` times.

    Parameters
    ----------
    X, Y, depth : array, array or None, and int
        As in :func:`equivalent_kernels`.

    Examples
    --------
    >>> import numpy as np
    >>> from tensorswitch.kernels import ss_kernel
    >>> ss_kernel(np.eye(2)).round(4)
    array([[1.    , 0.3183],
           [0.3183, 1.    ]])
    """
    return equivalent_kernels(X, Y, depths=[depth], kinds=["ss"])["ss", depth]


def ts_kernel(X: Array, Y: Array | None = None, depth: int = 1) -> Array:
    """Return the tensor switching kernel, Eq. (5), ``(1 − θ/π) x·y`` at depth 1.

    Parameters
    ----------
    X, Y, depth : array, array or None, and int
        As in :func:`equivalent_kernels`.

    Examples
    --------
    >>> import numpy as np
    >>> from tensorswitch.kernels import ts_kernel
    >>> ts_kernel(np.array([[1.0, 0.0], [1.0, 1.0]])).round(4)
    array([[1.  , 0.75],
           [0.75, 2.  ]])
    """
    return equivalent_kernels(X, Y, depths=[depth], kinds=["ts"])["ts", depth]


def ntk_kernel(X: Array, Y: Array | None = None, depth: int = 1) -> Array:
    """Return the neural tangent kernel (NTK) of an infinitely wide ReLU network.

    ``k_{l+1} = k_SS,l+1 + k_l (1 − θ_l/π)``, for training of all layers. At depth 1 it is the sum
    of the SS and the TS kernel.

    Parameters
    ----------
    X, Y, depth : array, array or None, and int
        As in :func:`equivalent_kernels`.

    Examples
    --------
    >>> import numpy as np
    >>> from tensorswitch.kernels import ntk_kernel
    >>> ntk_kernel(np.eye(2)).round(4)
    array([[2.    , 0.3183],
           [0.3183, 2.    ]])
    """
    return equivalent_kernels(X, Y, depths=[depth], kinds=["ntk"])["ntk", depth]


def equivalent_kernels(
    X: Array,
    Y: Array | None = None,
    *,
    depths: Iterable[int] = (1,),
    kinds: Iterable[str] = ("ss", "ts"),
    dtype: torch.dtype | None = None,
) -> dict[tuple[str, int], Array]:
    """Return kernels of several kinds and depths, for little more time than the deepest one alone.

    Parameters
    ----------
    X : array of shape (rows, features)
        NumPy array, SciPy sparse matrix or torch tensor, of float32 or float64. Integers are taken
        as float64, narrower types as float32.
    Y : array of shape (other rows, features), optional
        By default ``X``; the results are then exactly symmetric.
    depths : iterable of int, default=(1,)
        Numbers of hidden layers; 0 is the linear kernel.
    kinds : iterable of {"ss", "ts", "ntk"}, default=("ss", "ts")
        Kinds of kernels.
    dtype : torch.dtype, optional
        Data type of the results. By default that of ``X``, which is the type of the computation
        in any case.

    Returns
    -------
    dict
        For each ``(kind, depth)`` the matrix of shape (rows, other rows), a NumPy array or torch
        tensor like ``X``. Values outside the range of the dtype overflow or underflow.

    Examples
    --------
    >>> import numpy as np
    >>> from tensorswitch.kernels import equivalent_kernels
    >>> kernels = equivalent_kernels(np.eye(2), kinds=["ss", "ntk"], depths=[1, 2])
    >>> sorted(kernels)
    [('ntk', 1), ('ntk', 2), ('ss', 1), ('ss', 2)]
    """
    kinds = [check_kind(k) for k in ([kinds] if isinstance(kinds, str) else kinds)]
    depths = [check_depth(d) for d in depths]
    if dtype not in (None, torch.float32, torch.float64):
        raise TypeError(f"dtype must be torch.float32 or torch.float64, got {dtype!r}")
    if not kinds or not depths:
        raise ValueError("kinds and depths must each name at least one")
    x, y = as_tensors(X, Y)
    keys = product(dict.fromkeys(kinds), dict.fromkeys(depths))
    results = {key: empty((len(x), len(y)), dtype or x.dtype, x.device) for key in keys}
    left = UnitRows(x)
    right = left if Y is None else UnitRows(y)
    size = tile_size(x.shape[1])
    for i, j in product(range(0, len(x), size), range(0, len(y), size)):
        if Y is None and i > j:  # written with its mirror image
            continue
        rows, columns = slice(i, i + size), slice(j, j + size)
        a_norm, b_norm = left.norms[rows], right.norms[columns].t()
        for kind, depth, value in sweep(left[rows], right[columns], results):
            value.mul_(a_norm).mul_(b_norm)
            if Y is None and i == j:
                value = value.triu(1)  # the diagonal is known exactly, and both halves must agree
                value += value.t().clone()
                value.diagonal().copy_(left.squares[rows] * diagonal_factor(kind, depth))
            results[kind, depth][rows, columns] = value
            if Y is None and i != j:
                results[kind, depth][columns, rows] = value.t()
    return results if isinstance(X, Tensor) else {k: v.numpy() for k, v in results.items()}


@torch.no_grad()
def finite_kernel(network: TensorSwitching, X: Array, Y: Array | None = None) -> Array:
    """Return the kernel of a finite TS network, ``(X Yᵀ) ∘ Π_l (2 / n_l) H_l(X) H_l(Y)ᵀ``.

    With Gaussian gate weights it converges to :func:`ts_kernel` of the same depth, with an error
    proportional to ``n^−½`` for layers of n gates.

    Parameters
    ----------
    network : TensorSwitching
        Network whose gates define the kernel.
    X, Y : array, and array or None
        As in :func:`equivalent_kernels`, which says what is returned, too.

    Examples
    --------
    >>> import torch
    >>> from tensorswitch import TensorSwitching
    >>> from tensorswitch.kernels import finite_kernel
    >>> finite_kernel(TensorSwitching(2, (64,), 1), torch.randn(3, 2)).shape
    torch.Size([3, 3])
    """
    x, y = as_tensors(X, Y)
    if x.shape[1] != network.in_features:
        raise ValueError(f"X has {x.shape[1]} features but the network takes {network.in_features}")
    if len(network.gate_biases):
        raise ValueError("network has gate biases, which the TS kernel does not have")
    weights = [w.to(x) for w in network.gate_weights]
    result = x @ y.t()
    for a, b in zip(*(deep_gates(rows, weights, network.switch) for rows in (x, y)), strict=True):
        result *= (2 / a.shape[1]) * (a.to(result) @ b.to(result).t())
    return result if isinstance(X, Tensor) else result.numpy()
