"""Windows of a q × q grid over the positions of patches."""

from __future__ import annotations

import torch
from torch import Tensor


def edges(size: int, windows: int) -> list[int]:
    """Return where windows along an axis begin, and where the last one ends."""
    return [round(i * size / windows) for i in range(windows + 1)]


def window_of_position(height: int, width: int, grid: int) -> Tensor:
    """Return the window of each position, both numbered in row-major order."""

    def axis(size: int) -> Tensor:
        inner = torch.tensor(edges(size, grid)[1:-1], dtype=torch.int64, device="cpu")
        return torch.searchsorted(inner, torch.arange(size, device="cpu"), right=True)

    return (axis(height)[:, None] * grid + axis(width)).flatten()


def averaging(height: int, width: int, grid: int) -> Tensor:
    """Return the matrix that averages positions over windows, of shape (windows, positions)."""
    window = window_of_position(height, width, grid)
    member = window == torch.arange(grid * grid, device="cpu")[:, None]
    return member / member.sum(1, keepdim=True)
