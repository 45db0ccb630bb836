"""Inverted backpropagation (Eq. 6): pseudo-gradients for gate weights, whose gradient is zero.

With errors ``δ = ∂L/∂y``, analysis weights ``V`` and ``v_j = w_j / ‖w_j‖²``, the pseudo-gradient of
the gate weight ``w_j`` is

    ∂w_j = Σ_b G_bj h_bj x_b,        G = δ Uᵀ,        U_j = V_jᵀ v_j

The expanded errors are never formed: ``U`` takes one pass over ``V`` for a whole batch. In a deep
network, ``V`` is contracted with the ``v`` of one layer after another, and the errors are weighted
by the gates of the layers above. ``G ∘ h`` takes the place of the gradient of the scores
``s = W x`` in ordinary backpropagation; from there autograd computes the rest, for linear and
convolutional gates alike. To autograd the pseudo-gradient is the gradient of ``((s − s₀) ∘ h) U``
with constant ``h``, ``U`` and ``s₀ = s``, whose value is zero.
:func:`tensorswitch.algebra.pseudo_gradients` is the same computation on the expanded tensors.
"""

from collections.abc import Sequence
from contextlib import nullcontext

import torch
from torch import Tensor

from tensorswitch._checks import autocast_dtype
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
    *,
    gate_bias: Tensor | None = None,
    constant: Tensor | None = None,
) -> Tensor:
    """Return ``y`` such that its backward pass also sends pseudo-gradients to the gate scores.

    Parameters
    ----------
    y : Tensor of shape (rows, out_features)
        Readout of the copies that ``gates`` let through.
    scores, gates : sequence of Tensor and sequence of bool Tensor
        For each layer ``W_l x_{l-1}``, differentiable with respect to ``W_l`` only, and which
        units are open, both of shape (pairs, n_l).
    weight : Tensor of shape (n_L, …, n_1, n_0, out_features)
        Analysis weights.
    gate_weights : sequence of Tensor
        For each layer ``W_l``, of shape (n_l, n_{l-1}). Rows of zeros, or so small that
        their squared length is not a normal number, get a pseudo-gradient of zero.
    target : int64 Tensor of shape (pairs,), optional
        Row of ``y`` that each row of scores contributes to. By default the same row.
    gate_bias, constant : Tensor of shape (n_1,) and (n_1, out_features), optional
        Bias of the scores of a single layer, whose copies include a constant 1, and the analysis
        weights of that constant.

    Examples
    --------
    >>> import torch
    >>> from tensorswitch import switched_linear
    >>> from tensorswitch.inverted import with_pseudo_gradients
    >>> x, weight = torch.tensor([[1.0, 2.0]]), torch.ones(1, 2, 1)
    >>> gate_weight = torch.tensor([[1.0, 0.0]], requires_grad=True)
    >>> scores = x @ gate_weight.T
    >>> y = switched_linear(x, scores > 0, weight)
    >>> y = with_pseudo_gradients(y, [scores], [scores > 0], weight, [gate_weight])
    >>> y.sum().backward()
    >>> gate_weight.grad
    tensor([[1., 2.]])
    """
    exact = autocast_dtype(y.device) is not None
    with torch.autocast(y.device.type, enabled=False) if exact else nullcontext():
        nothing: Tensor | None = None  # zero, but its gradient is not
        u = weight.detach()
        u = u.to(torch.promote_types(u.dtype, torch.float32))  # squares leave the range of float16
        for layer, (s, h, w) in enumerate(zip(scores, gates, gate_weights, strict=True)):
            first = (gate_bias, constant) if layer == 0 else (None, None)
            u = _contract(u.reshape(-1, *w.shape, u.shape[-1]), w.detach(), *first)
            passed, above = (s - s.detach()).to(u.dtype) * h, gates[layer + 1 :]
            # u: (units above, n_l, out)
            part = switched_linear(passed, combine_gates(above), u) if above else passed @ u[0]
            nothing = part if nothing is None else nothing + part
        assert nothing is not None
    nothing = nothing.to(y.dtype)
    return y + nothing if target is None else y.index_add(0, target, nothing)


def _contract(u: Tensor, w: Tensor, bias: Tensor | None, constant: Tensor | None) -> Tensor:
    """Return ``Σ_i u[…, j, i, :] v_ji`` with ``v_j = w_j / ‖w_j‖²``, or 0 where ``w_j`` is 0."""
    w = (w if bias is None else torch.cat([w, bias.detach()[:, None]], 1)).to(u.dtype)
    squared = w.square().sum(1, keepdim=True)
    v = torch.where(squared < torch.finfo(u.dtype).tiny, 0, w / squared)
    result = (v[:, None, : u.shape[-2]] @ u).squeeze(-2)
    if bias is None or constant is None:
        return result
    return result + v[:, -1:] * constant.detach()
