import copy

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.testing import assert_close

from tensorswitch import CompressedSwitching, SwitchedConv2d, SwitchedLinear, convert


class Functional(nn.Module):
    """The same layers, called as functions."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Conv2d(2, 4, 3), nn.Conv2d(4, 3, 3, stride=2, padding=1)
        self.last = nn.Linear(3 * 3 * 3, 5)

    def forward(self, x):
        x = self.second(F.relu(self.first(x))).relu()
        return self.last(torch.flatten(x, 1))


class Tied(nn.Module):
    """An autoencoder whose last weights are those of the first layer."""

    def __init__(self):
        super().__init__()
        self.encoder, self.middle = nn.Linear(5, 7), nn.Linear(7, 7)

    def forward(self, x):
        code = self.middle(torch.relu(self.encoder(x)))
        return nn.functional.linear(code, self.encoder.weight.t())


class TiedModules(nn.Module):
    """An autoencoder of two modules that have the same weights."""

    def __init__(self):
        super().__init__()
        self.encoder, self.middle, self.other = nn.Linear(4, 8), nn.Linear(8, 4), nn.Linear(4, 8)
        self.other.weight = self.encoder.weight

    def forward(self, x):
        return self.other(self.middle(torch.relu(self.encoder(x))))


class Viewed(nn.Module):
    """Convolutions whose output is flattened by ``view``, which needs contiguous numbers."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Conv2d(3, 6, 3), nn.Conv2d(6, 8, 3)
        self.last = nn.Linear(8 * 2 * 2, 5)

    def forward(self, x):
        x = F.max_pool2d(torch.relu(self.second(torch.relu(self.first(x)))), 3)
        return self.last(x.view(-1, 8 * 2 * 2))


def hooked(layer):
    """Return a network one of whose layers has a hook that changes its output."""
    network = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
    network[layer].register_forward_hook(lambda module, inputs, output: 2 * output)
    return network


NETWORKS = {
    "view": (Viewed, (3, 10, 10), [nn.Sequential]),
    "mlp": (
        lambda: nn.Sequential(
            nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 7), nn.ReLU(), nn.Linear(7, 3)
        ),
        (6,),
        [SwitchedLinear],
    ),
    "batch norm and dropout": (
        lambda: nn.Sequential(
            nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.3), nn.Linear(8, 3)
        ),
        (6,),
        [SwitchedLinear],
    ),
    "1×1 readout": (
        lambda: nn.Sequential(nn.Conv2d(2, 5, 3, padding=1), nn.ReLU(), nn.Conv2d(5, 3, 1)),
        (2, 7, 6),
        [SwitchedConv2d],
    ),
    "pooled": (
        lambda: nn.Sequential(
            nn.Conv2d(2, 5, 3, bias=False),
            nn.BatchNorm2d(5),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(2),
            nn.Conv2d(5, 3, 3, padding=1),
        ),
        (2, 10, 9),
        [SwitchedConv2d],
    ),
    "flattened": (
        lambda: nn.Sequential(
            nn.Conv2d(2, 5, 3),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Dropout(0.2),
            nn.Flatten(),
            nn.Linear(5 * 4 * 3, 4),
        ),
        (2, 10, 8),
        ["SwitchedReadout2d"],
    ),
    "norm without scale": (
        lambda: nn.Sequential(
            nn.Linear(6, 8), nn.BatchNorm1d(8, affine=False), nn.ReLU(), nn.Linear(8, 3)
        ),
        (6,),
        [SwitchedLinear],
    ),
    "functional": (Functional, (2, 8, 8), [SwitchedConv2d]),
}


def trained(build):
    """A network with statistics and biases that are not those of a new one."""
    network = build()
    for layer in network.modules():
        if isinstance(layer, nn.BatchNorm1d | nn.BatchNorm2d):
            nn.init.normal_(layer.running_mean)
            nn.init.uniform_(layer.running_var, 0.5, 2)
            for scale in layer.parameters():
                nn.init.normal_(scale)
    return network.eval()


@pytest.mark.parametrize("name", NETWORKS)
def test_the_converted_network_computes_the_same(name):
    build, shape, kinds = NETWORKS[name]
    network = trained(build)
    before = copy.deepcopy(network.state_dict())
    converted = convert(network)
    found = [n for layer in converted.modules() for n in (type(layer), type(layer).__name__)]
    assert all(kind in found for kind in kinds)
    x = torch.randn(4, *shape, requires_grad=True)
    expected, y = network(x), converted(x)
    assert_close(y, expected, rtol=1e-5, atol=1e-5)
    error = torch.randn_like(y)
    grads = [torch.autograd.grad(out, x, error)[0] for out in (y, expected)]
    assert_close(*grads, rtol=1e-4, atol=1e-5)
    for key, value in network.state_dict().items():
        assert torch.equal(value, before[key])


def test_only_the_named_layers_are_converted():
    network = trained(NETWORKS["mlp"][0])
    converted = convert(network, ["2"])
    assert [type(layer) for layer in converted.children()] == [nn.Linear, nn.ReLU, SwitchedLinear]
    x = torch.randn(4, 6)
    assert_close(converted(x), network(x), rtol=1e-5, atol=1e-5)


def test_a_compressed_network_starts_as_the_network_and_learns():
    network = trained(NETWORKS["mlp"][0])
    converted = convert(network, rank=3)
    x = torch.randn(4, 6)
    assert_close(converted(x), network(x))
    (layer,) = (m for m in converted.modules() if isinstance(m, CompressedSwitching))
    assert layer.weight.shape == (8, 3, 3)
    converted(x).square().sum().backward()
    assert (layer.weight.grad != 0).any()
    slow = layer.hidden(x) > 0
    with torch.no_grad():
        nn.init.normal_(layer.weight)
        terms = torch.einsum("bj,jio,bi->bo", slow.float(), layer.weight, x @ layer.reduce.T)
        expected = layer.output(layer.hidden(x).relu()) + terms @ layer.spread.T
        assert_close(layer(x), expected, rtol=1e-4, atol=1e-5)


def test_dropout_of_units_is_dropout_of_gates():
    torch.manual_seed(1)
    hidden, output = nn.Linear(6, 500), nn.Linear(500, 3)
    layer = SwitchedLinear.from_relu(hidden, output, dropout=0.5)
    x = torch.randn(1, 6)
    exact = output(hidden(x).relu())
    assert_close(layer.eval()(x), exact, rtol=1e-4, atol=1e-5)
    samples = torch.stack([layer.train()(x) for _ in range(400)]).detach()
    units = hidden(x).relu()
    twins = torch.stack([output(F.dropout(units, 0.5)) for _ in range(400)]).detach()
    assert_close(samples.mean(0), exact, rtol=0, atol=4 * twins.std().item() / 400**0.5)
    assert 0.85 < samples.std(0).norm() / twins.std(0).norm() < 1.15


@pytest.mark.parametrize(
    ("network", "layers", "message"),
    [
        (nn.Sequential(nn.Linear(3, 2)), None, "no layer that can be converted: '0'"),
        (nn.Sequential(nn.Tanh()), None, "it has no Linear or Conv2d layers"),
        (nn.Sequential(nn.Linear(3, 2), nn.ReLU(), nn.Linear(2, 1)), ["1"], "it is a ReLU"),
        (
            nn.Sequential(nn.Linear(3, 2), nn.ReLU(), nn.Linear(2, 1)),
            ["5"],
            "no layer of this name",
        ),
        (
            nn.Sequential(nn.Linear(3, 2), nn.Tanh(), nn.Linear(2, 1)),
            ["0"],
            "layer '0' cannot be converted: it is followed by Tanh",
        ),
        (nn.Sequential(nn.Linear(3, 2), nn.Linear(2, 1)), ["0"], "no ReLU between it and '1'"),
        (
            nn.Sequential(nn.Conv2d(4, 2, 3, groups=2), nn.ReLU(), nn.Conv2d(2, 1, 1)),
            ["0"],
            "it has groups=2",
        ),
        (
            nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU(), nn.MaxPool2d(3, 2), nn.Conv2d(2, 1, 1)),
            ["0"],
            "max pooling must have a stride equal to its kernel size",
        ),
        (
            nn.Sequential(nn.Linear(3, 2), nn.ReLU(), nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 1)),
            ["0", "2"],
            "'2' is already part of another converted layer",
        ),
        (
            nn.Sequential(nn.Linear(3, 2), nn.ReLU(), nn.Dropout(1.0), nn.Linear(2, 1)),
            None,
            "'0': '2' drops all units",
        ),
        (Tied(), None, "'encoder': 'encoder.weight' is also used outside of its layer"),
        (TiedModules(), None, "'encoder': 'encoder.weight' is also used by 'other'"),
        (hooked(0), None, "'0': '0' has forward hooks"),
        (hooked(1), None, "'0': '1' has forward hooks"),
        (nn.Sequential(nn.Linear(3, 2), nn.ReLU(), nn.Linear(2, 1)), [], "layers is empty"),
    ],
)
def test_what_cannot_be_converted_is_refused_with_a_reason(network, layers, message):
    with pytest.raises(ValueError, match=message):
        convert(network, layers)


def test_one_layer_may_be_named():
    network = nn.Sequential(nn.Linear(3, 2), nn.ReLU(), nn.Linear(2, 1))
    assert isinstance(convert(network, "0").get_submodule("0"), SwitchedLinear)


def test_flatten_with_keywords():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv, self.last = nn.Conv2d(1, 2, 3), nn.Linear(2 * 4, 3)

        def forward(self, x):
            return self.last(torch.flatten(torch.relu(self.conv(x)), start_dim=1))

    network, x = Net(), torch.randn(2, 1, 4, 4)
    assert_close(convert(network)(x), network(x))


def test_weights_are_not_drawn_before_they_are_copied():
    hidden, output = nn.Linear(4, 8), nn.Linear(8, 3)
    state = torch.get_rng_state()
    SwitchedLinear.from_relu(hidden, output)
    assert torch.equal(torch.get_rng_state(), state)


def test_layers_that_do_not_fit_in_memory_are_named(monkeypatch):
    monkeypatch.setattr("tensorswitch._memory.available_memory", lambda: 2.0**20)
    network = nn.Sequential(nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 128))
    with pytest.raises(MemoryError, match=r"has 2\.1e\+06 weights, 0\.00781 GB, but .* low rank"):
        convert(network)
    convert(network, rank=2)


def test_a_norm_above_the_pooling_is_not_fused_below_it():
    """With a negative scale, the maximum of the normalised pixels is another one."""
    norm = nn.BatchNorm2d(3)
    with torch.no_grad():
        norm.weight.copy_(torch.tensor([-1.0, 1.0, -2.0]))
    layers = nn.Conv2d(1, 3, 3), nn.MaxPool2d(2), norm, nn.ReLU(), nn.Conv2d(3, 2, 1)
    network = nn.Sequential(*layers, nn.ReLU(), nn.Flatten(), nn.Linear(18, 2)).eval()
    with pytest.raises(ValueError, match="it is followed by BatchNorm2d, which cannot stand"):
        convert(network, layers=["0"])
    x = torch.randn(5, 1, 8, 8)
    assert_close(convert(network)(x), network(x))


def test_layers_that_are_refused_keep_their_mode():
    pair = [nn.Linear(4, 5), nn.BatchNorm1d(5), nn.ReLU(), nn.Dropout(0.5), nn.Linear(5, 4)]
    network = nn.Sequential(*pair, nn.ReLU(), nn.Linear(4, 2)).train()
    converted = convert(network, rank=2)  # the first has dropout, which a compressed layer has not
    assert converted.get_submodule("0").training
    assert converted.get_submodule("1").training


def test_layers_too_narrow_for_the_rank_are_left_as_they_are():
    widths = [nn.Linear(20, 16), nn.ReLU(), nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 2)]
    network, x = nn.Sequential(*widths), torch.randn(3, 20)
    assert isinstance(convert(network, rank=4).get_submodule("0"), CompressedSwitching)
    with pytest.raises(ValueError, match="layer '2' cannot be converted: rank must be at most 2"):
        convert(network, ["2"], rank=4)
    assert_close(convert(network, rank=4)(x), network(x))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_compressed_layers_of_any_type(dtype):
    network = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 4)).to(dtype)
    layer = convert(network, rank=2).get_submodule("0")
    assert layer.reduce.dtype == dtype
    assert_close(layer.reduce.float() @ layer.reduce.float().t(), torch.eye(2), atol=0.02, rtol=0)


def test_converted_convolutions_take_no_images_and_single_ones():
    readout = nn.Sequential(
        nn.Conv2d(1, 4, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(36, 3)
    )
    above = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Conv2d(4, 3, 3))
    nothing, image = torch.randn(0, 1, 8, 8), torch.randn(1, 8, 8)
    for network in (readout, above):
        assert convert(network)(nothing).shape == network(nothing).shape
    assert_close(convert(above)(image), above(image))
