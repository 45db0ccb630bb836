"""Max pooling as a switch: the patch at the best position of each window is copied."""

from __future__ import annotations

from dataclasses import dataclass, field
from numbers import Integral
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from tensorswitch._checks import check_floating, check_shape
from tensorswitch.switches._routes import Routes
from tensorswitch.switches._switch import AllOpen, Switch


@dataclass(frozen=True)
class MaxPool2d:
    """Copy, for each unit and window, the patch at the position with the highest score.

    Among equal scores the first one in row-major order wins. The patch is copied only if
    ``switch`` opens the gate there. With :class:`Maxout`, the best piece at the best position wins.

    Parameters
    ----------
    kernel_size : int or tuple of (int, int)
        Height and width of a window.
    stride : int or tuple of (int, int), optional
        Distance between windows. By default ``kernel_size``.
    switch : Switch, default=AllOpen()
        Rule that opens the gates.

    Examples
    --------
    >>> import torch
    >>> from tensorswitch.switches import MaxPool2d
    >>> routes = MaxPool2d(2)(torch.tensor([[[[0.0, 1.0], [3.0, 2.0]]]]))
    >>> routes.gates[:, 0], routes.target
    (tensor([False, False,  True, False]), tensor([0, 0, 0, 0]))
    """

    kernel_size: int | tuple[int, int]
    stride: int | tuple[int, int] | None = None
    switch: Switch = field(default_factory=AllOpen)

    def __call__(self, scores: Tensor) -> Routes:
        """Return the routes of scores of shape (images, gates, height, width).

        Sources are positions and targets are windows, both numbered image by image and within an
        image in row-major order.
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


def _pooled(
    units: Tensor,
    opened: Tensor,
    kernel_size: int | tuple[int, int],
    stride: int | tuple[int, int] | None,
) -> Routes:
    """Return the routes of the positions with the highest unit scores, where ``opened``."""
    (kh, kw), images = _pair(kernel_size), units.shape[0]
    sh, sw = _pair(kernel_size if stride is None else stride)
    height, width = units.shape[2:]
    if min(kh, kw, sh, sw) < 1 or kh > height or kw > width:
        raise ValueError(
            f"a {kh}×{kw} pooling window with stride {sh}×{sw} does not fit in "
            f"scores of {height}×{width}"
        )
    finite = torch.where(units.isnan(), -torch.inf, units)
    # The winning position: (images, units, windows).
    winner = F.max_pool2d(finite, (kh, kw), (sh, sw), return_indices=True)[1].flatten(2)
    device = units.device
    top = torch.arange(0, height - kh + 1, sh, device=device)
    left = torch.arange(0, width - kw + 1, sw, device=device)
    corner = (top[:, None] * width + left).flatten()
    within = torch.arange(kh, device=device)[:, None] * width + torch.arange(kw, device=device)
    position = (corner[:, None] + within.flatten()).flatten()  # (windows · candidates,)
    windows = corner.shape[0]

    # (images, windows · candidates, units)
    wins = winner.transpose(1, 2).repeat_interleave(kh * kw, 1) == position[:, None]
    pieces = opened.shape[1] // units.shape[1]
    gates = wins.repeat_interleave(pieces, 2) & opened.flatten(2).transpose(1, 2)[:, position]
    source = (torch.arange(images, device=device)[:, None] * (height * width) + position).flatten()
    target = torch.arange(images * windows, device=device).repeat_interleave(kh * kw, 0)
    return Routes(gates.flatten(0, 1), source, target, images * windows)


def _pair(size: int | tuple[int, int]) -> tuple[int, int]:
    both: Any = (size, size) if isinstance(size, Integral) else size
    return int(both[0]), int(both[1])
