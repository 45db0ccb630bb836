"""Measure times of alternatives in turns, and peak memory in separate processes."""

from __future__ import annotations

import multiprocessing
import resource
import sys
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

from reproduction import machine

T = TypeVar("T")


def side_by_side(
    runs: dict[str, Callable[[], Any]], seconds: float = 2.0, least: int = 5
) -> dict[str, float]:
    """Return the best time of each in seconds; they take turns, so that noise affects all alike."""
    best = dict.fromkeys(runs, float("inf"))
    for run in runs.values():
        run()
    start, rounds = time.perf_counter(), 0
    while rounds < least or time.perf_counter() - start < seconds:
        for name, run in runs.items():
            before = time.perf_counter()
            run()
            best[name] = min(best[name], time.perf_counter() - before)
        rounds += 1
    return best


def peak_extra_bytes(prepare: Callable[..., Callable[[], Any]], *arguments: Any) -> int:
    """Return the extra resident memory of a new process that calls ``prepare(*arguments)()``.

    Preparation is not counted. The smaller of two runs is returned, because pages of libraries
    count, too, and the kernel may drop and reload them when memory is short.
    """
    return min(in_a_process_of_its_own(_peak, prepare, arguments) for _ in range(2))


def in_a_process_of_its_own(call: Callable[..., T], *arguments: Any) -> T:
    """Return ``call(*arguments)``, computed in a new process.

    An executor notices when the child dies; a multiprocessing pool would wait for ever.
    """
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as executor:
        return executor.submit(call, *arguments).result()


def _peak(prepare: Callable[..., Callable[[], Any]], arguments: tuple[Any, ...]) -> int:
    """Return the rise of resident memory in this process."""
    run = prepare(*arguments)
    status = Path("/proc/self/status")
    if not status.exists():  # without /proc, use the peak since the start of the process
        unit = 1 if sys.platform == "darwin" else 1024
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        run()
        return unit * (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
    Path("/proc/self/clear_refs").write_text("5")  # resets the peak
    before = _status_bytes(status, "VmRSS")
    run()
    return _status_bytes(status, "VmHWM") - before


def _status_bytes(status: Path, field: str) -> int:
    line = next(line for line in status.read_text().splitlines() if line.startswith(field))
    return 1024 * int(line.split()[1])


def describe() -> str:
    """Return date, machine and versions."""
    return f"{machine.today()}, {machine.describe()}"


def print_table(header: list[str], rows: list[list[str]]) -> None:
    """Print a Markdown table."""
    widths = [max(len(row[i]) for row in [header, *rows]) for i in range(len(header))]
    for row in [header, ["-" * w for w in widths], *rows]:
        print("| " + " | ".join(cell.rjust(w) for cell, w in zip(row, widths, strict=True)) + " |")


def peak_resident_bytes() -> int:
    """Return the peak resident memory of this process."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (
        1 if sys.platform == "darwin" else 1024
    )
