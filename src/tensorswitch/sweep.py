"""Many experiments, each with a result file of its own, on local processes or a Dask cluster.

FOLDER/NAME.json        what came of an experiment: its settings, its result or its error, when and on what it ran
FOLDER/running/NAME     while it runs: how far it is, and checkpoints

NAME holds a hash of the settings, so what is finished is never done again, and other settings go elsewhere.
"""

from __future__ import annotations

import datetime
import json
import math
import os
import shutil
import tomllib
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path
from typing import Any

import joblib

from tensorswitch._files import make_folder, write_text
from tensorswitch._machine import machine
from tensorswitch.experiments import Experiment, Result, run, with_fingerprints

__all__ = ["Record", "Sweep", "experiments_from_toml", "records_in", "run_one", "sweep"]

RUNNING, STATE = "running", "state.json"
CONNECT_SECONDS = 20
FEW = 16
DEATHS = 2  # an experiment whose process died so often is given up
Watch = Callable[[int, int, str], None]


@dataclass
class Record:
    """What came of an experiment: a result, or an error."""

    experiment: Experiment
    result: Result | None
    error: str | None
    made: dict[str, Any]

    def to_json(self) -> str:
        content = {"experiment": self.experiment.settings, "result": self.result and asdict(self.result), "error": self.error, "made": self.made}
        return json.dumps(_without_nan(content), indent=1)

    @classmethod
    def read(cls, path: Path) -> Record:
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
            numbers: dict[str, Any] = {k: math.nan if v is None and k in _NUMBERS else v for k, v in (content["result"] or {}).items()}
            result = Result(**numbers) if numbers else None
            if result is not None and not all(isinstance(getattr(result, name), int | float) for name in _NUMBERS):
                raise TypeError("errors must be numbers")
            return cls(Experiment(**content["experiment"]), result, content["error"], content["made"])
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"{path} is not the record of an experiment ({error}); remove it to have it done again") from error


_NUMBERS = ("seconds", "one_pass", "one_pass_validation", "best", "best_validation")


def run_one(
    experiment: Experiment,
    folder: Path,
    watch: Watch | None = None,
    device: str = "cpu",
    *,
    may_fail: type[Exception] = Exception,
    filters: bool | None = None,
) -> Record:
    """The record of an earlier run, or else a new one; a failure of the kind that may be is a record too.

    Filters make large files, so by default they are kept of networks of few units only.
    """
    path = folder / f"{experiment.name}.json"
    if path.exists():
        record = Record.read(path)
        if record.error is None:
            return record
    place = folder / RUNNING / experiment.name
    make_folder(place)
    started = datetime.datetime.now().astimezone()

    def tell(done: int, total: int, note: str) -> None:
        write_text(place / STATE, json.dumps({"done": done, "total": total, "note": note, "since": started.timestamp()}))
        if watch is not None:
            watch(done, total, note)

    tell(0, experiment.epochs, "")
    result, error = None, None
    try:
        keep = experiment.width <= FEW if filters is None else filters
        result = run(experiment, place, tell, device, filters=keep)
    except may_fail as reason:
        error = f"{type(reason).__name__}: {reason}"
    made = {"date": started.isoformat(timespec="seconds"), "seconds": round((datetime.datetime.now().astimezone() - started).total_seconds(), 1)}
    record = Record(experiment, result, error, {**made, **machine()})
    write_text(path, record.to_json())
    shutil.rmtree(place, ignore_errors=True)
    return record


class Sweep:
    """How far it is, as the files say."""

    def __init__(self, experiments: Iterable[Experiment], folder: Path) -> None:
        self.folder = folder
        self.experiments = list({e.name: e for e in experiments}.values())
        self._records: dict[str, Record] = {}

    def records(self) -> list[Record]:
        """Of the experiments that came to an end."""
        for experiment in self.experiments:
            if experiment.name not in self._records and (path := self.folder / f"{experiment.name}.json").exists():
                self._records[experiment.name] = Record.read(path)
        return list(self._records.values())

    def running(self) -> list[tuple[Experiment, dict[str, Any]]]:
        """Those under way, and how far each is."""
        found = []
        for experiment in self.experiments:
            try:
                found.append((experiment, json.loads((self.folder / RUNNING / experiment.name / STATE).read_text())))
            except (OSError, ValueError):
                continue
        return found

    def left(self) -> list[Experiment]:
        self.records()
        return [e for e in self.experiments if e.name not in self._records]

    def forget_failures(self) -> None:
        """Have them done again."""
        for record in self.records():
            if record.error is not None:
                (self.folder / f"{record.experiment.name}.json").unlink(missing_ok=True)
                del self._records[record.experiment.name]

    def give_up(self, experiment: Experiment, error: str) -> None:
        write_text(self.folder / f"{experiment.name}.json", Record(experiment, None, error, {"date": _now(), **machine()}).to_json())


def records_in(folder: Path) -> list[Record]:
    """All that there are."""
    return [Record.read(path) for path in sorted(folder.glob("*.json"))]


def sweep(
    experiments: Iterable[Experiment],
    folder: Path,
    *,
    jobs: int | None = None,
    dask: str | None = None,
    retry: bool = False,
    device: str = "cpu",
    during: Callable[[Sweep], Any] | None = None,
) -> list[Record]:
    """Do what is not done yet.

    Parameters
    ----------
    folder : where results are, which all processes must see
    jobs : how many at a time, by default one for each core; cores are shared among them
    dask : the address of a scheduler, whose workers then do them
    retry : do those that failed again
    device : where torch computes
    during : makes a context from the :class:`Sweep`, open while it runs, to show how far it is
    """
    from filelock import FileLock, Timeout

    if jobs is not None and jobs < 1:
        raise ValueError(f"jobs must be at least 1, got {jobs}")
    make_folder(folder)
    try:
        with FileLock(folder / ".lock", timeout=0):
            state = Sweep(with_fingerprints(experiments), folder)
            if retry:
                state.forget_failures()
            with during(state) if during is not None else _nothing():
                _run_all(state, jobs, dask, device)
            return state.records()
    except Timeout:
        raise ValueError(f"another sweep is at work in {folder}; wait for it, or use another folder") from None


def _run_all(state: Sweep, jobs: int | None, dask: str | None, device: str) -> None:
    deaths: Counter[str] = Counter()
    for experiment, _ in state.running():  # left by a sweep that was stopped: they go on, but are not under way
        (state.folder / RUNNING / experiment.name / STATE).unlink(missing_ok=True)
    while left := state.left():
        try:
            with warnings.catch_warnings(), _workers(min(jobs or os.cpu_count() or 1, len(left)), dask) as parallel:
                warnings.filterwarnings("ignore", "A worker stopped while some jobs were given")  # joblib renews workers that hold much memory
                parallel(joblib.delayed(run_one)(experiment, state.folder, None, device) for experiment in left)
        except Exception as error:
            if not _is_death(error):
                raise
            for experiment, _ in state.running():
                deaths[experiment.name] += 1
                (state.folder / RUNNING / experiment.name / STATE).unlink(missing_ok=True)
                if deaths[experiment.name] >= DEATHS:
                    state.give_up(experiment, f"the process died {DEATHS} times, as it does where memory runs out")


@contextmanager
def _workers(jobs: int, dask: str | None) -> Iterator[Any]:
    """What runs joblib's tasks: processes here, each with its share of the cores, or a Dask cluster."""
    if dask is None:
        threads = max(1, (os.cpu_count() or 1) // jobs)
        with joblib.parallel_config("loky", inner_max_num_threads=threads):
            yield joblib.Parallel(jobs, batch_size=1, pre_dispatch=jobs)
        return
    try:
        from distributed import Client
    except ImportError:
        raise ValueError("dask is not installed; install it with: pip install 'tensorswitch[dask]'") from None
    try:
        client = Client(dask, timeout=CONNECT_SECONDS)  # type: ignore[no-untyped-call]
    except (OSError, ValueError) as error:
        raise ValueError(f"no Dask scheduler answers at {dask} ({error})") from None
    with client, joblib.parallel_config("dask", client=client, wait_for_workers_timeout=60):
        yield joblib.Parallel(batch_size=1)


def _is_death(error: Exception) -> bool:
    """Whether a process died, rather than an experiment failed."""
    return type(error).__name__ in ("TerminatedWorkerError", "KilledWorker", "BrokenProcessPool")


@contextmanager
def _nothing() -> Iterator[None]:
    yield


def experiments_from_toml(path: Path) -> list[Experiment]:
    """The experiments of a file: tables ``[[grid]]``, each with settings; lists are varied over, and a list in a list is one value.

    data = "digits"            # what stands above holds for all grids
    [[grid]]
    method = ["ss", "ts-lrc"]
    depth = [1, 2]
    """
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ValueError(f"{path} is not there") from None
    except (OSError, ValueError) as error:
        raise ValueError(f"{path} is not a TOML file: {error}") from None
    grids = content.pop("grid", [{}])
    if not isinstance(grids, list) or not all(isinstance(g, dict) for g in grids):
        raise ValueError(f"{path}: grids are written as [[grid]], with settings below")
    experiments = []
    for number, grid in enumerate(grids, 1):
        axes = {name: value if isinstance(value, list) else [value] for name, value in {**content, **grid}.items()}
        try:
            experiments += [Experiment.from_settings(dict(zip(axes, values, strict=True))) for values in product(*axes.values())]
        except ValueError as error:
            raise ValueError(f"{path}, grid {number}: {error}") from None
    if not experiments:
        raise ValueError(f"{path} has no experiments: a list in it is empty")
    return experiments


def _now() -> str:
    return datetime.datetime.now().astimezone().isoformat(timespec="seconds")


def _without_nan(value: Any) -> Any:
    """JSON has no NaN."""
    if isinstance(value, dict):
        return {k: _without_nan(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_without_nan(v) for v in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
