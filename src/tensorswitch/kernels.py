"""Equivalent kernels of infinitely wide random networks, scalar (SS) and tensor switching (TS), of any depth; and of finite TS networks.

With ``θ_l`` the angle between the two inputs after l layers of the SS network, ``θ_0`` the angle between ``x`` and ``y``:

    k_SS,l = ‖x‖ ‖y‖ cos θ_l              cos θ_{l+1} = (sin θ_l + (π − θ_l) cos θ_l) / π
    k_TS,l = x·y Π_{m<l} (1 − θ_m / π)

Depth 0 is the linear kernel, and k(x, x) = ‖x‖² at any depth.

The recursion runs in tiles that stay in cache, all kinds and depths in one sweep, one triangle only for k(X, X). It carries ``1 − cos θ`` rather than
``cos θ``, which keeps small angles exact, where the TS kernel has its cusp. The first angle of pairs that are nearly parallel or opposite is taken
from ``‖x̂ ∓ ŷ‖`` since their scalar product has lost it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import torch
from torch import Tensor

if TYPE_CHECKING:
    from tensorswitch.nn import TensorSwitching

__all__ = ["finite_kernel", "kernels", "ss_kernel", "ts_kernel"]

Array = TypeVar("Array", np.ndarray, Tensor)
Kernels = dict[tuple[str, int], Any]

TILE = 384  # rows and columns of a tile: a few such arrays fit in a core's cache
NEAR = 0.08  # 1 ∓ cos θ below which an angle is taken from the difference of the unit vectors


def ss_kernel(X: Array, Y: Array | None = None, depth: int = 1, *, progress: bool = False) -> Array:
    """The scalar switching (ReLU) kernel, the arc-cosine kernel of degree 1: (rows of X, rows of Y).

    >>> ss_kernel(np.eye(2)).round(4)
    array([[1.    , 0.3183],
           [0.3183, 1.    ]])
    """
    return kernels(X, Y, depths=[depth], kinds=["ss"], progress=progress)["ss", depth]  # type: ignore[no-any-return]


def ts_kernel(X: Array, Y: Array | None = None, depth: int = 1, *, progress: bool = False) -> Array:
    """The tensor switching kernel, ``(1 − θ/π) x·y`` at depth 1: (rows of X, rows of Y).

    >>> ts_kernel(np.array([[1.0, 0.0], [1.0, 1.0]])).round(4)
    array([[1.  , 0.75],
           [0.75, 2.  ]])
    """
    return kernels(X, Y, depths=[depth], kinds=["ts"], progress=progress)["ts", depth]  # type: ignore[no-any-return]


def kernels(
    X: Array,
    Y: Array | None = None,
    *,
    depths: Iterable[int] = (1,),
    kinds: Iterable[str] = ("ss", "ts"),
    dtype: torch.dtype | None = None,
    threads: int | None = None,
    progress: bool = False,
) -> dict[tuple[str, int], Array]:
    """Several depths and kinds in one sweep, which costs little more than the deepest alone.

    Parameters
    ----------
    X, Y : (rows, features), NumPy arrays or torch tensors of float32 or float64; without ``Y`` it is ``X`` and the result is symmetric to the bit
    depths : whole numbers from 0 (the linear kernel)
    kinds : "ss", "ts" or both
    dtype : torch type of the result, by default that of ``X``, in which it is computed in any case
    threads : CPU threads, by default as many as torch uses
    progress : show a progress bar

    Returns
    -------
    For each ``(kind, depth)`` the matrix (rows of X, rows of Y), of the kind and type of ``X``. Values beyond the range of the type overflow or
    underflow as its products do.
    """
    depths, kinds = [check_depth(d) for d in depths], list(kinds)
    if not kinds or any(kind not in ("ss", "ts") for kind in kinds):
        raise ValueError(f"kinds must be 'ss', 'ts' or both, got {kinds!r}")
    if not depths:
        raise ValueError("depths must name at least one depth")
    x = _as_tensor("X", X)
    y = x if Y is None else _as_tensor("Y", Y)
    if x.shape[1] != y.shape[1]:
        raise ValueError(f"X has {x.shape[1]} features but Y has {y.shape[1]}")
    if x.dtype != y.dtype or x.device != y.device:
        raise TypeError(f"X is {x.dtype} on {x.device} but Y is {y.dtype} on {y.device}; convert one of them")
    results = {(kind, depth): x.new_empty(len(x), len(y), dtype=dtype) for kind in dict.fromkeys(kinds) for depth in dict.fromkeys(depths)}
    left = _unit_rows(x)
    right = left if Y is None else _unit_rows(y)
    tiles = [(i, j) for i in range(0, len(x), TILE) for j in range(0, len(y), TILE) if Y is not None or i <= j]

    def run(tile: tuple[int, int]) -> None:
        _tile(left, right, *tile, Y is None, results)

    _each(run, tiles, threads if x.is_cpu else 1, progress)
    return {key: value if isinstance(X, Tensor) else value.numpy() for key, value in results.items()}


@torch.no_grad()
def finite_kernel(network: TensorSwitching, X: Array, Y: Array | None = None) -> Array:
    """The kernel of a finite TS network, ``(X Yᵀ) ∘ Π_l (2 / n_l) H_l(X) H_l(Y)ᵀ``: (rows of X, rows of Y).

    With gate weights drawn from a Gaussian it approaches :func:`ts_kernel` of the same depth, with an error that falls as ``n^−½``.
    """
    x = _as_tensor("X", X)
    y = x if Y is None else _as_tensor("Y", Y)
    result = x @ y.t()
    for w in network.gate_weights:
        weight = w.to(x)
        if weight.shape[1] != x.shape[1] and weight is network.gate_weights[0]:
            raise ValueError(f"X has {x.shape[1]} features but the network takes {weight.shape[1]}")
        x, y = (x @ weight.t()).relu(), (y @ weight.t()).relu()
        result *= (2 / len(weight)) * ((x > 0).to(result) @ (y > 0).to(result).t())
    return result if isinstance(X, Tensor) else result.numpy()  # type: ignore[return-value]


def check_depth(depth: int) -> int:
    if isinstance(depth, bool) or not isinstance(depth, int | np.integer):
        raise TypeError(f"depth must be an integer, got {depth!r}")
    if depth < 0:
        raise ValueError(f"depth must be 0 or more, got {depth}")
    return int(depth)


def _as_tensor(name: str, array: Any) -> Tensor:
    tensor = array.detach() if isinstance(array, Tensor) else torch.from_numpy(np.ascontiguousarray(array))
    if tensor.dtype not in (torch.float32, torch.float64):
        if tensor.dtype.is_complex or tensor.dtype == torch.bool:
            raise TypeError(f"{name} must hold real numbers, got {tensor.dtype}")
        tensor = tensor.to(torch.float32 if tensor.is_floating_point() else torch.float64)
    if tensor.dim() != 2:
        raise ValueError(f"{name} must have 2 axes (rows, features), got shape {tuple(tensor.shape)}")
    if not tensor.isfinite().all():
        raise ValueError(f"{name} contains NaN or infinity")
    return tensor.contiguous()


class _unit_rows:
    """Rows scaled to unit length, and their lengths; a row of zeros stays."""

    def __init__(self, x: Tensor) -> None:
        largest = x.abs().amax(1, keepdim=True) if x.shape[1] else x.new_zeros(len(x), 1)
        scaled = x / torch.where(largest > 0, largest, 1)  # so that no square overflows or underflows
        length = scaled.double().square().sum(1, keepdim=True).sqrt()
        self.rows = (scaled / torch.where(length > 0, length, 1)).to(x.dtype)
        self.norms = (length * largest).to(x.dtype)
        self.squares = (length * largest.double()).square()[:, 0].to(x.dtype)


def _tile(left: _unit_rows, right: _unit_rows, i: int, j: int, symmetric: bool, results: dict[tuple[str, int], Tensor]) -> None:
    rows, columns = slice(i, i + TILE), slice(j, j + TILE)
    a, b = left.rows[rows], right.rows[columns]
    a_norm, b_norm = left.norms[rows], right.norms[columns].t()
    deepest = max(depth for _, depth in results)
    ts_wanted = any(kind == "ts" for kind, _ in results)
    product = a.new_ones(len(a), len(b)) if ts_wanted else None
    for depth, (versine, linear) in enumerate(_angles(a, b, deepest, product)):
        for kind in ("ss", "ts"):
            if (kind, depth) not in results:
                continue
            out = results[kind, depth]
            value = 1 - versine if kind == "ss" or product is None else product * linear
            value.mul_(a_norm).mul_(b_norm)
            if symmetric and i == j:
                value = value.triu(1)
                value += value.t().clone()
                value.diagonal().copy_(left.squares[rows])
            out[rows, columns] = value
            if symmetric and i != j:
                out[columns, rows] = value.t()


def _angles(a: Tensor, b: Tensor, deepest: int, product: Tensor | None) -> Iterator[tuple[Tensor, Tensor]]:
    """For depth 0, 1, … yields ``1 − cos θ_l`` and ``cos θ_0``, and multiplies ``product`` by ``1 − θ_l / π`` on the way to the next depth."""
    linear = a @ b.t()
    linear.clamp_(-1, 1)
    versine = 1 - linear
    near = _near_pairs(a, b, linear, versine)
    yield versine, linear
    buffer, sine = torch.empty_like(versine), torch.empty_like(versine)
    for depth in range(deepest):
        theta = torch.mul(versine, 0.5, out=buffer).clamp_(min=0).sqrt_().clamp_(max=1).asin_().mul_(2)
        torch.sub(2, versine, out=sine).mul_(versine).clamp_(min=0).sqrt_()
        if depth == 0 and near is not None:
            place, exact_theta, exact_sine = near
            theta[place], sine[place] = exact_theta, exact_sine
        if product is not None:
            product.addcmul_(product, theta, value=-1 / math.pi)
        # 1 − cos θ' = (1 − cos θ) − (sin θ − θ cos θ) / π
        sine.sub_(theta).addcmul_(theta, versine)
        versine.add_(sine, alpha=-1 / math.pi)
        yield versine, linear


def _near_pairs(a: Tensor, b: Tensor, linear: Tensor, versine: Tensor) -> tuple[tuple[Tensor, Tensor], Tensor, Tensor] | None:
    """Pairs that are nearly parallel or opposite: mends their ``cos θ`` and ``1 − cos θ``, and returns where they are, their θ and sin θ."""
    place = (linear.abs() > 1 - NEAR).nonzero(as_tuple=True)
    if not len(place[0]):
        return None
    known = linear[place]
    sign = torch.where(known > 0, 1.0, -1.0).to(known)
    half = torch.empty_like(known)  # half the distance between x̂ and ±ŷ is the sine of half the angle
    if len(known) > 0.1 * linear.numel():
        distance = torch.cdist(a, b, compute_mode="donot_use_mm_for_euclid_dist")
        opposite = torch.cdist(a, -b, compute_mode="donot_use_mm_for_euclid_dist") if (sign < 0).any() else distance
        half = torch.where(sign > 0, distance[place], opposite[place]) / 2
    else:
        step = max(1, (1 << 18) // max(1, a.shape[1]))
        for s in range(0, len(known), step):
            part = slice(s, s + step)
            half[part] = (a[place[0][part]] - sign[part, None] * b[place[1][part]]).norm(dim=1) / 2
    half.clamp_(max=1)
    small = 2 * half.asin()
    theta = torch.where(sign > 0, small, math.pi - small)
    vers = 2 * half.square()
    versine[place] = torch.where(sign > 0, vers, 2 - vers)
    linear[place] = sign * (1 - vers)
    return place, theta, small.sin()


def _each(run: Callable[[Any], None], items: Sequence[Any], threads: int | None, progress: bool) -> None:
    """``run`` on every item, on threads of one core each: the operations release Python's lock."""
    count = threads or torch.get_num_threads()
    if progress:
        from tqdm.auto import tqdm
    else:
        tqdm = None
    with _one_thread_each(), ThreadPoolExecutor(count, initializer=torch.set_num_threads, initargs=(1,)) as pool:
        done = pool.map(run, items)
        for _ in tqdm(done, total=len(items), desc="kernel", unit="tile") if tqdm else done:
            pass


@contextmanager
def _one_thread_each() -> Iterator[None]:
    before = torch.get_num_threads()
    try:
        yield
    finally:
        torch.set_num_threads(before)
