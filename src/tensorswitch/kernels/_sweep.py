"""The recursion over depths for a tile of unit vectors, all kinds at once.

k_SS,l = cos θ_l,            cos θ_{l+1} = (sin θ_l + (π − θ_l) cos θ_l) / π
k_TS,l+1 = k_TS,l (1 − θ_l / π),        k_NTK,l+1 = cos θ_{l+1} + k_NTK,l (1 − θ_l / π)
"""

import math
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from tensorswitch._memory import workspace

NEAR = 0.08  # 1 ∓ cos θ below which an angle is computed from the difference of the unit vectors


def sweep(
    a: Tensor, b: Tensor, wanted: Iterable[tuple[str, int]]
) -> Iterator[tuple[str, int, Tensor]]:
    """Yield the wanted kernels of unit vectors by increasing depth; the next overwrites a tensor.

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


# The polynomial that interpolates ``asin √u / √u`` on [0, ½] with an error of 1e-7.
_FIT = np.polynomial.Chebyshev.interpolate(
    lambda u: np.arcsin(np.sqrt(u)) / np.sqrt(u), 6, domain=[0, 0.5]
)
_ARCSINE = torch.from_numpy(_FIT.convert(kind=np.polynomial.Polynomial).coef).to(torch.float32)


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
