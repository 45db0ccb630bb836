"""Builders of the networks, and the file of a network: how it was built, and its weights."""

from collections.abc import Callable, Collection, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Self

import torch
from torch import nn

from tensorswitch._checks import check_positive
from tensorswitch._memory import check_memory
from tensorswitch.nn import JointSwitching, SwitchedConv2d, SwitchedLinear, TensorSwitching
from tensorswitch.persistence import DAMAGES, State, load, save, saved_as

KINDS = ("ss", "ts-lrc", "ts-ibp-lrc", "ts-ibp", "ss+ts")
MOST_LAYERS = 10_000  # more would take minutes to build
ADVICE = "save its state_dict() with safetensors.torch.save_file instead"


@saved_as("network")
class Network(nn.Sequential):
    """Layers in sequence, with the description that they were built from.

    Parameters
    ----------
    *args : Module or OrderedDict
        Layers, as of :class:`torch.nn.Sequential`.

    Attributes
    ----------
    description : dict
        The architecture, "mlp" or "cnn", and the arguments of that function.

    Examples
    --------
    >>> from tensorswitch.models import mlp
    >>> mlp(4, 2, width=3).description["kind"]
    'ts-lrc'
    """

    description: State

    def state(self) -> State:
        """Return the description and the weights; raise if it would not build these layers."""
        if not isinstance(getattr(self, "description", None), dict):
            raise ValueError(f"the network has no description of how it was built; {ADVICE}")
        with torch.device("meta"):
            built = build(self.description)
        if repr(built) != repr(self):
            what = f"so its description would not build it again; {ADVICE}"
            raise ValueError(f"the network was changed after it was built, {what}")
        return {"description": self.description, "weights": dict(self.state_dict())}

    @classmethod
    def from_state(cls, state: State) -> Self:
        """Build the network of a state."""
        try:
            with torch.device("meta"):  # allocate nothing before the sizes are known to agree
                network = build(state["description"])
            network.load_state_dict(state["weights"], assign=True)
        except (*DAMAGES, OverflowError) as error:
            raise ValueError(f"the weights are not those of the description: {error}") from error
        return network  # type: ignore[return-value]


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
    """Build a fully connected network with ``depth`` hidden layers and new weights.

    Parameters
    ----------
    in_features, out_features : int
        Number of inputs and of outputs.
    kind : {"ss", "ts-lrc", "ts-ibp-lrc", "ts-ibp", "ss+ts"}, default="ts-lrc"
        Type of the layers; see :mod:`tensorswitch.models`.
    depth, width : int, and int or sequence of int, default=2 and 256
        Number of hidden layers, and units (gates) of all or of each of them.
    ts_layers : collection of int, optional
        Which hidden layers are TS, counted from 1; the others are SS. By default all.
    bias : bool, default=False
        Whether layers and readout have biases. The paper has none.

    Examples
    --------
    >>> import torch
    >>> from tensorswitch.models import mlp
    >>> mlp(64, 10, kind="ss", depth=2, width=32)(torch.zeros(3, 64)).shape
    torch.Size([3, 10])
    """
    check_positive(in_features=in_features, out_features=out_features)
    widths, ts = _widths(depth, width), _ts_layers(kind, depth, ts_layers)
    sizes = {"in_features": int(in_features), "out_features": int(out_features)}
    description = {"architecture": "mlp", **sizes, **_described(kind, widths, ts), "bias": bias}
    layers = partial(_layers, in_features, out_features, kind, widths, ts, bias)
    return _network(layers, f"depth {depth}, width {width}", description)


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
    in_channels, size : int, and int or sequence of int
        Number of channels, and height and width of the images.
    out_features, kind : int and str
        As in :func:`mlp`.
    convolutions : int or sequence of int, default=1
        Convolutions per block, one number for all or one for each.
    channels : sequence of int, default=(32, 64, 128)
        Output channels of each block.
    depth, width, ts_layers : optional
        As in :func:`mlp`, for the layers after the SS layer, which has the first width too.
    ts_blocks : collection of int, default=()
        Blocks, counted from 1, whose last convolution and pooling are replaced by a TS convolution
        with max pooling.

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
    sizes = {f"channels[{i}]": n for i, n in enumerate(channels)}
    check_positive(in_channels=in_channels, out_features=out_features, **sizes)
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

    def layers() -> list[nn.Module]:
        inputs = [in_channels, *channels]
        found: list[nn.Module] = []
        for block, (below, n, repeat) in enumerate(zip(inputs, channels, repeats, strict=False), 1):
            switched = block in ts_blocks and kind != "ss"
            found += _block(below, n, repeat, switched, kind)
        found += [nn.Flatten(), _glorot(nn.Linear(flat, widths[0])), nn.ReLU()]
        return found + _layers(widths[0], out_features, kind, widths, ts, True)

    images: State = {"in_channels": int(in_channels), "size": [height, across]}
    blocks: State = {"convolutions": repeats, "channels": [int(n) for n in channels]}
    description = {"architecture": "cnn", **images, "out_features": int(out_features), **blocks}
    description |= {**_described(kind, widths, ts), "ts_blocks": sorted(map(int, ts_blocks))}
    return _network(layers, f"channels {tuple(channels)}, width {width}", description)


def build(description: State) -> Network:
    """Build the network of a description, as of a file."""
    arguments = dict(description)
    builders: dict[str, Callable[..., Network]] = {"mlp": mlp, "cnn": cnn}
    if (name := arguments.pop("architecture", None)) not in builders:
        raise ValueError(f"unknown architecture {name!r}; known are {', '.join(builders)}")
    return builders[name](**arguments)


def _network(layers: Callable[[], list[nn.Module]], what: str, description: State) -> Network:
    """Build the layers, unless their weights alone do not fit in memory."""
    try:
        with torch.device("meta"):  # which allocates nothing
            count = sum(p.numel() for layer in layers() for p in layer.parameters())
    except (RuntimeError, OverflowError) as error:
        raise MemoryError(f"a network of {what} is too large: {error}") from error
    check_memory(4 * count, f"a network of {what} has {count:.3g} weights")
    network = Network(*layers())
    network.description = description
    return network


def _block(below: int, n: int, repeat: int, switched: bool, kind: str) -> list[nn.Module]:
    """Return convolutions with pooling, the last of which may be a TS convolution."""
    layers: list[nn.Module] = []
    for _ in range(repeat - 1):
        layers += [_glorot(nn.Conv2d(below, n, 3, padding=1)), nn.ReLU()]
        below = n
    if switched:
        ts = SwitchedConv2d(below, n, n, 3, padding=1, pool=2, learn_gates=_learn(kind))
        return [*layers, ts]
    # The ReLU comes after the pooling, with which it commutes: a quarter of the work.
    return [*layers, _glorot(nn.Conv2d(below, n, 3, padding=1)), nn.MaxPool2d(2), nn.ReLU()]


def _layers(
    n_in: int, out: int, kind: str, widths: Sequence[int], ts: set[int], bias: bool
) -> list[nn.Module]:
    """Return the fully connected layers with their readout."""
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


def _described(kind: str, widths: list[int], ts: set[int]) -> State:
    """Return the arguments of fully connected layers as JSON can store them."""
    chosen = sorted(map(int, ts)) if kind != "ss" else None
    return {"kind": kind, "depth": len(widths), "width": widths, "ts_layers": chosen}


def _learn(kind: str) -> str | None:
    return "ibp" if kind.startswith("ts-ibp") else None


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
    values = list(value) if isinstance(value, Iterable) else [value] * count
    if len(values) != count:
        raise ValueError(f"{name} has {len(values)} numbers for {count} {of}")
    check_positive(**{f"{name}[{i}]" if several else name: n for i, n in enumerate(values)})
    return [int(n) for n in values]


def _ts_layers(kind: str, depth: int, ts_layers: Collection[int] | None) -> set[int]:
    if kind not in KINDS:
        raise ValueError(f"kind must be one of {', '.join(map(repr, KINDS))}; got {kind!r}")
    if kind == "ss":
        return set()
    every = set(range(1, depth + 1))
    chosen = every if ts_layers is None else set(ts_layers)
    if wrong := sorted(chosen - every):
        raise ValueError(f"ts_layers {wrong} are not among the layers 1 to {depth}")
    if kind == "ts-ibp" and chosen != every:
        what = "has TS layers only; use kind 'ts-ibp-lrc' to choose some"
        raise ValueError(f"the uncompressed TS network ('ts-ibp') {what}")
    return chosen


def _glorot(layer: nn.Linear | nn.Conv2d) -> nn.Module:
    nn.init.xavier_uniform_(layer.weight)
    if layer.bias is not None:
        nn.init.zeros_(layer.bias)
    return layer


def save_model(network: Network, path: str | Path, **notes: object) -> None:
    """Write a network to a safetensors file, atomically; raise if its layers were changed.

    Parameters
    ----------
    network, path : Network, and str or Path
        Network of :func:`mlp` or :func:`cnn`, and file to write.
    **notes : object
        What to store with it, such as the preparation of its inputs: plain values, arrays and
        tensors, which :func:`tensorswitch.persistence.load_with_notes` returns.
    """
    if not isinstance(network, Network):
        raise TypeError(f"only networks of mlp or cnn can be saved, got {type(network)}; {ADVICE}")
    save(network, path, **notes)


def load_model(path: str | Path) -> Network:
    """Read a network from a file written by :func:`save_model`.

    Nothing is unpickled, so that files from untrusted sources cannot run code.

    Parameters
    ----------
    path : str or Path
        File to read.

    Examples
    --------
    >>> import tempfile
    >>> from tensorswitch.models import load_model, mlp, save_model
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save_model(mlp(4, 2, depth=1, width=3), f"{folder}/model.safetensors")
    ...     load_model(f"{folder}/model.safetensors").description["width"]
    [3]
    """
    return load(path, Network)
