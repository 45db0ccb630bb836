"""Ctrl-C during imports."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def deferring_interrupts() -> Iterator[None]:
    """Defer Ctrl-C to the end of the block, because a large import that it interrupts may abort.

    Only the main thread of a process can be interrupted, and only there does this do anything.
    """
    main = threading.current_thread() is threading.main_thread()
    if not main or signal.getsignal(signal.SIGINT) is None:
        yield
        return
    pressed: list[Any] = []
    before = signal.signal(signal.SIGINT, lambda *received: pressed.append(received))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
        if pressed:
            signal.raise_signal(signal.SIGINT)
