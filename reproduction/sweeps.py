"""Run many experiments on local processes or on a Dask cluster; finished ones are not repeated."""

from __future__ import annotations

import datetime
import json
import os
import warnings
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import joblib
from joblib.externals import loky

from reproduction.experiment import Experiment
from reproduction.files import make_folder, only_one, write
from reproduction.machine import machine
from reproduction.records import RUNNING, STATE, Record, compact_records, run_one
from reproduction.running import with_fingerprints

CONNECT_SECONDS = 20
DEATHS = 2  # number of times an experiment may kill its process before it counts as failed
Run = Callable[[list[Experiment]], Any]
During = Callable[["Sweep"], AbstractContextManager[Any]]


class Sweep:
    """State of a sweep, read from the files in its folder.

    ``experiments`` are bound to their data; those of equal settings are one.
    """

    def __init__(self, experiments: Iterable[Experiment], folder: Path) -> None:
        self.folder = folder
        wanted = {e.name: e for e in experiments}
        self.experiments = list(wanted.values())
        found = {r.experiment.name: r for r in compact_records(folder)}
        self._records = {name: record for name, record in found.items() if name in wanted}

    def records(self) -> list[Record]:
        """Return the records so far in the order of the experiments; each file is read once."""
        for experiment in self.experiments:
            path = self._path(experiment)
            if experiment.name not in self._records and path.exists():
                self._records[experiment.name] = Record.read(path)
        return [self._records[e.name] for e in self.experiments if e.name in self._records]

    def running(self) -> list[tuple[Experiment, dict[str, Any]]]:
        """Return the running experiments, with ``done``, ``total``, ``note`` and ``since``."""
        found = []
        for experiment in self.experiments:
            try:
                found.append((experiment, json.loads(self._state(experiment).read_text())))
            except (OSError, ValueError):
                continue
        return found

    def forget_running(self, *experiments: Experiment) -> None:
        """Mark experiments, by default all, as not running; their checkpoints are kept."""
        for experiment in experiments or self.experiments:
            self._state(experiment).unlink(missing_ok=True)

    def left(self) -> list[Experiment]:
        """Return the experiments that have no record yet."""
        self.records()
        return [e for e in self.experiments if e.name not in self._records]

    def forget_failures(self) -> None:
        """Delete the records of failed experiments, so that they run again."""
        for record in self.records():
            if record.error is not None:
                self._path(record.experiment).unlink(missing_ok=True)
                del self._records[record.experiment.name]

    def give_up(self, experiment: Experiment, error: str) -> None:
        """Record an experiment as failed."""
        now = datetime.datetime.now().astimezone().isoformat(timespec="seconds")
        record = Record(experiment, None, error, {"date": now, **machine()})
        write(self._path(experiment), record.to_json())

    def _path(self, experiment: Experiment) -> Path:
        return self.folder / f"{experiment.name}.json"

    def _state(self, experiment: Experiment) -> Path:
        return self.folder / RUNNING / experiment.name / STATE


def sweep(
    experiments: Iterable[Experiment],
    folder: Path,
    *,
    jobs: int | None = None,
    dask: str | None = None,
    retry: bool = False,
    device: str = "cpu",
    during: During = nullcontext,
) -> list[Record]:
    """Run all experiments that have no record yet, and return the records of all.

    ``jobs`` experiments run at a time, by default one per core, and share the cores; or they run on
    the workers of the Dask scheduler at the address ``dask``, which must be able to write to
    ``folder``. Failed experiments run again with ``retry``. The context manager ``during(state)``
    is entered while experiments run, for example to show progress.
    """
    if jobs is not None and jobs < 1:
        raise ValueError(f"jobs must be at least 1, got {jobs}")
    folder = folder.resolve()
    make_folder(folder)
    with only_one(folder):
        state = Sweep(with_fingerprints(experiments), folder)
        state.forget_running()
        if retry:
            state.forget_failures()
        with during(state):
            if dask is None:
                count = jobs or joblib.cpu_count()
                _run_all(state, partial(_on_processes, folder=folder, jobs=count, device=device))
            else:
                _on_dask(state, dask, device)
        return state.records()


def _run_all(state: Sweep, run: Run) -> None:
    """Run experiments until each has a record, isolating those that kill their process."""
    while left := state.left():
        try:
            run(left)
        except loky.process_executor.BrokenProcessPool:
            # A process died and loky stopped the others, so running each suspect alone shows which
            # one is to blame. If no experiment had started, the first one is the suspect.
            suspects = [experiment for experiment, _ in state.running()] or left[:1]
            state.forget_running()
            for experiment in suspects:
                _alone(state, experiment, run)


def _alone(state: Sweep, experiment: Experiment, run: Run) -> None:
    """Run an experiment by itself, and record it as failed if its process keeps dying."""
    for _ in range(DEATHS):
        try:
            run([experiment])
            return
        except loky.process_executor.BrokenProcessPool:
            state.forget_running(experiment)
    state.give_up(experiment, f"the process died {DEATHS} times, possibly out of memory")


def _on_processes(experiments: list[Experiment], folder: Path, jobs: int, device: str) -> None:
    """Run experiments on local processes, each with its share of the cores."""
    threads = max(1, joblib.cpu_count() // min(jobs, len(experiments)))
    task = partial(_in_child, folder=folder, device=device, parent=os.getpid())
    if jobs > 1 and len(experiments) == 1:  # joblib would run it in this process, which may die
        with loky.ProcessPoolExecutor(1, env={"OMP_NUM_THREADS": str(threads)}) as executor:
            executor.submit(task, experiments[0]).result()
        return
    with warnings.catch_warnings(), joblib.parallel_config("loky", inner_max_num_threads=threads):
        # joblib restarts workers that hold much memory.
        warnings.filterwarnings("ignore", "A worker stopped while some jobs were given")
        jobs = min(jobs, len(experiments))
        joblib.Parallel(jobs, batch_size=1, pre_dispatch=jobs)(
            joblib.delayed(task)(e) for e in experiments
        )


def _in_child(experiment: Experiment, folder: Path, device: str, parent: int) -> None:
    """Run an experiment, and exit after an epoch (with a checkpoint) if the parent has died."""
    child = os.getppid() == parent

    def watch(done: int, total: int, note: str) -> None:
        if child and os.getppid() != parent:
            os._exit(1)

    run_one(experiment, folder, watch, device)


def _on_dask(state: Sweep, address: str, device: str) -> None:
    """Run experiments on a Dask cluster, whose scheduler reassigns those of dead workers."""
    try:
        from distributed import Client, as_completed
        from distributed.scheduler import KilledWorker
    except ImportError:
        raise ValueError(
            "dask is not installed; install it with: pip install 'tensorswitch[dask]'"
        ) from None
    try:
        client = Client(address, timeout=CONNECT_SECONDS)  # type: ignore[no-untyped-call]
    except (OSError, ValueError) as error:
        raise ValueError(f"no Dask scheduler answers at {address} ({error})") from None
    with client:
        futures = {
            client.submit(
                run_one, e, state.folder, None, device, key=f"{e.name}-{os.urandom(4).hex()}"
            ): e
            for e in state.left()
        }
        for future in as_completed(futures):  # type: ignore[no-untyped-call]
            try:
                future.result()
            except KilledWorker:
                state.give_up(futures[future], "its workers died, possibly out of memory")
    if missing := state.left():
        raise ValueError(
            f"{len(missing)} results are missing from {state.folder}: the Dask workers do not "
            "write to it; use a folder that all machines share"
        )
