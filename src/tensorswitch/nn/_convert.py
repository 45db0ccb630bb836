"""Conversion of trained ReLU networks.

A relu(W x + b) + c = Σ_j h_j a_j (w_jᵀ x + b_j) + c,    so V_j = w_j a_jᵀ,  h_j = H(w_j · x + b_j)
"""

import copy
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias, TypeVar

import torch
from torch import fx, nn
from torch.nn import functional as F
from torch.nn.utils import fusion

from tensorswitch._checks import check_positive, pair
from tensorswitch.nn._base import Switching
from tensorswitch.nn._conv import check_convolution
from tensorswitch.nn._converted import convolution_below, readout_below
from tensorswitch.nn._joint import CompressedSwitching, JointSwitching
from tensorswitch.nn._linear import SwitchedLinear

RELU = (F.relu, torch.relu, F.relu_, torch.relu_, "relu", "relu_")
FLATTEN = (torch.flatten, "flatten")
Norm: TypeAlias = nn.BatchNorm1d | nn.BatchNorm2d
Layer = TypeVar("Layer", nn.Linear, nn.Conv2d)


@dataclass
class _Match:
    """A hidden layer, what follows it up to the readout, and the nodes between them."""

    hidden: fx.Node
    output: fx.Node
    between: list[fx.Node]
    norm: Norm | None = None
    pool: tuple[int, int] | None = None
    dropout: float = 0.0
    flat: bool = False


class _RefusedError(ValueError):
    """Raised with the reason for which a layer cannot be converted."""


class _Tracer(fx.Tracer):
    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        ours = isinstance(m, Switching | JointSwitching)
        return ours or super().is_leaf_module(m, module_qualified_name)


def convert(
    module: nn.Module, layers: str | Sequence[str] | None = None, *, rank: int | None = None
) -> fx.GraphModule:
    """Return a copy of a ReLU network in which hidden layers are TS layers.

    A hidden layer, its ReLU and the layer above it become one TS layer that computes the same, with
    a trainable linear map for each hidden unit. Found are

    - ``Linear – [BatchNorm1d] – ReLU – [Dropout] – Linear``,
    - ``Conv2d – [BatchNorm2d] – ReLU – [MaxPool2d] – [Dropout] – Conv2d``, and the same with
      ``Flatten – Linear`` at the end.

    Batch normalisation becomes part of the weights, with its statistics of the training set
    (``BatchNorm1d`` is taken to normalise the features of rows, not the steps of sequences), and
    dropout becomes dropout of gates. The gates of exact TS layers are fixed. In evaluation mode the
    outputs, and the gradients of the input, are those of ``module`` up to rounding. The copy is in
    the mode, training or evaluation, of ``module``.

    Parameters
    ----------
    module : torch.nn.Module
        Network that :mod:`torch.fx` can trace. It is not modified.
    layers : str or sequence of str, optional
        Names of the hidden layers to convert, as in ``module.named_modules()``. By default all
        that can be converted; of two that share a layer, the one closer to the input.
    rank : int, optional
        If given, hidden linear layers become :class:`CompressedSwitching` layers of this rank,
        which have few new parameters. By default they get the paper's form, which multiplies the
        parameters of the readout by the number of inputs.

    Examples
    --------
    >>> import torch
    >>> from torch import nn
    >>> from tensorswitch import convert
    >>> network = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
    >>> converted = convert(network)
    >>> x = torch.randn(5, 4)
    >>> torch.allclose(converted(x), network(x), atol=1e-5)
    True
    """
    if rank is not None:
        check_positive(rank=rank)
    if isinstance(layers, str):
        layers = [layers]
    if layers is not None and not len(layers):
        raise ValueError("layers is empty; name the layers to convert, or None for all")
    try:
        root = copy.deepcopy(module)
        graph = _Tracer().trace(root)
    except Exception as error:
        raise ValueError(f"torch.fx cannot trace this module: {error}") from error
    network = fx.GraphModule(root, graph)
    used: set[fx.Node] = set()
    matches, reasons = [], []
    for name in _candidates(network) if layers is None else layers:
        try:
            match = _match(network, name)
            if shared := used & {match.hidden, match.output}:
                taken = shared.pop().target
                raise _RefusedError(f"{taken!r} is already part of another converted layer")
            replacement = _build(network, match, rank)
        except _RefusedError as reason:
            if layers is not None:
                raise ValueError(f"layer {name!r} cannot be converted: {reason}") from None
            reasons.append(f"{name!r}: {reason}")
            continue
        used |= {match.hidden, match.output}
        matches.append((match, replacement))
    if not matches:
        found = "; ".join(reasons) or "it has no Linear or Conv2d layers"
        raise ValueError(f"module has no layer that can be converted: {found}")
    for match, replacement in matches:
        _replace(network, match, replacement)
    network.graph.lint()
    network.recompile()
    return network


def _candidates(network: fx.GraphModule) -> list[str]:
    """Return the names of the linear and convolutional layers, from the input up."""
    nodes = network.graph.nodes
    return [str(n.target) for n in nodes if isinstance(_module(network, n), nn.Linear | nn.Conv2d)]


def _match(network: fx.GraphModule, name: str) -> _Match:
    """Return the layer with what follows it."""
    calls = [n for n in network.graph.nodes if n.op == "call_module" and n.target == name]
    if not calls:
        raise _RefusedError(f"the network has no layer of this name; it has {_candidates(network)}")
    if len(calls) > 1:
        raise _RefusedError(f"it is called {len(calls)} times")
    hidden = _module(network, calls[0])
    if not isinstance(hidden, nn.Linear | nn.Conv2d):
        raise _RefusedError(f"it is a {type(hidden).__name__}, not a Linear or Conv2d")
    match = _Match(calls[0], calls[0], [])
    relu = False
    for node in _chain(calls[0]):
        layer = _module(network, node)
        if isinstance(layer, nn.Linear | nn.Conv2d):
            if not relu:
                raise _RefusedError(f"there is no ReLU between it and {node.target!r}")
            match.output = node
            _check_stands_alone(network, match)
            return match
        relu = _step(match, node, layer, relu)
        match.between.append(node)
    raise _RefusedError("no Linear or Conv2d follows it")


def _check_stands_alone(network: fx.GraphModule, match: _Match) -> None:
    """Raise if weights are used in another place too, or if the TS layer would not call a hook."""
    for layer in (str(match.hidden.target), str(match.output.target)):
        for node in network.graph.nodes:
            if node.op == "get_attr" and str(node.target).startswith(f"{layer}."):
                raise _RefusedError(f"{node.target!r} is also used outside of its layer")
        own = network.get_submodule(layer)
        for name, parameter in own.named_parameters():
            for place, module in network.named_modules():
                held = any(p is parameter for p in module.parameters(recurse=False))
                if held and module not in own.modules():
                    raise _RefusedError(f"'{layer}.{name}' is also used by {place!r}")
    for node in (match.hidden, *match.between, match.output):
        module = _module(network, node)
        if module is not None and (module._forward_hooks or module._forward_pre_hooks):
            raise _RefusedError(f"{node.target!r} has forward hooks")


def _chain(node: fx.Node) -> Iterator[fx.Node]:
    """Yield the nodes that follow a node, as long as each has a single user."""
    while True:
        users = list(node.users)
        if len(users) != 1:
            raise _RefusedError(f"the output of {node.target!r} is used {len(users)} times")
        node = users[0]
        if node.op == "output":
            return
        yield node


def _step(match: _Match, node: fx.Node, layer: nn.Module | None, relu: bool) -> bool:
    """Note what a node between hidden layer and readout does; return whether it was a ReLU."""
    if isinstance(layer, nn.ReLU) or (layer is None and node.target in RELU):
        return True
    # Fused into the hidden layer, a norm comes before the pooling; with a negative scale, the
    # maximum would then be another.
    first = not relu and match.norm is None and match.pool is None and not match.flat
    if isinstance(layer, Norm) and first:
        if layer.running_mean is None:
            raise _RefusedError(f"{node.target!r} keeps no running statistics")
        match.norm = layer
    elif isinstance(layer, nn.MaxPool2d) and match.pool is None and not match.dropout:
        match.pool = _window(layer)
    elif isinstance(layer, nn.Dropout) and relu and not match.dropout:
        if layer.p == 1:
            raise _RefusedError(f"{node.target!r} drops all units")
        match.dropout = layer.p
    elif isinstance(layer, nn.Identity):
        pass
    elif _is_flatten(node, layer):
        match.flat = True
    else:
        what = type(layer).__name__ if layer is not None else getattr(node.target, "__name__", node)
        raise _RefusedError(
            f"it is followed by {what}, which cannot stand between a hidden layer and its readout"
        )
    return relu


def _window(layer: nn.MaxPool2d) -> tuple[int, int]:
    kernel, stride, padding, dilation = (
        pair(name, getattr(layer, name), least=0)
        for name in ("kernel_size", "stride", "padding", "dilation")
    )
    if kernel != stride or padding != (0, 0) or dilation != (1, 1) or layer.ceil_mode:
        what = "a stride equal to its kernel size, no padding, no dilation and no ceil_mode"
        raise _RefusedError(f"its max pooling must have {what}, got {layer}")
    return kernel


def _is_flatten(node: fx.Node, layer: nn.Module | None) -> bool:
    if isinstance(layer, nn.Flatten):
        return layer.start_dim == 1 and layer.end_dim == -1
    if layer is not None or node.target not in FLATTEN:
        return False
    given = dict(zip(("start_dim", "end_dim"), node.args[1:], strict=False))
    return {"end_dim": -1, **given, **node.kwargs} == {"start_dim": 1, "end_dim": -1}


def _build(network: fx.GraphModule, match: _Match, rank: int | None) -> nn.Module:
    """Return the module that takes the place of the match."""
    hidden, output = _module(network, match.hidden), _module(network, match.output)
    try:
        if isinstance(hidden, nn.Linear):
            if not isinstance(output, nn.Linear) or match.flat or match.pool:
                raise _RefusedError("it is linear, but what follows is not")
            return _linear(hidden, output, match, rank)
        assert isinstance(hidden, nn.Conv2d)
        return _convolution(hidden, output, match, rank)
    except ValueError as reason:  # of the layers: the rank is too large, or there are groups
        raise _RefusedError(str(reason)) from None


def _linear(hidden: nn.Linear, output: nn.Linear, match: _Match, rank: int | None) -> nn.Module:
    if rank is not None and match.dropout:
        raise _RefusedError("a compressed layer has no dropout of units; use rank=None")
    if match.norm is not None:
        hidden = fusion.fuse_linear_bn_eval(*_evaluating(hidden, match.norm))
    if rank is None:
        return SwitchedLinear.from_relu(hidden, output, dropout=match.dropout)
    return CompressedSwitching(hidden, output, rank)


def _convolution(
    hidden: nn.Conv2d, output: nn.Module | None, match: _Match, rank: int | None
) -> nn.Module:
    check_convolution("it", hidden, hidden=True)
    if isinstance(output, nn.Conv2d):
        check_convolution(str(match.output.target), output)
    elif not match.flat:
        raise _RefusedError("a Linear follows it without Flatten")
    if rank is not None:
        raise _RefusedError("only linear layers have a compressed form; use rank=None")
    if match.norm is not None:
        hidden = fusion.fuse_conv_bn_eval(*_evaluating(hidden, match.norm))
    if isinstance(output, nn.Conv2d):
        return convolution_below(hidden, output, match.pool, match.dropout)
    assert isinstance(output, nn.Linear)
    return readout_below(hidden, output, match.pool, match.dropout)


def _evaluating(layer: Layer, norm: Norm) -> tuple[Layer, Norm]:
    """Return copies in evaluation mode, so that layers that are refused later stay as they are."""
    layer, norm = copy.deepcopy(layer).eval(), copy.deepcopy(norm).eval()
    if norm.weight is None:  # a norm without scale and shift
        norm.weight = nn.Parameter(torch.ones_like(norm.running_mean))
        norm.bias = nn.Parameter(torch.zeros_like(norm.running_mean))
    return layer, norm


def _replace(network: fx.GraphModule, match: _Match, replacement: nn.Module) -> None:
    """Put the new module where the hidden layer was, and remove the rest of the match."""
    parent, _, child = str(match.hidden.target).rpartition(".")
    setattr(network.get_submodule(parent), child, replacement)
    replacement.train(network.training)
    match.output.replace_all_uses_with(match.hidden)
    for node in [match.output, *reversed(match.between)]:
        network.graph.erase_node(node)
    network.delete_all_unused_submodules()


def _module(network: fx.GraphModule, node: fx.Node) -> nn.Module | None:
    return network.get_submodule(str(node.target)) if node.op == "call_module" else None
