"""How far a sweep is, as a table that renews itself in the terminal."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from tensorswitch.experiments.experiment import METHODS, Experiment
from tensorswitch.experiments.records import Record
from tensorswitch.experiments.sweeps import Sweep
from tensorswitch.history import percent


@contextmanager
def live_table(sweep: Sweep, console: Console) -> Iterator[None]:
    """Shown while it is open: what runs, how many are done, failed and left, the best so far, and the time left."""
    start, done_before = time.monotonic(), len(sweep.records())

    def picture() -> RenderableType:
        return _picture(sweep, time.monotonic() - start, done_before)

    if not console.is_terminal:  # a log gets the numbers at the start and the end only
        console.print(counts(sweep), soft_wrap=True)
        yield
        console.print(counts(sweep), soft_wrap=True)
        return
    with Live(get_renderable=picture, console=console, refresh_per_second=1):
        yield


def counts(sweep: Sweep, seconds_left: float = math.nan) -> str:
    """ "12 done, 1 failed, 2 running, 30 to go"."""
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


def title(experiment: Experiment) -> str:
    """What it is, in a few words."""
    e = experiment
    words = [e.data, METHODS[e.method]]
    if e.family in ("mlp", "cnn"):
        words.append(
            f"depth {'·'.join(map(str, e.convolutions)) + ' + ' if e.family == 'cnn' else ''}{e.depth}"
        )
    if e.family == "rr":
        words.append(f"{e.width} gates")
    if e.family != "cnn":
        words.append(f"PCA {e.components}" if e.components else "pixels")
    if e.family != "svm":
        words.append(f"seed {e.seed}")
    return ", ".join(words)


def best_records(records: list[Record]) -> dict[tuple[str, str], Record]:
    """For each data set and method the record of least validation error."""
    best: dict[tuple[str, str], tuple[float, Record]] = {}
    for record in records:
        if record.result is None:
            continue
        key, error = (
            (record.experiment.data, record.experiment.method),
            record.result.best_validation,
        )
        error = math.inf if math.isnan(error) else error
        if key not in best or error < best[key][0]:
            best[key] = (error, record)
    return {key: record for key, (_, record) in best.items()}


def clock(seconds: float) -> str:
    minutes = round(seconds / 60)
    return (
        f"{seconds:.0f} s"
        if seconds < 90
        else f"{minutes} min"
        if minutes < 100
        else f"{minutes // 60} h {minutes % 60:02d} min"
    )


def _picture(sweep: Sweep, elapsed: float, done_before: int) -> RenderableType:
    records = sweep.records()
    done, left = len(records) - done_before, len(sweep.experiments) - len(records)
    running = Table("running", "epoch", "now", box=None, pad_edge=False)
    for experiment, state in sweep.running():
        epoch = (
            f"{state['done']} of {state['total']}" if experiment.family in ("mlp", "cnn") else "–"
        )
        running.add_row(
            title(experiment),
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
