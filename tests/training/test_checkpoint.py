import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch

from tensorswitch import SwitchedLinear
from tensorswitch.persistence import load, save
from tensorswitch.training import BEST, CHECKPOINT, Learner, train
from tests.training.runs import digits, learner, weights

NEXT_BEST = "next-best.safetensors"


@pytest.mark.parametrize("optimizer", ["sgd", "adam", "adamw"])
def test_a_run_in_two_parts_is_the_same_as_in_one(tmp_path, optimizer):
    def schedule(optimizer):
        return torch.optim.lr_scheduler.StepLR(optimizer, 2, 0.5)

    rows, validation, _ = digits()
    options = {"optimizer": optimizer, "lr": 0.01, "schedule": schedule}
    whole = learner(**options)
    expected = train(whole, rows, epochs=5, validation=validation)
    train(learner(**options), rows, epochs=2, validation=validation, folder=tmp_path)
    second = learner(**options)
    history = train(second, rows, epochs=5, validation=validation, folder=tmp_path)
    assert torch.equal(weights(second), weights(whole))
    assert [e.validation_error for e in history.epochs] == [
        e.validation_error for e in expected.epochs
    ]


def milestones(optimizer):
    return torch.optim.lr_scheduler.MultiStepLR(optimizer, [2, 3])


def warm_up(optimizer):
    schedules = torch.optim.lr_scheduler
    first = schedules.ConstantLR(optimizer, 0.5, 1)
    following = schedules.MultiStepLR(optimizer, [1, 2])
    return schedules.SequentialLR(optimizer, [first, following], [1])


@pytest.mark.parametrize("schedule", [milestones, warm_up])
def test_milestones_of_a_schedule_survive(tmp_path, schedule):
    def begin():
        torch.manual_seed(0)
        return learner(schedule=schedule)

    rows = digits()[0]
    train(begin(), rows, epochs=1, folder=tmp_path)
    resumed, whole = begin(), begin()
    train(resumed, rows, epochs=4, folder=tmp_path)
    train(whole, rows, epochs=4)
    rates = [one.optimizer.param_groups[0]["lr"] for one in (resumed, whole)]
    assert rates[0] == rates[1] < begin().optimizer.param_groups[0]["lr"] / 40


def test_a_folder_of_another_run_is_refused(tmp_path):
    rows = digits()[0]
    train(learner(), rows, epochs=1, folder=tmp_path, notes={"lr": 0.05, "kind": "a"})
    with pytest.raises(
        ValueError, match=r"was made with other settings \(kind, lr differ\); use another folder"
    ):
        train(learner(), rows, epochs=2, folder=tmp_path, notes={"lr": 0.1, "kind": "b"})


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("history", '[{"epoch": 1}]'),
        ("history", "{"),
        ("history", "[" * 100_000),
        ("history", 5),
        ("weights", {}),
        ("optimizer", {"state": {}, "param_groups": []}),
        ("generator", torch.zeros(3)),
    ],
)
def test_a_damaged_checkpoint_is_named(tmp_path, field, value, monkeypatch):
    rows, validation, _ = digits()
    train(learner(), rows, epochs=1, validation=validation, folder=tmp_path)
    found = load(tmp_path / CHECKPOINT)
    state = {**found.state(), field: value}
    with monkeypatch.context() as patch:
        patch.setattr(type(found), "state", lambda _: state)
        save(found, tmp_path / CHECKPOINT)
    with pytest.raises(
        ValueError,
        match=r"(?s)checkpoint.safetensors is not a checkpoint of this network .*remove it",
    ):
        train(learner(), rows, epochs=2, validation=validation, folder=tmp_path)


def test_a_file_of_something_else_is_no_checkpoint(tmp_path):
    mine = learner()
    save(mine.network, tmp_path / CHECKPOINT)
    with pytest.raises(ValueError, match=r"is not a checkpoint .*holds a Network"):
        mine.restore(tmp_path / CHECKPOINT, {})


CHILD = """
import sys, time, torch
from contextlib import contextmanager
from tensorswitch import persistence
from tensorswitch.training import train
sys.path.insert(0, {here!r})
from tests.training import runs

whole = persistence.replacing

@contextmanager
def slow(path):  # so that the process is often killed while a file is half written
    with whole(path) as partial:
        yield partial
        content = partial.read_bytes()
        partial.write_bytes(content[: len(content) // 2])
        time.sleep(0.05)
        partial.write_bytes(content)

persistence.replacing = slow
torch.set_num_threads(1)
rows, validation, _ = runs.digits(200)
print("ready", flush=True)
train(runs.learner(), rows, epochs=12, validation=validation, folder={folder!r})
print("done", flush=True)
"""


@pytest.mark.skipif(os.name == "nt", reason="there is no SIGKILL")
def test_killed_at_any_moment_it_ends_as_if_it_had_not_been(tmp_path):
    torch.set_num_threads(1)
    rows, validation, _ = digits(200)
    expected = learner()
    train(expected, rows, epochs=12, validation=validation)
    program = CHILD.format(here=str(Path(__file__).parents[2]), folder=str(tmp_path))
    moments, kills = random.Random(0), 0
    while True:
        child = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        if kills < 10:
            time.sleep(moments.uniform(0, 0.35))
            child.send_signal(signal.SIGKILL)
        finished = child.stdout.read() == "done\n"
        child.stdout.close()
        child.wait()
        kills += not finished
        if finished:
            break
    ours = learner()
    history = ours.restore(tmp_path / "checkpoint.safetensors", {})
    assert kills == 10
    assert len(history.epochs) == 12
    assert torch.equal(weights(ours), weights(expected))


def test_killed_between_best_and_checkpoint_the_best_epoch_is_in_the_history(tmp_path, monkeypatch):
    """The weights of the best epoch may be written before the checkpoint of that epoch."""
    rows, validation, _ = digits()
    train(learner(), rows, epochs=2, validation=validation, folder=tmp_path)
    save = Learner.save

    def killed(self, path, *arguments):
        if Path(path).name == CHECKPOINT:
            raise KeyboardInterrupt
        save(self, path, *arguments)

    with monkeypatch.context() as patch:
        patch.setattr(Learner, "save", killed)
        with pytest.raises(KeyboardInterrupt):
            train(learner(), rows, epochs=3, validation=validation, folder=tmp_path)
    history = train(learner(), rows, epochs=2, validation=validation, folder=tmp_path)
    assert load(tmp_path / BEST).epochs_done == history.best.epoch <= 2
    assert len(json.loads((tmp_path / "history.json").read_text())) == 2
    assert not (tmp_path / NEXT_BEST).exists()


def test_only_the_first_process_looks_for_the_best_epoch(tmp_path):
    """It may be about to rename the file that a process killed before had left."""
    rows = digits(40)[0]
    train(learner(), rows, epochs=1, folder=tmp_path)
    (tmp_path / BEST).rename(tmp_path / NEXT_BEST)
    second = learner()
    second.rank = 1
    assert len(train(second, rows, epochs=1, folder=tmp_path).epochs) == 1
    assert (tmp_path / NEXT_BEST).exists()
    train(learner(), rows, epochs=1, folder=tmp_path)
    assert (tmp_path / BEST).exists()
    (tmp_path / BEST).unlink()
    with pytest.raises(ValueError, match=f"but no {BEST}"):
        train(learner(), rows, epochs=1, folder=tmp_path)


@pytest.mark.parametrize(
    ("option", "name"),
    [
        ({"lr": 0.5}, "lr"),
        ({"weight_decay": 0.3}, "weight_decay"),
        ({"optimizer": "adam"}, "momentum, optimizer"),
        ({"seed": 3}, "seed"),
        ({"batch_size": 16}, "batch_size"),
    ],
)
def test_a_checkpoint_of_other_settings_is_refused(tmp_path, option, name):
    rows = digits()[0]
    train(learner(), rows, epochs=1, folder=tmp_path)
    with pytest.raises(ValueError, match=rf"other settings \({name} differ\)"):
        train(learner(**option), rows, epochs=2, folder=tmp_path)


@pytest.mark.parametrize("kind", ["gates", "units"])
def test_dropout_of_a_resumed_run_is_that_of_one_run(tmp_path, kind):
    def begin():
        torch.manual_seed(0)
        if kind == "gates":
            network = SwitchedLinear(16, 8, 10, dropout=0.5)
        else:
            network = torch.nn.Sequential(torch.nn.Dropout(), torch.nn.Linear(16, 10))
        return Learner(network, lr=0.05, batch_size=32)

    rows, whole = digits()[0], begin()
    state = torch.get_rng_state()
    train(whole, rows, epochs=4)
    assert torch.equal(torch.get_rng_state(), state)
    for epochs in (2, 4):
        resumed = begin()
        torch.manual_seed(epochs)
        train(resumed, rows, epochs=epochs, folder=tmp_path)
    assert torch.equal(weights(resumed), weights(whole))
    other = begin()
    other.settings["seed"] = 1
    other.generator = torch.Generator().manual_seed(0)  # the order of rows stays
    train(other, rows, epochs=4)
    assert not torch.equal(weights(other), weights(whole))


@pytest.mark.parametrize(("before", "after"), [(milestones, None), (None, milestones)])
def test_a_checkpoint_of_another_schedule_is_refused(tmp_path, before, after):
    rows = digits()[0]
    train(learner(schedule=before), rows, epochs=1, folder=tmp_path)
    with pytest.raises(ValueError, match=r"other settings \(schedule differ\)"):
        train(learner(schedule=after), rows, epochs=2, folder=tmp_path)


def test_notes_are_compared_as_they_are_written(tmp_path):
    rows, notes = digits()[0], {"sizes": (8, 8), "rate": np.float32(0.5), "rows": np.int64(3)}
    for epochs in (1, 2):
        train(learner(), rows, epochs=epochs, folder=tmp_path, notes=notes)
    with pytest.raises(TypeError, match=r"of type object cannot be written as JSON"):
        train(learner(), rows, epochs=2, folder=tmp_path / "other", notes={"what": object()})
    assert not (tmp_path / "other").exists()


def test_a_run_of_a_learner_that_has_learned_before_keeps_its_best_epoch(tmp_path):
    rows, validation, _ = digits()
    first = learner()
    first.epoch(rows)
    history = train(first, rows, epochs=2, validation=validation, folder=tmp_path)
    assert len(load(tmp_path / BEST).history.epochs) == history.best.epoch
    resumed = train(learner(), rows, epochs=3, validation=validation, folder=tmp_path)
    assert repr(resumed.epochs[:2]) == repr(history.epochs)  # NaN differs from itself


def test_layers_that_share_a_weight_still_do_after_resuming(tmp_path):
    def begin():
        torch.manual_seed(0)
        shared = torch.nn.Linear(16, 16)
        return Learner(torch.nn.Sequential(shared, torch.nn.ReLU(), shared), lr=0.05)

    rows, whole = digits()[0], begin()
    train(whole, rows, epochs=2)
    for epochs in (1, 2):
        resumed = begin()
        train(resumed, rows, epochs=epochs, folder=tmp_path)
    assert resumed.network[0].weight is resumed.network[2].weight
    assert torch.equal(weights(resumed), weights(whole))
