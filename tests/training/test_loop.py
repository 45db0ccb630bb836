import csv
import math

import pytest
import torch

from tensorswitch.persistence import load
from tensorswitch.training import DivergedError, History, Learner, Rows, train
from tests.training.runs import digits, learner


def test_the_folder_has_history_and_best_epoch(tmp_path):
    rows, validation, test = digits()
    history = train(learner(), rows, epochs=4, validation=validation, test=test, folder=tmp_path)
    assert sorted(p.name for p in tmp_path.iterdir()) == [
        "best.safetensors",
        "checkpoint.safetensors",
        "history.csv",
        "history.json",
    ]
    with (tmp_path / "history.csv").open() as file:
        assert [float(line["test_error"]) for line in csv.DictReader(file)] == [
            e.test_error for e in history.epochs
        ]
    assert History.from_json((tmp_path / "history.json").read_text()) == history
    assert load(tmp_path / "best.safetensors").epochs_done == history.best.epoch


def test_events_for_tensorboard(tmp_path):
    pytest.importorskip("tensorboard")
    train(learner(), digits()[0], epochs=1, folder=tmp_path, tensorboard=True)
    assert [p.name.startswith("events.out") for p in (tmp_path / "events").iterdir()] == [True]


def test_patience_ends_what_no_longer_improves():
    rows, validation, _ = digits()
    history = train(learner(lr=1e-12), rows, epochs=50, validation=validation, patience=3)
    assert len(history.epochs) == 4
    assert history.best.epoch == 1


@pytest.mark.parametrize(
    ("change", "where"),
    [
        (None, "layer 1 .SwitchedLinear.*use a smaller learning rate"),
        ("input", "the inputs contain NaN"),
    ],
)
def test_a_loss_that_is_no_number_stops_and_says_where(tmp_path, change, where):
    rows = digits()[0]
    train(learner(lr=0.01), rows, epochs=1, folder=tmp_path)
    kept = (tmp_path / "checkpoint.safetensors").read_bytes()
    if change == "input":
        rows.x[5, 3] = math.nan
    with pytest.raises(DivergedError, match=f"the loss is not finite in epoch [12]: .*({where})"):
        train(
            learner(lr=0.01 if change else 1e20),
            rows,
            epochs=3,
            folder=tmp_path if change else None,
        )
    assert (tmp_path / "checkpoint.safetensors").read_bytes() == kept


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: learner(optimizer="lbfgs"),
            "optimizer must be one of 'sgd', 'adam', 'adamw'; got 'lbfgs'",
        ),
        (lambda: learner(lr=0), "lr must be a finite number above 0, got 0"),
        (lambda: learner(precision="fp8"), "precision must be None or 'bf16'"),
        (lambda: learner(loss="hinge"), "loss must be one of 'cross-entropy', 'squared'"),
        (
            lambda: train(learner(), digits()[0], epochs=0),
            "epochs must be a positive integer, got 0",
        ),
        (
            lambda: train(learner(), Rows(torch.zeros(0, 16), torch.zeros(0)), epochs=1),
            "training needs at least one row",
        ),
        (
            lambda: train(learner(), digits()[0], epochs=1, tensorboard=True),
            "tensorboard needs a folder",
        ),
    ],
)
def test_wrong_arguments_are_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_rows_that_are_not_finite_are_named_wherever_they_are():
    rows, validation, test = digits()
    validation.x[200, 3] = math.nan
    with pytest.raises(
        DivergedError,
        match=r"^the validation loss is not finite after epoch 1: the inputs contain NaN",
    ):
        train(learner(), rows, epochs=1, validation=validation, test=test)
    x = torch.randn(64, 4)
    y = x[:, :1].clone()
    y[50] = math.nan
    with pytest.raises(
        DivergedError, match=r"^the loss is not finite in epoch 1: the targets contain NaN .*y$"
    ):
        train(Learner(torch.nn.Linear(4, 1), loss="squared"), Rows(x, y), epochs=1)


def test_a_loss_that_diverges_in_the_last_step_names_its_epoch():
    rows = digits()[0]
    with pytest.raises(DivergedError, match=r"^the loss is not finite in epoch 1: "):
        train(learner(lr=1e20, batch_size=len(rows.x) // 2), rows, epochs=1)
