"""Equivalent kernels of random networks, scalar (SS) and tensor switching (TS), of any depth.

With ``θ_l`` the angle between the two inputs after l layers of the infinitely wide SS network,
where ``θ_0`` is the angle between ``x`` and ``y``:

    k_SS,l = ‖x‖ ‖y‖ cos θ_l              cos θ_{l+1} = (sin θ_l + (π − θ_l) cos θ_l) / π
    k_TS,l = x·y Π_{m<l} (1 − θ_m / π)
    k_NTK,l+1 = k_SS,l+1 + k_NTK,l (1 − θ_l / π)         k_NTK,0 = x·y

Depth 0 is the linear kernel. At depth l, k(x, x) is ‖x‖² for SS and TS and (l + 1) ‖x‖² for the
NTK. The paper's Eq. (4) prints k_SS,1 as ``(1 − (tan θ − θ)/π) x·y``, which has a sign error: the
kernel is ``(1 + (tan θ − θ)/π) x·y``.

All kinds and depths are computed in one sweep, tile by tile so that intermediate results stay in
cache, and for k(X, X) on one triangle only. The recursion carries ``(1 − cos θ)/2`` instead of
``cos θ``, which is exact for small angles, where the TS kernel has its cusp. For nearly parallel or
opposite pairs, the scalar product is not precise enough to give the first angle, which is computed
from ``‖x̂ ∓ ŷ‖`` instead.

References
----------
Tsai, Saxe and Cox, Tensor Switching Networks, arXiv:1610.10087, Sec. 3, Eq. (4) and (5).

Cho and Saul, Kernel Methods for Deep Learning, NIPS 2009 (the arc-cosine kernels).

Jacot, Gabriel and Hongler, Neural Tangent Kernel, NeurIPS 2018, arXiv:1806.07572.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np
import torch
from torch import Tensor

from tensorswitch._checks import from_numpy
from tensorswitch._memory import empty, workspace
from tensorswitch._progress import track
from tensorswitch.switches import deep_gates

if TYPE_CHECKING:
    from tensorswitch.nn import TensorSwitching

__all__ = [
    "equivalent_kernels",
    "finite_kernel",
    "kernel_product",
    "ntk_kernel",
    "ss_kernel",
    "ts_kernel",
]

Array = TypeVar("Array", np.ndarray, Tensor)

TILE = 768  # rows and columns of a tile: fits in cache, yet large compared to the call overhead
UNIT_BYTES = 1 << 25  # unit vectors larger than this are recomputed for each tile
NEAR = 0.08  # 1 ∓ cos θ below which an angle is computed from the difference of the unit vectors


def ss_kernel(X: Array, Y: Array | None = None, depth: int = 1, *, progress: bool = False) -> Array:
    """Return the scalar switching (ReLU) kernel.

    ``‖x‖ ‖y‖ (sin θ + (π − θ) cos θ) / π`` at depth 1: the arc-cosine kernel of degree 1, composed
    ``depth`` times.

    Parameters
    ----------
    X : array of shape (rows, features)
        NumPy array or torch tensor of float32 or float64.
    Y : array of shape (other rows, features), optional
        By default ``X``; the result is then exactly symmetric.
    depth : int, default=1
        Number of hidden layers; 0 is the linear kernel.
    progress : bool, default=False
        Whether to show a progress bar.

    Returns
    -------
    array of shape (rows, other rows)
        Kernel matrix, of the type of ``X``.

    References
    ----------
    Cho and Saul, Kernel Methods for Deep Learning, NIPS 2009.

    Tsai, Saxe and Cox, Tensor Switching Networks, arXiv:1610.10087, Eq. (4).

    Examples
    --------
    >>> ss_kernel(np.eye(2)).round(4)
    array([[1.    , 0.3183],
           [0.3183, 1.    ]])
    """
    return equivalent_kernels(X, Y, depths=[depth], kinds=["ss"], progress=progress)["ss", depth]


def ts_kernel(X: Array, Y: Array | None = None, depth: int = 1, *, progress: bool = False) -> Array:
    """Return the tensor switching kernel, ``(1 − θ/π) x·y`` at depth 1.

    Parameters
    ----------
    X : array of shape (rows, features)
        NumPy array or torch tensor of float32 or float64.
    Y : array of shape (other rows, features), optional
        By default ``X``; the result is then exactly symmetric.
    depth : int, default=1
        Number of hidden layers; 0 is the linear kernel.
    progress : bool, default=False
        Whether to show a progress bar.

    Returns
    -------
    array of shape (rows, other rows)
        Kernel matrix, of the type of ``X``.

    References
    ----------
    Tsai, Saxe and Cox, Tensor Switching Networks, arXiv:1610.10087, Eq. (5).

    Examples
    --------
    >>> ts_kernel(np.array([[1.0, 0.0], [1.0, 1.0]])).round(4)
    array([[1.  , 0.75],
           [0.75, 2.  ]])
    """
    return equivalent_kernels(X, Y, depths=[depth], kinds=["ts"], progress=progress)["ts", depth]


def ntk_kernel(
    X: Array, Y: Array | None = None, depth: int = 1, *, progress: bool = False
) -> Array:
    """Return the neural tangent kernel (NTK) of an infinitely wide ReLU network.

    ``k_{l+1} = k_SS,l+1 + k_l (1 − θ_l/π)``, for training of all layers. At depth 1 it is the sum
    of the SS and the TS kernel.

    Parameters
    ----------
    X : array of shape (rows, features)
        NumPy array or torch tensor of float32 or float64.
    Y : array of shape (other rows, features), optional
        By default ``X``; the result is then exactly symmetric.
    depth : int, default=1
        Number of hidden layers; 0 is the linear kernel.
    progress : bool, default=False
        Whether to show a progress bar.

    Returns
    -------
    array of shape (rows, other rows)
        Kernel matrix, of the type of ``X``.

    References
    ----------
    Jacot, Gabriel and Hongler, Neural Tangent Kernel, NeurIPS 2018, arXiv:1806.07572.

    Examples
    --------
    >>> ntk_kernel(np.eye(2)).round(4)
    array([[2.    , 0.3183],
           [0.3183, 2.    ]])
    """
    return equivalent_kernels(X, Y, depths=[depth], kinds=["ntk"], progress=progress)["ntk", depth]


def equivalent_kernels(
    X: Array,
    Y: Array | None = None,
    *,
    depths: Iterable[int] = (1,),
    kinds: Iterable[str] = ("ss", "ts"),
    dtype: torch.dtype | None = None,
    progress: bool = False,
) -> dict[tuple[str, int], Array]:
    """Return kernels of several kinds and depths, for little more time than the deepest one alone.

    Parameters
    ----------
    X : array of shape (rows, features)
        NumPy array or torch tensor of float32 or float64.
    Y : array of shape (other rows, features), optional
        By default ``X``; the results are then exactly symmetric.
    depths : iterable of int, default=(1,)
        Numbers of hidden layers; 0 is the linear kernel.
    kinds : iterable of {"ss", "ts", "ntk"}, default=("ss", "ts")
        Kinds of kernels.
    dtype : torch.dtype, optional
        Data type of the results. By default that of ``X``, which is the type of the computation
        in any case.
    progress : bool, default=False
        Whether to show a progress bar.

    Returns
    -------
    dict
        For each ``(kind, depth)`` the matrix of shape (rows, other rows), a NumPy array or torch
        tensor like ``X``. Values outside the range of the dtype overflow or underflow.

    Raises
    ------
    ValueError
        If a kind is unknown, a depth is negative, shapes do not agree, or an input contains NaN or
        infinity.

    References
    ----------
    Tsai, Saxe and Cox, Tensor Switching Networks, arXiv:1610.10087, Sec. 3.

    Examples
    --------
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
    x, y = _as_tensors(X, Y)
    results = {
        (kind, depth): empty((len(x), len(y)), dtype or x.dtype, x.device)
        for kind in dict.fromkeys(kinds)
        for depth in dict.fromkeys(depths)
    }
    left = _UnitRows(x)
    right = left if Y is None else _UnitRows(y)
    size = max(128, min(TILE, (1 << 20) // max(1, x.shape[1])))  # smaller where rows are long
    tiles = [
        (i, j)
        for i in range(0, len(x), size)
        for j in range(0, len(y), size)
        if Y is not None or i <= j
    ]

    for i, j in track(tiles, len(tiles), "kernel", progress):
        _tile(left, right, i, j, size, Y is None, results)
    return {
        key: value if isinstance(X, Tensor) else value.numpy() for key, value in results.items()
    }


@torch.no_grad()
def kernel_product(X: Array, V: Array, kind: str = "ts", depth: int = 1) -> Array:
    """Return ``K(X, X) V`` tile by tile, without storing the kernel matrix.

    Each tile above the diagonal is also used for its mirror image below it.

    Parameters
    ----------
    X : array of shape (rows, features)
        NumPy array or torch tensor of float32 or float64.
    V : array of shape (rows, columns)
        Array of the same type.
    kind : {"ss", "ts", "ntk"}, default="ts"
        Kind of kernel.
    depth : int, default=1
        Number of hidden layers; 0 is the linear kernel.

    Returns
    -------
    array of shape (rows, columns)
        The product, of the type of ``X``.

    Examples
    --------
    >>> kernel_product(np.eye(2), np.ones((2, 1)))
    array([[1.],
           [1.]])
    """
    key = (check_kind(kind), check_depth(depth))
    x = _as_tensor("X", X)
    v = _as_tensor("V", V).to(x)
    if len(v) != len(x):
        raise ValueError(f"X has {len(x)} rows but V has {len(v)}")
    rows = _UnitRows(x)
    scaled, result = v * rows.norms, torch.zeros_like(v)
    diagonal = rows.squares * diagonal_factor(*key)
    size = max(128, min(TILE, (1 << 20) // max(1, x.shape[1])))
    for i in range(0, len(x), size):
        for j in range(i, len(x), size):
            a, b = slice(i, i + size), slice(j, j + size)
            (_, _, tile) = next(iter(_sweep(rows[a], rows[b], [key])))
            if i == j:  # the diagonal is known exactly, and rounding there would matter most
                tile.diagonal().zero_()
                tile = (tile.triu(1) + tile.triu(1).t()) if len(tile) > 1 else tile
            result[a].addmm_(tile, scaled[b])
            if i != j:
                result[b].addmm_(tile.t(), scaled[a])
    result = result.mul_(rows.norms).addcmul_(diagonal[:, None], v)
    return result if isinstance(X, Tensor) else result.numpy()


@torch.no_grad()
def finite_kernel(network: TensorSwitching, X: Array, Y: Array | None = None) -> Array:
    """Return the kernel of a finite TS network, ``(X Yᵀ) ∘ Π_l (2 / n_l) H_l(X) H_l(Y)ᵀ``.

    With Gaussian gate weights it converges to :func:`ts_kernel` of the same depth, with an error
    proportional to ``n^−½`` for layers of n gates.

    Parameters
    ----------
    network : TensorSwitching
        Network whose gates define the kernel.
    X : array of shape (rows, features)
        NumPy array or torch tensor of float32 or float64.
    Y : array of shape (other rows, features), optional
        By default ``X``.

    Returns
    -------
    array of shape (rows, other rows)
        Kernel matrix, of the type of ``X``.

    References
    ----------
    Tsai, Saxe and Cox, Tensor Switching Networks, arXiv:1610.10087, Sec. 3.

    Examples
    --------
    >>> from tensorswitch import TensorSwitching
    >>> finite_kernel(TensorSwitching(2, (64,), 1), torch.randn(3, 2)).shape
    torch.Size([3, 3])
    """
    x, y = _as_tensors(X, Y)
    if x.shape[1] != network.in_features:
        raise ValueError(f"X has {x.shape[1]} features but the network takes {network.in_features}")
    if len(network.gate_biases):
        raise ValueError("network has gate biases, which the TS kernel does not have")
    weights = [w.to(x) for w in network.gate_weights]
    result = x @ y.t()
    for a, b in zip(*(deep_gates(rows, weights, network.switch) for rows in (x, y)), strict=True):
        result *= (2 / a.shape[1]) * (a.to(result) @ b.to(result).t())
    return result if isinstance(X, Tensor) else result.numpy()


def check_depth(depth: int) -> int:
    """Return the depth as an int; raise unless it is a non-negative integer."""
    if isinstance(depth, bool) or not isinstance(depth, int | np.integer):
        raise TypeError(f"depth must be an integer, got {depth!r}")
    if depth < 0:
        raise ValueError(f"depth must be 0 or more, got {depth}")
    return int(depth)


def check_kind(kind: str) -> str:
    """Return the kind; raise if it is unknown."""
    if kind not in ("ss", "ts", "ntk"):
        raise ValueError(f"the kind of kernel must be 'ss', 'ts' or 'ntk', got {kind!r}")
    return kind


def diagonal_factor(kind: str, depth: int) -> int:
    """Return ``k(x, x) / ‖x‖²``, which depends on the kind and depth only."""
    return depth + 1 if kind == "ntk" else 1


def _as_tensors(X: Any, Y: Any) -> tuple[Tensor, Tensor]:
    x = _as_tensor("X", X)
    y = x if Y is None else _as_tensor("Y", Y)
    if x.shape[1] != y.shape[1]:
        raise ValueError(f"X has {x.shape[1]} features but Y has {y.shape[1]}")
    if x.dtype != y.dtype or x.device != y.device:
        raise TypeError(
            f"X is {x.dtype} on {x.device} but Y is {y.dtype} on {y.device}; convert one of them"
        )
    return x, y


def _as_tensor(name: str, array: Any) -> Tensor:
    if isinstance(array, Tensor):
        tensor = array.detach()
    else:
        array = np.ascontiguousarray(array)
        tensor = from_numpy(array)
    if tensor.dtype not in (torch.float32, torch.float64):
        if tensor.dtype.is_complex or tensor.dtype == torch.bool:
            raise TypeError(f"{name} must hold real numbers, got {tensor.dtype}")
        tensor = tensor.to(torch.float32 if tensor.is_floating_point() else torch.float64)
    if tensor.dim() != 2:
        raise ValueError(
            f"{name} must have 2 axes (rows, features), got shape {tuple(tensor.shape)}"
        )
    if not _largest(tensor).isfinite().all():
        raise ValueError(f"{name} contains NaN or infinity")
    return tensor.contiguous()


class _UnitRows:
    """Rows scaled to unit length, computed on demand if they are many; zeros stay zeros."""

    def __init__(self, x: Tensor) -> None:
        self.x = x
        # Scale by a power of two first, which is exact, so that no square overflows or underflows.
        most = 120 if x.dtype == torch.float32 else 1000
        exponent = torch.frexp(_largest(x)).exponent.clamp(-most, most)
        self.factor = _power_of_two(-exponent, x.dtype)
        scaled = (x[part] * self.factor[part] for part in _row_blocks(x))
        square = torch.cat([part.double().square_().sum(1, keepdim=True) for part in scaled])
        self.length = torch.where(square > 0, square.sqrt(), 1).to(x.dtype)
        factor = self.factor.double()
        self.norms = (square.sqrt() / factor).to(x.dtype)
        self.squares = (square / factor / factor)[:, 0].to(x.dtype)
        self.rows = None if x.numel() * x.element_size() > UNIT_BYTES else self._make(slice(None))

    def __getitem__(self, part: slice) -> Tensor:
        return self._make(part) if self.rows is None else self.rows[part]

    def _make(self, part: slice) -> Tensor:
        return (self.x[part] * self.factor[part]).div_(self.length[part])


def _power_of_two(exponent: Tensor, dtype: torch.dtype) -> Tensor:
    """Return ``2^exponent``, exactly."""
    # torch.ldexp overflows outside the range of float32.
    return torch.from_numpy(np.ldexp(1.0, exponent.cpu().numpy())).to(exponent.device, dtype)


def _row_blocks(x: Tensor) -> list[slice]:
    step = max(1, (1 << 18) // max(1, x.shape[1]))
    return [slice(s, s + step) for s in range(0, max(1, len(x)), step)]


def _largest(x: Tensor) -> Tensor:
    """Return the largest magnitude in each row, (rows, 1)."""
    if not x.numel():
        return x.new_zeros(len(x), 1)
    return torch.cat([x[part].abs().amax(1, keepdim=True) for part in _row_blocks(x)])


def _tile(
    left: _UnitRows,
    right: _UnitRows,
    i: int,
    j: int,
    size: int,
    symmetric: bool,
    results: dict[tuple[str, int], Tensor],
) -> None:
    rows, columns = slice(i, i + size), slice(j, j + size)
    a_norm, b_norm = left.norms[rows], right.norms[columns].t()
    for kind, depth, value in _sweep(left[rows], right[columns], results):
        value.mul_(a_norm).mul_(b_norm)
        if symmetric and i == j:
            value = value.triu(1)
            value += value.t().clone()
            value.diagonal().copy_(left.squares[rows] * diagonal_factor(kind, depth))
        results[kind, depth][rows, columns] = value
        if symmetric and i != j:
            results[kind, depth][columns, rows] = value.t()


def _sweep(
    a: Tensor, b: Tensor, wanted: Iterable[tuple[str, int]]
) -> Iterator[tuple[str, int, Tensor]]:
    """Yield the wanted kernels of unit vectors by increasing depth.

    A yielded tensor may be overwritten by the caller, and is overwritten by the next iteration.

    With ``φ = θ/2`` and ``u = sin² φ``, so that ``cos θ = 1 − 2u``, a layer of the SS network is
    ``u' = u − (√(u − u²) − φ (1 − 2u)) / π``.
    """
    wanted = set(wanted)
    deepest = max(depth for _, depth in wanted)
    deepest_ss = max((depth for kind, depth in wanted if kind == "ss"), default=-1)
    deepest_tangent = max((depth for kind, depth in wanted if kind == "ntk"), default=-1)
    product, u, phi, rest = (
        workspace.empty(name, (len(a), len(b)), a) for name in ("product", "u", "phi", "rest")
    )
    torch.mm(a, b.t(), out=product)
    torch.add(_HALF.to(a), product, alpha=-0.5, out=u)
    near = _near_pairs(a, b, product, u)
    tangent = product.clone() if deepest_tangent >= 0 else None
    for depth in range(deepest + 1):
        if ("ss", depth) in wanted:
            yield "ss", depth, torch.add(_ONE.to(a), u, alpha=-2, out=rest)
        if ("ts", depth) in wanted:
            yield "ts", depth, product if depth == deepest else rest.copy_(product)
        if tangent is not None and ("ntk", depth) in wanted:
            yield "ntk", depth, rest.copy_(tangent)
        if depth == deepest:
            return
        if depth == 0:
            torch.sqrt(u, out=phi).asin_()
        else:
            _arcsine_of_root(u, phi, rest)
        if near is not None and depth == 0:
            phi[near.place] = near.phi
        product.addcmul_(product, phi, value=-2 / math.pi)
        if tangent is not None:
            tangent.addcmul_(tangent, phi, value=-2 / math.pi)
        if depth + 1 < deepest or depth + 1 <= max(deepest_ss, deepest_tangent):
            torch.addcmul(u, u, u, value=-1, out=rest).sqrt_()
            if near is not None and depth == 0:
                rest[near.place] = near.half_sine
            rest.sub_(phi).addcmul_(phi, u, value=2)
            u.add_(rest, alpha=-1 / math.pi).clamp_(min=0)
            if tangent is not None:  # cos θ = 1 − 2u
                tangent.add_(u, alpha=-2).add_(1)


# On the CPU regardless of the default device.
_HALF, _ONE = torch.tensor(0.5, device="cpu"), torch.tensor(1.0, device="cpu")


def _arcsine_of_root(u: Tensor, out: Tensor, scratch: Tensor) -> None:
    """Write ``asin √u`` to ``out`` for 0 ≤ u ≤ ½, the range of every layer but the first."""
    # In float32, √u times a polynomial takes two thirds of the time of asin.
    torch.sqrt(u, out=out)
    if u.dtype == torch.float64:
        out.asin_()
        return
    *lower, second, first = (c.to(u) for c in _ARCSINE)
    torch.addcmul(second, first, u, out=scratch)
    for c in reversed(lower):
        torch.addcmul(c, scratch, u, out=scratch)
    out.mul_(scratch)


def _arcsine_coefficients(degree: int = 6) -> Tensor:
    """Return the polynomial that interpolates ``asin √u / √u`` on [0, ½] with an error of 1e-7."""
    fit = np.polynomial.Chebyshev.interpolate(
        lambda u: np.arcsin(np.sqrt(u)) / np.sqrt(u), degree, domain=[0, 0.5]
    )
    return torch.from_numpy(fit.convert(kind=np.polynomial.Polynomial).coef).to(torch.float32)


_ARCSINE = _arcsine_coefficients()


class _Near(NamedTuple):
    """Pairs of nearly parallel or opposite vectors, with their φ = θ/2 and sin φ cos φ."""

    place: tuple[Tensor, ...]
    phi: Tensor
    half_sine: Tensor


def _near_pairs(a: Tensor, b: Tensor, cosine: Tensor, u: Tensor) -> _Near | None:
    """Return the near pairs, after correcting their ``cos θ`` and ``u = (1 − cos θ) / 2``."""
    # Half the distance from x̂ to ±ŷ is the sine of half the angle between them.
    low, high = (float(bound) for bound in cosine.aminmax())
    if max(high, -low) < 1 - NEAR:
        return None
    place = (cosine.abs() > 1 - NEAR).nonzero(as_tuple=True)
    sign = cosine[place].sign()
    half = torch.empty_like(sign)
    if len(half) > 0.1 * cosine.numel():
        mode = "donot_use_mm_for_euclid_dist"
        distance = torch.cdist(a, b, compute_mode=mode)
        opposite = torch.cdist(a, -b, compute_mode=mode) if low < 0 else distance
        half = torch.where(sign > 0, distance[place], opposite[place]) / 2
    else:
        step = max(1, (1 << 18) // max(1, a.shape[1]))
        for s in range(0, len(half), step):
            part = slice(s, s + step)
            half[part] = (a[place[0][part]] - sign[part, None] * b[place[1][part]]).norm(dim=1) / 2
    squared = half.clamp_(max=1).square()
    phi = half.asin()
    u[place] = torch.where(sign > 0, squared, 1 - squared)
    cosine[place] = sign * (1 - 2 * squared)
    return _Near(place, torch.where(sign > 0, phi, math.pi / 2 - phi), half * (1 - squared).sqrt())
