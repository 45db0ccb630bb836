import csv
import json
import math
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from torch import distributed, multiprocessing
from torch.testing import assert_close

from tensorswitch._files import read_header, read_tensors, write_tensors
from tensorswitch.data import load
from tensorswitch.history import Epoch, History
from tensorswitch.models import KINDS, cnn, mlp
from tensorswitch.training import (
    BEST,
    CHECKPOINT,
    FORMAT,
    NEXT_BEST,
    DivergedError,
    Learner,
    Rows,
    train,
)


def digits(rows=300):
    split = load("digits").protocol(16)
    parts = (
        (split.train, split.train_labels),
        (split.validation, split.validation_labels),
        (split.test, split.test_labels),
    )
    return [Rows(torch.from_numpy(x[:rows]), torch.from_numpy(y[:rows])) for x, y in parts]


def learner(kind="ts-ibp-lrc", **options):
    torch.manual_seed(0)
    return Learner(
        mlp(16, 10, kind=kind, depth=2, width=8), **{"lr": 0.05, "batch_size": 32, **options}
    )


def weights(learner):
    return torch.cat([p.detach().flatten() for p in learner.network.parameters()])


def naive(network, rows, epochs, seed=0):
    """The loop as written by hand."""
    optimizer = torch.optim.SGD(
        [p for p in network.parameters() if p.requires_grad],
        lr=0.05,
        momentum=0.9,
        weight_decay=1e-3,
    )
    generator = torch.Generator().manual_seed(seed)
    for _ in range(epochs):
        for batch in torch.randperm(len(rows.x), generator=generator).split(32):
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(network(rows.x[batch]), rows.y[batch]).backward()
            optimizer.step()


@pytest.mark.parametrize("kind", KINDS)
def test_it_is_the_plain_loop(kind):
    rows, validation, test = digits()
    ours = learner(kind)
    history = train(ours, rows, epochs=3, validation=validation, test=test)
    torch.manual_seed(0)
    plain = mlp(16, 10, kind=kind, depth=2, width=8)
    naive(plain, rows, 3)
    assert_close(
        weights(ours),
        torch.cat([p.detach().flatten() for p in plain.parameters()]),
        rtol=1e-4,
        atol=1e-5,
    )
    assert history.epochs[-1].test_error == pytest.approx(
        float((plain(test.x).argmax(1) != test.y).float().mean()), abs=0.01
    )
    assert history.epochs[2].train_loss < history.epochs[0].train_loss


def test_fixed_gates_stay_as_they_are():
    ours = learner("ts-lrc")
    gates = [layer.gate_weight.clone() for layer in ours.network]
    train(ours, digits()[0], epochs=1)
    assert all(
        torch.equal(a, layer.gate_weight) for a, layer in zip(gates, ours.network, strict=True)
    )


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


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_convolutions_in_another_memory_format_learn_the_same(tmp_path, optimizer):
    def network():
        torch.manual_seed(0)
        return cnn(1, 4, 10, channels=(3, 5), width=8)

    rows = digits()[0]
    rows.x = rows.x.view(-1, 1, 4, 4)
    options = {"optimizer": optimizer, "lr": 0.05, "batch_size": 32}
    whole = Learner(network(), **options)
    formats, outputs = [], []
    whole.network[0].register_forward_hook(
        lambda *arguments: outputs.append(arguments[-1].stride())
    )
    weight = next(p for p in whole.network.parameters() if p.shape == (5, 3, 3, 3))
    memory = weight.data_ptr()
    for _ in range(3):
        whole.epoch(rows, watch=lambda: formats.append(weight.is_contiguous()))
        assert weight.is_contiguous()
        assert weight.data_ptr() == memory
        assert all(t.is_contiguous() for t in whole.optimizer.state[weight].values())
    assert not any(formats)
    assert all(stride[1] == 1 for stride in outputs)  # although the images have a single channel
    train(Learner(network(), **options), rows, epochs=1, folder=tmp_path)
    second = Learner(network(), **options)
    train(second, rows, epochs=3, folder=tmp_path)
    assert torch.equal(weights(second), weights(whole))
    if optimizer == "sgd":
        plain = network()
        naive(plain, rows, 3)
        expected = torch.cat([p.detach().flatten() for p in plain.parameters()])
        assert_close(weights(whole), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("channels", [1, 3])
def test_images_are_evaluated_in_channels_last_format(channels):
    network = cnn(channels, 8, 10, channels=(4,), width=8)
    strides = []
    network[0].register_forward_hook(lambda *arguments: strides.append(arguments[-1].stride()))
    images = torch.randn(300, channels, 8, 8)
    outputs = Learner(network).outputs(images)
    assert len(strides) == 2
    assert all(stride[1] == 1 for stride in strides)
    assert_close(outputs, network(images))


def test_networks_of_users_keep_their_memory_format():
    class Views(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.convolution = torch.nn.Conv2d(1, 4, 3, padding=1)
            self.readout = torch.nn.Linear(64, 10)

        def forward(self, x):
            return self.readout(self.convolution(x).view(len(x), -1))

    rows = digits()[0]
    rows.x = rows.x.view(-1, 1, 4, 4)
    loss, _ = Learner(Views(), batch_size=32).epoch(rows)
    assert math.isfinite(loss)


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
    _, header = read_tensors(tmp_path / "best.safetensors", FORMAT)
    assert header["epochs_done"] == history.best.epoch


def test_events_for_tensorboard(tmp_path):
    pytest.importorskip("tensorboard")
    train(learner(), digits()[0], epochs=1, folder=tmp_path, tensorboard=True)
    assert [p.name.startswith("events.out") for p in (tmp_path / "events").iterdir()] == [True]


def test_a_folder_of_another_run_is_refused(tmp_path):
    rows = digits()[0]
    train(learner(), rows, epochs=1, folder=tmp_path, notes={"lr": 0.05, "kind": "a"})
    with pytest.raises(
        ValueError, match=r"was made with other settings \(kind, lr differ\); use another folder"
    ):
        train(learner(), rows, epochs=2, folder=tmp_path, notes={"lr": 0.1, "kind": "b"})


def test_patience_ends_what_no_longer_improves():
    rows, validation, _ = digits()
    history = train(learner(lr=1e-12), rows, epochs=50, validation=validation, patience=3)
    assert len(history.epochs) == 4
    assert history.best.epoch == 1


@pytest.mark.parametrize(
    ("change", "where"), [(None, "layer 1 .SwitchedLinear."), ("input", "the inputs")]
)
def test_a_loss_that_is_no_number_stops_and_says_where(tmp_path, change, where):
    rows = digits()[0]
    train(learner(lr=0.01), rows, epochs=1, folder=tmp_path)
    kept = (tmp_path / "checkpoint.safetensors").read_bytes()
    if change == "input":
        rows.x[5, 3] = math.nan
    with pytest.raises(
        DivergedError,
        match=f"the loss is not finite in epoch [12]: .*({where}).*use a smaller learning rate",
    ):
        train(
            learner(lr=0.01 if change else 1e20),
            rows,
            epochs=3,
            folder=tmp_path if change else None,
        )
    assert (tmp_path / "checkpoint.safetensors").read_bytes() == kept


def test_weights_that_explode_in_the_last_step_are_not_kept(tmp_path):
    rows, validation, _ = digits()
    ours = learner(lr=1e30, batch_size=300)  # one step, whose loss is still finite
    with pytest.raises(DivergedError, match="epoch 2"):
        train(ours, rows, epochs=1, validation=validation, folder=tmp_path)
    assert not list(tmp_path.iterdir())


@pytest.mark.usefixtures("bfloat16")
def test_bfloat16_learns_too():
    rows, _, test = digits(1000)
    history = train(learner("ts-lrc", precision="bf16"), rows, epochs=3, test=test)
    assert history.epochs[-1].test_error < 0.2


def test_regression_by_squared_error():
    rows = digits()[0]
    rows = Rows(rows.x, rows.x[:, :2].abs())
    torch.manual_seed(0)
    ours = Learner(mlp(16, 2, kind="ts-lrc", depth=1, width=16), loss="squared", lr=0.02)
    history = train(ours, rows, epochs=10)
    assert math.isnan(history.epochs[0].train_error)
    assert history.epochs[-1].train_loss < 0.5 * history.epochs[0].train_loss


def test_history_knows_its_best_epoch():
    history = History(
        [
            Epoch(1, 1.0, 2.0, 0.5, validation_error=0.3),
            Epoch(2, 1.0, 1.0, 0.2, validation_error=0.2),
            Epoch(3, 1.0, 0.5, 0.1, validation_error=0.2),
        ]
    )
    assert history.best.epoch == 2
    assert json.loads(history.to_json())[0]["test_error"] is None


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


CHILD = """
import sys, time, torch
from contextlib import contextmanager
from tensorswitch import _files
sys.path.insert(0, {here!r})
import test_training as t

whole = _files.replacing

@contextmanager
def slow(path):  # so that the process is often killed while a file is half written
    with whole(path) as partial:
        yield partial
        content = partial.read_bytes()
        partial.write_bytes(content[: len(content) // 2])
        time.sleep(0.05)
        partial.write_bytes(content)

_files.replacing = slow
torch.set_num_threads(1)
rows, validation, _ = t.digits(200)
print("ready", flush=True)
t.train(t.learner(), rows, epochs=12, validation=validation, folder={folder!r})
print("done", flush=True)
"""


@pytest.mark.skipif(os.name == "nt", reason="there is no SIGKILL")
def test_killed_at_any_moment_it_ends_as_if_it_had_not_been(tmp_path):
    torch.set_num_threads(1)
    rows, validation, _ = digits(200)
    expected = learner()
    train(expected, rows, epochs=12, validation=validation)
    program = CHILD.format(here=str(Path(__file__).parent), folder=str(tmp_path))
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


def share(rank, folder, kind):
    torch.set_num_threads(1)
    distributed.init_process_group(
        "gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=2
    )
    rows, validation, _ = digits(250)  # the last batch is not full, and odd
    ours = learner(kind, batch_size=16)
    history = train(ours, rows, epochs=3, validation=validation)
    if rank == 0:
        torch.save(
            {
                "weights": weights(ours),
                "losses": torch.tensor([e.train_loss for e in history.epochs]),
            },
            f"{folder}/result.pt",
        )
    distributed.destroy_process_group()


@pytest.mark.parametrize("kind", ["ts-ibp-lrc", "ts-ibp"])
def test_two_processes_give_the_curve_of_one_with_the_doubled_batch(tmp_path, kind):
    multiprocessing.spawn(share, (str(tmp_path), kind), nprocs=2)
    result = torch.load(tmp_path / "result.pt", weights_only=True)
    rows, validation, _ = digits(250)
    alone = learner(kind, batch_size=32)
    history = train(alone, rows, epochs=3, validation=validation)
    assert_close(
        result["losses"], torch.tensor([e.train_loss for e in history.epochs]), rtol=1e-4, atol=1e-5
    )
    assert_close(result["weights"], weights(alone), rtol=1e-3, atol=1e-4)


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
    best = read_header(tmp_path / BEST, FORMAT)
    assert best["epochs_done"] == history.best.epoch <= 2
    assert len(json.loads((tmp_path / "history.json").read_text())) == 2
    assert not (tmp_path / NEXT_BEST).exists()


@pytest.mark.parametrize("history", ["{", "[" * 100_000, '[{"epoch": 1}]', "5"])
def test_a_damaged_checkpoint_is_named(tmp_path, history):
    rows, validation, _ = digits()
    train(learner(), rows, epochs=1, validation=validation, folder=tmp_path)
    tensors, header = read_tensors(tmp_path / CHECKPOINT, FORMAT)
    write_tensors(tmp_path / CHECKPOINT, FORMAT, tensors, {**header, "history": history})
    with pytest.raises(
        ValueError, match=r"checkpoint.safetensors is not a checkpoint of this network"
    ):
        train(learner(), rows, epochs=2, validation=validation, folder=tmp_path)


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ({"seed": -1}, "seed must be an integer of at least 0"),
        ({"device": "nowhere"}, "device 'nowhere' cannot be used here"),
    ],
)
def test_settings_that_cannot_be_are_named(option, message):
    with pytest.raises(ValueError, match=message):
        learner(**option)


@pytest.mark.skipif(torch.cuda.is_available(), reason="has a GPU")
def test_a_gpu_that_is_not_there_is_named():
    with pytest.raises(ValueError, match="device 'cuda' cannot be used here: "):
        learner(device="cuda")
