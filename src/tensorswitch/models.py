"""The paper's networks, SS and TS from one description, and how they are kept in files.

SS        h = relu(W x), then the next layer or a linear readout
TS-LRC    SwitchedLinear with fixed gates: copies, rotated and compressed; the last one is the readout itself
TS-IBP-LRC    the same, with gates that learn by inverted backpropagation
TS-IBP    the deep uncompressed network, TensorSwitching
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence
from numbers import Integral
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from tensorswitch._checks import check_positive
from tensorswitch._files import read_tensors, write_tensors
from tensorswitch._memory import available_memory
from tensorswitch.nn import SwitchedConv2d, SwitchedLinear, TensorSwitching

__all__ = ["KINDS", "build", "cnn", "load_model", "mlp", "save_model"]

KINDS = ("ss", "ts-lrc", "ts-ibp-lrc", "ts-ibp")
FORMAT = "tensorswitch.model"
MOST_LAYERS = 10_000  # more would take minutes to build


class Network(nn.Sequential):
    """Layers in order, and the description they were built from."""

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
    """A fully connected network of ``depth`` hidden layers.

    Parameters
    ----------
    kind : "ss", "ts-lrc", "ts-ibp-lrc" or "ts-ibp"
    depth, width : hidden layers and their units (gates), one number or one for each layer
    ts_layers : which hidden layers are TS, counted from 1; by default all. The others are SS
    bias : for layers and readout; the paper has none

    >>> import torch
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
    """A convolutional network: blocks of 3 × 3 convolutions ended by 2 × 2 max pooling, one SS layer, then SS or TS layers.

    Parameters
    ----------
    size : height and width of the images
    convolutions : in each block, one number or one for each; ``channels`` has one for each
    depth, width : fully connected layers after the SS layer, which has the first width
    ts_layers : which of these are TS, counted from 1; by default all
    ts_blocks : blocks, counted from 1, whose last convolution and pooling are a TS convolution with max-pooling switches

    >>> import torch
    >>> cnn(1, 32, 10, channels=(4, 4), width=16)(torch.zeros(3, 1, 32, 32)).shape
    torch.Size([3, 10])
    """
    height, across = _one_for_each("size", size, 2, "axes, height and width")
    repeats = _one_for_each("convolutions", convolutions, len(channels), "blocks")
    check_positive(in_channels=in_channels, **{f"channels[{i}]": n for i, n in enumerate(channels)})
    if min(height, across) < 2 ** len(channels):
        raise ValueError(
            f"images of {height} × {across} are too small to be halved {len(channels)} times"
        )
    if wrong := [b for b in ts_blocks if b not in range(1, len(channels) + 1)]:
        raise ValueError(f"ts_blocks {wrong} are not among the blocks 1 to {len(channels)}")
    if kind == "ts-ibp" and ts_blocks:
        raise ValueError(
            "the uncompressed TS network ('ts-ibp') has no convolutions; use kind 'ts-ibp-lrc' for ts_blocks"
        )
    widths, ts = _widths(depth, width), _ts_layers(kind, depth, ts_layers)
    _check_layers("convolutions", sum(repeats))
    flat = int(channels[-1]) * (height >> len(channels)) * (across >> len(channels))
    count = flat * widths[0] + _count(widths[0], out_features, kind, widths, ts)
    for n, below, repeat in zip(channels, [in_channels, *channels], repeats, strict=False):
        wide = n if kind != "ss" and ts_blocks else 1
        count += 9 * n * wide * (below + (repeat - 1) * n)
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
                layers += [_glorot(nn.Conv2d(below, n, 3, padding=1)), nn.ReLU()]
                if i == repeat - 1:
                    layers.append(nn.MaxPool2d(2))
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
    """The network of a description, with new weights."""
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
        last = number == len(widths)
        if number in ts:
            layers.append(
                SwitchedLinear(n_in, n, out if last else n, bias, learn_gates=_learn(kind))
            )
        else:
            layers += [_glorot(nn.Linear(n_in, n, bias)), nn.ReLU()]
        n_in = n
    if len(widths) not in ts:
        layers.append(_glorot(nn.Linear(n_in, out, bias)))
    return layers


def _learn(kind: str) -> str | None:
    return "ibp" if kind.startswith("ts-ibp") else None


def _count(n_in: int, out: int, kind: str, widths: Sequence[int], ts: set[int]) -> int:
    """How many weights the fully connected layers have, without building them."""
    if kind == "ts-ibp":
        return math.prod(widths) * n_in * out
    count = 0
    for number, n in enumerate(widths, 1):
        last = number == len(widths)
        count += n * n_in * ((out if last else n) if number in ts else 1)
        n_in = n
    return count


def _check_memory(weights: int, what: str) -> None:
    """Raise if the weights alone do not fit, instead of an allocator's stack trace."""
    needed, available = 4 * weights, available_memory()
    if needed > available:
        raise MemoryError(
            f"a network of {what} has {weights:.3g} weights, {needed / 2**30:.3g} GB, but {available / 2**30:.3g} GB of memory are available"
        )


def _check_layers(name: str, count: int) -> None:
    if count > MOST_LAYERS:
        raise ValueError(f"{name} must be at most {MOST_LAYERS:,} in all, got {count:,}")


def _widths(depth: int, width: int | Sequence[int]) -> list[int]:
    check_positive(depth=depth)
    _check_layers("depth", depth)
    return _one_for_each("width", width, depth, "layers")


def _one_for_each(name: str, value: int | Sequence[int], count: int, of: str) -> list[int]:
    """Plain integers, as JSON knows them; one number stands for all."""
    values = [
        int(n) if isinstance(n, Integral) and not isinstance(n, bool) else n
        for n in (value if isinstance(value, Iterable) else [value] * count)
    ]
    if len(values) != count:
        raise ValueError(f"{name} has {len(values)} numbers for {count} {of}")
    check_positive(
        **{
            name if not isinstance(value, Iterable) else f"{name}[{i}]": n
            for i, n in enumerate(values)
        }
    )
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
            "the uncompressed TS network ('ts-ibp') has TS layers only; use kind 'ts-ibp-lrc' to choose some"
        )
    return chosen


def _glorot(layer: nn.Linear | nn.Conv2d) -> nn.Module:
    nn.init.xavier_uniform_(layer.weight)
    if layer.bias is not None:
        nn.init.zeros_(layer.bias)
    return layer


def save_model(
    network: Network, path: str | Path, extra: dict[str, Tensor] | None = None, **notes: Any
) -> None:
    """Write weights as safetensors, with the description and ``notes`` as JSON in its header: whole or not at all.

    ``extra`` are tensors to keep beside the weights, such as how the inputs were prepared.
    """
    tensors = {
        f"model.{name}": t.detach().cpu().contiguous() for name, t in network.state_dict().items()
    }
    tensors.update({f"extra.{name}": t.contiguous() for name, t in (extra or {}).items()})
    write_tensors(path, FORMAT, tensors, {"description": network.description, "notes": notes})


def load_model(path: str | Path) -> Network:
    """Rebuild a network from :func:`save_model`'s file; nothing is unpickled."""
    return load_model_with_extra(path)[0]


def load_model_with_extra(path: str | Path) -> tuple[Network, dict[str, Tensor], dict[str, Any]]:
    """The network, the tensors kept beside it, and the notes."""
    tensors, header = read_tensors(path, FORMAT)
    try:
        weights = {
            name.removeprefix("model."): t
            for name, t in tensors.items()
            if name.startswith("model.")
        }
        if not weights:
            raise ValueError("it holds no weights")
        with torch.device("meta"):  # nothing is allocated before the sizes are seen to agree
            network = build(header["description"])
        network.load_state_dict(weights, assign=True)
    except (KeyError, TypeError, ValueError, RuntimeError, MemoryError, OverflowError) as error:
        raise ValueError(
            f"{path} does not hold the weights that its description asks for: {error}"
        ) from error
    return (
        network,
        {
            name.removeprefix("extra."): t
            for name, t in tensors.items()
            if name.startswith("extra.")
        },
        header.get("notes", {}),
    )
