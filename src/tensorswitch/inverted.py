"""Inverted backpropagation: pseudo-gradients for gate weights, which have no gradient of their own.

With errors ``δ = ∂L/∂y``, analysis weights ``V`` and ``v_j = w_j / ‖w_j‖²`` the pseudo-gradient of a gate weight is

    ∂w_j = Σ_b G_bj h_bj x_b,        G = δ Uᵀ,        U_j = V_jᵀ v_j

so the expanded errors are never formed: ``U`` costs one sweep over ``V`` for a whole batch. Deep networks contract ``V`` by the ``v`` of one layer
after another, and weigh the errors by the gates of the layers above. Since ``G ∘ h`` is what plain backpropagation would hand to the scores
``W x``, the pseudo-gradient enters there, and autograd does the rest for linear and convolutional gates alike.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from tensorswitch.switched import switched_linear
from tensorswitch.switches import combine_gates

__all__ = ["with_pseudo_gradients"]


def with_pseudo_gradients(
    y: Tensor,
    scores: Sequence[Tensor],
    gates: Sequence[Tensor],
    weight: Tensor,
    gate_weights: Sequence[Tensor],
    target: Tensor | None = None,
) -> Tensor:
    """``y`` itself; its ``backward`` also sends pseudo-gradients to the gate scores.

    Parameters
    ----------
    y : (rows, out), a readout of the copies that ``gates`` let through
    scores : for each layer ``W_l x_{l-1}`` (pairs, n_l), differentiable in ``W_l`` alone
    gates : for each layer boolean (pairs, n_l)
    weight : (n_L, …, n_1, n_0, out)
    gate_weights : for each layer (n_l, n_{l-1}); rows of zeros get a pseudo-gradient of zero
    target : (pairs,) the row of ``y`` for each row of scores, where they differ
    """
    result: Tensor = _Inverted.apply(
        y,
        target,
        weight.detach(),
        len(scores),
        *gates,
        *(w.detach() for w in gate_weights),
        *scores,
    )
    return result


class _Inverted(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, y: Tensor, target: Tensor | None, weight: Tensor, layers: int, *tensors: Tensor
    ) -> Tensor:
        ctx.layers, ctx.target = layers, target
        ctx.dtypes = [s.dtype for s in tensors[2 * layers :]]
        ctx.save_for_backward(weight, *tensors[: 2 * layers])
        return y.clone()  # not a view, so that what comes next may work in place

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, delta: Tensor) -> tuple[Tensor | None, ...]:
        weight, *saved = ctx.saved_tensors
        gates, gate_weights = saved[: ctx.layers], saved[ctx.layers :]
        with torch.autocast(delta.device.type, enabled=False):
            pseudo = _score_gradients(
                delta.to(weight.dtype), gates, weight, gate_weights, ctx.target
            )
            results = [g.to(dtype) for g, dtype in zip(pseudo, ctx.dtypes, strict=True)]
        return delta, None, None, None, *[None] * (2 * ctx.layers), *results


def _score_gradients(
    delta: Tensor,
    gates: list[Tensor],
    weight: Tensor,
    gate_weights: list[Tensor],
    target: Tensor | None,
) -> list[Tensor]:
    out = weight.shape[-1]
    u, results = weight, []
    for layer, (h, w) in enumerate(zip(gates, gate_weights, strict=True)):
        u = _contract(u.reshape(-1, *w.shape, out), w)  # (units above, n_l, out)
        above = gates[layer + 1 :]
        g = (
            switched_linear(delta, combine_gates(above), u.transpose(1, 2))
            if above
            else delta @ u[0].t()
        )
        results.append((g if target is None else g.index_select(0, target)) * h)
    return results


def _contract(u: Tensor, w: Tensor) -> Tensor:
    """``Σ_i u[…, j, i, :] v_ji`` with ``v_j = w_j / ‖w_j‖²``, and ``v_j = 0`` for a row of zeros."""
    squared = w.square().sum(1, keepdim=True)
    v = torch.where(squared > 0, w / squared, 0)
    return (v[:, None, :] @ u).squeeze(-2)
