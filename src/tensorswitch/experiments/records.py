"""Keep one file per experiment.

``FOLDER/NAME.json`` has the settings, the result or the error, and the date and the machine.
``FOLDER/running/NAME`` has the progress and the checkpoints of an experiment that is running.

NAME contains a hash of the settings, so finished experiments are never repeated, and experiments
with other settings never share a file.
"""

from __future__ import annotations

import datetime
import json
import math
import shutil
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from filelock import FileLock

from tensorswitch._files import make_folder, write_text
from tensorswitch.experiments.experiment import Experiment, Result
from tensorswitch.experiments.machine import machine
from tensorswitch.experiments.runner import Watch, run
from tensorswitch.training import DivergedError

__all__ = ["Record", "best_records", "compact_records", "records_in", "run_one"]

RUNNING, STATE = "running", "state.json"
FILTER_UNITS = 16  # wider networks keep no filters, which make large files
DIGITS = 6  # significant digits of the epochs of compact records


@dataclass
class Record:
    """The result or the error of an experiment.

    Parameters
    ----------
    experiment : Experiment
        The experiment.
    result : Result or None
        Its result, unless it failed.
    error : str or None
        Why it failed.
    made : dict
        When and on what machine it ran, see :func:`tensorswitch.experiments.machine.machine`.
    """

    experiment: Experiment
    result: Result | None
    error: str | None
    made: dict[str, Any]

    def to_json(self, indent: int | None = 1) -> str:
        """Return the record as JSON.

        Parameters
        ----------
        indent : int or None, default=1
            Number of spaces per level; None writes a single line.

        Returns
        -------
        str
            The content of a record file. NaN and infinity become null.
        """
        content = {
            "experiment": self.experiment.settings,
            "result": self.result and asdict(self.result),
            "error": self.error,
            "made": self.made,
        }
        return json.dumps(without_nan(content), indent=indent)

    def compact(self) -> Record:
        """Return the record without large filters and with rounded epochs.

        Filters of networks of more than 16 units are dropped, and the numbers of every epoch are
        rounded to six significant digits. The result itself keeps its full precision.

        Returns
        -------
        Record
            The compact record.
        """
        if self.result is None:
            return self
        filters = self.result.filters if self.experiment.width <= FILTER_UNITS else None
        epochs = [{name: _rounded(v) for name, v in e.items()} for e in self.result.epochs]
        return replace(self, result=replace(self.result, epochs=epochs, filters=filters))

    @classmethod
    def read(cls, path: Path) -> Record:
        """Read a record.

        Parameters
        ----------
        path : Path
            A file written by :func:`run_one`.

        Returns
        -------
        Record
            The record.

        Raises
        ------
        ValueError
            If the file is not a valid record.
        """
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
            reason = "nested too deeply" if isinstance(error, RecursionError) else str(error)
            raise ValueError(
                f"{path} is not a valid record of an experiment ({reason}); "
                "delete it to run the experiment again"
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
    """Return the record of an experiment, running it unless it is finished.

    Parameters
    ----------
    experiment : Experiment
        The experiment.
    folder : Path
        Folder of the record files.
    watch : callable, default=None
        Called after every epoch as ``watch(done, total, note)``.
    device : str, default="cpu"
        Device for training.
    filters : bool or None, default=None
        Whether to keep the weights of the first hidden units; None keeps those of networks of at
        most 16 units, because filters make large files.

    Returns
    -------
    Record
        The record. An experiment that fails gives a record with its error.
    """
    make_folder(folder / RUNNING)
    # A worker that outlived its sweep may still run the experiment; wait for its result then.
    with FileLock(folder / RUNNING / f"{experiment.name}.lock"):
        return _finished(experiment, folder) or _run(experiment, folder, watch, device, filters)


def _finished(experiment: Experiment, folder: Path) -> Record | None:
    """Return the record of an experiment that succeeded earlier."""
    path = folder / f"{experiment.name}.json"
    record = Record.read(path) if path.exists() else None
    return record if record is not None and record.error is None else None


def _run(
    experiment: Experiment, folder: Path, watch: Watch | None, device: str, filters: bool | None
) -> Record:
    """Run an experiment and write its record."""
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
    # After other failures than divergence a retry can resume from the checkpoints.
    if error is None or error.startswith(DivergedError.__name__):
        shutil.rmtree(place, ignore_errors=True)
    else:
        (place / STATE).unlink(missing_ok=True)
    return record


def records_in(folder: Path) -> list[Record]:
    """Read all records of a folder.

    Parameters
    ----------
    folder : Path
        Folder of record files.

    Returns
    -------
    list of Record
        The records in the order of their file names.
    """
    return [Record.read(path) for path in sorted(folder.glob("*.json"))]


def best_records(records: list[Record]) -> dict[tuple[str, str], Record]:
    """Return the record of lowest validation error for every data set and method.

    Parameters
    ----------
    records : list of Record
        Records; those without a result are skipped.

    Returns
    -------
    dict
        Records by data set and method.
    """
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


def compact_records(source: Path, target: Path) -> list[Path]:
    """Write compact copies of all records of a folder, see :meth:`Record.compact`.

    Compacting is idempotent: the files of compact records stay the same byte for byte.

    Parameters
    ----------
    source : Path
        Folder of record files.
    target : Path
        Output folder, which may be ``source``; it is created if needed.

    Returns
    -------
    list of Path
        The files that were written.

    Raises
    ------
    ValueError
        If ``source`` has no records, or a file is not a valid record. Nothing is written then.

    See Also
    --------
    records_in : Read the records of a folder.
    """
    records = {path.name: Record.read(path) for path in sorted(source.glob("*.json"))}
    if not records:
        raise ValueError(f"there are no records in {source}")
    make_folder(target)
    for name, record in records.items():
        write_text(target / name, record.compact().to_json(indent=None))
    return [target / name for name in records]


def _rounded(value: Any) -> Any:
    """Round floats to the precision of compact records."""
    return float(f"{value:.{DIGITS}g}") if isinstance(value, float) else value


def without_nan(value: Any) -> Any:
    """Replace NaN and infinity, which JSON does not have, by None.

    Parameters
    ----------
    value : Any
        A value of JSON.

    Returns
    -------
    Any
        The value with None in their places.
    """
    if isinstance(value, dict):
        return {k: without_nan(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [without_nan(v) for v in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
