"""Builders of networks, scalar (SS) and tensor switching (TS).

``"ss"``
    ReLU layers ``x_l = max(0, W_l x_{l-1})`` with a linear readout.
``"ts-lrc"``
    :class:`~tensorswitch.SwitchedLinear` layers with fixed gates (linear rotation-compression,
    Sec. 4.3). The last one is the readout.
``"ts-ibp-lrc"``
    The same, with gates trained by inverted backpropagation (Sec. 4.2).
``"ts-ibp"``
    The uncompressed deep network, :class:`~tensorswitch.TensorSwitching` (Eq. 3).
``"ss+ts"``
    :class:`~tensorswitch.JointSwitching` layers, whose units have an SS and a TS readout. It is not
    in the paper: gates learn by backpropagation through the SS part.

References
----------
Tsai, Saxe and Cox, Tensor Switching Networks, NIPS 2016, arXiv:1610.10087.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence
from numbers import Integral
from typing import Any

from torch import nn

from tensorswitch._checks import check_positive
from tensorswitch._memory import check_memory
from tensorswitch.nn import JointSwitching, SwitchedConv2d, SwitchedLinear, TensorSwitching

__all__ = ["KINDS", "Network", "build", "cnn", "mlp"]

KINDS = ("ss", "ts-lrc", "ts-ibp-lrc", "ts-ibp", "ss+ts")
MOST_LAYERS = 10_000  # more would take minutes to build


class Network(nn.Sequential):
    """Layers in sequence, with the description that they were built from.

    Parameters
    ----------
    *args : Module or OrderedDict
        Layers, as of :class:`torch.nn.Sequential`.

    Attributes
    ----------
    description : dict
        Arguments of :func:`build`.
    """

    description: dict[str, Any]


def mlp(
    in_features: int,
    out_features: int,
    *,
    kind: str = "ts-lrc",
    depth: int = 2,
    width: int | Sequence[int] = 256,
    ts_layers: Collection[int] | None = None,
    bias: bool = False,
) -> Network:
    """Build a fully connected network with ``depth`` hidden layers.

    Parameters
    ----------
    in_features : int
        Number of inputs.
    out_features : int
        Number of outputs.
    kind : {"ss", "ts-lrc", "ts-ibp-lrc", "ts-ibp", "ss+ts"}, default="ts-lrc"
        Type of the layers; see :mod:`tensorswitch.models`.
    depth : int, default=2
        Number of hidden layers.
    width : int or sequence of int, default=256
        Units (gates) per hidden layer, one number for all or one for each.
    ts_layers : collection of int, optional
        Which hidden layers are TS, counted from 1; the others are SS. By default all.
    bias : bool, default=False
        Whether layers and readout have biases. Those of the paper have none.

    Returns
    -------
    Network
        The network, with new weights.

    Raises
    ------
    MemoryError
        If the weights do not fit in the available memory.

    References
    ----------
    Tsai, Saxe and Cox, Tensor Switching Networks, arXiv:1610.10087, Sec. 5.

    Examples
    --------
    >>> import torch
    >>> from tensorswitch.models import mlp
    >>> mlp(64, 10, kind="ss", depth=2, width=32)(torch.zeros(3, 64)).shape
    torch.Size([3, 10])
    """
    widths = _widths(depth, width)
    ts = _ts_layers(kind, depth, ts_layers)
    _check_memory(
        _count(in_features, out_features, kind, widths, ts), f"depth {depth}, width {width}"
    )
    network = Network(*_layers(in_features, out_features, kind, widths, ts, bias))
    network.description = {
        "architecture": "mlp",
        "in_features": int(in_features),
        "out_features": int(out_features),
        "kind": kind,
        "depth": int(depth),
        "width": widths,
        "ts_layers": sorted(map(int, ts)) if kind != "ss" else None,
        "bias": bias,
    }
    return network


def cnn(
    in_channels: int,
    size: int | Sequence[int],
    out_features: int,
    *,
    kind: str = "ts-lrc",
    convolutions: int | Sequence[int] = 1,
    channels: Sequence[int] = (32, 64, 128),
    depth: int = 1,
    width: int | Sequence[int] = 256,
    ts_layers: Collection[int] | None = None,
    ts_blocks: Collection[int] = (),
) -> Network:
    """Build a convolutional network with blocks of 3 × 3 convolutions and 2 × 2 max pooling.

    The blocks are followed by one fully connected SS layer, then by ``depth`` fully connected SS or
    TS layers.

    Parameters
    ----------
    in_channels : int
        Number of channels of the images.
    size : int or sequence of int
        Height and width of the images.
    out_features : int
        Number of outputs.
    kind : {"ss", "ts-lrc", "ts-ibp-lrc", "ts-ibp", "ss+ts"}, default="ts-lrc"
        Type of the layers; see :mod:`tensorswitch.models`.
    convolutions : int or sequence of int, default=1
        Convolutions per block, one number for all or one for each.
    channels : sequence of int, default=(32, 64, 128)
        Output channels of each block.
    depth : int, default=1
        Number of fully connected layers after the SS layer.
    width : int or sequence of int, default=256
        Units (gates) of these layers, one number for all or one for each. The SS layer has the
        first of them.
    ts_layers : collection of int, optional
        Which of these layers are TS, counted from 1. By default all.
    ts_blocks : collection of int, default=()
        Blocks, counted from 1, whose last convolution and pooling are replaced by a TS convolution
        with max pooling.

    Returns
    -------
    Network
        The network, with new weights.

    Raises
    ------
    MemoryError
        If the weights do not fit in the available memory.

    References
    ----------
    Tsai, Saxe and Cox, Tensor Switching Networks, arXiv:1610.10087, Sec. 5.

    Examples
    --------
    >>> import torch
    >>> from tensorswitch.models import cnn
    >>> cnn(1, 32, 10, channels=(4, 4), width=16)(torch.zeros(3, 1, 32, 32)).shape
    torch.Size([3, 10])
    """
    if not len(channels):
        raise ValueError("channels must have one number per block, got none")
    height, across = _one_for_each("size", size, 2, "axes, height and width")
    repeats = _one_for_each("convolutions", convolutions, len(channels), "blocks")
    check_positive(in_channels=in_channels, **{f"channels[{i}]": n for i, n in enumerate(channels)})
    if min(height, across) < 2 ** len(channels):
        raise ValueError(
            f"images of {height} × {across} are too small to be halved {len(channels)} times"
        )
    if wrong := [b for b in ts_blocks if b not in range(1, len(channels) + 1)]:
        raise ValueError(f"ts_blocks {wrong} are not among the blocks 1 to {len(channels)}")
    if kind in ("ts-ibp", "ss+ts") and ts_blocks:
        raise ValueError(
            f"kind {kind!r} has no TS convolutions; use 'ts-lrc' or 'ts-ibp-lrc' for ts_blocks"
        )
    widths, ts = _widths(depth, width), _ts_layers(kind, depth, ts_layers)
    _check_layers("convolutions", sum(repeats))
    flat = int(channels[-1]) * (height >> len(channels)) * (across >> len(channels))
    count = flat * widths[0] + _count(widths[0], out_features, kind, widths, ts)
    inputs = [in_channels, *channels]
    for block, (n, below, repeat) in enumerate(zip(channels, inputs, repeats, strict=False), 1):
        last = below if repeat == 1 else n  # inputs of the convolution that may be a TS one
        count += 9 * n * (below + (repeat - 1) * n)
        count += 9 * n * (n - 1) * last if kind != "ss" and block in ts_blocks else 0
    _check_memory(count, f"channels {tuple(channels)}, width {width}")
    layers: list[nn.Module] = []
    below = in_channels
    for block, (n, repeat) in enumerate(zip(channels, repeats, strict=True), 1):
        for i in range(repeat):
            if i == repeat - 1 and block in ts_blocks and kind != "ss":
                layers.append(
                    SwitchedConv2d(below, n, n, 3, padding=1, pool=2, learn_gates=_learn(kind))
                )
            else:
                layers.append(_glorot(nn.Conv2d(below, n, 3, padding=1)))
                if i == repeat - 1:
                    layers.append(nn.MaxPool2d(2))
                layers.append(nn.ReLU())  # after the pooling, with which it commutes
            below = n
    layers += [nn.Flatten(), _glorot(nn.Linear(flat, widths[0])), nn.ReLU()]
    network = Network(*layers, *_layers(widths[0], out_features, kind, widths, ts, True))
    network.description = {
        "architecture": "cnn",
        "in_channels": int(in_channels),
        "size": [height, across],
        "out_features": int(out_features),
        "kind": kind,
        "convolutions": repeats,
        "channels": [int(n) for n in channels],
        "depth": int(depth),
        "width": widths,
        "ts_layers": sorted(map(int, ts)) if kind != "ss" else None,
        "ts_blocks": sorted(map(int, ts_blocks)),
    }
    return network


def build(description: dict[str, Any]) -> Network:
    """Build the network of a description.

    Parameters
    ----------
    description : dict
        ``"architecture"``, which is ``"mlp"`` or ``"cnn"``, and the arguments of that function.

    Returns
    -------
    Network
        The network, with new weights.

    Raises
    ------
    ValueError
        If the architecture is unknown.

    Examples
    --------
    >>> from tensorswitch.models import build
    >>> network = build({"architecture": "mlp", "in_features": 4, "out_features": 2, "width": 3})
    >>> network.description["kind"]
    'ts-lrc'
    """
    arguments = dict(description)
    builders = {"mlp": mlp, "cnn": cnn}
    if (name := arguments.pop("architecture", None)) not in builders:
        raise ValueError(f"unknown architecture {name!r}; known are {', '.join(builders)}")
    return builders[name](**arguments)  # type: ignore[operator, no-any-return]


def _layers(
    n_in: int, out: int, kind: str, widths: Sequence[int], ts: set[int], bias: bool
) -> list[nn.Module]:
    check_positive(in_features=n_in, out_features=out)
    if kind == "ts-ibp":
        return [TensorSwitching(n_in, widths, out, bias, learn_gates="ibp")]
    layers: list[nn.Module] = []
    for number, n in enumerate(widths, 1):
        above = out if number == len(widths) else n
        if number in ts and kind == "ss+ts":
            hidden, output = nn.Linear(n_in, n, bias), nn.Linear(n, above, bias)
            layers.append(JointSwitching(hidden, output))
        elif number in ts:
            layers.append(SwitchedLinear(n_in, n, above, bias, learn_gates=_learn(kind)))
        else:
            layers += [_glorot(nn.Linear(n_in, n, bias)), nn.ReLU()]
        n_in = n
    if len(widths) not in ts:
        layers.append(_glorot(nn.Linear(n_in, out, bias)))
    return layers


def _learn(kind: str) -> str | None:
    return "ibp" if kind.startswith("ts-ibp") else None


def _count(n_in: int, out: int, kind: str, widths: Sequence[int], ts: set[int]) -> int:
    """Return the number of weights of the fully connected layers without building them."""
    if kind == "ts-ibp":
        return math.prod(widths) * n_in * out
    count = 0
    for number, n in enumerate(widths, 1):
        above = out if number == len(widths) else n
        count += n * n_in * (above if number in ts else 1)
        count += n * (n_in + above) if number in ts and kind == "ss+ts" else 0
        n_in = n
    return count


def _check_memory(weights: int, what: str) -> None:
    """Raise a readable error if the weights alone do not fit in memory."""
    check_memory(4 * weights, f"a network of {what} has {weights:.3g} weights")


def _check_layers(name: str, count: int) -> None:
    if count > MOST_LAYERS:
        raise ValueError(f"{name} must be at most {MOST_LAYERS:,} in all, got {count:,}")


def _widths(depth: int, width: int | Sequence[int]) -> list[int]:
    check_positive(depth=depth)
    _check_layers("depth", depth)
    return _one_for_each("width", width, depth, "layers")


def _one_for_each(name: str, value: int | Sequence[int], count: int, of: str) -> list[int]:
    """Return ``count`` plain integers, which JSON can store; a single number is repeated."""
    several = isinstance(value, Iterable)
    values = [
        int(n) if isinstance(n, Integral) and not isinstance(n, bool) else n
        for n in (value if isinstance(value, Iterable) else [value] * count)
    ]
    if len(values) != count:
        raise ValueError(f"{name} has {len(values)} numbers for {count} {of}")
    check_positive(**{f"{name}[{i}]" if several else name: n for i, n in enumerate(values)})
    return values


def _ts_layers(kind: str, depth: int, ts_layers: Collection[int] | None) -> set[int]:
    if kind not in KINDS:
        raise ValueError(f"kind must be one of {', '.join(map(repr, KINDS))}; got {kind!r}")
    every = set(range(1, depth + 1))
    if kind == "ss":
        return set()
    chosen = every if ts_layers is None else set(ts_layers)
    if not chosen <= every:
        raise ValueError(
            f"ts_layers {sorted(chosen - every)} are not among the layers 1 to {depth}"
        )
    if kind == "ts-ibp" and chosen != every:
        raise ValueError(
            "the uncompressed TS network ('ts-ibp') has TS layers only; "
            "use kind 'ts-ibp-lrc' to choose some"
        )
    return chosen


def _glorot(layer: nn.Linear | nn.Conv2d) -> nn.Module:
    nn.init.xavier_uniform_(layer.weight)
    if layer.bias is not None:
        nn.init.zeros_(layer.bias)
    return layer
