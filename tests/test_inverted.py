import itertools

import pytest
import torch
from torch.testing import assert_close

from tensorswitch import SwitchedLinear, algebra
from tensorswitch.inverted import with_pseudo_gradients
from tensorswitch.switched import switched_linear
from tensorswitch.switches import combine_gates


def deep_network(sizes, out=3, rows=9):
    x = torch.randn(rows, sizes[0], dtype=torch.float64)
    gate_weights = [
        torch.randn(n, below, dtype=torch.float64, requires_grad=True)
        for below, n in itertools.pairwise(sizes)
    ]
    return x, gate_weights, torch.randn(*sizes[::-1], out, dtype=torch.float64)


def readout(x, gate_weights, weight):
    """A deep TS network with its gates open to inverted backpropagation."""
    activities = algebra.scalar_switching(x, [w.detach() for w in gate_weights])
    scores = [activity @ w.T for activity, w in zip(activities, gate_weights, strict=False)]
    gates = [s > 0 for s in scores]
    y = switched_linear(x, combine_gates(gates), weight.flatten(0, -3))
    return with_pseudo_gradients(y, scores, gates, weight, gate_weights)


@pytest.mark.parametrize("sizes", [(5, 4), (5, 4, 3), (5, 4, 3, 2)])
def test_factorised_equals_the_expanded_errors(sizes):
    x, gate_weights, weight = deep_network(sizes)
    y = readout(x, gate_weights, weight)
    delta = torch.randn_like(y)
    y.backward(delta)
    error = torch.einsum("bm,...m->b...", delta, weight)
    expected = algebra.pseudo_gradients(x, [w.detach() for w in gate_weights], error)
    for w, grad in zip(gate_weights, expected, strict=True):
        assert_close(w.grad, grad)


def test_the_value_is_untouched_and_its_gradient_passes():
    x, gate_weights, weight = deep_network((5, 4))
    weight.requires_grad_()
    y = readout(x, gate_weights, weight)
    plain = switched_linear(x, x @ gate_weights[0].T > 0, weight)
    assert torch.equal(y, plain)
    delta = torch.randn_like(y)
    assert_close(
        torch.autograd.grad(y, weight, delta)[0], torch.autograd.grad(plain, weight, delta)[0]
    )


@pytest.mark.parametrize("scale", [0.0, 1e-200])
def test_a_gate_of_zero_length_gets_a_zero_pseudo_gradient(scale):
    x, gate_weights, weight = deep_network((5, 4, 3))
    with torch.no_grad():
        gate_weights[0][1] *= scale
        gate_weights[1][2] *= scale
    readout(x, gate_weights, weight).sum().backward()
    error = weight.sum(-1).expand(len(x), *weight.shape[:-1])
    expected = algebra.pseudo_gradients(x, [w.detach() for w in gate_weights], error)
    for w, row, other in zip(gate_weights, (1, 2), expected, strict=True):
        assert (w.grad[row] == 0).all()
        assert_close(w.grad, other)


@pytest.mark.parametrize(("dtype", "scale"), [(torch.float32, 1e-20), (torch.float16, 1e-3)])
def test_small_gate_weights_leave_the_value_alone(dtype, scale):
    layer = SwitchedLinear(4, 8, 3, learn_gates="ibp", gate_bias=True, dtype=dtype)
    with torch.no_grad():
        layer.gate_weight[0] *= scale
    x = torch.randn(5, 4).to(dtype)
    y = layer(x)
    with torch.no_grad():
        assert torch.equal(y, layer(x))
    y.sum().backward()
    assert layer.gate_weight.grad.isfinite().all()


def test_combined_gates_are_open_chains_newest_layer_first():
    gates = [torch.rand(4, n) < 0.5 for n in (2, 3, 5)]
    combined = combine_gates(gates).view(4, 5, 3, 2)
    for b, k, j, i in itertools.product(range(4), range(5), range(3), range(2)):
        assert combined[b, k, j, i] == (gates[0][b, i] & gates[1][b, j] & gates[2][b, k])
