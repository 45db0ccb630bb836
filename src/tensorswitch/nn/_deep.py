"""Deep TS networks: ``y = W_Z vec(Z_L) + bias``, ``Z_L = H(W_L x_{L-1}) ⊗ … ⊗ H(W_1 x) ⊗ x``."""

from collections.abc import Sequence
from typing import Any, Self

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tensorswitch._checks import check_positive
from tensorswitch.inverted import with_pseudo_gradients
from tensorswitch.nn._base import Switching, bias_or_zeros, check_relu_layers, fold_rows
from tensorswitch.switched import switched_linear
from tensorswitch.switches import Switch, as_switch, combine_gates


class TensorSwitching(Switching):
    """Apply a linear readout to the deep TS tensor of the input (Eq. 3).

    ``y = W_Z vec(Z_L) + bias`` with ``Z_L = H(W_L x_{L-1}) ⊗ … ⊗ H(W_1 x) ⊗ x``, which is never
    formed. The gates are those of the scalar network with the same gate weights,
    ``x_l = max(0, W_l x_{l-1})`` for the ReLU switch.

    Parameters
    ----------
    in_features, out_features : int
        Sizes of the last axis of the input, n_0, and of the output.
    gates : sequence of int
        Number of gates of each layer, (n_1, …, n_L).
    gate_bias : bool, default=False
        Whether gates have biases, ``h_l = H(W_l x_{l-1} + b_l)``. A constant 1 then joins the
        inputs and the units of every layer but the last: ``Z_L = h_L ⊗ [h_{L-1}, 1] ⊗ … ⊗ [h_1, 1]
        ⊗ [x, 1]``. The paper has none.
    bias, switch, learn_gates, device, dtype : optional
        As in :class:`SwitchedLinear`.

    Attributes
    ----------
    gate_weights, gate_biases : ParameterList
        ``W_l`` of each layer, of shape (n_l, units of layer l - 1), and ``b_l``, of shape (n_l,);
        there are none of these without ``gate_bias``.
    weight : Parameter of shape (n_L, …, n_1, n_0, out_features)
        Analysis weights ``W_Z``. With ``gate_bias``, all axes but the first and the last are
        longer by one.

    Examples
    --------
    >>> import torch
    >>> from tensorswitch import TensorSwitching
    >>> network = TensorSwitching(20, (16, 8), 10)
    >>> network(torch.randn(4, 20)).shape
    torch.Size([4, 10])
    """

    def __init__(
        self,
        in_features: int,
        gates: Sequence[int],
        out_features: int,
        bias: bool = True,
        *,
        switch: Switch | str = "relu",
        learn_gates: str | None = None,
        gate_bias: bool = False,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        switch = as_switch(switch)
        gates = tuple(gates) if isinstance(gates, Sequence) else (gates,)
        if not gates:
            raise ValueError("gates must name at least one layer, such as (64, 64)")
        widths = {f"gates[{i}]": n for i, n in enumerate(gates)}
        check_positive(in_features=in_features, out_features=out_features, **widths)
        for n in gates:
            switch.check_gates(n)
        self.in_features, self.gates, self.out_features = in_features, gates, out_features
        self.switch = switch
        one, factory = int(gate_bias), {"device": device, "dtype": dtype}
        shape = (gates[-1], *(n + one for n in gates[-2::-1]), in_features + one, out_features)
        self._make(shape, out_features if bias else None, learn_gates, **factory)
        below = (in_features, *(n // switch.pieces for n in gates))
        self.gate_weights = nn.ParameterList(
            self._gate_parameter(*sizes, **factory) for sizes in zip(gates, below, strict=False)
        )
        self.gate_biases = nn.ParameterList(
            self._gate_parameter(n, **factory) for n in gates if gate_bias
        )
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw new weights and set the biases to zero."""
        self._reset(list(self.gate_weights), list(self.gate_biases))

    def forward(self, x: Tensor) -> Tensor:
        """Return the output, (..., out_features), for input of shape (..., in_features)."""
        x, lead = fold_rows(x, self.weight, self.in_features)
        scores, gates, activity = [], [], x.detach()
        biases = self.gate_bias or [None] * len(self.gates)
        for layer, w in enumerate(self.gate_weights):
            s = self._scores(activity, w, biases[layer])
            h = self.switch.open(s.detach())
            activity = self.switch.units(s.detach())
            if self.gate_bias and layer < len(self.gates) - 1:  # the constant unit
                s, h = F.pad(s, (0, 1), value=1.0), F.pad(h, (0, 1), value=True)
            scores.append(s)
            gates.append(h)
        copies = F.pad(x, (0, 1), value=1.0) if self.gate_bias else x
        y = switched_linear(copies, combine_gates(gates), self.weight.flatten(0, -3), self.bias)
        if any(self._learns(s) for s in scores):
            y = with_pseudo_gradients(y, scores, gates, self.weight, self._extended_gates())
        return y if len(lead) == 1 else y.reshape(*lead, self.out_features)

    @property
    def gate_bias(self) -> nn.ParameterList | None:
        """The gate biases; None without."""
        return self.gate_biases if len(self.gate_biases) else None

    def _extended_gates(self) -> list[Tensor]:
        """Return gate weights that act on copies: each piece of a unit and the constant has one."""
        first, *above = self.gate_weights
        extended = [first, *(w.repeat_interleave(self.switch.pieces, 1) for w in above)]
        if self.gate_bias is None:
            return extended
        pairs = zip(extended, self.gate_biases, strict=True)
        extended = [torch.cat([w, b.unsqueeze(1)], 1) for w, b in pairs]
        for layer, w in enumerate(extended[:-1]):  # the constant unit is open for the constant 1
            unit = torch.zeros_like(w[:1])
            unit[0, -1] = 1
            extended[layer] = torch.cat([w, unit])
        return extended

    @classmethod
    @torch.no_grad()
    def from_relu(cls, *layers: nn.Linear, learn_gates: str | None = None) -> Self:
        """Return the network that computes the same as a ReLU network.

        The layers are the hidden ones from the input up, then the readout. If a hidden layer has a
        bias, the network has gate biases. Weights are copied.
        """
        if len(layers) < 2:
            raise ValueError(
                f"from_relu needs at least one hidden layer and a readout, got {len(layers)} layers"
            )
        *hidden, output = layers
        check_relu_layers(hidden, output)
        sizes = hidden[0].in_features, [n.out_features for n in hidden], output.out_features
        bias, gate_bias = output.bias is not None, any(n.bias is not None for n in hidden)
        factory: Any = {"device": output.weight.device, "dtype": output.weight.dtype}
        network = cls(*sizes, bias, learn_gates=learn_gates, gate_bias=gate_bias, **factory)
        for w, layer in zip(network.gate_weights, hidden, strict=True):
            w.copy_(layer.weight)
        for b, layer in zip(network.gate_biases, hidden, strict=False):
            b.copy_(bias_or_zeros(layer))
        product = output.weight.t()  # (n_L, out), then one more axis for each layer below
        for w in reversed(network._extended_gates()):
            product = product.unsqueeze(-2) * w.unsqueeze(-1)
        network.weight.copy_(product)
        if network.bias is not None:
            network.bias.copy_(output.bias)
        return network
