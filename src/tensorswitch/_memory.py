"""Memory that costs no page faults.

Fresh memory comes in pages of 4 KiB, each a trap into the kernel: a large buffer costs several times more to obtain than to fill.
"""

from __future__ import annotations

import math
import mmap
import threading

import torch
from torch import Tensor

LARGE = 1 << 25  # from here on the C library maps fresh pages for every allocation


class _Workspace(threading.local):
    """Scratch buffers that a thread uses again from call to call."""

    def __init__(self) -> None:
        self.buffers: dict[tuple[str, torch.dtype], Tensor] = {}

    def empty(self, name: str, shape: tuple[int, ...], like: Tensor) -> Tensor:
        """An uninitialised tensor, valid until this thread asks for ``name`` again."""
        size = math.prod(shape)
        if like.device.type != "cpu" or size * like.element_size() > LARGE:
            return like.new_empty(shape)
        buffer = self.buffers.get((name, like.dtype))
        if buffer is None or len(buffer) < size:
            self.buffers[name, like.dtype] = buffer = torch.empty(size, dtype=like.dtype)
        return buffer[:size].view(shape)


workspace = _Workspace()


def empty_like(tensor: Tensor) -> Tensor:
    """An uninitialised tensor that is given away, such as a gradient; a large one on the CPU asks for huge pages (a fifth of the price)."""
    size = tensor.numel() * tensor.element_size()
    if tensor.device.type != "cpu" or size < LARGE or not hasattr(mmap, "MADV_HUGEPAGE"):
        return torch.empty_like(tensor, memory_format=torch.contiguous_format)
    memory = mmap.mmap(-1, size)
    memory.madvise(mmap.MADV_HUGEPAGE)
    return torch.frombuffer(memory, dtype=tensor.dtype).view(tensor.shape)
