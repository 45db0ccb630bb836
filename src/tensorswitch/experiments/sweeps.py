"""Run many experiments on local processes or on a Dask cluster.

Finished experiments are not repeated, see :mod:`tensorswitch.experiments.records`.
"""

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
DEATHS = 2  # number of times an experiment may kill its process before it counts as failed
Run = Callable[[list[Experiment]], Any]


class Sweep:
    """State of a sweep, read from its files.

    Parameters
    ----------
    experiments : iterable of Experiment
        Experiments, bound to their data; duplicates are dropped.
    folder : Path
        Folder of the record files.

    Attributes
    ----------
    experiments : list of Experiment
        The distinct experiments.
    folder : Path
        Folder of the record files.
    """

    def __init__(self, experiments: Iterable[Experiment], folder: Path) -> None:
        self.folder = folder
        self.experiments = list({e.name: e for e in experiments}.values())
        self._records: dict[str, Record] = {}

    def records(self) -> list[Record]:
        """Return the records of the experiments that finished or failed.

        Returns
        -------
        list of Record
            The records in the order of the experiments; each file is read only once.
        """
        for experiment in self.experiments:
            if (
                experiment.name not in self._records
                and (path := self.folder / f"{experiment.name}.json").exists()
            ):
                self._records[experiment.name] = Record.read(path)
        return [self._records[e.name] for e in self.experiments if e.name in self._records]

    def running(self) -> list[tuple[Experiment, dict[str, Any]]]:
        """Return the running experiments, each with its progress.

        Returns
        -------
        list of tuple of Experiment and dict
            The dict has the keys ``done``, ``total``, ``note`` and ``since``.
        """
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
        """Mark experiments as not running, keeping their checkpoints.

        Parameters
        ----------
        *experiments : Experiment
            Experiments that were stopped; by default all of the sweep.
        """
        for experiment in experiments or self.experiments:
            (self.folder / RUNNING / experiment.name / STATE).unlink(missing_ok=True)

    def left(self) -> list[Experiment]:
        """Return the experiments that have no record yet.

        Returns
        -------
        list of Experiment
            The experiments.
        """
        self.records()
        return [e for e in self.experiments if e.name not in self._records]

    def forget_failures(self) -> None:
        """Delete the records of failed experiments, so that they run again."""
        for record in self.records():
            if record.error is not None:
                (self.folder / f"{record.experiment.name}.json").unlink(missing_ok=True)
                del self._records[record.experiment.name]

    def give_up(self, experiment: Experiment, error: str) -> None:
        """Record an experiment as failed.

        Parameters
        ----------
        experiment : Experiment
            The experiment.
        error : str
            The reason.
        """
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
    """Run all experiments that have no record yet.

    Parameters
    ----------
    experiments : iterable of Experiment
        The experiments.
    folder : Path
        Folder of the record files; all processes must be able to write to it.
    jobs : int, default=None
        Number of experiments to run at a time, sharing the cores; None runs one per core.
    dask : str, default=None
        Address of a Dask scheduler whose workers run the experiments.
    retry : bool, default=False
        Whether to run failed experiments again.
    device : str, default="cpu"
        Device for training.
    during : callable, default=None
        Takes the :class:`Sweep` and returns a context manager that is entered while experiments
        run, for example to show progress.

    Returns
    -------
    list of Record
        The records of all experiments, failed ones included.

    Raises
    ------
    ValueError
        If another process uses ``folder``, the data cannot be loaded, or the Dask cluster cannot
        be reached or does not share ``folder``.
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
                        jobs=jobs or joblib.cpu_count(),
                        device=device,
                    ),
                )
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
                state.give_up(futures[future], "its workers died, possibly out of memory")
    if missing := state.left():
        raise ValueError(
            f"{len(missing)} results are missing from {state.folder}: the Dask workers do not "
            "write to it; use a folder that all machines share"
        )
