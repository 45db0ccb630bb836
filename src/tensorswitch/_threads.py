"""The number of threads that torch and the BLAS of SciPy use."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

import torch
from threadpoolctl import ThreadpoolController


@contextmanager
def threads(count: int) -> Iterator[None]:
    """Let torch and BLAS use so many threads.

    One is best for many small steps, such as factorisations of a few hundred rows: divided, each
    step waits for the second thread, and for long if another process uses its core.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        with _libraries().limit(limits=count, user_api="blas"):
            yield
    finally:
        torch.set_num_threads(before)


@cache
def _libraries() -> ThreadpoolController:
    import scipy.linalg  # noqa: F401  (only libraries that are loaded are found)

    return ThreadpoolController()
