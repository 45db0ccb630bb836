import copy
import itertools
import pickle

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.testing import assert_close

from tensorswitch import SwitchedConv2d, SwitchedLinear, TensorSwitching, algebra
from tensorswitch.switches import Maxout

LAYERS = {
    "linear": (lambda **kw: SwitchedLinear(6, 8, 4, **kw), (6,), (4,)),
    "maxout": (lambda **kw: SwitchedLinear(6, 8, 4, switch="maxout", **kw), (6,), (4,)),
    "conv": (lambda **kw: SwitchedConv2d(2, 8, 4, 3, padding=1, **kw), (2, 6, 7), (4, 6, 7)),
    "pooled": (lambda **kw: SwitchedConv2d(2, 8, 4, 3, pool=2, **kw), (2, 8, 7), (4, 3, 2)),
    "deep": (lambda **kw: TensorSwitching(6, (5, 3), 4, **kw), (6,), (4,)),
    "biased": (lambda **kw: SwitchedLinear(6, 8, 4, gate_bias=True, **kw), (6,), (4,)),
    "biased pooled": (
        lambda **kw: SwitchedConv2d(2, 8, 4, 3, pool=2, gate_bias=True, **kw),
        (2, 8, 7),
        (4, 3, 2),
    ),
    "biased deep": (lambda **kw: TensorSwitching(6, (5, 3), 4, gate_bias=True, **kw), (6,), (4,)),
    "deep maxout": (lambda **kw: TensorSwitching(6, (6, 4), 4, switch=Maxout(2), **kw), (6,), (4,)),
}


@pytest.fixture(params=LAYERS)
def case(request):
    return LAYERS[request.param]


@pytest.mark.parametrize("learn_gates", [None, "ibp"])
@pytest.mark.parametrize("lead", [(), (5,), (2, 3), (0,)])
def test_any_leading_dimensions(case, lead, learn_gates):
    build, in_shape, out_shape = case
    layer = build(learn_gates=learn_gates)
    x = torch.randn(*lead, *in_shape)
    y = layer(x)
    assert y.shape == (*lead, *out_shape)
    y.sum().backward()
    if 0 not in lead:
        folded = layer(x.reshape(-1, *in_shape))
        assert_close(y.reshape(folded.shape), folded)


@pytest.mark.parametrize("learn_gates", [None, "ibp"])
def test_torch_conventions(case, learn_gates):
    build, in_shape, _ = case
    layer = build(learn_gates=learn_gates)
    x = torch.randn(3, *in_shape)
    y = layer(x)
    other = build(learn_gates=learn_gates)
    assert not torch.allclose(other(x), y)
    other.load_state_dict(layer.state_dict())
    for twin in (other, copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))):
        assert torch.equal(twin(x), y)
    double = copy.deepcopy(layer).to(torch.float64)
    assert_close(double(x.double()).float(), y, rtol=1e-4, atol=1e-5)
    assert build(dtype=torch.float64).weight.dtype == torch.float64
    assert build(device="meta").weight.device.type == "meta"
    assert f"learn_gates={learn_gates!r}" in repr(layer)
    assert build(bias=False).bias is None
    layer.reset_parameters()
    assert not torch.equal(layer(x), y)


def test_fixed_gates_have_no_gradient_and_no_decay(case):
    build, in_shape, _ = case
    layer = build()
    before = {name: p.clone() for name, p in layer.named_parameters()}
    optimiser = torch.optim.SGD(layer.parameters(), lr=0.1, weight_decay=0.1)
    layer(torch.randn(9, *in_shape)).square().sum().backward()
    optimiser.step()
    for name, p in layer.named_parameters():
        assert torch.equal(p, before[name]) == name.startswith("gate_")


def test_ibp_trains_the_gates_with_any_optimiser(case):
    build, in_shape, _ = case
    layer = build(learn_gates="ibp")
    before = copy.deepcopy(layer.state_dict())
    optimiser = torch.optim.Adam(layer.parameters())
    layer(torch.randn(9, *in_shape)).square().sum().backward()
    optimiser.step()
    for name, p in layer.state_dict().items():
        assert not torch.equal(p, before[name])


def test_gradients_reach_the_previous_layer_through_the_copies_only(case):
    build, in_shape, _ = case
    fixed, learned = build(dtype=torch.float64), build(dtype=torch.float64, learn_gates="ibp")
    learned.load_state_dict(fixed.state_dict())
    x = torch.randn(4, *in_shape, dtype=torch.float64, requires_grad=True)
    error = torch.randn_like(fixed(x))
    expected = torch.autograd.grad(fixed(x), x, error)[0]
    assert torch.equal(torch.autograd.grad(learned(x), x, error)[0], expected)
    # A step too small to flip a gate changes the output just as this gradient says.
    step = 1e-7 * torch.randn_like(x)
    assert_close(
        ((fixed(x + step) - fixed(x)) * error).sum(), (step * expected).sum(), rtol=1e-5, atol=1e-12
    )


@pytest.mark.usefixtures("bfloat16")
@pytest.mark.parametrize("learn_gates", [None, "ibp"])
def test_autocast(case, learn_gates):
    build, in_shape, _ = case
    layer = build(learn_gates=learn_gates)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = layer(torch.randn(5, *in_shape))
    y.float().sum().backward()
    assert y.dtype == torch.bfloat16
    assert all(p.grad.dtype == torch.float32 for p in layer.parameters() if p.requires_grad)


@pytest.mark.parametrize("learn_gates", [None, "ibp"])
@pytest.mark.parametrize("bias", [True, False])
def test_what_comes_next_may_work_in_place(case, learn_gates, bias):
    build, in_shape, _ = case
    model = nn.Sequential(build(learn_gates=learn_gates, bias=bias), nn.ReLU(inplace=True))
    x = torch.randn(3, *in_shape)
    model(x).sum().backward()
    grad = model[0].weight.grad.clone()
    model.zero_grad()
    model[0](x).relu().sum().backward()
    assert torch.equal(model[0].weight.grad, grad)


def test_gates_of_single_layers_may_be_frozen():
    network = TensorSwitching(6, (5, 3), 4, learn_gates="ibp")
    network.gate_weights[0].requires_grad_(False)
    network(torch.randn(9, 6)).square().sum().backward()
    assert network.gate_weights[0].grad is None
    assert (network.gate_weights[1].grad != 0).any()


def test_no_graph_is_kept_without_gradients(case):
    build, in_shape, _ = case
    with torch.no_grad():
        assert build(learn_gates="ibp")(torch.randn(2, *in_shape)).grad_fn is None


def test_linear_is_expansion_flattened_and_projected():
    layer = SwitchedLinear(6, 8, 4)
    x = torch.randn(10, 6)
    z = algebra.expand(x, layer.gate_weight)
    assert_close(layer(x), z.flatten(1) @ layer.weight.flatten(0, 1) + layer.bias)


def test_deep_is_the_readout_of_the_deep_tensor():
    network = TensorSwitching(6, (5, 4, 3), 2)
    x = torch.randn(10, 6)
    z = algebra.tensor_switching(x, list(network.gate_weights))[-1]
    assert_close(network(x), z.flatten(1) @ network.weight.flatten(0, -2) + network.bias)


def test_one_deep_layer_is_the_linear_layer():
    deep, flat = (
        TensorSwitching(6, (5,), 2, learn_gates="ibp"),
        SwitchedLinear(6, 5, 2, learn_gates="ibp"),
    )
    flat.load_state_dict(
        {
            key.replace("gate_weights.0", "gate_weight"): value
            for key, value in deep.state_dict().items()
        }
    )
    x = torch.randn(7, 6)
    assert_close(deep(x), flat(x))
    for layer in (deep, flat):
        layer(x).square().sum().backward()
    assert_close(deep.gate_weights[0].grad, flat.gate_weight.grad)


@pytest.mark.parametrize(("stride", "padding"), [(1, 0), (2, 1), ((1, 2), (0, 1))])
def test_convolution_is_the_linear_layer_on_patches(stride, padding):
    conv = SwitchedConv2d(2, 5, 3, (3, 2), stride, padding, learn_gates="ibp")
    flat = SwitchedLinear(12, 5, 3, learn_gates="ibp")
    with torch.no_grad():
        flat.gate_weight.copy_(conv.gate_weight.flatten(1))
        flat.weight.copy_(conv.weight.flatten(1, 3))
    x = torch.randn(4, 2, 7, 6)
    patches = F.unfold(x, (3, 2), stride=stride, padding=padding).transpose(1, 2)
    y = conv(x)
    assert_close(y.flatten(2).transpose(1, 2), flat(patches))
    assert y.shape[2:] == F.conv2d(x, conv.gate_weight, stride=stride, padding=padding).shape[2:]
    y.square().sum().backward()
    flat(patches).square().sum().backward()
    assert_close(conv.gate_weight.grad.flatten(1), flat.gate_weight.grad)
    assert_close(conv.weight.grad.flatten(1, 3), flat.weight.grad)


def relu_layers(sizes, bias):
    layers = [
        nn.Linear(below, n, bias=bias, dtype=torch.float64)
        for below, n in itertools.pairwise(sizes[:-1])
    ]
    return [*layers, nn.Linear(*sizes[-2:], dtype=torch.float64)]


def relu_forward(layers, x):
    for layer in layers[:-1]:
        x = layer(x).relu()
    return layers[-1](x)


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("sizes", [(6, 5, 3), (6, 5, 4, 3), (6, 5, 4, 4, 3)])
def test_from_relu_computes_the_same_and_ibp_is_its_backpropagation(sizes, bias):
    layers = relu_layers(sizes, bias)
    network = TensorSwitching.from_relu(*layers, learn_gates="ibp")
    x, labels = torch.randn(20, 6, dtype=torch.float64), torch.randint(0, 3, (20,))
    assert_close(network(x), relu_forward(layers, x))
    F.cross_entropy(network(x), labels).backward()
    F.cross_entropy(relu_forward(layers, x), labels).backward()
    for w, layer in zip(network.gate_weights, layers[:-1], strict=True):
        assert_close(w.grad, layer.weight.grad)
    assert len(network.gate_biases) == (len(sizes) - 2 if bias else 0)
    for b, layer in zip(network.gate_biases, layers, strict=False):
        assert_close(b.grad, layer.bias.grad)
    assert_close(network.bias.grad, layers[-1].bias.grad)


def test_from_relu_takes_layers_with_and_without_biases():
    layers = relu_layers((6, 5, 4, 3), bias=True)
    layers[1].bias = None
    network = TensorSwitching.from_relu(*layers)
    x = torch.randn(20, 6, dtype=torch.float64)
    assert_close(network(x), relu_forward(layers, x))
    assert (network.gate_biases[1] == 0).all()


@pytest.mark.parametrize("bias", [False, True])
def test_from_relu_of_the_linear_layer(bias):
    layers = relu_layers((6, 5, 3), bias)
    layer = SwitchedLinear.from_relu(*layers, learn_gates="ibp")
    x = torch.randn(20, 6, dtype=torch.float64)
    assert_close(layer(x), relu_forward(layers, x))
    layer(x).square().sum().backward()
    relu_forward(layers, x).square().sum().backward()
    assert_close(layer.gate_weight.grad, layers[0].weight.grad)
    if bias:
        assert_close(layer.gate_bias.grad, layers[0].bias.grad)


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize(
    ("switch", "pool"), [("relu", None), ("relu", 2), ("none", 2), ("maxout", None), ("maxout", 2)]
)
def test_convolutional_ibp_is_the_backpropagation_of_the_scalar_network(switch, pool, bias):
    """The analysis weights are the product of a convolution and a 1×1 readout."""
    first = nn.Conv2d(2, 6, 3, bias=bias, dtype=torch.float64)
    pieces = 2 if switch == "maxout" else 1
    readout = nn.Conv2d(6 // pieces, 3, 1, dtype=torch.float64)
    layer = SwitchedConv2d(
        2, 6, 3, 3, switch=switch, pool=pool, learn_gates="ibp", gate_bias=bias, dtype=torch.float64
    )
    with torch.no_grad():
        columns = readout.weight.flatten(1).t().repeat_interleave(pieces, 0)
        layer.gate_weight.copy_(first.weight)
        layer.weight.copy_(first.weight[..., None] * columns[:, None, None, None, :])
        if bias:
            layer.gate_bias.copy_(first.bias)
            layer.constant.copy_(first.bias[:, None] * columns)
        layer.bias.copy_(readout.bias)
    x = torch.randn(3, 2, 8, 8, dtype=torch.float64)
    hidden = first(x)
    hidden = {
        "relu": hidden.relu(),
        "none": hidden,
        "maxout": hidden.unflatten(1, (-1, 2)).amax(2),
    }[switch]
    expected = readout(hidden if pool is None else F.max_pool2d(hidden, pool))
    y = layer(x)
    assert_close(y, expected)
    y.square().sum().backward()
    expected.square().sum().backward()
    assert_close(layer.gate_weight.grad, first.weight.grad)
    assert_close(layer.bias.grad, readout.bias.grad)
    if bias:
        assert_close(layer.gate_bias.grad, first.bias.grad)


def test_matches_the_original_inverted_backpropagation(golden):
    data = golden("a_ts1_ibp")
    layer = SwitchedLinear(12, 7, 10, bias=False, learn_gates="ibp")
    with torch.no_grad():
        layer.gate_weight.copy_(data["W1"].flatten(1))
        layer.weight.copy_(data["W_Z"].view(7, 12, 10))
    logits = layer(data["X"].flatten(1))
    assert_golden(logits, data["logits"])
    loss = F.cross_entropy(logits, data["y"].long(), reduction="sum")
    assert_golden(loss, data["loss_sum"])
    loss.backward()
    assert_golden(layer.gate_weight.grad, data["gW1_sum"].flatten(1))
    assert_golden(layer.weight.grad.flatten(0, 1), data["gW_Z_sum"].flatten(1))


@pytest.mark.parametrize("learn_gates", [None, "ibp"])
def test_matches_the_original_rotation_compression(golden, learn_gates):
    data = golden("c_ibplrc")
    first = SwitchedLinear(6, 5, 4, bias=False, learn_gates=learn_gates)
    second = SwitchedLinear(4, 3, 10, bias=False, learn_gates=learn_gates)
    with torch.no_grad():
        first.gate_weight.copy_(data["W1"].flatten(1))
        first.weight.copy_(data["Wstar1"].flatten(1).view(4, 5, 6).permute(1, 2, 0))
        second.gate_weight.copy_(data["W2"].flatten(1))
        second.weight.copy_(data["W_Z"].view(3, 4, 10))
    hidden = first(data["X"].flatten(1))
    assert_golden(hidden, data["X1"].flatten(1))
    logits = second(hidden)
    assert_golden(logits, data["logits"])
    F.cross_entropy(logits, data["y"].long(), reduction="sum").backward()
    assert_golden(first.weight.grad.permute(2, 0, 1).flatten(1), data["gWstar1_sum"].flatten(1))
    assert_golden(second.weight.grad.flatten(0, 1), data["gW_Z_sum"].flatten(1))
    if learn_gates:
        assert_golden(first.gate_weight.grad, data["gW1_sum"].flatten(1))
        assert_golden(second.gate_weight.grad, data["gW2_sum"].flatten(1))
    else:
        assert first.gate_weight.grad is None


def assert_golden(actual, expected):
    assert_close(
        actual,
        expected.to(actual.dtype).view_as(actual),
        rtol=0,
        atol=1e-5 * expected.abs().max().item(),
    )


@pytest.mark.parametrize(
    ("build", "error", "message"),
    [
        (
            lambda: SwitchedLinear(0, 1, 1),
            ValueError,
            "in_features must be a positive integer, got 0",
        ),
        (
            lambda: SwitchedLinear(1, 2.5, 1),
            ValueError,
            "gates must be a positive integer, got 2.5",
        ),
        (
            lambda: SwitchedLinear(1, 2, 1, learn_gates="bp"),
            ValueError,
            "learn_gates must be None or 'ibp', got 'bp'",
        ),
        (
            lambda: SwitchedLinear(1, 3, 1, switch="maxout"),
            ValueError,
            "gates must be a multiple of the 2 pieces",
        ),
        (
            lambda: SwitchedConv2d(1, 2, 1, (3, 3, 3)),
            ValueError,
            "kernel_size must be an integer or a pair",
        ),
        (
            lambda: SwitchedConv2d(1, 2, 1, 3, padding=-1),
            ValueError,
            "padding must be an integer or a pair of integers of at least 0, got -1",
        ),
        (lambda: TensorSwitching(3, (), 2), ValueError, "gates must name at least one layer"),
        (
            lambda: TensorSwitching(3, (4, 0), 2),
            ValueError,
            r"gates\[1\] must be a positive integer, got 0",
        ),
        (
            lambda: SwitchedLinear(3, 2, 1)(torch.ones(5, 4)),
            ValueError,
            r"input has size 4 on axis 1 \(in_features\), expected 3",
        ),
        (
            lambda: SwitchedLinear(3, 2, 1)(torch.ones(5, 3).long()),
            TypeError,
            "input must be a floating-point tensor, got torch.int64",
        ),
        (
            lambda: SwitchedLinear(3, 2, 1)(torch.ones(5, 3).double()),
            TypeError,
            "input is torch.float64 but weight is torch.float32",
        ),
        (
            lambda: SwitchedLinear(3, 2, 1)(torch.ones(5, 3, device="meta")),
            ValueError,
            "input is on meta but weight is on cpu",
        ),
        (
            lambda: SwitchedConv2d(3, 2, 1, 3)(torch.ones(5, 4)),
            ValueError,
            r"must end in the axes \(in_channels, height, width\)",
        ),
        (
            lambda: SwitchedConv2d(3, 2, 1, 3)(torch.ones(5, 2, 9, 9)),
            ValueError,
            r"size 2 on axis 1 \(in_channels\), expected 3",
        ),
        (
            lambda: SwitchedConv2d(3, 2, 1, 3)(torch.ones(5, 3, 2, 9)),
            ValueError,
            r"does not fit in an image of \(2, 9\)",
        ),
        (
            lambda: SwitchedConv2d(3, 2, 1, 3, pool=4)(torch.ones(5, 3, 4, 9)),
            ValueError,
            "4×4 pooling window with stride 4×4 does not fit",
        ),
        (
            lambda: SwitchedLinear.from_relu(nn.Linear(3, 2), nn.Linear(4, 1)),
            ValueError,
            "out_features 2 but .* in_features 4",
        ),
        (
            lambda: TensorSwitching.from_relu(nn.Linear(3, 2)),
            ValueError,
            "at least one hidden layer and a readout, got 1",
        ),
    ],
)
def test_wrong_arguments_are_named(build, error, message):
    with pytest.raises(error, match=message):
        build()


@pytest.mark.parametrize("pool", [None, 2])
def test_a_convolutional_gate_of_zeros_gets_a_zero_pseudo_gradient(pool):
    layer = SwitchedConv2d(2, 3, 2, 3, pool=pool, switch="none", learn_gates="ibp")
    with torch.no_grad():
        layer.gate_weight[1] = 0
    layer(torch.randn(2, 2, 6, 6)).sum().backward()
    assert layer.gate_weight.grad.isfinite().all()
    assert (layer.gate_weight.grad[1] == 0).all()
    assert (layer.gate_weight.grad[0] != 0).any()


def test_nan_in_the_scores_keeps_the_unit_closed():
    layer = SwitchedLinear(2, 3, 2)
    with torch.no_grad():
        layer.gate_weight.fill_(torch.nan)
    assert_close(layer(torch.ones(4, 2)), layer.bias.expand(4, 2))


def test_deep_maxout_is_its_scalar_network_and_ibp_its_backpropagation():
    sizes, pieces = (6, 8, 4), 2
    first = nn.Linear(6, 8, bias=False, dtype=torch.float64)
    second = nn.Linear(4, 4, bias=False, dtype=torch.float64)
    readout = nn.Linear(2, 3, dtype=torch.float64)
    network = TensorSwitching(
        6, sizes[1:], 3, switch=Maxout(pieces), learn_gates="ibp", dtype=torch.float64
    )
    with torch.no_grad():
        for w, layer in zip(network.gate_weights, (first, second), strict=True):
            w.copy_(layer.weight)
        top = readout.weight.t().repeat_interleave(pieces, 0)  # (gates of layer 2, out)
        middle = second.weight.repeat_interleave(pieces, 1)  # (gates of layer 2, gates of layer 1)
        network.weight.copy_(torch.einsum("ko,kj,ji->kjio", top, middle, first.weight))
        network.bias.copy_(readout.bias)
    x = torch.randn(20, 6, dtype=torch.float64)

    def scalar(x):
        for layer in (first, second):
            x = layer(x).unflatten(1, (-1, pieces)).amax(2)
        return readout(x)

    assert_close(network(x), scalar(x))
    network(x).square().sum().backward()
    scalar(x).square().sum().backward()
    for w, layer in zip(network.gate_weights, (first, second), strict=True):
        assert_close(w.grad, layer.weight.grad)


@pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel")  # of torch
@pytest.mark.parametrize("kernel", [3, (2, 3), (4, 1)])
@pytest.mark.parametrize("dilation", [1, 2, (1, 2)])
@pytest.mark.parametrize("padding", ["same", "valid", 2])
def test_patches_are_those_of_convolutions(kernel, dilation, padding):
    x = torch.randn(2, 3, 9, 8)
    hidden = nn.Conv2d(3, 6, kernel, padding=padding, dilation=dilation)
    output = nn.Conv2d(6, 4, 1)
    layer = SwitchedConv2d.from_relu(hidden, output)
    assert_close(layer(x), output(hidden(x).relu()), rtol=1e-4, atol=1e-5)
    given = {"padding": padding, "dilation": dilation}
    assert SwitchedConv2d(3, 6, 4, kernel, **given)(x).shape == output(hidden(x)).shape


def test_padding_that_keeps_the_size_needs_a_stride_of_one():
    with pytest.raises(ValueError, match="padding='same' needs a stride of 1"):
        SwitchedConv2d(3, 6, 4, 3, stride=2, padding="same")
    with pytest.raises(ValueError, match="padding must be numbers, 'same' or 'valid', got 'full'"):
        SwitchedConv2d(3, 6, 4, 3, padding="full")
