"""The map of plain tensors on the CPU, without the layers of Python around registered operators.

These layers take a twentieth of a training step with 128 rows and 64 units. Everything that has to
see the operators still does: compilers, transforms, modes, subclasses, autocast and second
derivatives.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import _disable_current_modes
from torch.utils.weak import WeakIdKeyDictionary

from tensorswitch._checks import autocast_dtype
from tensorswitch.switched import _compute
from tensorswitch.switched._library import linear_gradients
from tensorswitch.switched._transforms import transforms_active


def _keys(inference: bool) -> Any:
    """Return the dispatch keys of a tensor that holds numbers on the CPU."""
    with _disable_current_modes(), torch.inference_mode(inference):
        return torch._C._dispatch_keys(torch.empty(0, device="cpu"))


# Tensors of vmap, fake tensors and others have more keys.
PLAIN_KEYS = [_keys(inference=False), _keys(inference=True)]


def is_eager(*tensors: Tensor) -> bool:
    """Return whether nothing but autograd and autocast sees what is done with these tensors."""
    return (
        all(
            type(t) in (Tensor, nn.Parameter) and torch._C._dispatch_keys(t) in PLAIN_KEYS
            for t in tensors
        )
        and not torch._C._len_torch_dispatch_stack()
        and not torch._C._len_torch_function_stack()
        and not torch._C._dispatch_tls_is_dispatch_key_included(torch._C.DispatchKey.PreDispatch)
        and not transforms_active()
    )


def saved_tensors_are_hooked() -> bool:
    """Return whether saved tensors are watched, as by ``torch.utils.checkpoint``."""
    return torch._C._autograd._top_saved_tensors_default_hooks(True) is not None


# From the forward to the backward pass, as long as the gates exist: the context of a graph that is
# kept, say with a list of losses, would hold the plans after its tensors are freed.
_known: WeakIdKeyDictionary = WeakIdKeyDictionary()


class EagerLinear(torch.autograd.Function):
    """``F(x, V)`` for a given strategy; ``V`` may have a wider dtype than ``x``."""

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        gates: Tensor,
        weight: Tensor,
        group: int,
        known: _compute.Census | None,
    ) -> Tensor:
        # ctx.needs_input_grad is modified during the backward pass, and threads may share a graph.
        ctx.group, ctx.needed = group, (x.requires_grad, weight.requires_grad)
        ctx.save_for_backward(x, gates, weight)
        if group:
            known = known or _compute.census(gates)
            _known[gates] = known
        return _compute.map_rows(x, gates, weight, group, known)

    @staticmethod
    def backward(ctx: Any, delta: Tensor) -> tuple[Any, ...]:
        x, gates, weight = ctx.saved_tensors
        need_x, need_weight = ctx.needed
        if (
            torch.compiler.is_compiling()
            or torch.is_grad_enabled()
            or not is_eager(delta, x, gates, weight)
            or autocast_dtype(x.device) is not None
        ):
            narrow = weight.to(x.dtype)
            grad_x, grad_weight = linear_gradients(delta, x, gates, narrow, ctx.group, *ctx.needed)
            if grad_weight is not None:
                grad_weight = grad_weight.to(weight.dtype)
        else:
            known = _known.get(gates)  # autograd has checked that these gates have not changed
            grad_x, grad_weight = _compute.gradients(
                x, gates, weight, delta, ctx.group, known, need_x, need_weight
            )
        return grad_x if need_x else None, None, grad_weight if need_weight else None, None, None
