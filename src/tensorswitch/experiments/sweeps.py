"""Many experiments, on local processes or a Dask cluster; what is done stays done (see :mod:`tensorswitch.experiments.records`)."""

from __future__ import annotations

import datetime
import json
import os
import warnings
from collections.abc import Callable, Iterable
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import joblib
from joblib.externals import loky

from tensorswitch._files import make_folder, only_one, write_text
from tensorswitch.experiments.experiment import Experiment
from tensorswitch.experiments.machine import machine
from tensorswitch.experiments.records import RUNNING, STATE, Record, run_one
from tensorswitch.experiments.runner import with_fingerprints

__all__ = ["Sweep", "sweep"]

CONNECT_SECONDS = 20
DEATHS = 2  # an experiment whose process, with nothing else in it, died so often is given up
Run = Callable[[list[Experiment]], Any]


class Sweep:
    """How far it is, as the files say."""

    def __init__(self, experiments: Iterable[Experiment], folder: Path) -> None:
        self.folder = folder
        self.experiments = list({e.name: e for e in experiments}.values())
        self._records: dict[str, Record] = {}

    def records(self) -> list[Record]:
        """Of the experiments that came to an end."""
        for experiment in self.experiments:
            if (
                experiment.name not in self._records
                and (path := self.folder / f"{experiment.name}.json").exists()
            ):
                self._records[experiment.name] = Record.read(path)
        return list(self._records.values())

    def running(self) -> list[tuple[Experiment, dict[str, Any]]]:
        """Those under way, and how far each is."""
        found = []
        for experiment in self.experiments:
            try:
                found.append(
                    (
                        experiment,
                        json.loads((self.folder / RUNNING / experiment.name / STATE).read_text()),
                    )
                )
            except (OSError, ValueError):
                continue
        return found

    def forget_running(self, *experiments: Experiment) -> None:
        """Those that were stopped are not under way; their checkpoints stay."""
        for experiment in experiments or self.experiments:
            (self.folder / RUNNING / experiment.name / STATE).unlink(missing_ok=True)

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
        now = datetime.datetime.now().astimezone().isoformat(timespec="seconds")
        write_text(
            self.folder / f"{experiment.name}.json",
            Record(experiment, None, error, {"date": now, **machine()}).to_json(),
        )


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
    if jobs is not None and jobs < 1:
        raise ValueError(f"jobs must be at least 1, got {jobs}")
    folder = folder.resolve()
    make_folder(folder)
    with only_one(folder):
        state = Sweep(with_fingerprints(experiments), folder)
        state.forget_running()
        if retry:
            state.forget_failures()
        with during(state) if during is not None else nullcontext():
            if dask is None:
                _run_all(
                    state,
                    partial(
                        _on_processes,
                        folder=folder,
                        jobs=jobs or os.cpu_count() or 1,
                        device=device,
                    ),
                )
            else:
                _on_dask(state, dask, device)
        return state.records()


def _run_all(state: Sweep, run: Run) -> None:
    while left := state.left():
        try:
            run(left)
        except loky.process_executor.BrokenProcessPool:
            # A process died, and loky ended the others with it; which is to blame shows when each is alone. If none had begun, the first is tried.
            suspects = [experiment for experiment, _ in state.running()] or left[:1]
            state.forget_running()
            for experiment in suspects:
                _alone(state, experiment, run)


def _alone(state: Sweep, experiment: Experiment, run: Run) -> None:
    for _ in range(DEATHS):
        try:
            run([experiment])
            return
        except loky.process_executor.BrokenProcessPool:
            state.forget_running(experiment)
    state.give_up(experiment, f"the process died {DEATHS} times, as it does where memory runs out")


def _on_processes(experiments: list[Experiment], folder: Path, jobs: int, device: str) -> None:
    """On processes here, each with its share of the cores."""
    threads = max(1, (os.cpu_count() or 1) // min(jobs, len(experiments)))
    task = partial(_in_child, folder=folder, device=device, parent=os.getpid())
    if (
        jobs > 1 and len(experiments) == 1
    ):  # joblib would run it in this process, which it may take along when it dies
        with loky.ProcessPoolExecutor(1, env={"OMP_NUM_THREADS": str(threads)}) as executor:
            executor.submit(task, experiments[0]).result()
        return
    with warnings.catch_warnings(), joblib.parallel_config("loky", inner_max_num_threads=threads):
        warnings.filterwarnings(
            "ignore", "A worker stopped while some jobs were given"
        )  # joblib renews workers that hold much memory
        jobs = min(jobs, len(experiments))
        joblib.Parallel(jobs, batch_size=1, pre_dispatch=jobs)(
            joblib.delayed(task)(e) for e in experiments
        )


def _in_child(experiment: Experiment, folder: Path, device: str, parent: int) -> None:
    """An orphan stops after its epoch, with a checkpoint; the sweep that goes on later takes it from there."""
    child = os.getppid() == parent

    def watch(done: int, total: int, note: str) -> None:
        if child and os.getppid() != parent:
            os._exit(1)

    run_one(experiment, folder, watch, device)


def _on_dask(state: Sweep, address: str, device: str) -> None:
    """On the workers of a cluster, whose scheduler gives the experiments of a worker that dies to others."""
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
        left = {e.name: e for e in state.left()}
        futures = {
            client.submit(
                run_one, e, state.folder, None, device, key=f"{e.name}-{os.urandom(4).hex()}"
            ): e
            for e in left.values()
        }
        for future in as_completed(futures):  # type: ignore[no-untyped-call]
            try:
                future.result()
            except KilledWorker:
                state.give_up(
                    futures[future],
                    "the workers that had it died, as they do where memory runs out",
                )
    if missing := state.left():
        raise ValueError(
            f"the workers do not write to {state.folder} as it is seen here: {len(missing)} results are not there; use a shared folder"
        )
