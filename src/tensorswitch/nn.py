"""Tensor Switching layers for ``torch.nn``.

The gate weights of a layer decide which units are open, and its analysis weights are applied to
the copies of the input. Gates are fixed by default. With ``learn_gates="ibp"``, ``.backward()``
also computes their pseudo-gradient by inverted backpropagation, so that any torch optimiser can
train them. Gradients reach the previous layer through the copies only, never through the gates.

References
----------
Tsai, Saxe and Cox, Tensor Switching Networks, NIPS 2016, arXiv:1610.10087.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from numbers import Integral
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tensorswitch._checks import check_dtype_device, check_floating, check_positive
from tensorswitch.inverted import with_pseudo_gradients
from tensorswitch.switched import switched_linear
from tensorswitch.switches import MaxPool2d, Routes, Switch, as_switch, combine_gates, deep_gates

__all__ = ["SwitchedConv2d", "SwitchedLinear", "TensorSwitching"]


class _Switching(nn.Module):
    """Base class of the layers: parameters, their initialisation, and checks of the input."""

    learn_gates: str | None
    weight: nn.Parameter
    bias: nn.Parameter | None

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

    def _gate_parameter(self, *shape: int, **factory: Any) -> nn.Parameter:
        return nn.Parameter(
            torch.empty(shape, **factory), requires_grad=self.learn_gates is not None
        )

    def _reset(self, *gate_weights: Tensor) -> None:
        for w in gate_weights:
            nn.init.xavier_uniform_(w)
        out = self.weight.shape[-1]
        bound = math.sqrt(6 / (self.weight.numel() // out + out))
        nn.init.uniform_(self.weight, -bound, bound)
        if self.bias is not None:
            nn.init.zeros_(self.bias)

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
        return x.reshape(math.prod(x.shape[:axis]), *x.shape[axis:]), tuple(x.shape[:axis])


class SwitchedLinear(_Switching):
    """Apply ``y = Σ_j H(w_j · x) V_jᵀ x + bias`` to the last axis of the input.

    This is a TS layer with linear rotation-compression (LRC), or the readout of a TS layer.
    Weights are initialised from the Glorot uniform distribution, the bias with zeros.

    Parameters
    ----------
    in_features : int
        Size of the last axis of the input.
    gates : int
        Number of gates.
    out_features : int
        Size of the last axis of the output.
    bias : bool, default=True
        Whether to add a learned bias.
    switch : Switch or {"relu", "none", "maxout", "maxout:PIECES"}, default="relu"
        Rule that opens the gates; see :func:`tensorswitch.switches.as_switch`.
    learn_gates : {None, "ibp"}, default=None
        None keeps the gates fixed, without gradient and weight decay. ``"ibp"`` trains them by
        inverted backpropagation.
    device : torch.device or str, optional
        Device of the parameters.
    dtype : torch.dtype, optional
        Data type of the parameters.

    Attributes
    ----------
    gate_weight : Parameter of shape (gates, in_features)
        Gate weights ``w_j``, the paper's activation weights.
    weight : Parameter of shape (gates, in_features, out_features)
        Analysis weights ``V_j``, the paper's ``W*``.
    bias : Parameter of shape (out_features,) or None
        Bias.

    References
    ----------
    Tsai, Saxe and Cox, Tensor Switching Networks, arXiv:1610.10087, Sec. 4.3 (LRC) and Eq. (6)
    (inverted backpropagation).

    Examples
    --------
    >>> layer = SwitchedLinear(20, 64, 10, learn_gates="ibp")
    >>> layer(torch.randn(8, 20)).shape
    torch.Size([8, 10])
    """

    def __init__(
        self,
        in_features: int,
        gates: int,
        out_features: int,
        bias: bool = True,
        *,
        switch: Switch | str = "relu",
        learn_gates: str | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        check_positive(in_features=in_features, gates=gates, out_features=out_features)
        switch = as_switch(switch)
        switch.check_gates(gates)
        self.in_features, self.gates, self.out_features = in_features, gates, out_features
        self.switch = switch
        self._make(
            (gates, in_features, out_features),
            out_features if bias else None,
            learn_gates,
            device=device,
            dtype=dtype,
        )
        self.gate_weight = self._gate_parameter(gates, in_features, device=device, dtype=dtype)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw new weights and set the bias to zero."""
        self._reset(self.gate_weight)

    def forward(self, x: Tensor) -> Tensor:
        """Compute the output of the layer.

        Parameters
        ----------
        x : Tensor of shape (..., in_features)
            Input.

        Returns
        -------
        Tensor of shape (..., out_features)
            Output.
        """
        x, lead = self._flat(x, self.in_features)
        with torch.set_grad_enabled(torch.is_grad_enabled() and self.learn_gates is not None):
            scores = F.linear(x.detach(), self.gate_weight)
        h = self.switch.open(scores.detach())
        y = switched_linear(x, h, self.weight, self.bias)
        if scores.requires_grad:
            y = with_pseudo_gradients(y, [scores], [h], self.weight, [self.gate_weight])
        return y.reshape(*lead, self.out_features)

    def extra_repr(self) -> str:
        """Return the settings shown by ``repr``."""
        return (
            f"in_features={self.in_features}, gates={self.gates}, "
            f"out_features={self.out_features}, bias={self.bias is not None}, "
            f"switch={self.switch}, learn_gates={self.learn_gates!r}"
        )

    @classmethod
    @torch.no_grad()
    def from_relu(
        cls, hidden: nn.Linear, output: nn.Linear, *, learn_gates: str | None = None
    ) -> SwitchedLinear:
        """Return the layer that computes ``output(relu(hidden(x)))``.

        Its gates are those of ``hidden``, and ``V_j`` is the outer product of row ``j`` of
        ``hidden.weight`` and column ``j`` of ``output.weight``.

        Parameters
        ----------
        hidden : torch.nn.Linear
            Hidden layer, without bias. Add a constant feature to the input if it needs one.
        output : torch.nn.Linear
            Readout.
        learn_gates : {None, "ibp"}, default=None
            As in :class:`SwitchedLinear`.

        Returns
        -------
        SwitchedLinear
            The converted layer, with copies of the weights.

        Raises
        ------
        ValueError
            If ``hidden`` has a bias, or the sizes of the layers do not agree.

        Examples
        --------
        >>> hidden, output = nn.Linear(5, 4, bias=False), nn.Linear(4, 3)
        >>> x = torch.randn(2, 5)
        >>> layer = SwitchedLinear.from_relu(hidden, output)
        >>> torch.allclose(layer(x), output(hidden(x).relu()), atol=1e-6)
        True
        """
        _check_relu_layers([hidden], output)
        layer = cls(
            hidden.in_features,
            hidden.out_features,
            output.out_features,
            output.bias is not None,
            learn_gates=learn_gates,
            device=hidden.weight.device,
            dtype=hidden.weight.dtype,
        )
        layer.gate_weight.copy_(hidden.weight)
        layer.weight.copy_(hidden.weight[:, :, None] * output.weight.t()[:, None, :])
        if layer.bias is not None:
            layer.bias.copy_(output.bias)
        return layer


class SwitchedConv2d(_Switching):
    """Apply ``y = Σ_j H(w_j · p) V_jᵀ p + bias`` to every patch ``p`` of an image.

    With ``pool``, the gate scores are max pooled: in each window, a unit copies the patch at the
    position where its score is highest.

    Parameters
    ----------
    in_channels : int
        Number of channels of the input.
    gates : int
        Number of gates.
    out_channels : int
        Number of channels of the output.
    kernel_size : int or tuple of (int, int)
        Height and width of a patch.
    stride : int or tuple of (int, int), default=1
        Distance between patches.
    padding : int or tuple of (int, int), default=0
        Zeros added on each side of the image.
    bias : bool, default=True
        Whether to add a learned bias.
    switch : Switch or {"relu", "none", "maxout", "maxout:PIECES"}, default="relu"
        Rule that opens the gates; see :func:`tensorswitch.switches.as_switch`.
    pool : int or tuple of (int, int), optional
        Window of the max pooling, which is also its stride. The winning patch is copied only if
        the switch opens the gate there. By default every patch is copied to its own position.
    learn_gates : {None, "ibp"}, default=None
        As in :class:`SwitchedLinear`.
    device : torch.device or str, optional
        Device of the parameters.
    dtype : torch.dtype, optional
        Data type of the parameters.

    Attributes
    ----------
    gate_weight : Parameter of shape (gates, in_channels, kernel height, kernel width)
        Gate weights ``w_j``.
    weight : Parameter of shape (gates, in_channels, kernel height, kernel width, out_channels)
        Analysis weights ``V_j``.
    bias : Parameter of shape (out_channels,) or None
        Bias.

    References
    ----------
    Tsai, Saxe and Cox, Tensor Switching Networks, arXiv:1610.10087, Sec. 2.2 (footnote on max
    pooling) and Sec. 4.3.

    Examples
    --------
    >>> layer = SwitchedConv2d(3, 16, 8, kernel_size=3, padding=1, pool=2)
    >>> layer(torch.randn(4, 3, 32, 32)).shape
    torch.Size([4, 8, 16, 16])
    """

    def __init__(
        self,
        in_channels: int,
        gates: int,
        out_channels: int,
        kernel_size: int | tuple[int, int],
        stride: int | tuple[int, int] = 1,
        padding: int | tuple[int, int] = 0,
        bias: bool = True,
        *,
        switch: Switch | str = "relu",
        pool: int | tuple[int, int] | None = None,
        learn_gates: str | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        check_positive(in_channels=in_channels, gates=gates, out_channels=out_channels)
        switch = as_switch(switch)
        switch.check_gates(gates)
        self.in_channels, self.gates, self.out_channels = in_channels, gates, out_channels
        self.switch = switch
        self.kernel_size, self.stride = _pair("kernel_size", kernel_size), _pair("stride", stride)
        self.padding = _pair("padding", padding, least=0)
        self.pool = None if pool is None else _pair("pool", pool)
        self._make(
            (gates, in_channels, *self.kernel_size, out_channels),
            out_channels if bias else None,
            learn_gates,
            device=device,
            dtype=dtype,
        )
        self.gate_weight = self._gate_parameter(
            gates, in_channels, *self.kernel_size, device=device, dtype=dtype
        )
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw new weights and set the bias to zero."""
        self._reset(self.gate_weight)

    def forward(self, x: Tensor) -> Tensor:
        """Compute the output of the layer.

        Parameters
        ----------
        x : Tensor of shape (..., in_channels, height, width)
            Images.

        Returns
        -------
        Tensor of shape (..., out_channels, out height, out width)
            Output; its height and width are those of a convolution, divided by ``pool``.
        """
        x, lead = self._flat(x, self.in_channels, 0, 0)
        height, width = (
            (n + 2 * p - k) // s + 1
            for n, p, k, s in zip(
                x.shape[2:], self.padding, self.kernel_size, self.stride, strict=True
            )
        )
        if height < 1 or width < 1:
            raise ValueError(
                f"a {self.kernel_size} kernel with padding {self.padding} does not fit in "
                f"an image of {tuple(x.shape[2:])}"
            )
        patches = F.unfold(x, self.kernel_size, padding=self.padding, stride=self.stride)
        patches = patches.transpose(1, 2).reshape(-1, patches.shape[1])
        gate_weight = self.gate_weight.flatten(1)
        with torch.set_grad_enabled(torch.is_grad_enabled() and self.learn_gates is not None):
            scores = F.linear(patches.detach(), gate_weight)  # (images · positions, gates)
        if self.pool is None:
            routes = Routes(self.switch.open(scores.detach()))
        else:
            images = scores.detach().view(-1, height, width, self.gates).permute(0, 3, 1, 2)
            routes = MaxPool2d(self.pool, switch=self.switch)(images)
            height, width = height // self.pool[0], width // self.pool[1]
        weight = self.weight.flatten(1, 3)
        y = switched_linear(patches, routes, weight, self.bias)
        if scores.requires_grad:
            if routes.source is not None:
                scores = scores.index_select(0, routes.source)
            y = with_pseudo_gradients(
                y, [scores], [routes.gates], weight, [gate_weight], routes.target
            )
        y = y.view(-1, height * width, self.out_channels).transpose(1, 2)
        return y.reshape(*lead, self.out_channels, height, width)

    def extra_repr(self) -> str:
        """Return the settings shown by ``repr``."""
        return (
            f"in_channels={self.in_channels}, gates={self.gates}, "
            f"out_channels={self.out_channels}, kernel_size={self.kernel_size}, "
            f"stride={self.stride}, padding={self.padding}, bias={self.bias is not None}, "
            f"switch={self.switch}, pool={self.pool}, learn_gates={self.learn_gates!r}"
        )


class TensorSwitching(_Switching):
    """Apply a linear readout to the deep TS tensor of the input.

    ``y = W_Z vec(Z_L) + bias`` with ``Z_L = H(W_L x_{L-1}) ⊗ … ⊗ H(W_1 x) ⊗ x``. The gates are
    those of the scalar network with the same gate weights, ``x_l = max(0, W_l x_{l-1})`` for the
    ReLU switch. The readout has ``n_L · … · n_1 · n_0`` weights per output, but ``Z_L`` is never
    formed.

    Parameters
    ----------
    in_features : int
        Size of the last axis of the input, n_0.
    gates : sequence of int
        Number of gates of each layer, (n_1, …, n_L).
    out_features : int
        Size of the last axis of the output.
    bias : bool, default=True
        Whether to add a learned bias.
    switch : Switch or {"relu", "none", "maxout", "maxout:PIECES"}, default="relu"
        Rule that opens the gates; see :func:`tensorswitch.switches.as_switch`.
    learn_gates : {None, "ibp"}, default=None
        None keeps the gates fixed, without gradient and weight decay. ``"ibp"`` trains them by
        inverted backpropagation.
    device : torch.device or str, optional
        Device of the parameters.
    dtype : torch.dtype, optional
        Data type of the parameters.

    Attributes
    ----------
    gate_weights : ParameterList
        Gate weights ``W_l`` of each layer, of shape (n_l, units of layer l - 1).
    weight : Parameter of shape (n_L, …, n_1, n_0, out_features)
        Analysis weights ``W_Z``.
    bias : Parameter of shape (out_features,) or None
        Bias.

    References
    ----------
    Tsai, Saxe and Cox, Tensor Switching Networks, arXiv:1610.10087, Eq. (3) and Eq. (6).

    Examples
    --------
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
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        switch = as_switch(switch)
        gates = tuple(gates) if isinstance(gates, Sequence) else (gates,)
        if not gates:
            raise ValueError("gates must name at least one layer, such as (64, 64)")
        check_positive(
            in_features=in_features,
            out_features=out_features,
            **{f"gates[{i}]": n for i, n in enumerate(gates)},
        )
        for n in gates:
            switch.check_gates(n)
        self.in_features, self.gates, self.out_features = in_features, gates, out_features
        self.switch = switch
        self._make(
            (*gates[::-1], in_features, out_features),
            out_features if bias else None,
            learn_gates,
            device=device,
            dtype=dtype,
        )
        sizes = (in_features, *(n // switch.pieces for n in gates))
        self.gate_weights = nn.ParameterList(
            self._gate_parameter(n, n_below, device=device, dtype=dtype)
            for n_below, n in zip(sizes, gates, strict=False)
        )
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw new weights and set the bias to zero."""
        self._reset(*self.gate_weights)

    def forward(self, x: Tensor) -> Tensor:
        """Compute the output of the network.

        Parameters
        ----------
        x : Tensor of shape (..., in_features)
            Input.

        Returns
        -------
        Tensor of shape (..., out_features)
            Output.
        """
        x, lead = self._flat(x, self.in_features)
        gate_weights = list(self.gate_weights)
        if self.learn_gates is None or not torch.is_grad_enabled():
            gates = deep_gates(x.detach(), gate_weights, self.switch)
            y = switched_linear(x, combine_gates(gates), self.weight.flatten(0, -3), self.bias)
            return y.reshape(*lead, self.out_features)
        scores, gates, activity = [], [], x.detach()
        for w in gate_weights:
            scores.append(F.linear(activity, w))
            activity = self.switch.units(scores[-1].detach())
            gates.append(self.switch.open(scores[-1].detach()))
        y = switched_linear(x, combine_gates(gates), self.weight.flatten(0, -3), self.bias)
        if any(s.requires_grad for s in scores):
            # Each piece of a unit below has its own copy, with the gate weight of the unit.
            first, *above = gate_weights
            pieces = [w.repeat_interleave(self.switch.pieces, 1) for w in above]
            y = with_pseudo_gradients(y, scores, gates, self.weight, [first, *pieces])
        return y.reshape(*lead, self.out_features)

    def extra_repr(self) -> str:
        """Return the settings shown by ``repr``."""
        return (
            f"in_features={self.in_features}, gates={self.gates}, "
            f"out_features={self.out_features}, bias={self.bias is not None}, "
            f"switch={self.switch}, learn_gates={self.learn_gates!r}"
        )

    @classmethod
    @torch.no_grad()
    def from_relu(cls, *layers: nn.Linear, learn_gates: str | None = None) -> TensorSwitching:
        """Return the network that computes the same as a ReLU network.

        Parameters
        ----------
        *layers : torch.nn.Linear
            Hidden layers from the input up, without biases, then the readout.
        learn_gates : {None, "ibp"}, default=None
            As in :class:`TensorSwitching`.

        Returns
        -------
        TensorSwitching
            The converted network, with copies of the weights.

        Raises
        ------
        ValueError
            If a hidden layer has a bias, or the sizes of the layers do not agree.

        Examples
        --------
        >>> first, second = nn.Linear(5, 4, bias=False), nn.Linear(4, 3, bias=False)
        >>> output = nn.Linear(3, 2)
        >>> x = torch.randn(2, 5)
        >>> network = TensorSwitching.from_relu(first, second, output)
        >>> torch.allclose(network(x), output(second(first(x).relu()).relu()), atol=1e-6)
        True
        """
        if len(layers) < 2:
            raise ValueError(
                f"from_relu needs at least one hidden layer and a readout, got {len(layers)} layers"
            )
        *hidden, output = layers
        _check_relu_layers(hidden, output)
        network = cls(
            hidden[0].in_features,
            [layer.out_features for layer in hidden],
            output.out_features,
            output.bias is not None,
            learn_gates=learn_gates,
            device=output.weight.device,
            dtype=output.weight.dtype,
        )
        product = output.weight.t()  # (n_L, out), then one more axis for each layer below
        for w, layer in zip(reversed(list(network.gate_weights)), reversed(hidden), strict=True):
            w.copy_(layer.weight)
            product = product.unsqueeze(-2) * layer.weight.unsqueeze(-1)
        network.weight.copy_(product)
        if network.bias is not None:
            network.bias.copy_(output.bias)
        return network


def _check_relu_layers(hidden: Sequence[nn.Linear], output: nn.Linear) -> None:
    names = [f"hidden layer {i}" for i in range(1, len(hidden) + 1)]
    if len(hidden) == 1:
        names = ["hidden"]
    for name, layer, above in zip(names, hidden, [*hidden[1:], output], strict=True):
        if layer.bias is not None:
            raise ValueError(
                f"{name} has a bias, which gates do not support; "
                "add a constant feature to the input and build the layer with bias=False"
            )
        if layer.out_features != above.in_features:
            raise ValueError(
                f"{name} has out_features {layer.out_features} but "
                f"the layer above it has in_features {above.in_features}"
            )


def _pair(name: str, value: int | tuple[int, int], least: int = 1) -> tuple[int, int]:
    pair = tuple(value) if isinstance(value, Sequence) else (value, value)
    if len(pair) != 2 or not all(isinstance(v, Integral) and v >= least for v in pair):
        raise ValueError(
            f"{name} must be an integer or a pair of integers of at least {least}, got {value!r}"
        )
    return int(pair[0]), int(pair[1])
