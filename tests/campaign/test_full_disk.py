"""Runs against a full disk name the file, keep what was there, and continue with more room."""

import os
import subprocess
import sys

import pytest

from tensorswitch.ridge import RidgeStatistics

pytestmark = [pytest.mark.slow, pytest.mark.skipif(os.name != "posix", reason="needs RLIMIT_FSIZE")]

LIMIT = """
import resource, signal, sys
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
limit = int(sys.argv[1])
resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))
"""
TRAIN = """
import torch
from tensorswitch.data import load
from tensorswitch.models import mlp
from tensorswitch.training import Learner, Rows, train
torch.manual_seed(0)
split = load("digits").protocol(16)
rows = Rows.from_numpy(split.train[:200], split.train_labels[:200])
learner = Learner(mlp(16, 10, kind="ts-lrc", depth=1, width=8), lr=0.05)
train(learner, rows, epochs=int(sys.argv[3]), validation=rows, folder=sys.argv[2])
"""
SAVE = """
import torch
from tensorswitch.ridge import RidgeStatistics
sums = RidgeStatistics([torch.ones(int(sys.argv[3]), 8)], 2)
sums.update(torch.ones(5, 8), torch.ones(5, 2)).save(sys.argv[2])
"""
SWEEP = """
from pathlib import Path
from reproduction import Experiment, sweep
quick = {"data": "digits", "components": 8, "width": 8, "lr": 0.05}
grid = [Experiment(method="ts-lrc", epochs=int(sys.argv[3]), **quick)]
print([r.result.best if r.result else r.error for r in sweep(grid, Path(sys.argv[2]), jobs=1)])
"""
COMPARE = """
import torch
from tensorswitch.compare import compare
found = compare("digits", ["rr"], sys.argv[2], settings={"rr": {"gates": int(sys.argv[3])}})
print([r.error for r in found.records], [r.failure for r in found.records])
"""
PLENTY = 10**9


def run(program, limit, path, number):
    command = [sys.executable, "-c", LIMIT + program, str(limit), str(path), str(number)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def tensors(path):
    content = path.read_bytes()
    return content[8 + int.from_bytes(content[:8], "little") :]


def test_training(tmp_path):
    for name in ("full", "whole"):
        (tmp_path / name).mkdir()
    assert run(TRAIN, PLENTY, tmp_path / "full", 3).returncode == 0
    before = (tmp_path / "full" / "checkpoint.safetensors").read_bytes()
    failed = run(TRAIN, 2000, tmp_path / "full", 6)
    assert failed.returncode == 1
    assert str(tmp_path / "full") in failed.stderr.splitlines()[-1]
    assert (tmp_path / "full" / "checkpoint.safetensors").read_bytes() == before
    for name in ("full", "whole"):
        assert run(TRAIN, PLENTY, tmp_path / name, 6).returncode == 0
    for name in ("checkpoint.safetensors", "best.safetensors"):
        assert tensors(tmp_path / "full" / name) == tensors(tmp_path / "whole" / name)
    assert not list((tmp_path / "full").glob(".*.part"))


def test_statistics(tmp_path):
    path = tmp_path / "sums.safetensors"
    assert run(SAVE, PLENTY, path, 4).returncode == 0
    before = path.read_bytes()
    failed = run(SAVE, 2000, path, 64)
    assert failed.returncode == 1
    assert "sums.safetensors" in failed.stderr.splitlines()[-1]
    assert path.read_bytes() == before
    assert RidgeStatistics.load(path).rows == 5
    assert [p.name for p in tmp_path.iterdir()] == [path.name]


def test_sweep(tmp_path):
    expected = run(SWEEP, PLENTY, tmp_path / "whole", 3)
    assert expected.returncode == 0, expected.stderr
    failed = run(SWEEP, 1500, tmp_path / "full", 3)
    assert failed.returncode == 1 or "could not be written" in failed.stdout
    again = run(SWEEP.replace("jobs=1", "jobs=1, retry=True"), PLENTY, tmp_path / "full", 3)
    assert again.stdout == expected.stdout


def test_comparison(tmp_path):
    expected = run(COMPARE, PLENTY, tmp_path / "whole", 4)
    assert expected.returncode == 0, expected.stderr
    failed = run(COMPARE, 2500, tmp_path / "full", 4)  # room for records, not for the model
    assert "could not be written" in failed.stdout + failed.stderr
    assert run(COMPARE, PLENTY, tmp_path / "full", 4).stdout == expected.stdout
    assert not list((tmp_path / "full").rglob(".*.part"))
