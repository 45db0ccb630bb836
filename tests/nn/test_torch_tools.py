"""Layers under the tools of the PyTorch ecosystem."""

import re

import pytest
import torch
from torch import nn
from torch._subclasses import FakeTensorMode
from torch.func import functional_call, grad, jacrev, vmap
from torch.testing import assert_close
from torch.utils.checkpoint import checkpoint

from tensorswitch import (
    CompressedSwitching,
    JointSwitching,
    SwitchedConv2d,
    SwitchedLinear,
    TensorSwitching,
)

LAYERS = {
    "linear": (lambda **kw: SwitchedLinear(6, 8, 4, gate_bias=True, **kw), (6,)),
    "conv": (lambda **kw: SwitchedConv2d(2, 8, 4, 3, padding=1, **kw), (2, 5, 6)),
    "pooled": (lambda **kw: SwitchedConv2d(2, 8, 4, 3, pool=2, gate_bias=True, **kw), (2, 6, 6)),
    "deep": (lambda **kw: TensorSwitching(6, (5, 3), 4, gate_bias=True, **kw), (6,)),
    "joint": (lambda **kw: moved(JointSwitching(nn.Linear(6, 8), nn.Linear(8, 4))), (6,)),
    "compressed": (
        lambda **kw: moved(CompressedSwitching(nn.Linear(6, 8), nn.Linear(8, 4), rank=3)),
        (6,),
    ),
}


def moved(layer):
    """Return a layer whose added term is not zero."""
    nn.init.normal_(layer.weight)
    return layer


@pytest.fixture(params=LAYERS)
def case(request):
    return LAYERS[request.param]


def everything(layer, run, x, error):
    """The output and all gradients."""
    x = x.clone().requires_grad_()
    y = run(x)
    inputs = [x, *(p for p in layer.parameters() if p.requires_grad)]
    return y, *torch.autograd.grad(y, inputs, error)


def assert_same(layer, run, x):
    error = torch.randn_like(layer(x))
    pairs = zip(everything(layer, run, x, error), everything(layer, layer, x, error), strict=True)
    for a, b in pairs:
        assert_close(a, b, rtol=1e-4, atol=1e-4)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_compiled_in_one_graph_with_any_batch(case):
    build, shape = case
    layer = build(learn_gates="ibp")
    torch._dynamo.reset()
    compiled = torch.compile(layer, backend="aot_eager", fullgraph=True, dynamic=True)
    for rows in (3, 9):
        assert_same(layer, compiled, torch.randn(rows, *shape))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize(("rows", "n", "opened"), [(128, 64, 0.5), (1024, 48, 0.9), (64, 32, 0.5)])
def test_compiled_where_each_strategy_is_chosen(rows, n, opened):
    layer = SwitchedLinear(n, n, n, gate_bias=True)
    with torch.no_grad():  # scores have a standard deviation of about one
        layer.gate_bias.fill_(torch.distributions.Normal(0.0, 1.0).icdf(torch.tensor(opened)))
    torch._dynamo.reset()
    compiled = torch.compile(layer, backend="aot_eager", fullgraph=True)
    assert_same(layer, compiled, torch.randn(rows, n))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("learn_gates", [None, "ibp"])
def test_inductor_equals_eager(case, learn_gates):
    build, shape = case
    layer = build(learn_gates=learn_gates)
    torch._dynamo.reset()
    # The batch becomes dynamic when it changes. With dynamic=True, height and width would be, too,
    # whose expressions for pooled windows Inductor fails to simplify (torch 2.13).
    compiled = torch.compile(layer, fullgraph=True)
    for rows in (3, 9, 5):
        assert_same(layer, compiled, torch.randn(rows, *shape))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("how", ["exported", "checkpointed"])
def test_inductor_may_write_the_gates_of_all_layers_into_one_buffer(how):
    torch.manual_seed(0)
    network = nn.Sequential(*(SwitchedLinear(64, 64, 64) for _ in range(3)))
    x = torch.randn(512, 64)

    def run(x):
        for layer in network:
            x = checkpoint(layer, x, use_reentrant=False)
        return x

    if how == "exported":
        exported = torch.export.export(network, (x,)).module()  # with gradients
        with torch.no_grad():
            assert_close(torch.compile(exported)(x), network(x))
    else:
        assert_same(network, torch.compile(run), x)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("fullgraph", [False, True])
@pytest.mark.parametrize(
    ("layer", "x", "message"),
    [
        (SwitchedLinear(4, 8, 3), torch.zeros(5, 6), "size 6 on axis 1 (in_features), expected 4"),
        (SwitchedLinear(4, 8, 3), torch.zeros(5, 4).long(), "must be a floating-point tensor"),
        (SwitchedConv2d(3, 8, 2, 3), torch.zeros(2, 4, 8, 8), "(in_channels), expected 3"),
        (TensorSwitching(4, (8, 4), 2), torch.zeros(5, 7), "size 7 on axis 1"),
    ],
)
def test_wrong_inputs_are_named_under_compile(layer, x, message, fullgraph):
    """With ``fullgraph``, the message is part of the compiler's own."""
    torch._dynamo.reset()
    with pytest.raises(Exception, match=re.escape(message)):
        torch.compile(layer, backend="eager", fullgraph=fullgraph)(x)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_exported_with_any_batch(case):
    build, shape = case
    layer = build()
    batch = torch.export.Dim("batch", min=1, max=1 << 20)
    program = torch.export.export(layer, (torch.randn(5, *shape),), dynamic_shapes=({0: batch},))
    for rows in (1, 8):
        x = torch.randn(rows, *shape)
        assert_close(program.module()(x), layer(x))


@pytest.mark.filterwarnings("ignore")  # torch deprecates its own tracer
@pytest.mark.parametrize("learn_gates", [None, "ibp"])
def test_traced(case, learn_gates):
    build, shape = case
    layer = build(learn_gates=learn_gates)
    x = torch.randn(5, *shape)
    traced = torch.jit.trace(layer, (x,))
    assert_close(traced(x + 1), layer(x + 1), rtol=1e-4, atol=1e-5)
    assert "tensorswitch::" not in str(traced.inlined_graph)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("pool", [None, 2])
def test_maxout_traced(pool):
    layer = SwitchedConv2d(2, 6, 3, 3, switch="maxout", pool=pool)
    x = torch.randn(5, 2, 8, 8)
    assert_close(torch.jit.trace(layer, (x,))(x + 1), layer(x + 1))


@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last])
def test_convolutions_keep_the_memory_format(memory_format):
    x = torch.randn(5, 3, 8, 8).to(memory_format=memory_format)
    assert SwitchedConv2d(3, 4, 6, 3)(x).stride() == nn.Conv2d(3, 6, 3)(x).stride()


@pytest.mark.parametrize("learn_gates", [None, "ibp"])
def test_per_sample_gradients(case, learn_gates):
    build, shape = case
    layer = build(learn_gates=learn_gates)
    trained = {name: p.detach() for name, p in layer.named_parameters() if p.requires_grad}
    x = torch.randn(4, *shape)
    loss = lambda p, row: functional_call(layer, p, (row[None],)).square().sum()  # noqa: E731
    found = vmap(grad(loss), (None, 0))(trained, x)
    for i, row in enumerate(x):
        layer.zero_grad()
        layer(row[None]).square().sum().backward()
        for name in trained:
            expected = layer.get_parameter(name).grad
            assert_close(found[name][i], expected, rtol=1e-4, atol=1e-5)


@pytest.mark.filterwarnings("ignore:.torch.jit.script:DeprecationWarning")
def test_the_jacobian_is_the_same_both_ways(case):
    build, shape = case
    layer, x = build(), torch.randn(2, *shape)
    assert_close(jacrev(layer)(x), torch.func.jacfwd(layer)(x), rtol=1e-4, atol=1e-5)


def test_checkpointed(case):
    build, shape = case
    layer = build(learn_gates="ibp")
    assert_same(layer, lambda x: checkpoint(layer, x, use_reentrant=False), torch.randn(7, *shape))


@pytest.mark.parametrize("name", ["linear", "conv", "pooled", "deep"])
def test_on_the_meta_device(name):
    build, shape = LAYERS[name]
    for learn_gates in (None, "ibp"):
        layer = build(learn_gates=learn_gates, device="meta")
        y = layer(torch.empty(3, *shape, device="meta", requires_grad=True))
        assert y.shape == build()(torch.randn(3, *shape)).shape
        y.sum().backward()
        assert layer.weight.grad.shape == layer.weight.shape


def test_pooled_under_a_fake_mode():
    with FakeTensorMode(allow_non_fake_inputs=True):
        y = SwitchedConv2d(2, 6, 3, 3, padding=1, pool=2)(torch.randn(5, 2, 8, 8))
    assert y.shape == (5, 3, 4, 4)
