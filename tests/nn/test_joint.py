import pytest
import torch
from torch import nn
from torch.testing import assert_close

from tensorswitch import CompressedSwitching, JointSwitching, switched_linear


def layer(inputs=5, gates=8, outputs=3):
    found = JointSwitching(nn.Linear(inputs, gates), nn.Linear(gates, outputs))
    nn.init.normal_(found.weight)
    return found.double()


@pytest.mark.parametrize("lead", [(), (4,), (2, 3)])
def test_it_is_a_relu_layer_plus_a_ts_layer_with_the_same_gates(lead):
    joint = layer()
    x = torch.randn(*lead, 5, dtype=torch.float64)
    gates = (joint.hidden(x) > 0).reshape(-1, 8)
    copies = switched_linear(x.reshape(-1, 5), gates, joint.weight) / 40**0.5
    relu = joint.output(joint.hidden(x).relu())
    assert_close(joint(x), relu + copies.view(*lead, 3))


def test_gates_learn_as_those_of_the_relu_layer():
    joint = layer()
    x, error = torch.randn(6, 5, dtype=torch.float64), torch.randn(6, 3, dtype=torch.float64)
    names = ["hidden.weight", "hidden.bias", "output.weight", "output.bias"]
    parameters = [joint.get_parameter(name) for name in names]
    found = torch.autograd.grad(joint(x), parameters, error)
    relu = torch.autograd.grad(joint.output(joint.hidden(x).relu()), parameters, error)
    for a, b in zip(found, relu, strict=True):
        assert_close(a, b)


def test_it_starts_as_the_relu_layer_and_can_be_reset():
    joint = layer()
    x = torch.randn(4, 5, dtype=torch.float64)
    relu = joint.output(joint.hidden(x).relu())
    assert not torch.equal(joint(x), relu)
    joint.reset_parameters()
    assert torch.equal(joint(x), relu)


@pytest.mark.parametrize("build", [JointSwitching, CompressedSwitching])
def test_layers_that_do_not_fit_are_named(build):
    with pytest.raises(ValueError, match=r"8.*7|7.*8"):
        build(nn.Linear(5, 8), nn.Linear(7, 3))
    with pytest.raises(ValueError, match=r"\(in_features\), expected 5"):
        build(nn.Linear(5, 8), nn.Linear(8, 4))(torch.randn(2, 6))
    with pytest.raises(TypeError, match=r"output must be a torch.nn.Linear, got ReLU"):
        build(nn.Linear(5, 8), nn.ReLU())
