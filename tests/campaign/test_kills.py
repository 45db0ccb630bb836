"""Kill processes at random moments, 130 times in all, and compare with undisturbed runs."""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
import torch

from reproduction import Experiment, Sweep, sweep, with_fingerprints
from tensorswitch.compare import compare
from tensorswitch.ridge import RidgeStatistics

pytestmark = [pytest.mark.slow, pytest.mark.skipif(os.name == "nt", reason="there is no SIGKILL")]

TRAIN = """
import sys, torch
from tensorswitch.data import load
from tensorswitch.models import mlp
from tensorswitch.training import Learner, Rows, train
torch.set_num_threads(1)
torch.manual_seed(0)
split = load("digits").protocol(16)
rows = Rows.from_numpy(split.train[:200], split.train_labels[:200])
held = Rows.from_numpy(split.validation, split.validation_labels)
learner = Learner(mlp(16, 10, kind="ts-ibp-lrc", depth=2, width=8), lr=0.05, batch_size=32)
print("ready", flush=True)
train(learner, rows, epochs=40, validation=held, folder=sys.argv[1])
print("done", flush=True)
"""
SAVE = """
import sys, torch
from tensorswitch.ridge import RidgeStatistics
torch.set_num_threads(1)
print("ready", flush=True)
for seed in range(1000):
    torch.manual_seed(seed)
    statistics = RidgeStatistics([torch.randn(16, 8)], 2)
    statistics.update(torch.randn(50, 8), torch.randn(50, 2)).save(sys.argv[1])
print("done", flush=True)
"""


def killed(program, path, moments, longest):
    """Run a program, kill it at a random moment and return whether it had finished before."""
    command = [sys.executable, "-c", program, str(path)]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    assert child.stdout.readline() == "ready\n"
    time.sleep(moments.uniform(0, longest))
    child.send_signal(signal.SIGKILL)
    done = child.stdout.read() == "done\n"
    child.stdout.close()
    child.wait()
    return done


def test_training_killed_forty_times(tmp_path):
    moments, kills, runs = random.Random(0), 0, 0
    finish(tmp_path / "whole")
    while kills < 40:  # a run that finishes in spite of it is followed by another
        folder = tmp_path / f"killed{runs}"
        folder.mkdir(exist_ok=True)
        if killed(TRAIN, folder, moments, 0.3):
            runs += 1
        else:
            kills += 1
    for folder in tmp_path.glob("killed*"):
        finish(folder)
        for name in ("checkpoint.safetensors", "best.safetensors"):
            ours, expected = ((f / name).read_bytes() for f in (folder, tmp_path / "whole"))
            assert without_seconds(ours) == without_seconds(expected)
        assert not list(folder.glob(".*.part"))


def finish(folder):
    """Train to the end, from wherever the folder is."""
    folder.mkdir(exist_ok=True)
    command = [sys.executable, "-c", TRAIN, str(folder)]
    assert "done" in subprocess.run(command, check=True, capture_output=True, text=True).stdout


def without_seconds(content):
    """Return the tensors of a checkpoint without its header, which contains times."""
    length = int.from_bytes(content[:8], "little")
    return content[8 + length :]


def test_saving_killed_thirty_times(tmp_path):
    moments, path = random.Random(1), tmp_path / "sums.safetensors"
    for _ in range(30):
        killed(SAVE, path, moments, 0.2)
        if path.exists():
            loaded = RidgeStatistics.load(path)  # raises unless it is whole
            assert loaded.rows == 50
    RidgeStatistics([torch.randn(16, 8)], 2).save(path)
    assert [p.name for p in tmp_path.iterdir()] == [path.name]


COMPARE = """
import sys
from tensorswitch.compare import compare
print("ready", flush=True)
compare("digits", ["linear", "rr"], sys.argv[1], folds=3, settings={"rr": {"gates": 4}})
print("done", flush=True)
"""


def test_comparisons_killed_thirty_times(tmp_path):
    """What is done is not repeated, and the end is that of a run that was not killed."""
    moments, kills, runs = random.Random(3), 0, 0
    finished(tmp_path / "whole")
    while kills < 30:
        folder = tmp_path / f"killed{runs}"
        if killed(COMPARE, folder, moments, 1.0):
            runs += 1
        else:
            kills += 1
    for folder in tmp_path.glob("killed*"):
        assert finished(folder) == finished(tmp_path / "whole")
        assert not list(folder.rglob(".*.part"))


def finished(folder):
    """Compare to the end; return the errors of each learner."""
    found = compare("digits", ["linear", "rr"], folder, folds=3, settings={"rr": {"gates": 4}})
    return {r.learner: [one.metrics["error"] for one in r.results] for r in found.records}


GRID = [
    Experiment(data="digits", method="ts-lrc", components=8, width=8, lr=0.05, epochs=15, seed=seed)
    for seed in range(4)
]
SWEEP = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[2])
import test_kills
print("ready", flush=True)
test_kills.sweep(test_kills.GRID, Path(sys.argv[1]), jobs=2)
"""


def test_sweeps_killed_thirty_times(tmp_path):
    """Kill the parent, a worker, or all of them."""
    expected = {r.experiment.name: r.result.best for r in sweep(GRID, tmp_path / "whole", jobs=1)}
    moments, kills, runs = random.Random(2), 0, 0
    while kills < 30:
        folder = tmp_path / f"killed{runs}"
        kills += kill_sweep(folder, moments, kills % 3)
        if not Sweep(with_fingerprints(GRID), folder).left():
            runs += 1  # begin again in a new folder
    for folder in tmp_path.glob("killed*"):
        records = sweep(GRID, folder, jobs=1, retry=True)
        assert {r.experiment.name: r.result.best for r in records} == expected


def kill_sweep(folder, moments, which):
    """Start a sweep, kill some of its processes and return whether any was running."""
    command = [sys.executable, "-c", SWEEP, str(folder), str(Path(__file__).parent)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    time.sleep(moments.uniform(0, 4))
    victims = []
    if process.poll() is None:
        everyone = [psutil.Process(process.pid)]
        everyone += everyone[0].children(recursive=True)
        victims = {0: everyone[:1], 1: everyone[1:][-1:], 2: everyone}[which]
    for victim in victims:
        if victim.is_running():
            victim.kill()
    process.wait(timeout=600)
    process.stdout.close()
    return bool(victims)
