"""Memory without page faults, and how much of it there is.

Fresh memory comes in pages of 4 KiB, each a trap into the kernel: a large buffer costs several times more to obtain than to fill.
"""

from __future__ import annotations

import math
import mmap
import os
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import torch
from torch import Tensor

LARGE = 1 << 25  # from here on the C library maps fresh pages for every allocation


class _Workspace(threading.local):
    """Scratch buffers that a thread uses again from call to call."""

    def __init__(self) -> None:
        self.buffers: dict[tuple[str, torch.dtype], Tensor] = {}
        self.views: dict[tuple[str, torch.dtype], Tensor] = {}

    def empty(self, name: str, shape: tuple[int, ...], like: Tensor) -> Tensor:
        """An uninitialised tensor, valid until this thread asks for ``name`` again."""
        size = math.prod(shape)
        if not like.is_cpu or size * like.element_size() > LARGE:
            return like.new_empty(shape)
        key = (name, like.dtype)
        view = self.views.get(key)
        if view is not None and view.shape == shape:
            return view
        buffer = self.buffers.get(key)
        if buffer is None or len(buffer) < size:
            with torch.inference_mode(
                False
            ):  # a buffer made in inference mode could not be used outside it
                self.buffers[key] = buffer = torch.empty(size, dtype=like.dtype, device=like.device)
        with torch.inference_mode(False):
            self.views[key] = view = buffer[:size].view(shape)
        return view


workspace = _Workspace()


def empty_like(tensor: Tensor) -> Tensor:
    """An uninitialised tensor to give away, such as a gradient."""
    return empty(tensor.shape, tensor.dtype, tensor.device)


def empty(shape: Sequence[int], dtype: torch.dtype, device: torch.device) -> Tensor:
    """An uninitialised tensor to give away; a large one on the CPU asks for huge pages (a fifth of the price)."""
    size = math.prod(shape) * dtype.itemsize
    if size < LARGE or device.type != "cpu" or not hasattr(mmap, "MADV_HUGEPAGE"):
        return torch.empty(shape, dtype=dtype, device=device)
    try:
        memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    except OSError as error:
        raise MemoryError(
            f"cannot allocate {size / 2**30:.2f} GB for an array of {tuple(shape)}"
        ) from error
    with suppress(OSError):  # not every kernel has them
        memory.madvise(mmap.MADV_HUGEPAGE)
    return torch.frombuffer(memory, dtype=dtype).view(shape)


def available_memory() -> float:
    """Return the bytes that can be allocated now, on the machine or in its container."""
    available = math.inf
    with suppress(OSError, ValueError, AttributeError):
        available = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    with suppress(OSError, StopIteration):  # what the kernel would free for us counts too
        line = next(
            line
            for line in Path("/proc/meminfo").read_text().splitlines()
            if line.startswith("MemAvailable")
        )
        available = 1024 * float(line.split()[1])
    with suppress(OSError, ValueError):
        group = Path("/sys/fs/cgroup")
        limit, used = (
            float((group / name).read_text()) for name in ("memory.max", "memory.current")
        )
        cached = dict(
            line.split() for line in (group / "memory.stat").read_text().splitlines()
        ).get("inactive_file", "0")
        available = min(available, limit - used + float(cached))
    return available
