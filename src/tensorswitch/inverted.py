"""Inverted backpropagation: pseudo-gradients for gate weights, whose true gradient is zero.

With errors ``δ = ∂L/∂y``, analysis weights ``V`` and ``v_j = w_j / ‖w_j‖²``, the pseudo-gradient of
the gate weight ``w_j`` is

    ∂w_j = Σ_b G_bj h_bj x_b,        G = δ Uᵀ,        U_j = V_jᵀ v_j

The expanded errors are never formed: ``U`` takes one pass over ``V`` for a whole batch. In a deep
network, ``V`` is contracted with the ``v`` of one layer after another, and the errors are weighted
by the gates of the layers above. ``G ∘ h`` takes the place of the gradient of the scores ``W x`` in
ordinary backpropagation; from there autograd computes the rest, for linear and convolutional gates
alike.

References
----------
Tsai, Saxe and Cox, Tensor Switching Networks, arXiv:1610.10087, Sec. 4.2, Eq. (6);
:func:`tensorswitch.algebra.pseudo_gradients` is the same computation on the expanded tensors.
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
    """Return ``y`` such that its backward pass also sends pseudo-gradients to the gate scores.

    Parameters
    ----------
    y : Tensor of shape (rows, out_features)
        Readout of the copies that ``gates`` let through.
    scores : sequence of Tensor
        For each layer ``W_l x_{l-1}``, of shape (pairs, n_l), differentiable with respect to
        ``W_l`` only.
    gates : sequence of bool Tensor
        For each layer which units are open, of shape (pairs, n_l).
    weight : Tensor of shape (n_L, …, n_1, n_0, out_features)
        Analysis weights.
    gate_weights : sequence of Tensor
        For each layer ``W_l``, of shape (n_l, n_{l-1}). Rows of zeros get a pseudo-gradient of
        zero.
    target : int64 Tensor of shape (pairs,), optional
        Row of ``y`` that each row of scores contributes to. By default the same row.

    Returns
    -------
    Tensor of shape (rows, out_features)
        A copy of ``y``.

    References
    ----------
    Tsai, Saxe and Cox, Tensor Switching Networks, arXiv:1610.10087, Eq. (6).

    Examples
    --------
    >>> from tensorswitch import switched_linear
    >>> x, weight = torch.tensor([[1.0, 2.0]]), torch.ones(1, 2, 1)
    >>> gate_weight = torch.tensor([[1.0, 0.0]], requires_grad=True)
    >>> scores = x @ gate_weight.T
    >>> y = switched_linear(x, scores > 0, weight)
    >>> y = with_pseudo_gradients(y, [scores], [scores > 0], weight, [gate_weight])
    >>> y.sum().backward()
    >>> gate_weight.grad
    tensor([[1., 2.]])
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
        return y.clone()  # a view could not be modified in place by the next layer

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, delta: Tensor) -> tuple[Tensor | None, ...]:
        weight, *saved = ctx.saved_tensors
        gates, gate_weights = saved[: ctx.layers], saved[ctx.layers :]
        with torch.autocast(delta.device.type, enabled=False):
            delta_full = delta.to(weight.dtype)
            pseudo = _score_gradients(delta_full, gates, weight, gate_weights, ctx.target)
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
        if above:
            g = switched_linear(delta, combine_gates(above), u.transpose(1, 2))
        else:
            g = delta @ u[0].t()
        results.append((g if target is None else g.index_select(0, target)) * h)
    return results


def _contract(u: Tensor, w: Tensor) -> Tensor:
    """Return ``Σ_i u[…, j, i, :] v_ji`` with ``v_j = w_j / ‖w_j‖²``, or 0 where ``w_j`` is 0."""
    squared = w.square().sum(1, keepdim=True)
    v = torch.where(squared > 0, w / squared, 0)
    return (v[:, None, :] @ u).squeeze(-2)
