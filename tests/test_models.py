import resource

import numpy as np
import pytest
import torch
from torch import nn
from torch.testing import assert_close

from tensorswitch import SwitchedConv2d, SwitchedLinear, TensorSwitching
from tensorswitch.models import KINDS, Network, cnn, load_model, mlp, save_model
from tensorswitch.persistence import load_with_notes, save, saved_as


def kinds_of(network):
    return [type(layer).__name__ for layer in network if not isinstance(layer, nn.ReLU)]


@pytest.mark.parametrize(
    ("kind", "depth", "expected"),
    [
        ("ss", 2, ["Linear", "Linear", "Linear"]),
        ("ts-lrc", 2, ["SwitchedLinear", "SwitchedLinear"]),
        ("ts-ibp-lrc", 1, ["SwitchedLinear"]),
        ("ts-ibp", 3, ["TensorSwitching"]),
    ],
)
def test_fully_connected_networks_are_the_papers(kind, depth, expected):
    network = mlp(5, 3, kind=kind, depth=depth, width=4)
    assert kinds_of(network) == expected
    assert network(torch.randn(7, 5)).shape == (7, 3)
    assert not [name for name, _ in network.named_parameters() if name.endswith("bias")]
    gates = [p for name, p in network.named_parameters() if "gate_weight" in name]
    assert all(p.requires_grad == kind.startswith("ts-ibp") for p in gates)


def test_some_layers_may_be_ts():
    network = mlp(5, 3, kind="ts-lrc", depth=3, width=(6, 7, 8), ts_layers=[2])
    assert kinds_of(network) == ["Linear", "SwitchedLinear", "Linear", "Linear"]
    assert network(torch.randn(2, 5)).shape == (2, 3)
    assert kinds_of(mlp(5, 3, kind="ts-lrc", depth=2, width=4, ts_layers=[2])) == [
        "Linear",
        "SwitchedLinear",
    ]


@pytest.mark.parametrize("kind", KINDS)
def test_convolutional_networks(kind):
    network = cnn(3, (8, 12), 10, kind=kind, convolutions=2, channels=(4, 5), depth=2, width=6)
    assert network(torch.randn(2, 3, 8, 12)).shape == (2, 10)
    assert sum(isinstance(layer, nn.Conv2d) for layer in network) == 4
    assert sum(isinstance(layer, nn.MaxPool2d) for layer in network) == 2
    assert sum(isinstance(layer, SwitchedLinear) for layer in network) == (
        2 if kind.endswith("lrc") else 0
    )
    assert sum(isinstance(layer, TensorSwitching) for layer in network) == (kind == "ts-ibp")


def test_pooling_before_the_relu_is_pooling_after_it():
    torch.manual_seed(0)
    network = cnn(3, 8, 10, kind="ss", convolutions=2, channels=(4, 5), width=6)
    layers = list(network)
    for i in (layer for layer, module in enumerate(network) if isinstance(module, nn.MaxPool2d)):
        layers[i : i + 2] = layers[i + 1], layers[i]
    images = torch.randn(9, 3, 8, 8)
    found, expected = network(images), nn.Sequential(*layers)(images)
    assert torch.equal(found, expected)
    gradients = [
        torch.autograd.grad(y.square().sum(), list(network.parameters())) for y in (found, expected)
    ]
    assert all(map(torch.equal, *gradients))


def test_blocks_may_be_ts_convolutions():
    network = cnn(
        1, 8, 10, kind="ts-ibp-lrc", convolutions=2, channels=(4, 5), width=6, ts_blocks=[2]
    )
    assert sum(isinstance(layer, SwitchedConv2d) for layer in network) == 1
    network(torch.randn(2, 1, 8, 8)).sum().backward()
    assert all(p.grad is not None for p in network.parameters())


@pytest.mark.parametrize(
    "network",
    [
        mlp(5, 3, kind="ts-ibp", depth=2, width=4),
        mlp(5, 3, kind="ss", depth=1, width=4, bias=True),
        mlp(5, 3, kind="ts-lrc", depth=3, width=4, ts_layers=[3]),
        cnn(1, 8, 3, channels=(4,), width=6, ts_blocks=[1]),
    ],
)
def test_saved_and_loaded_it_computes_the_same(network, tmp_path):
    path = tmp_path / "model.safetensors"
    save_model(network, path, mean=torch.ones(5), classes=["a", "b", "c"])
    loaded, notes = load_with_notes(path, Network)
    x = (
        torch.randn(4, 1, 8, 8)
        if network.description["architecture"] == "cnn"
        else torch.randn(4, 5)
    )
    assert loaded.description == network.description
    assert notes["classes"] == ["a", "b", "c"]
    assert torch.equal(notes["mean"], torch.ones(5))
    assert_close(loaded(x), network(x))
    assert [p.name for p in tmp_path.iterdir()] == ["model.safetensors"]


@saved_as("netwerk")
class Disguised:
    """What a stranger may write: the weights of a network with another description."""

    def __init__(self, network, change):
        self.network, self.change = network, change

    def state(self):
        state = self.network.state()
        return {**state, "description": {**state["description"], **self.change}}

    @classmethod
    def from_state(cls, state):
        raise AssertionError


def rename_kind(path):
    content = path.read_bytes()
    assert content.count(b"netwerk") == 1
    path.write_bytes(content.replace(b"netwerk", b"network"))


def test_a_broken_file_is_named(tmp_path):
    path = tmp_path / "model.safetensors"
    with pytest.raises(FileNotFoundError, match=r"model\.safetensors does not exist"):
        load_model(path)
    network = mlp(5, 3, width=4)
    save_model(network, path)
    path.write_bytes(path.read_bytes()[:-10])
    with pytest.raises(ValueError, match=r"model\.safetensors is damaged or not a safetensors"):
        load_model(path)
    save(Disguised(network, {"depth": 1, "width": [4], "ts_layers": [1]}), path)
    rename_kind(path)
    with pytest.raises(
        ValueError, match=r"model\.safetensors cannot be read: the weights are not those of"
    ):
        load_model(path)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: mlp(5, 3, kind="relu"), "kind must be one of 'ss', 'ts-lrc'"),
        (lambda: mlp(5, 3, depth=0), "depth must be a positive integer"),
        (lambda: mlp(5, 3, depth=2, width=[4]), "width has 1 numbers for 2 layers"),
        (lambda: mlp(0, 3), "in_features must be a positive integer"),
        (
            lambda: mlp(5, 3, depth=2, ts_layers=[3]),
            r"ts_layers \[3\] are not among the layers 1 to 2",
        ),
        (lambda: mlp(5, 3, kind="ts-ibp", depth=2, ts_layers=[1]), "has TS layers only"),
        (lambda: cnn(3, 4, 10), "images of 4 × 4 are too small to be halved 3 times"),
        (lambda: cnn(3, 8, 10, ts_blocks=[4]), r"ts_blocks \[4\] are not among the blocks 1 to 3"),
    ],
)
def test_wrong_arguments_are_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_numpy_sizes_and_double_precision_survive_a_file(tmp_path):
    network = mlp(
        np.int64(5), np.int32(3), kind="ts-lrc", depth=np.int64(2), width=np.int64(4)
    ).double()
    save_model(network, tmp_path / "m.safetensors")
    again = load_model(tmp_path / "m.safetensors")
    x = torch.randn(7, 5, dtype=torch.float64)
    assert torch.equal(again(x), network(x))


def test_blocks_of_different_lengths():
    for repeats in (2, (2, 2), (1, 3)):
        network = cnn(1, 8, 10, convolutions=repeats, channels=(4, 4), width=8)
        assert sum(isinstance(m, nn.Conv2d) for m in network.modules()) == 4
    with pytest.raises(ValueError, match="convolutions has 3 numbers for 2 blocks"):
        cnn(1, 8, 10, convolutions=(1, 1, 1), channels=(4, 4))
    with pytest.raises(ValueError, match="size has 1 numbers for 2 axes, height and width"):
        cnn(1, (32,), 10)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda network: network.append(nn.ReLU()), "was changed after it was built"),
        (lambda network: network.append(nn.Linear(3, 3)), "was changed after it was built"),
        (lambda network: network[:1], "no description of how it was built; save its state_dict"),
        (lambda network: nn.Linear(2, 3), "only networks of mlp or cnn can be saved, got .*Linear"),
    ],
)
def test_networks_that_would_be_read_as_others_are_not_written(tmp_path, change, message):
    network = change(mlp(4, 3, kind="ts-lrc", depth=2, width=8))
    with pytest.raises((ValueError, TypeError), match=message):
        save_model(network, tmp_path / "m")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "change",
    [
        {"width": [100_000_000], "depth": 1},
        {"width": 8, "depth": 10**9},
        {"in_features": 10**12},
        {"width": [10**30], "depth": 1},
        {"architecture": "rnn"},
    ],
)
def test_a_crafted_description_is_refused_before_anything_is_allocated(
    tmp_path, change, monkeypatch
):
    network = mlp(4, 3, kind="ts-lrc", depth=1, width=8)
    save(Disguised(network, change), tmp_path / "m")
    rename_kind(tmp_path / "m")
    # Or the machine would refuse.
    monkeypatch.setattr("tensorswitch._memory.available_memory", lambda: 2.0**60)
    start = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(ValueError, match="cannot be read: the weights are not those of"):
        load_model(tmp_path / "m")
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - start < 200_000  # kilobytes


@pytest.mark.parametrize(
    ("build", "error", "message"),
    [
        (
            lambda: mlp(64, 10, width=10**7, depth=2),
            MemoryError,
            "depth 2, width 10000000 has 7.5e.15 weights, .* GB of memory are available",
        ),
        (lambda: cnn(1, 32, 10, channels=(32, 10**7)), MemoryError, "GB of memory are available"),
        (
            lambda: mlp(4, 3, width=2, depth=99_999_999),
            ValueError,
            "depth must be at most 10,000 in all, got 99,999,999",
        ),
        (
            lambda: cnn(1, 32, 10, convolutions=10**9),
            ValueError,
            "convolutions must be at most 10,000",
        ),
    ],
)
def test_networks_that_do_not_fit_are_refused_at_once(build, error, message):
    with pytest.raises(error, match=message):
        build()
