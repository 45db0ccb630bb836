"""Gradients of predictions, which say how much a column matters.

    weight of column j = (g_j / max g)^p,        g_j = √(mean over rows and outputs of (∂f/∂z_j)²)

With unit vectors ``x̂``, ``ŷ_i``, lengths and ``c = x̂ · ŷ_i``, a kernel ``‖x‖ ‖y‖ κ(c)`` has

    ∇f(x) = Σ_i α_i ‖y_i‖ [(κ − c κ') x̂ + κ' ŷ_i]

    κ_SS,l = cos θ_l                    κ'_SS,l = Π_{m<l} (1 − θ_m / π) = p_l
    κ_TS,l = c p_l                      κ'_TS,l = p_l + c p'_l
    κ_NTK,l+1 = cos θ_{l+1} + κ_NTK,l (1 − θ_l / π),   and its derivative
"""

import math
from collections.abc import Iterator

import torch
from torch import Tensor

LEAST_SINE = 1e-3  # the derivative of an angle is cut off where vectors are nearly parallel


def kappa(cosine: Tensor, kind: str, depth: int) -> tuple[Tensor, Tensor]:
    """Return ``κ(c)`` and ``κ'(c)`` of a kernel of unit vectors."""
    current, product = cosine, torch.ones_like(cosine)
    d_product = torch.zeros_like(cosine)
    tangent, d_tangent = cosine, torch.ones_like(cosine)
    for _ in range(depth):
        angle = current.clamp(-1, 1).acos()
        sine = angle.sin()
        kept = 1 - angle / math.pi
        d_kept = product / (math.pi * sine.clamp(min=LEAST_SINE))
        d_product = d_product * kept + product * d_kept
        current = (sine + (math.pi - angle) * current) / math.pi
        product = product * kept
        d_tangent = product + d_tangent * kept + tangent * d_kept
        tangent = current + tangent * kept
    if kind == "ss":
        return current, product
    if kind == "ts":
        return cosine * product, product + cosine * d_product
    return tangent, d_tangent


def gradients(z: Tensor, support: Tensor, coef: Tensor, kind: str, depth: int) -> Iterator[Tensor]:
    """Yield ``∂f/∂z`` of each output, of the shape of ``z``."""
    tiny = torch.finfo(z.dtype).tiny  # a row may be zero if there is no constant
    lengths = support.norm(dim=1, keepdim=True)
    unit_x = z / z.norm(dim=1, keepdim=True).clamp(min=tiny)
    unit_y = support / lengths.clamp(min=tiny)
    cosine = unit_x @ unit_y.t()
    value, slope = kappa(cosine, kind, depth)
    slope[cosine > 1 - 4 * torch.finfo(z.dtype).eps] = 0  # the same row twice
    rest = value - cosine * slope
    for column in (coef * lengths).unbind(1):
        yield (rest @ column)[:, None] * unit_x + slope @ (column[:, None] * unit_y)


def column_sensitivities(z: Tensor, support: Tensor, coef: Tensor, kind: str, depth: int) -> Tensor:
    """Return the root mean square of ``∂f/∂z_j`` over rows and outputs, for each column."""
    total = sum(g.square().sum(0) for g in gradients(z, support, coef, kind, depth))
    assert isinstance(total, Tensor)
    return (total / (len(z) * coef.shape[1])).sqrt()
