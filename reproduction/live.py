"""Show the progress of a sweep as a live table in the terminal."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from reproduction.experiment import METHODS, percent
from reproduction.records import best_records
from reproduction.sweeps import Sweep


@contextmanager
def live_table(sweep: Sweep, console: Console) -> Iterator[None]:
    """Show what is running, finished and left, the best results and the remaining time.

    Without a terminal, only counts are printed, first and last.
    """
    start, done_before = time.monotonic(), len(sweep.records())

    def picture() -> RenderableType:
        return _picture(sweep, time.monotonic() - start, done_before)

    if not console.is_terminal:
        console.print(counts(sweep), soft_wrap=True)
        yield
        console.print(counts(sweep), soft_wrap=True)
        return
    with Live(get_renderable=picture, console=console, refresh_per_second=1):
        yield


def counts(sweep: Sweep, seconds_left: float = math.nan) -> str:
    """Return the state of a sweep, such as "12 done, 1 failed, 2 running, 30 to go"."""
    records = sweep.records()
    ended = {r.experiment.name for r in records}
    running = sum(e.name not in ended for e, _ in sweep.running())
    failed = sum(r.error is not None for r in records)
    parts = [f"{len(records) - failed} done"]
    parts += [f"{failed} failed"] * bool(failed) + [f"{running} running"] * bool(running)
    parts.append(f"{len(sweep.experiments) - len(records) - running} to go")
    if not math.isnan(seconds_left):
        parts.append(f"about {clock(seconds_left)} left")
    return ", ".join(parts)


def clock(seconds: float) -> str:
    """Return a duration in words: seconds, minutes, or hours and minutes."""
    minutes = round(seconds / 60)
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{minutes} min" if minutes < 100 else f"{minutes // 60} h {minutes % 60:02d} min"


def _picture(sweep: Sweep, elapsed: float, done_before: int) -> RenderableType:
    """Return the current state of the table."""
    records = sweep.records()
    done, left = len(records) - done_before, len(sweep.experiments) - len(records)
    running = Table("running", "epoch", "now", box=None, pad_edge=False)
    for experiment, state in sweep.running():
        trained = experiment.family in ("mlp", "cnn")
        epoch = f"{state['done']} of {state['total']}" if trained else "–"
        age = clock(max(0.0, time.time() - state["since"]))
        running.add_row(experiment.title, epoch, f"{state['note']} {age}".strip())
    best = Table("best so far", "one pass, %", "best, %", box=None, pad_edge=False)
    for (data, method), record in best_records(records).items():
        if (result := record.result) is not None:
            errors = percent(result.one_pass), percent(result.best)
            best.add_row(f"{data}, {METHODS[method]}", *errors)
    head = Text(counts(sweep, elapsed / done * left if done else math.nan))
    return Group(head, Text(), running, Text(), best)
