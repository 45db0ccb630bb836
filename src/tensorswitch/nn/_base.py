"""What the layers have in common: parameters, their initialisation, and checks of the input."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tensorswitch._checks import check_dtype_device, check_floating


class Switching(nn.Module):
    """Base class of the layers."""

    learn_gates: str | None
    weight: nn.Parameter
    bias: nn.Parameter | None
    gate_bias: nn.Parameter | None
    constant: nn.Parameter | None
    dropout: float

    def _make(
        self, weight: Sequence[int], bias: int | None, learn_gates: str | None, **factory: Any
    ) -> None:
        if learn_gates not in (None, "ibp"):
            raise ValueError(f"learn_gates must be None or 'ibp', got {learn_gates!r}")
        self.learn_gates = learn_gates
        self.weight = nn.Parameter(torch.empty(tuple(weight), **factory))
        self.register_parameter(
            "bias", None if bias is None else nn.Parameter(torch.empty(bias, **factory))
        )

    def _make_constant(self, gates: int, outputs: int, gate_bias: bool, **factory: Any) -> None:
        """Register the gate bias, and the weights of the constant 1 in the copies."""
        self.register_parameter(
            "gate_bias", self._gate_parameter(gates, **factory) if gate_bias else None
        )
        constant = nn.Parameter(torch.empty(gates, outputs, **factory)) if gate_bias else None
        self.register_parameter("constant", constant)

    def _gate_parameter(self, *shape: int, **factory: Any) -> nn.Parameter:
        return nn.Parameter(
            torch.empty(shape, **factory), requires_grad=self.learn_gates is not None
        )

    def _set_dropout(self, dropout: float) -> None:
        if not 0 <= dropout < 1:
            raise ValueError(f"dropout must be at least 0 and below 1, got {dropout!r}")
        self.dropout = float(dropout)

    def _dropped(self, gates: Tensor) -> tuple[Tensor, float]:
        """Return the gates after dropout, and the factor that keeps the mean of the output."""
        if not self.training or not self.dropout:
            return gates, 1.0
        kept = torch.rand(gates.shape, device=gates.device) >= self.dropout
        return gates & kept, 1 / (1 - self.dropout)

    def _scores(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """Return ``W x + b``, without a gradient of ``x``, nor of the gates if they are fixed."""
        if self.learn_gates is None:
            weight, bias = weight.detach(), None if bias is None else bias.detach()
        return F.linear(x.detach(), weight, bias)

    def _reset(self, gate_weights: Sequence[Tensor], zeros: Sequence[Tensor | None]) -> None:
        for w in gate_weights:
            nn.init.xavier_uniform_(w)
        out = self.weight.shape[-1]
        bound = math.sqrt(6 / (self.weight.numel() // out + out))
        nn.init.uniform_(self.weight, -bound, bound)
        for parameter in (self.bias, *zeros):
            if parameter is not None:
                nn.init.zeros_(parameter)

    def _flat(self, x: Tensor, *tail: int) -> tuple[Tensor, tuple[int, ...]]:
        """Return the input with its leading axes folded into one, and the sizes of these axes."""
        check_floating("input", x)
        names = ("in_channels", "height", "width") if len(tail) == 3 else ("in_features",)
        if x.dim() < len(tail):
            raise ValueError(
                f"input must end in the axes ({', '.join(names)}), got shape {tuple(x.shape)}"
            )
        axis = x.dim() - len(tail)
        if x.shape[axis] != tail[0]:
            raise ValueError(
                f"input has size {x.shape[axis]} on axis {axis} ({names[0]}), "
                f"expected {tail[0]}; its shape is {tuple(x.shape)}"
            )
        check_dtype_device("input", x, "weight", self.weight)
        lead = tuple(x.shape[:axis])
        return (x if axis == 1 else x.reshape(math.prod(lead), *x.shape[axis:])), lead
