"""The map of plain tensors on the CPU, without the layers of Python around registered operators.

These layers take a twentieth of a training step with 128 rows and 64 units. Everything that has to
see the operators still does: compilers, transforms, modes, autocast and second derivatives.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from tensorswitch._checks import autocast_dtype
from tensorswitch.switched import _compute
from tensorswitch.switched._library import linear_gradients
from tensorswitch.switched._transforms import transforms_active

# Of tensors that hold numbers on the CPU; those of vmap, fake tensors and others have more keys.
PLAIN_KEYS = [torch._C._dispatch_keys(torch.empty(0, device="cpu"))]
with torch.inference_mode():
    PLAIN_KEYS.append(torch._C._dispatch_keys(torch.empty(0, device="cpu")))


def is_eager(*tensors: Tensor) -> bool:
    """Return whether nothing but autograd takes part, and the tensors hold numbers on the CPU."""
    return (
        all(torch._C._dispatch_keys(t) in PLAIN_KEYS for t in tensors)
        and not torch._C._len_torch_dispatch_stack()
        and not transforms_active()
        and autocast_dtype(tensors[0].device) is None
    )


class EagerLinear(torch.autograd.Function):
    """``F(x, V)`` for a given strategy."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, gates: Tensor, weight: Tensor, group: int) -> Tensor:
        # ctx.needs_input_grad is modified during the backward pass, and threads may share a graph.
        ctx.group, ctx.needed = group, (x.requires_grad, weight.requires_grad)
        ctx.save_for_backward(x, gates, weight)
        return _compute.map_rows(x, gates, weight, group, keep=True)

    @staticmethod
    def backward(ctx: Any, delta: Tensor) -> tuple[Any, ...]:
        x, gates, weight = ctx.saved_tensors
        need_x, need_weight = ctx.needed
        if torch.is_grad_enabled() or not is_eager(delta, x, gates, weight):
            grad_x, grad_weight = linear_gradients(delta, x, gates, weight, ctx.group, *ctx.needed)
        else:
            grad_x, grad_weight = _compute.gradients(
                x, gates, weight, delta, ctx.group, need_x, need_weight
            )
        return grad_x if need_x else None, None, grad_weight if need_weight else None, None
