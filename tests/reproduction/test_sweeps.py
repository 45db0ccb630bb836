import io
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
from rich.console import Console

from reproduction import Experiment, Record, Sweep, run_one, sweep, with_fingerprints
from reproduction.live import counts, live_table
from reproduction.records import RUNNING, best_records

pytestmark = pytest.mark.xdist_group("sweeps")  # one worker, to share the fixtures
QUICK = {"data": "digits", "width": 16, "lr": 1e-2, "batch_size": 32}
LONG = [Experiment(method="ss", epochs=30, seed=s, **QUICK) for s in range(3)]
SCRIPT = """
import sys
from pathlib import Path
from reproduction import sweep
from tests.reproduction.test_sweeps import LONG
if __name__ == "__main__":
    sweep(LONG, Path(sys.argv[1]), jobs=2)
"""


def errors(records):
    return {r.experiment.name: [e["test_error"] for e in r.result.epochs] for r in records}


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    return errors(sweep(LONG, tmp_path_factory.mktemp("undisturbed"), jobs=1))


def start(folder):
    """Start a sweep in a separate process."""
    (folder / "script.py").write_text(SCRIPT)
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    return subprocess.Popen(
        [sys.executable, str(folder / "script.py"), str(folder / "runs")], env=environment
    )


def wait_for(condition, seconds=240.0):
    for _ in range(int(seconds / 0.02)):
        if found := condition():
            return found
        time.sleep(0.02)
    raise AssertionError("timed out")


def under_way(folder, least=3):
    """Return the state file of an experiment that has finished a few epochs, if any."""
    for path in folder.glob(f"runs/{RUNNING}/*/state.json"):
        try:
            if json.loads(path.read_text())["done"] >= least:
                return path
        except (OSError, ValueError):
            pass
    return None


def test_results_are_files_named_by_settings_and_are_not_made_twice(tmp_path):
    experiments = [Experiment(method=m, **QUICK) for m in ("ss", "ts-lrc")]
    records = sweep(experiments, tmp_path, jobs=1)
    files = sorted(tmp_path.glob("*.json"))
    assert [f.stem for f in files] == sorted(e.name for e in with_fingerprints(experiments))
    times = [f.stat().st_mtime_ns for f in files]
    assert errors(sweep([*experiments, *experiments], tmp_path)) == errors(records)
    assert [f.stat().st_mtime_ns for f in files] == times
    assert not [path for path in (tmp_path / RUNNING).iterdir() if path.is_dir()]
    content = json.loads(files[0].read_text(), parse_constant=pytest.fail)  # JSON has no NaN
    assert {"torch", "machine", "threads", "date"} <= content["made"].keys()


def test_a_failure_is_recorded_and_the_others_go_on(tmp_path):
    diverging = Experiment(method="ss", **{**QUICK, "lr": 1e30})
    fine = Experiment(method="ss", **QUICK)
    failed, done = sweep([diverging, fine], tmp_path, jobs=1)
    assert "DivergedError: the loss is not finite in epoch 1" in failed.error
    assert done.error is None
    files = {r.error is None: tmp_path / f"{r.experiment.name}.json" for r in (failed, done)}
    before = {ok: path.stat().st_mtime_ns for ok, path in files.items()}
    sweep([diverging, fine], tmp_path, jobs=1)
    # Failures are not retried, unless requested.
    assert {ok: path.stat().st_mtime_ns for ok, path in files.items()} == before
    sweep([diverging, fine], tmp_path, jobs=1, retry=True)
    assert files[False].stat().st_mtime_ns != before[False]
    assert files[True].stat().st_mtime_ns == before[True]


def test_a_sweep_killed_at_any_time_goes_on_where_it_was(tmp_path, undisturbed):
    process = start(tmp_path)
    wait_for(lambda: under_way(tmp_path) or process.poll())
    for child in [
        *psutil.Process(process.pid).children(recursive=True),
        psutil.Process(process.pid),
    ]:
        child.send_signal(signal.SIGKILL)
    process.wait()
    state = Sweep(with_fingerprints(LONG), tmp_path / "runs")
    left = state.left()
    assert left
    checkpoints = list((tmp_path / "runs" / RUNNING).glob("*/checkpoint.safetensors"))
    assert checkpoints
    assert errors(sweep(LONG, tmp_path / "runs", jobs=1)) == undisturbed


@pytest.mark.slow
def test_a_worker_that_dies_is_replaced(tmp_path, undisturbed):
    process = start(tmp_path)
    wait_for(lambda: under_way(tmp_path) or process.poll())
    workers = [
        c
        for c in psutil.Process(process.pid).children(recursive=True)
        if "resource_tracker" not in " ".join(c.cmdline())
    ]
    workers[0].send_signal(signal.SIGKILL)
    assert process.wait(timeout=300) == 0
    assert errors(Sweep(with_fingerprints(LONG), tmp_path / "runs").records()) == undisturbed


def test_one_that_kills_its_process_is_given_up_and_its_neighbours_are_not(tmp_path, monkeypatch):
    from joblib.externals.loky.process_executor import TerminatedWorkerError

    from reproduction import sweeps as module

    culprit, *innocent = with_fingerprints(LONG)

    def run(experiments, folder, **_):
        """Imitate loky: when a process dies, the others are stopped, too."""
        for experiment in experiments[:2]:
            place = folder / RUNNING / experiment.name
            place.mkdir(parents=True, exist_ok=True)
            (place / "state.json").write_text("{}")
        if culprit in experiments:
            raise TerminatedWorkerError
        for experiment in experiments:
            run_one(replace(experiment, epochs=1), folder)
            shutil.copy(
                folder / f"{replace(experiment, epochs=1).name}.json",
                folder / f"{experiment.name}.json",
            )

    monkeypatch.setattr(module, "_on_processes", run)
    records = {r.experiment.seed: r.error for r in module.sweep(LONG, tmp_path, jobs=2)}
    assert records.pop(culprit.seed) == "the process died 2 times, possibly out of memory"
    assert len(records) == len(innocent)
    assert set(records.values()) == {None}


def test_processes_that_die_before_they_begin_do_not_go_round_for_ever(tmp_path, monkeypatch):
    from joblib.externals.loky.process_executor import TerminatedWorkerError

    from reproduction import sweeps as module

    def run(experiments, **_):
        raise TerminatedWorkerError

    monkeypatch.setattr(module, "_on_processes", run)
    assert [r.error for r in module.sweep(LONG, tmp_path, jobs=2)] == [
        "the process died 2 times, possibly out of memory"
    ] * len(LONG)


@pytest.mark.slow
def test_processes_without_their_sweep_end_and_do_not_affect_the_next(tmp_path, undisturbed):
    """Only the parent is killed, and the same sweep is started again at once."""
    process = start(tmp_path)
    wait_for(lambda: under_way(tmp_path) or process.poll())
    children = psutil.Process(process.pid).children(recursive=True)
    process.kill()
    process.wait()
    assert errors(sweep(LONG, tmp_path / "runs", jobs=1)) == undisturbed
    _, alive = psutil.wait_procs(children, timeout=30)
    assert not alive


@pytest.mark.slow
def test_on_a_dask_cluster_of_which_a_worker_is_killed(tmp_path, undisturbed):
    distributed = pytest.importorskip("distributed")
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, dashboard_address=":0"
    ) as cluster:
        results = []
        address = cluster.scheduler_address
        thread = threading.Thread(
            target=lambda: results.extend(sweep(LONG, tmp_path / "runs", dask=address))
        )
        thread.start()
        wait_for(lambda: under_way(tmp_path) or not thread.is_alive())
        before = {worker.pid for worker in cluster.workers.values()}
        victim = next(iter(cluster.workers.values()))
        os.kill(victim.pid, signal.SIGKILL)
        thread.join(timeout=120)
        assert not thread.is_alive()
        # A new worker has replaced the killed one.
        assert {worker.pid for worker in cluster.workers.values()} != before
    assert errors(results) == undisturbed


def test_a_small_cluster_does_the_work_itself_and_elsewhere(tmp_path, monkeypatch):
    """The only worker runs in another folder, and the sweep has a relative path."""
    distributed = pytest.importorskip("distributed")
    monkeypatch.chdir(tmp_path)
    with distributed.LocalCluster(
        n_workers=1,
        threads_per_worker=1,
        dashboard_address=":0",
        local_directory=str(tmp_path / "dask"),
    ) as cluster:
        with distributed.Client(cluster) as client:
            client.run(os.chdir, "/")
        (record,) = sweep(
            [Experiment(method="ss", **QUICK)], Path("here"), dask=cluster.scheduler_address
        )
    assert record.error is None
    assert (tmp_path / "here" / f"{record.experiment.name}.json").exists()


def test_a_failure_keeps_its_checkpoints(tmp_path, monkeypatch):
    from reproduction import records as module

    (experiment,) = with_fingerprints(LONG[:1])
    write, calls = module.write, []

    def full(path, content):
        calls.append(path)
        if len(calls) == 5:
            raise OSError("No space left on device")
        write(path, content)

    monkeypatch.setattr(module, "write", full)
    assert "No space left" in run_one(experiment, tmp_path).error
    assert (tmp_path / RUNNING / experiment.name / "checkpoint.safetensors").exists()


def test_two_sweeps_do_not_share_a_folder(tmp_path):
    from filelock import FileLock

    with FileLock(tmp_path / ".lock"), pytest.raises(ValueError, match="is in use by another run"):
        sweep(LONG, tmp_path)


def test_no_address_of_a_scheduler(tmp_path, monkeypatch):
    pytest.importorskip("distributed")
    monkeypatch.setattr("reproduction.sweeps.CONNECT_SECONDS", 1)
    with pytest.raises(ValueError, match=r"no Dask scheduler answers at tcp://127\.0\.0\.1:1"):
        sweep(LONG[:1], tmp_path, dask="tcp://127.0.0.1:1")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        '{"experiment": {}}',
        '{"experiment": {"data": "d", "method": "ss"}, "result": {"best": "x"}}',
    ],
)
def test_a_broken_record_is_named(tmp_path, text):
    (experiment,) = with_fingerprints(LONG[:1])
    path = tmp_path / f"{experiment.name}.json"
    path.write_text(text)
    with pytest.raises(
        ValueError,
        match=r"is not a valid record of an experiment .* delete it to run the experiment again",
    ):
        run_one(experiment, tmp_path)


def test_the_live_table_shows_how_far_it_is(tmp_path):
    experiments = [
        *with_fingerprints([Experiment(method="ss", **QUICK)]),
        *with_fingerprints(LONG[:2]),
    ]
    run_one(experiments[0], tmp_path)
    place = tmp_path / RUNNING / experiments[1].name
    place.mkdir(parents=True)
    (place / "state.json").write_text(
        json.dumps({"done": 7, "total": 30, "note": "test error 3.00 %", "since": time.time()})
    )
    state = Sweep(experiments, tmp_path)
    console = Console(record=True, force_terminal=True, width=120, file=io.StringIO())
    with live_table(state, console):
        pass
    text = console.export_text()
    assert "1 done, 1 running, 1 to go" in text
    assert "7 of 30" in text
    assert "digits, MLP SS, depth 1, pixels, seed 0" in text
    assert counts(state, 7200) == "1 done, 1 running, 1 to go, about 2 h 00 min left"


def test_titles():
    assert (
        Experiment(data="mnist", method="cnn-ss", depth=3, precision="bf16").title
        == "mnist, CNN SS, depth 1·1·1 + 3, seed 0, bf16"
    )
    assert (
        Experiment(data="mnist", method="rr", components=32).title
        == "mnist, MLP TS RR, 256 gates, PCA 32, seed 0"
    )


def test_the_best_is_by_validation(tmp_path):
    record = run_one(Experiment(method="ss", **QUICK), tmp_path)
    worse = Record(
        replace(record.experiment, seed=1),
        replace(record.result, best_validation=0.9, best=0.0),
        None,
        {},
    )
    assert list(best_records([worse, record]).values()) == [record]
