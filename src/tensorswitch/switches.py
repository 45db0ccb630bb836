"""Switches: the rules that turn gate scores into routes, and the gates of deep networks.

A route says "a copy of input row ``source`` goes to unit ``j`` of output row ``target``".
:class:`ReLU` and :class:`Maxout` copy a row to itself; :class:`MaxPool2d` copies the patch at the
winning position of a window. A closed unit has no route. A score that is NaN never opens its unit.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor
from torch.nn import functional as F

from tensorswitch._checks import check_floating, check_shape

__all__ = [
    "AllOpen",
    "MaxPool2d",
    "Maxout",
    "ReLU",
    "Routes",
    "Switch",
    "as_switch",
    "combine_gates",
    "deep_gates",
    "draw_gates",
    "switch_name",
]


@dataclass(frozen=True)
class Routes:
    """Where copies of the input rows go.

    gates : boolean (pairs, units): is unit j open for this pair of a source and a target row?
    source : (pairs,) input row of each pair; by default pair p is row p
    target : (pairs,) output row of each pair; by default pair p is row p
    rows : number of output rows; needed with ``target``
    """

    gates: Tensor
    source: Tensor | None = None
    target: Tensor | None = None
    rows: int | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.gates, Tensor) or self.gates.dtype != torch.bool:
            kind = self.gates.dtype if isinstance(self.gates, Tensor) else type(self.gates).__name__
            raise TypeError(
                f"gates must be a boolean tensor, got {kind}; scores become gates by a switch, such as scores > 0"
            )
        check_shape("gates", self.gates, (None, None), "(rows, gates)")
        if self.source is None and self.target is None and self.rows is None:
            return
        for name in ("source", "target"):
            index = getattr(self, name)
            if index is not None:
                if not isinstance(index, Tensor) or index.dtype != torch.int64:
                    raise TypeError(
                        f"{name} must be an int64 tensor, got {index.dtype if isinstance(index, Tensor) else type(index).__name__}"
                    )
                check_shape(name, index, (len(self.gates),), "(pairs,)")
                _check_range(name, index, self.rows if name == "target" else None)
        if (self.target is None) != (self.rows is None):
            raise ValueError("target and rows go together: give both or neither")

    def check_source(self, x: Tensor) -> None:
        """Raise unless ``x`` can be the input of these routes."""
        if self.gates.device != x.device:
            raise ValueError(
                f"gates are on {self.gates.device} but x is on {x.device}; move one with .to()"
            )
        if self.source is None:
            check_shape("x", x, (len(self.gates), None), "(rows, in_features)")
        else:
            _check_range("source", self.source, len(x))


def _check_range(name: str, index: Tensor, rows: int | None) -> None:
    if index.numel() and (int(index.min()) < 0 or (rows is not None and int(index.max()) >= rows)):
        raise ValueError(
            f"{name} must name rows from 0 to {'…' if rows is None else rows - 1}, got {int(index.min())} to {int(index.max())}"
        )


class Switch:
    """A rule that opens gates by their scores.

    Attributes
    ----------
    pieces : int
        Gates of a unit.
    """

    pieces: int = 1

    def open(self, scores: Tensor) -> Tensor:
        """Return the gates, boolean (rows, gates), for scores of the same shape."""
        raise NotImplementedError

    def units(self, scores: Tensor) -> Tensor:
        """Return the activities of the scalar network, (rows, gates / pieces)."""
        raise NotImplementedError

    def check_gates(self, gates: int) -> None:
        """Raise unless so many gates make whole units."""
        if gates % self.pieces:
            raise ValueError(
                f"gates must be a multiple of the {self.pieces} pieces of {self}, got {gates}"
            )

    def __call__(self, scores: Tensor) -> Routes:
        """Return the routes for scores of shape (rows, gates)."""
        check_floating("scores", scores)
        check_shape("scores", scores, (None, None), "(rows, gates)")
        self.check_gates(scores.shape[1])
        return Routes(self.open(scores))


@dataclass(frozen=True)
class ReLU(Switch):
    """A gate opens where its score is strictly positive.

    Examples
    --------
    >>> ReLU()(torch.tensor([[1.0, -1.0]])).gates
    tensor([[ True, False]])
    """

    def open(self, scores: Tensor) -> Tensor:
        return scores > 0

    def units(self, scores: Tensor) -> Tensor:
        return scores.relu()


@dataclass(frozen=True)
class AllOpen(Switch):
    """Every gate is open: a linear unit."""

    def open(self, scores: Tensor) -> Tensor:
        return ~scores.isnan()

    def units(self, scores: Tensor) -> Tensor:
        return scores


@dataclass(frozen=True)
class Maxout(Switch):
    """Of every ``pieces`` consecutive gates the best one opens, the first of equals.

    Parameters
    ----------
    pieces : int, default=2
        Gates of a unit.

    Examples
    --------
    >>> Maxout(2)(torch.tensor([[1.0, 2.0, -1.0, -2.0]])).gates
    tensor([[False,  True,  True, False]])
    """

    pieces: int = 2

    def __post_init__(self) -> None:
        if isinstance(self.pieces, bool) or not isinstance(self.pieces, int) or self.pieces < 1:
            raise ValueError(f"pieces must be a positive integer, got {self.pieces!r}")

    def open(self, scores: Tensor) -> Tensor:
        rows, gates = scores.shape
        units = scores.reshape(rows, gates // self.pieces, self.pieces)
        nan = units.isnan()
        winner = torch.where(nan, -torch.inf, units).argmax(2, keepdim=True)
        return (torch.zeros_like(nan).scatter_(2, winner, True) & ~nan).view(rows, gates)

    def units(self, scores: Tensor) -> Tensor:
        best: Tensor = scores.unflatten(1, (-1, self.pieces)).amax(2)
        return best


@dataclass(frozen=True)
class MaxPool2d:
    """A unit copies the patch at the position where it scores highest in a window.

    Of equal scores the first in row-major order wins. The copy is made if ``switch`` opens the gate
    there; with :class:`Maxout`, the best piece at the best position wins.

    Parameters
    ----------
    kernel_size : int or pair of int
        The window.
    stride : int or pair of int, optional
        The step between windows, by default the window itself.
    switch : Switch, default=AllOpen()
        What opens the gates.
    """

    kernel_size: int | tuple[int, int]
    stride: int | tuple[int, int] | None = None
    switch: Switch = field(default_factory=AllOpen)

    def __call__(self, scores: Tensor) -> Routes:
        """Return the routes for scores of shape (images, gates, height, width).

        Sources are positions and targets are windows, both counted image by image, row by row.
        """
        check_floating("scores", scores)
        check_shape("scores", scores, (None,) * 4, "(images, gates, height, width)")
        images, gates, height, width = scores.shape
        self.switch.check_gates(gates)
        flat = scores.permute(0, 2, 3, 1).reshape(-1, gates)
        opened = self.switch.open(flat).view(images, height, width, gates).permute(0, 3, 1, 2)
        finite = torch.where(scores.isnan(), -torch.inf, scores)
        units = finite.unflatten(1, (-1, self.switch.pieces)).amax(2)
        return _pooled(units, opened, self.kernel_size, self.stride)


def as_switch(switch: Switch | str) -> Switch:
    """Return a switch object from one or from its name.

    Names are ``"relu"``, ``"none"`` (every gate open), ``"maxout"`` and ``"maxout:PIECES"``.
    """
    if isinstance(switch, Switch):
        return switch
    name, _, count = str(switch).partition(":")
    if name == "maxout" and (not count or (count.isdecimal() and int(count) > 0)):
        return Maxout(int(count or 2))
    if name in ("relu", "none") and not count:
        return ReLU() if name == "relu" else AllOpen()
    raise ValueError(
        f"switch must be a Switch, 'relu', 'maxout', 'maxout:PIECES' or 'none', got {switch!r}"
    )


def switch_name(switch: Switch) -> str:
    """Return the name from which :func:`as_switch` makes the switch again."""
    if isinstance(switch, Maxout):
        return f"maxout:{switch.pieces}"
    return "relu" if isinstance(switch, ReLU) else "none"


def draw_gates(
    in_features: int,
    gates: Sequence[int],
    generator: torch.Generator,
    dtype: torch.dtype = torch.float32,
    switch: Switch | None = None,
) -> list[Tensor]:
    """Draw the gate weights of each layer from Glorot's uniform distribution.

    Parameters
    ----------
    in_features : int
        Inputs of the first layer.
    gates : sequence of int
        Gates of each layer, (n_1, …, n_L).
    generator : torch.Generator
        The source of randomness.
    dtype : torch.dtype, default=torch.float32
        Of the weights.
    switch : Switch, optional
        By default :class:`ReLU`. A layer has as many inputs as there are units below it.

    Returns
    -------
    list of Tensor
        For each layer (n_l, units below).
    """
    switch = ReLU() if switch is None else switch
    weights = []
    for n in gates:
        switch.check_gates(n)
        uniform = torch.rand(
            n, in_features, generator=generator, dtype=dtype, device=generator.device
        )
        weights.append((2 * uniform - 1) * math.sqrt(6 / (n + in_features)))
        in_features = n // switch.pieces
    return weights


def deep_gates(
    x: Tensor, gate_weights: Sequence[Tensor], switch: Switch | None = None
) -> list[Tensor]:
    """Return the gates of each layer, ``H(W_l x_{l-1})``, which follow the scalar network.

    Parameters
    ----------
    x : Tensor of shape (rows, n_0)
        The inputs.
    gate_weights : sequence of Tensor
        For each layer (n_l, units below).
    switch : Switch, optional
        By default :class:`ReLU`.

    Returns
    -------
    list of bool Tensor
        For each layer (rows, n_l).
    """
    switch = ReLU() if switch is None else switch
    gates = []
    for w in gate_weights:
        scores = x @ w.t()
        gates.append(switch.open(scores))
        x = switch.units(scores)
    return gates


def combine_gates(gates: Sequence[Tensor]) -> Tensor:
    """Return ``h_L ⊗ … ⊗ h_1`` for gates given from the first layer up.

    Parameters
    ----------
    gates : sequence of bool Tensor
        For each layer (rows, n_l).

    Returns
    -------
    bool Tensor of shape (rows, n_L · … · n_1)
    """
    combined = gates[0]
    for h in gates[1:]:
        combined = (h[:, :, None] & combined[:, None, :]).flatten(1)
    return combined


def _pooled(
    units: Tensor,
    opened: Tensor,
    kernel_size: int | tuple[int, int],
    stride: int | tuple[int, int] | None,
) -> Routes:
    """The winners of each window by ``units`` scores; ``opened`` has a whole number of gates for each unit, closed where a score is NaN."""
    (kh, kw), images = _pair(kernel_size), len(units)
    sh, sw = _pair(kernel_size if stride is None else stride)
    height, width = units.shape[2:]
    if min(kh, kw, sh, sw) < 1 or kh > height or kw > width:
        raise ValueError(
            f"a {kh}×{kw} pooling window with stride {sh}×{sw} does not fit in scores of {height}×{width}"
        )
    finite = torch.where(units.isnan(), -torch.inf, units)
    winner = F.max_pool2d(finite, (kh, kw), (sh, sw), return_indices=True)[1].flatten(
        2
    )  # (images, units, windows) -> position
    device = units.device
    top = torch.arange(0, height - kh + 1, sh, device=device)
    left = torch.arange(0, width - kw + 1, sw, device=device)
    within = torch.arange(kh, device=device)[:, None] * width + torch.arange(kw, device=device)
    position = (
        (top[:, None] * width + left).flatten()[:, None] + within.flatten()
    ).flatten()  # (windows · candidates,)
    windows = len(top) * len(left)

    wins = (
        winner.transpose(1, 2).repeat_interleave(kh * kw, 1) == position[:, None]
    )  # (images, windows · candidates, units)
    pieces = opened.shape[1] // units.shape[1]
    gates = wins.repeat_interleave(pieces, 2) & opened.flatten(2).transpose(1, 2)[:, position]
    source = (torch.arange(images, device=device)[:, None] * (height * width) + position).flatten()
    target = torch.arange(images * windows, device=device).repeat_interleave(kh * kw)
    return Routes(gates.flatten(0, 1), source, target, images * windows)


def _pair(size: int | tuple[int, int]) -> tuple[int, int]:
    return (size, size) if isinstance(size, int) else (int(size[0]), int(size[1]))
