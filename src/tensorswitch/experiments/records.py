"""What came of an experiment, kept in a file of its own.

FOLDER/NAME.json        its settings, its result or its error, when and on what it ran
FOLDER/running/NAME     while it runs: how far it is, and checkpoints

NAME holds a hash of the settings, so what is finished is never done again, and other settings go elsewhere.
"""

from __future__ import annotations

import datetime
import json
import math
import shutil
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from filelock import FileLock

from tensorswitch._files import make_folder, write_text
from tensorswitch.experiments.experiment import Experiment, Result
from tensorswitch.experiments.machine import machine
from tensorswitch.experiments.runner import Watch, run
from tensorswitch.training import DivergedError

__all__ = ["Record", "records_in", "run_one"]

RUNNING, STATE = "running", "state.json"
FILTER_UNITS = 16  # networks of more units keep no filters, which make large files


@dataclass
class Record:
    """What came of an experiment: a result, or an error."""

    experiment: Experiment
    result: Result | None
    error: str | None
    made: dict[str, Any]

    def to_json(self) -> str:
        content = {
            "experiment": self.experiment.settings,
            "result": self.result and asdict(self.result),
            "error": self.error,
            "made": self.made,
        }
        return json.dumps(_without_nan(content), indent=1)

    @classmethod
    def read(cls, path: Path) -> Record:
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
            numbers: dict[str, Any] = {
                k: math.nan if v is None and k in _NUMBERS else v
                for k, v in (content["result"] or {}).items()
            }
            result = Result(**numbers) if numbers else None
            if result is not None and not all(
                isinstance(getattr(result, name), int | float) for name in _NUMBERS
            ):
                raise TypeError("errors must be numbers")
            return cls(
                Experiment(**content["experiment"]), result, content["error"], content["made"]
            )
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise ValueError(
                f"{path} is not the record of an experiment ({error}); remove it to have it done again"
            ) from error


_NUMBERS = ("seconds", "one_pass", "one_pass_validation", "best", "best_validation")


def run_one(
    experiment: Experiment,
    folder: Path,
    watch: Watch | None = None,
    device: str = "cpu",
    *,
    filters: bool | None = None,
) -> Record:
    """The record of an earlier run, or else a new one; a failure is a record too.

    Filters make large files, so by default they are kept of networks of few units only.
    """
    make_folder(folder / RUNNING)
    with FileLock(
        folder / RUNNING / f"{experiment.name}.lock"
    ):  # a process that outlived its sweep may still be at it: its result will do
        return _finished(experiment, folder) or _run(experiment, folder, watch, device, filters)


def _finished(experiment: Experiment, folder: Path) -> Record | None:
    path = folder / f"{experiment.name}.json"
    record = Record.read(path) if path.exists() else None
    return record if record is not None and record.error is None else None


def _run(
    experiment: Experiment, folder: Path, watch: Watch | None, device: str, filters: bool | None
) -> Record:
    place = folder / RUNNING / experiment.name
    make_folder(place)
    started = datetime.datetime.now().astimezone()

    def tell(done: int, total: int, note: str) -> None:
        write_text(
            place / STATE,
            json.dumps({"done": done, "total": total, "note": note, "since": started.timestamp()}),
        )
        if watch is not None:
            watch(done, total, note)

    tell(0, experiment.epochs, "")
    result, error = None, None
    try:
        keep = experiment.width <= FILTER_UNITS if filters is None else filters
        result = run(experiment, place, tell, device, filters=keep)
    except Exception as reason:
        error = f"{type(reason).__name__}: {reason}"
    made = {
        "date": started.isoformat(timespec="seconds"),
        "seconds": round((datetime.datetime.now().astimezone() - started).total_seconds(), 1),
    }
    record = Record(experiment, result, error, {**made, **machine()})
    write_text(folder / f"{experiment.name}.json", record.to_json())
    if error is None or error.startswith(
        DivergedError.__name__
    ):  # after any other failure the checkpoints may serve another try
        shutil.rmtree(place, ignore_errors=True)
    else:
        (place / STATE).unlink(missing_ok=True)
    return record


def records_in(folder: Path) -> list[Record]:
    """All that there are."""
    return [Record.read(path) for path in sorted(folder.glob("*.json"))]


def _without_nan(value: Any) -> Any:
    """JSON has no NaN."""
    if isinstance(value, dict):
        return {k: _without_nan(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_without_nan(v) for v in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
