import math

import pytest
import torch
from torch import distributed, multiprocessing
from torch.testing import assert_close

from tensorswitch.models import KINDS, mlp
from tensorswitch.training import DivergedError, Learner, Rows, train
from tests.training.runs import digits, learner, naive, weights


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


def test_weights_that_explode_in_the_last_step_are_not_kept(tmp_path):
    rows, validation, _ = digits()
    ours = learner(lr=1e30, batch_size=300)  # one step, whose loss is still finite
    with pytest.raises(DivergedError, match="after epoch 1"):
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


def test_targets_of_one_axis_are_not_broadcast():
    x = torch.linspace(-1, 1, 64)[:, None]
    losses = []
    for y in (3 * x, 3 * x[:, 0]):
        torch.manual_seed(0)
        one = Learner(torch.nn.Linear(1, 1), loss="squared", lr=0.1, batch_size=16)
        for _ in range(20):
            one.epoch(Rows(x, y))
        losses.append(one.evaluate(Rows(x, y))[0])
    assert losses[0] == losses[1] < 0.1
    with pytest.raises(ValueError, match=r"targets have shape \(16,\), .* shape \(16, 2\)"):
        Learner(torch.nn.Linear(1, 2), loss="squared", batch_size=16).epoch(Rows(x, x[:, 0]))


def test_divergence_is_reported_for_any_module():
    class Crossed(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.late, self.early = torch.nn.Linear(3, 2), torch.nn.Linear(4, 3)

        def forward(self, x):
            return self.late(self.early(x)) * math.inf

    rows = Rows(torch.randn(8, 4), torch.zeros(8, dtype=torch.long))
    with pytest.raises(DivergedError, match="first appears in the loss"):
        Learner(Crossed()).epoch(rows)


def test_inputs_that_are_not_finite_are_named_without_advice_on_the_rate():
    rows = Rows(torch.full((8, 4), math.nan), torch.zeros(8, dtype=torch.long))
    with pytest.raises(DivergedError, match=r"the inputs contain NaN or infinity$"):
        Learner(torch.nn.Linear(4, 2)).epoch(rows)
