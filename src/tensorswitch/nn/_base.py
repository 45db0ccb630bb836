"""What the layers have in common: parameters, their initialisation, and checks of the input."""

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from inspect import signature
from typing import Any, Self

import torch
from torch import Tensor, nn
from torch.jit import is_tracing  # type: ignore[attr-defined]
from torch.nn import functional as F

from tensorswitch._checks import check_dtype_device, check_floating
from tensorswitch._memory import check_memory
from tensorswitch.inverted import with_pseudo_gradients
from tensorswitch.switched import switched_linear
from tensorswitch.switches import Routes, Switch, as_switch


class Switching(nn.Module):
    """Base class of the layers."""

    def _make(
        self, weight: Sequence[int], bias: int | None, learn_gates: str | None, **factory: Any
    ) -> None:
        if learn_gates not in (None, "ibp"):
            raise ValueError(f"learn_gates must be None or 'ibp', got {learn_gates!r}")
        self.learn_gates = learn_gates
        self.weight = nn.Parameter(torch.empty(tuple(weight), **factory))
        self.bias = None if bias is None else nn.Parameter(torch.empty(bias, **factory))

    def _gate_parameter(self, *shape: int, **factory: Any) -> nn.Parameter:
        return nn.Parameter(torch.empty(shape, **factory), self.learn_gates is not None)

    def _scores(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """Return ``W x + b``, without a gradient of ``x``, nor of the gates if they are fixed."""
        if self.learn_gates is None:
            weight, bias = weight.detach(), None if bias is None else bias.detach()
        return F.linear(x.detach(), weight, bias)

    def _learns(self, scores: Tensor) -> bool:
        """Return whether a pseudo-gradient is wanted; a trace runs where there is none."""
        tracing = not torch.compiler.is_compiling() and is_tracing()
        return scores.requires_grad and not tracing

    def extra_repr(self) -> str:
        """Return the settings shown by ``repr``."""
        names = [n for n in signature(type(self)).parameters if n not in ("device", "dtype")]
        values = {n: getattr(self, n) for n in names}
        shown = {n: v is not None if n.endswith("bias") else v for n, v in values.items()}
        # Only text by its repr, so that NumPy integers look like plain ones.
        quoted = {n: repr(v) if isinstance(v, str) else v for n, v in shown.items()}
        return ", ".join(f"{n}={v}" for n, v in quoted.items())

    def _reset(self, gate_weights: Sequence[Tensor], zeros: Sequence[Tensor | None]) -> None:
        for w in gate_weights:
            nn.init.xavier_uniform_(w)
        out = self.weight.shape[-1]
        bound = math.sqrt(6 / (self.weight.numel() // out + out))
        nn.init.uniform_(self.weight, -bound, bound)
        for parameter in (self.bias, *zeros):
            if parameter is not None:
                nn.init.zeros_(parameter)


class OneLayer(Switching):
    """Base class of :class:`SwitchedLinear` and :class:`SwitchedConv2d`: one layer of gates."""

    def _build(
        self,
        inputs: Sequence[int],
        gates: int,
        outputs: int,
        bias: bool,
        switch: Switch | str,
        learn_gates: str | None,
        gate_bias: bool,
        dropout: float,
        device: torch.device | str | None,
        dtype: torch.dtype | None,
    ) -> None:
        """Check the settings and create the parameters; copies have the shape ``inputs``."""
        factory: dict[str, Any] = {"device": device, "dtype": dtype}
        self.gates, self.switch = gates, as_switch(switch)
        self.switch.check_gates(gates)
        if not 0 <= dropout < 1:
            raise ValueError(f"dropout must be at least 0 and below 1, got {dropout!r}")
        self.dropout = float(dropout)
        self._make((gates, *inputs, outputs), outputs if bias else None, learn_gates, **factory)
        self.gate_weight = self._gate_parameter(gates, *inputs, **factory)
        self.gate_bias = self.constant = None
        if gate_bias:
            self.gate_bias = self._gate_parameter(gates, **factory)
            self.constant = nn.Parameter(torch.empty(gates, outputs, **factory))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw new weights and set the biases to zero."""
        self._reset([self.gate_weight], [self.gate_bias, self.constant])

    def _read(
        self, x: Tensor, scores: Tensor, gates: Tensor, routes: Routes | None = None
    ) -> Tensor:
        """Return the output rows of the copies that take the routes, by default to their own row.

        y_t = Σ_p Σ_j h_pj V_jᵀ [x_source(p), 1] + bias        over the pairs p of target t
        """
        gates, scale = self._dropped(gates)
        if scale != 1:
            x, scores = x * scale, scores * scale
            routes = None if routes is None else replace(routes, gates=gates)
        source, target = (None, None) if routes is None else (routes.source, routes.target)
        weight = self.weight.flatten(1, -2)
        y = switched_linear(x, gates if routes is None else routes, weight, self.bias)
        if self.constant is not None:
            added = (gates.to(y.dtype) * scale) @ self.constant
            y = y + added if target is None else y.index_add(0, target, added)
        if not self._learns(scores):
            return y
        routed = scores if source is None else scores.index_select(0, source)
        gate_weights, bias, constant = [self.gate_weight.flatten(1)], self.gate_bias, self.constant
        return with_pseudo_gradients(
            y, [routed], [gates], weight, gate_weights, target, gate_bias=bias, constant=constant
        )

    def _dropped(self, gates: Tensor) -> tuple[Tensor, float]:
        """Return the gates after dropout, and the factor that keeps the mean of the output."""
        if not self.training or not self.dropout:
            return gates, 1.0
        kept = torch.rand(gates.shape, device=gates.device) >= self.dropout
        return gates & kept, 1 / (1 - self.dropout)

    @classmethod
    def _from_relu(
        cls,
        hidden: nn.Linear | nn.Conv2d,
        output: nn.Linear | nn.Conv2d,
        *sizes: Any,
        **settings: Any,
    ) -> Self:
        """Return a layer with the weights of a ReLU layer and its readout, of a 1×1 kernel."""
        columns = output.weight.flatten(1).t()  # (gates, outputs)
        lead = (len(columns), *[1] * (hidden.weight.dim() - 1))
        if hidden.weight.is_cpu:
            count = hidden.weight.numel() * columns.shape[1]
            check_memory(
                count * hidden.weight.element_size(),
                f"a TS layer for {tuple(hidden.weight.shape)} hidden and "
                f"{tuple(output.weight.shape)} readout weights has {count:.3g} weights",
                "; layers of low rank need less (rank= of convert, or CompressedSwitching)",
            )
        settings.update(device=hidden.weight.device, dtype=hidden.weight.dtype)
        settings["gate_bias"] = hidden.bias is not None
        # All parameters are copied below, so drawing them would waste time and random numbers.
        self: Self = nn.utils.skip_init(cls, *sizes, output.bias is not None, **settings)
        self.gate_weight.copy_(hidden.weight)
        torch.mul(hidden.weight[..., None], columns.reshape(*lead, -1), out=self.weight)
        if self.gate_bias is not None and self.constant is not None:
            self.gate_bias.copy_(bias_or_zeros(hidden))
            self.constant.copy_(self.gate_bias[:, None] * columns)
        if self.bias is not None:
            self.bias.copy_(bias_or_zeros(output))
        return self


@contextmanager
def evaluating(module: nn.Module) -> Iterator[None]:
    """Put a module in evaluation mode, and each of its parts back to its own mode after."""
    modes = [(part, part.training) for part in module.modules()]
    module.eval()
    try:
        yield
    finally:
        for part, training in modes:
            part.training = training


def fold_rows(x: Tensor, weight: Tensor, *tail: int) -> tuple[Tensor, tuple[int, ...]]:
    """Fold all axes but features, or channels, height and width, and return their sizes too."""
    check_floating("input", x)
    names = ("in_channels", "height", "width") if len(tail) == 3 else ("in_features",)
    if x.dim() < len(tail):
        raise ValueError(
            f"input must end in the axes ({', '.join(names)}), got shape {tuple(x.shape)}"
        )
    axis = x.dim() - len(tail)
    if x.shape[axis] != tail[0]:
        what = f"expected {tail[0]}; its shape is {tuple(x.shape)}"
        raise ValueError(f"input has size {x.shape[axis]} on axis {axis} ({names[0]}), {what}")
    check_dtype_device("input", x, "weight", weight)
    lead = tuple(x.shape[:axis])
    return (x if axis == 1 else x.reshape(math.prod(lead), *x.shape[axis:])), lead


def check_relu_layers(hidden: Sequence[nn.Linear], output: nn.Linear) -> None:
    """Raise unless the layers form a network."""
    several = [f"hidden layer {i}" for i in range(1, len(hidden) + 1)]
    names = several if len(hidden) > 1 else ["hidden"]
    for name, layer in zip([*names, "output"], [*hidden, output], strict=True):
        if not isinstance(layer, nn.Linear):
            raise TypeError(f"{name} must be a torch.nn.Linear, got {type(layer).__name__}")
    for name, layer, above in zip(names, hidden, [*hidden[1:], output], strict=True):
        if layer.out_features != above.in_features:
            what = f"the layer above it has in_features {above.in_features}"
            raise ValueError(f"{name} has out_features {layer.out_features} but {what}")


def bias_or_zeros(layer: nn.Linear | nn.Conv2d) -> Tensor:
    """Return the bias of a layer, zeros if it has none."""
    return layer.weight.new_zeros(len(layer.weight)) if layer.bias is None else layer.bias
