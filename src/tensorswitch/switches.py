"""Switches: the rules that turn gate scores into routes.

A route says "a copy of input row ``source`` goes to unit ``j`` of output row ``target``". ReLU and maxout copy a row to itself; max pooling
copies the patch at the winning position of a window. A closed unit has no route. A score that is NaN never opens its unit.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from tensorswitch._checks import check_floating, check_shape

__all__ = ["Routes", "max_pool2d", "maxout", "relu"]


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
            raise TypeError(f"gates must be a boolean tensor, got {kind}; scores become gates by a switch, such as scores > 0")
        check_shape("gates", self.gates, (None, None), "(rows, gates)")
        if self.source is None and self.target is None and self.rows is None:
            return
        for name in ("source", "target"):
            index = getattr(self, name)
            if index is not None:
                if not isinstance(index, Tensor) or index.dtype != torch.int64:
                    raise TypeError(f"{name} must be an int64 tensor, got {index.dtype if isinstance(index, Tensor) else type(index).__name__}")
                check_shape(name, index, (len(self.gates),), "(pairs,)")
                _check_range(name, index, self.rows if name == "target" else None)
        if (self.target is None) != (self.rows is None):
            raise ValueError("target and rows go together: give both or neither")

    def check_source(self, x: Tensor) -> None:
        """Raise unless ``x`` can be the input of these routes."""
        if self.gates.device != x.device:
            raise ValueError(f"gates are on {self.gates.device} but x is on {x.device}; move one with .to()")
        if self.source is None:
            check_shape("x", x, (len(self.gates), None), "(rows, in_features)")
        else:
            _check_range("source", self.source, len(x))


def _check_range(name: str, index: Tensor, rows: int | None) -> None:
    if index.numel() and (int(index.min()) < 0 or (rows is not None and int(index.max()) >= rows)):
        raise ValueError(f"{name} must name rows from 0 to {'…' if rows is None else rows - 1}, got {int(index.min())} to {int(index.max())}")


def relu(scores: Tensor) -> Routes:
    """A unit opens where its score is strictly positive. ``scores`` is (rows, units)."""
    check_floating("scores", scores)
    check_shape("scores", scores, (None, None), "(rows, gates)")
    return Routes(scores > 0)


def maxout(scores: Tensor, pieces: int = 2) -> Routes:
    """The best of every ``pieces`` consecutive gates opens, the first of equals. ``scores`` is (rows, units · pieces)."""
    check_floating("scores", scores)
    check_shape("scores", scores, (None, None), "(rows, gates)")
    return Routes(_winning_pieces(scores, pieces))


def max_pool2d(scores: Tensor, kernel_size: int | tuple[int, int], stride: int | tuple[int, int] | None = None) -> Routes:
    """A unit copies the patch at the position where it scores highest in a window, the first in row-major order among equals.

    ``scores`` is (images, units, height, width). Sources are positions and targets are windows, both counted image by image, row by row.
    """
    check_floating("scores", scores)
    check_shape("scores", scores, (None, None, None, None), "(images, gates, height, width)")
    return _pooled(scores, ~scores.isnan(), kernel_size, stride)


def open_gates(scores: Tensor, switch: str) -> Tensor:
    """The gates (rows, gates) that a switch, named as in :func:`check_switch`, opens on its own."""
    name, pieces = check_switch(switch, scores.shape[1])
    if name == "relu":
        return scores > 0
    return _winning_pieces(scores, pieces) if name == "maxout" else ~scores.isnan()


def pooled_routes(scores: Tensor, switch: str, kernel_size: tuple[int, int], stride: tuple[int, int]) -> Routes:
    """A switch and max pooling together: of the gates that the switch opens, those at the winning position of the window.

    With maxout a unit is a set of pieces, and the best piece at the best position wins. ``scores`` is (images, gates, height, width).
    """
    images, gates, height, width = scores.shape
    opened = open_gates(scores.permute(0, 2, 3, 1).reshape(-1, gates), switch)
    opened = opened.view(images, height, width, gates).permute(0, 3, 1, 2)
    pieces = check_switch(switch, gates)[1]
    finite = torch.where(scores.isnan(), -torch.inf, scores)
    return _pooled(finite.unflatten(1, (-1, pieces)).amax(2), opened, kernel_size, stride)


def check_switch(switch: str, gates: int) -> tuple[str, int]:
    """Parse ``"relu"``, ``"maxout"`` or ``"maxout:3"`` (pieces), or ``"none"`` (every gate open); returns the name and the pieces of a unit."""
    name, _, count = str(switch).partition(":")
    pieces = int(count) if count.isdecimal() else 2 if not count else 0
    if name not in ("relu", "maxout", "none") or (count and name != "maxout") or pieces < 1:
        raise ValueError(f"switch must be 'relu', 'maxout', 'maxout:PIECES' or 'none', got {switch!r}")
    if name != "maxout":
        return name, 1
    if gates % pieces:
        raise ValueError(f"gates must be a multiple of the {pieces} pieces of {switch!r}, got {gates}")
    return name, pieces


def _winning_pieces(scores: Tensor, pieces: int) -> Tensor:
    rows, gates = scores.shape
    if pieces < 1:
        raise ValueError(f"pieces must be a positive integer, got {pieces}")
    if gates % pieces:
        raise ValueError(f"scores has size {gates} on axis 1 (gates), expected a multiple of {pieces} pieces")
    units = scores.reshape(rows, gates // pieces, pieces)
    nan = units.isnan()
    winner = torch.where(nan, -torch.inf, units).argmax(2, keepdim=True)
    return (torch.zeros_like(nan).scatter_(2, winner, True) & ~nan).view(rows, gates)


def _pooled(units: Tensor, opened: Tensor, kernel_size: int | tuple[int, int], stride: int | tuple[int, int] | None) -> Routes:
    """The winners of each window by ``units`` scores; ``opened`` has a whole number of gates for each unit, closed where a score is NaN."""
    (kh, kw), images = _pair(kernel_size), len(units)
    sh, sw = _pair(kernel_size if stride is None else stride)
    height, width = units.shape[2:]
    if min(kh, kw, sh, sw) < 1 or kh > height or kw > width:
        raise ValueError(f"a {kh}×{kw} pooling window with stride {sh}×{sw} does not fit in scores of {height}×{width}")
    finite = torch.where(units.isnan(), -torch.inf, units)
    winner = F.max_pool2d(finite, (kh, kw), (sh, sw), return_indices=True)[1].flatten(2)  # (images, units, windows) -> position
    device = units.device
    top = torch.arange(0, height - kh + 1, sh, device=device)
    left = torch.arange(0, width - kw + 1, sw, device=device)
    within = torch.arange(kh, device=device)[:, None] * width + torch.arange(kw, device=device)
    position = ((top[:, None] * width + left).flatten()[:, None] + within.flatten()).flatten()  # (windows · candidates,)
    windows = len(top) * len(left)

    wins = winner.transpose(1, 2).repeat_interleave(kh * kw, 1) == position[:, None]  # (images, windows · candidates, units)
    pieces = opened.shape[1] // units.shape[1]
    gates = wins.repeat_interleave(pieces, 2) & opened.flatten(2).transpose(1, 2)[:, position]
    source = (torch.arange(images, device=device)[:, None] * (height * width) + position).flatten()
    target = torch.arange(images * windows, device=device).repeat_interleave(kh * kw)
    return Routes(gates.flatten(0, 1), source, target, images * windows)


def _pair(size: int | tuple[int, int]) -> tuple[int, int]:
    return (size, size) if isinstance(size, int) else (int(size[0]), int(size[1]))
