"""Buffers that avoid page faults, and what fits in the available memory.

The operating system maps fresh memory in pages of 4 KiB, each on a page fault, so that a large
buffer takes several times longer to obtain than to fill.
"""

import math
import mmap
import os
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.weak import WeakIdKeyDictionary

LARGE = 1 << 25  # bytes from which the C library maps fresh pages for every allocation
SPARSE_ROWS = 4096  # converted to dense ones at a time


class _Workspace(threading.local):
    """Scratch buffers that a thread reuses from call to call."""

    def __init__(self) -> None:
        self.buffers: dict[tuple[str, torch.dtype], Tensor] = {}
        self.views: dict[tuple[str, torch.dtype], Tensor] = {}

    def empty(self, name: str, shape: tuple[int, ...], like: Tensor) -> Tensor:
        """Return an uninitialised tensor, valid until the thread's next call with ``name``."""
        size = math.prod(shape)
        if not like.is_cpu or size * like.element_size() > LARGE:
            return like.new_empty(shape)
        key = (name, like.dtype)
        view = self.views.get(key)
        if view is not None and view.shape == shape:
            return view
        buffer = self.buffers.get(key)
        if buffer is None or len(buffer) < size:
            # A buffer created in inference mode could not be used outside it.
            with torch.inference_mode(False):
                self.buffers[key] = buffer = torch.empty(size, dtype=like.dtype, device=like.device)
        with torch.inference_mode(False):
            self.views[key] = view = buffer[:size].view(shape)
        return view


workspace = _Workspace()


def empty(shape: Sequence[int], dtype: torch.dtype, device: torch.device) -> Tensor:
    """Return an uninitialised tensor that the caller owns, in huge pages if it is large."""
    size = math.prod(shape) * dtype.itemsize
    if _is_small(size, device):
        return torch.empty(shape, dtype=dtype, device=device)
    return torch.frombuffer(_map_pages(size, shape), dtype=dtype).view(shape)


class _Pages(np.ndarray[Any, Any]):
    """Memory that is spare again when the last tensor that uses it is freed."""

    spare: list[mmap.mmap]

    def __del__(self) -> None:
        # Views of an array are arrays of this class too, without memory of their own.
        if isinstance(self.base, mmap.mmap) and not self.spare:
            self.spare.append(self.base)


_spare: WeakIdKeyDictionary = WeakIdKeyDictionary()


def empty_gradient(weight: Tensor, dtype: torch.dtype, device: torch.device) -> Tensor:
    """Return an uninitialised tensor like the weight, in the memory of its last freed gradient."""
    # Optimisers free gradients after every step; mapping memory again takes longer than writing.
    size = weight.numel() * dtype.itemsize
    if _is_small(size, device):
        return torch.empty(weight.shape, dtype=dtype, device=device)
    spare = _spare.setdefault(weight, [])
    memory = None
    with suppress(IndexError):  # none yet, or another thread has it
        memory = spare.pop()
    if memory is None or len(memory) != size:
        memory = _map_pages(size, weight.shape)
    pages = _Pages(size, np.uint8, memory)
    pages.spare = spare
    return torch.frombuffer(pages, dtype=dtype).view(weight.shape)


def _is_small(size: int, device: torch.device) -> bool:
    """Return whether it does not pay to map the memory apart, or it is not possible."""
    return size < LARGE or device.type != "cpu" or not hasattr(mmap, "MADV_HUGEPAGE")


def _map_pages(size: int, shape: Sequence[int]) -> mmap.mmap:
    """Map fresh memory in huge pages, which takes a fifth of the time."""
    try:
        memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    except OSError as error:
        raise MemoryError(
            f"cannot allocate {size / 2**30:.2f} GB for an array of {tuple(shape)}"
        ) from error
    with suppress(OSError):  # not every kernel supports huge pages
        memory.madvise(mmap.MADV_HUGEPAGE)
    return memory


def check_memory(needed: float, what: str, advice: str = "") -> None:
    """Raise a readable error if so many bytes do not fit in memory."""
    available = available_memory()
    if needed > available:
        room = f"{available / 2**30:.3g} GB of memory are available{advice}"
        raise MemoryError(f"{what}, {needed / 2**30:.3g} GB, but {room}")


def memory_budget(memory_gb: float | None = None) -> float:
    """Return the bytes that may be used: what the user allows, or seven tenths of what is free."""
    if memory_gb is not None and not memory_gb > 0:
        raise ValueError(f"memory_gb must be above 0, got {memory_gb!r}")
    return 0.7 * available_memory() if memory_gb is None else memory_gb * 2**30


def dense_rows(matrix: Any, name: str = "X", copies: int = 1) -> Any:
    """Return a sparse matrix as a dense array if ``copies`` of it fit; anything else as it is."""
    from scipy.sparse import issparse  # layers and kernels do without SciPy

    if not issparse(matrix):
        return matrix
    dtype = matrix.dtype if matrix.dtype in (np.float32, np.float64) else np.dtype(np.float64)
    rows, columns = matrix.shape
    needed = copies * rows * columns * dtype.itemsize
    if needed > available_memory():
        raise MemoryError(
            f"{name} is sparse with {rows:,} rows and {columns:,} columns, which as dense rows "
            f"take {needed / 2**30:.1f} GB, but {available_memory() / 2**30:.1f} GB are available; "
            "reduce the columns first, for example with sklearn.decomposition.TruncatedSVD"
        )
    matrix = matrix.tocsr()
    result = np.empty((rows, columns), dtype=dtype)
    for start in range(0, rows, SPARSE_ROWS):
        result[start : start + SPARSE_ROWS] = matrix[start : start + SPARSE_ROWS].toarray()
    return result


def available_memory() -> float:
    """Return how many bytes can be allocated now, on the machine or in its container."""
    available = math.inf
    with suppress(OSError, ValueError, AttributeError):
        available = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    with suppress(OSError, IndexError):  # includes caches that the kernel would free
        known = Path("/proc/meminfo").read_text().split("MemAvailable:")
        available = 1024 * float(known[1].split()[0])
    with suppress(OSError, ValueError):
        group = Path("/sys/fs/cgroup")
        limit, used = (float((group / f"memory.{n}").read_text()) for n in ("max", "current"))
        statistics = (group / "memory.stat").read_text().splitlines()
        cached = float(dict(line.split() for line in statistics).get("inactive_file", "0"))
        available = min(available, limit - used + cached)
    return available
