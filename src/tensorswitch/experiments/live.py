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

from tensorswitch._progress import clock
from tensorswitch.experiments.experiment import METHODS
from tensorswitch.experiments.records import best_records
from tensorswitch.experiments.sweeps import Sweep
from tensorswitch.training._history import percent


@contextmanager
def live_table(sweep: Sweep, console: Console) -> Iterator[None]:
    """Show what is running, finished and left, the best results and the remaining time.

    Parameters
    ----------
    sweep : Sweep
        The sweep to watch.
    console : rich.console.Console
        Where to draw. If it is not a terminal, only counts are printed, first and last.

    Yields
    ------
    None
        The table is updated until the context is left.
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
    """Return the state of a sweep, such as "12 done, 1 failed, 2 running, 30 to go".

    Parameters
    ----------
    sweep : Sweep
        The sweep.
    seconds_left : float, default=nan
        Estimate of the remaining time, shown unless NaN.

    Returns
    -------
    str
        The counts.
    """
    records, running = sweep.records(), sweep.running()
    ended = {r.experiment.name for r in records}
    running = [(e, state) for e, state in running if e.name not in ended]
    failed = sum(r.error is not None for r in records)
    parts = (
        [f"{len(records) - failed} done"]
        + [f"{failed} failed"] * bool(failed)
        + [f"{len(running)} running"] * bool(running)
    )
    parts.append(f"{len(sweep.experiments) - len(records) - len(running)} to go")
    if not math.isnan(seconds_left):
        parts.append(f"about {clock(seconds_left)} left")
    return ", ".join(parts)


def _picture(sweep: Sweep, elapsed: float, done_before: int) -> RenderableType:
    """Return the current state of the table."""
    records = sweep.records()
    done, left = len(records) - done_before, len(sweep.experiments) - len(records)
    running = Table("running", "epoch", "now", box=None, pad_edge=False)
    for experiment, state in sweep.running():
        epoch = (
            f"{state['done']} of {state['total']}" if experiment.family in ("mlp", "cnn") else "–"
        )
        running.add_row(
            experiment.title,
            epoch,
            f"{state['note']} {clock(max(0.0, time.time() - state['since']))}".strip(),
        )
    best = Table("best so far", "one pass, %", "best, %", box=None, pad_edge=False)
    for (data, method), record in best_records(records).items():
        result = record.result
        assert result is not None
        best.add_row(f"{data}, {METHODS[method]}", percent(result.one_pass), percent(result.best))
    return Group(
        Text(counts(sweep, elapsed / done * left if done else math.nan)),
        Text(),
        running,
        Text(),
        best,
    )
