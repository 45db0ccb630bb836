"""Keep one file per experiment while experiments run, and one compact file of all afterwards.

``FOLDER/NAME.json`` has the settings, the result or the error, and the date and the machine.
``FOLDER/running/NAME`` has the progress and the checkpoints of an experiment that is running. NAME
contains a hash of the settings, so finished experiments are never repeated, and experiments with
other settings never share a file. The compact file ``FOLDER.jsonl.gz`` has a line for each record.
"""

from __future__ import annotations

import datetime
import gzip
import json
import math
import shutil
import zlib
from collections.abc import Iterable
from contextlib import nullcontext
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from filelock import FileLock

from reproduction.experiment import Experiment, Result
from reproduction.files import make_folder, only_one, write
from reproduction.machine import machine
from reproduction.running import Watch, run
from tensorswitch.training import DivergedError

RUNNING, STATE, COMPACT = "running", "state.json", ".jsonl.gz"
DIGITS = 6  # significant digits of the epochs of compact records
NUMBERS = ("seconds", "one_pass", "one_pass_validation", "best", "best_validation")


@dataclass
class Record:
    """The result or the error of an experiment, and when and on what machine it ran."""

    experiment: Experiment
    result: Result | None
    error: str | None
    made: dict[str, Any]

    def to_json(self, indent: int | None = 1) -> str:
        """Return the record as JSON, with null for NaN and infinity."""
        content = {
            "experiment": self.experiment.settings,
            "result": self.result and asdict(self.result),
            "error": self.error,
            "made": self.made,
        }
        return json.dumps(_without_nan(content), indent=indent)

    @classmethod
    def from_json(cls, text: str | bytes, where: object) -> Record:
        """Read a record; ``where`` is named if it is not valid."""
        try:
            content = json.loads(text)
            values: dict[str, Any] = {
                k: math.nan if v is None and k in NUMBERS else v
                for k, v in (content["result"] or {}).items()
            }
            result = Result(**values) if values else None
            if not all(isinstance(getattr(result, name, 0), int | float) for name in NUMBERS):
                raise TypeError("errors must be numbers")
            experiment = Experiment(**content["experiment"])
            return cls(experiment, result, content["error"], content["made"])
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            reason = "nested too deeply" if isinstance(error, RecursionError) else str(error)
            raise ValueError(
                f"{where} is not a valid record of an experiment ({reason}); "
                "delete it to run the experiment again"
            ) from error

    @classmethod
    def read(cls, path: Path) -> Record:
        """Read the file of one record."""
        return cls.from_json(path.read_bytes(), path)

    def compact(self) -> Record:
        """Return the record with rounded epochs; the result itself keeps its precision."""
        if self.result is None:
            return self
        epochs = [
            {k: float(f"{v:.{DIGITS}g}") if isinstance(v, float) else v for k, v in e.items()}
            for e in self.result.epochs
        ]
        return replace(self, result=replace(self.result, epochs=epochs))


def run_one(
    experiment: Experiment, folder: Path, watch: Watch | None = None, device: str = "cpu"
) -> Record:
    """Return the record of an experiment, running it unless it succeeded before.

    An experiment that fails gives a record with its error.
    """
    make_folder(folder / RUNNING)
    # A worker that outlived its sweep may still run the experiment; wait for its result then.
    with FileLock(folder / RUNNING / f"{experiment.name}.lock"):
        path = folder / f"{experiment.name}.json"
        if path.exists() and (record := Record.read(path)).error is None:
            return record
        return _run(experiment, folder, watch, device)


def _run(experiment: Experiment, folder: Path, watch: Watch | None, device: str) -> Record:
    """Run an experiment and write its record."""
    place = folder / RUNNING / experiment.name
    make_folder(place)
    started = datetime.datetime.now().astimezone()

    def tell(done: int, total: int, note: str) -> None:
        state = {"done": done, "total": total, "note": note, "since": started.timestamp()}
        write(place / STATE, json.dumps(state))
        if watch is not None:
            watch(done, total, note)

    tell(0, experiment.epochs, "")
    result, error = None, None
    try:
        result = run(experiment, place, tell, device)
    except Exception as reason:
        error = f"{type(reason).__name__}: {reason}"
    made = {
        "date": started.isoformat(timespec="seconds"),
        "seconds": round((datetime.datetime.now().astimezone() - started).total_seconds(), 1),
    }
    record = Record(experiment, result, error, {**made, **machine()})
    write(folder / f"{experiment.name}.json", record.to_json())
    # After other failures than divergence a retry can resume from the checkpoints.
    if error is None or error.startswith(DivergedError.__name__):
        shutil.rmtree(place, ignore_errors=True)
    else:
        (place / STATE).unlink(missing_ok=True)
    return record


def records_in(folder: Path) -> list[Record]:
    """Return the records of a folder and of the compact file beside it, in the order of names.

    A file in the folder takes the place of the record of that experiment in the compact file.
    """
    single = [Record.read(path) for path in sorted(folder.glob("*.json"))]
    found = {r.experiment.name: r for r in (*compact_records(folder), *single)}
    return [found[name] for name in sorted(found)]


def compact_records(folder: Path) -> list[Record]:
    """Return the records of the compact file beside a folder, none if there is no such file."""
    path = folder.with_name(folder.name + COMPACT)
    if not path.exists():
        return []
    try:
        lines = gzip.decompress(path.read_bytes()).splitlines()
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise ValueError(f"{path} is not a file of compact records: {error}") from error
    return [Record.from_json(line, f"{path}, line {i}") for i, line in enumerate(lines, 1)]


def compact(folder: Path) -> Path:
    """Move the records of a folder into the compact file beside it, and return its path.

    Equal records give equal bytes. The files in the folder are deleted once they are in it.
    """
    records = records_in(folder)
    if not records:
        raise ValueError(f"there are no records in {folder}")
    path = folder.with_name(folder.name + COMPACT)
    with only_one(folder) if folder.is_dir() else nullcontext():
        text = "".join(r.compact().to_json(indent=None) + "\n" for r in records)
        write(path, gzip.compress(text.encode(), mtime=0))
        for record in records:
            (folder / f"{record.experiment.name}.json").unlink(missing_ok=True)
    return path


def best_records(records: Iterable[Record]) -> dict[tuple[str, str], Record]:
    """Return the record of lowest validation error for every data set and method."""
    best: dict[tuple[str, str], Record] = {}
    for record in records:
        if record.result is not None:
            key = (record.experiment.data, record.experiment.method)
            if key not in best or _validation(record) < _validation(best[key]):
                best[key] = record
    return best


def _validation(record: Record) -> float:
    """Return the validation error, infinity if there is none."""
    error = math.nan if record.result is None else record.result.best_validation
    return math.inf if math.isnan(error) else error


def _without_nan(value: Any) -> Any:
    """Replace NaN and infinity, which JSON does not have, by None."""
    if isinstance(value, dict):
        return {k: _without_nan(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_without_nan(v) for v in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
