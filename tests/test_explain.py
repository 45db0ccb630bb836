"""Contributions add up to outputs, are those of the linear map in force, and match gradients."""

import numpy as np
import pytest
import torch

from tensorswitch import SwitchedLinear, TensorSwitching
from tensorswitch.algebra import expand
from tensorswitch.estimators import (
    StreamingRidgeRegressor,
    TSKernelRidgeClassifier,
    TSKernelRidgeRegressor,
    TSMLPClassifier,
    TSMLPRegressor,
    TSRidgeClassifier,
    TSRidgeRegressor,
)
from tensorswitch.explain import Explanation, explain, nearest_patterns
from tensorswitch.models import cnn, mlp

RIDGES = [{"gates": 16}, {"gates": (8, 4)}, {"gates": 8, "components": 3}]
KERNELS = [
    {"kernel": kind, "depth": depth, "scaling": scaling}
    for kind, depth, scaling in (("ss", 1, "standard"), ("ts", 2, "common"), ("ntk", 3, "robust"))
]


def rows(count=120, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(count, 5)) * [1, 10, 0.1, 3, 1] + [0, 100, 0, -5, 1]
    y = np.abs(x[:, 0]) + 0.1 * (x[:, 1] - 100) + np.maximum(x[:, 3] + 5, 0)
    return x, y


def labels(y, classes):
    return np.digitize(y, np.quantile(y, np.arange(1, classes) / classes))


def adds_up(explanation, expected):
    expected = np.asarray(expected).reshape(explanation.constant.shape)
    np.testing.assert_allclose(
        explanation.outputs, expected, atol=1e-5 * max(1.0, np.abs(expected).max())
    )


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("options", RIDGES, ids=str)
def test_ridge_adds_up_to_the_decision(options, classes):
    x, y = rows()
    model = TSRidgeClassifier(random_state=0, **options).fit(x, labels(y, classes))
    adds_up(model.explain(x), model.decision_function(x))


@pytest.mark.parametrize("options", [*RIDGES, {"standardize": False}], ids=str)
@pytest.mark.parametrize(("kind", "unit"), [(np.float32, 1e7), (np.float64, 1e13)])
def test_ridge_adds_up_for_columns_of_any_scale_and_offset(options, kind, unit):
    x, y = rows()
    if options.get("standardize", True):
        x[:, 0] = unit * (3 + x[:, 0])
        x[:, 2] = 1e6 + 1e3 * x[:, 2]
    x = x.astype(kind)
    model = TSRidgeRegressor(**{"gates": 16, "random_state": 0, **options}).fit(x, y)
    adds_up(model.explain(x), model.predict(x))


@pytest.mark.parametrize("standardize", [True, False])
def test_ridge_on_given_features_adds_up(standardize):
    x, y = rows()
    model = StreamingRidgeRegressor(standardize=standardize).fit(x, y)
    adds_up(model.explain(x), model.predict(x))


def test_a_module_is_explained_in_inference_mode():
    module, x = mlp(4, 2, depth=1, width=8, kind="ss"), torch.randn(3, 4)
    with torch.inference_mode():
        found = explain(module, x)
    np.testing.assert_array_equal(found.contributions, explain(module, x).contributions)


@pytest.mark.parametrize("options", RIDGES, ids=str)
def test_ridge_adds_up_to_the_prediction_and_its_gradient_is_the_slope(options):
    x, y = rows()
    model = TSRidgeRegressor(random_state=0, alpha=1.0, **options).fit(x, y)
    explanation = model.explain(x)
    adds_up(explanation, model.predict(x))
    step = 1e-7 * np.eye(5)[1]  # small enough to stay in nearly every region
    slope = (model.predict(x + step) - model.predict(x - step)) / 2e-7
    share = explanation.contributions[:, 0, 1] / (x - x.mean(0))[:, 1]
    assert np.median(np.abs(share - slope)) < 1e-4 * np.abs(slope).max()


@pytest.mark.parametrize("options", KERNELS, ids=str)
@pytest.mark.parametrize("classes", [2, 3])
def test_kernel_ridge_adds_up_to_the_decision(options, classes):
    x, y = rows()
    model = TSKernelRidgeClassifier(**options).fit(x, labels(y, classes))
    other, _ = rows(30, seed=1)
    for some in (x, other):  # rows of the training set meet themselves in the kernel
        adds_up(model.explain(some), model.decision_function(some))


@pytest.mark.parametrize("options", KERNELS, ids=str)
def test_kernel_ridge_contributions_are_the_gradient(options):
    x, y = rows()
    model = TSKernelRidgeRegressor(column_weights=False, **options).fit(x, y)
    other, _ = rows(30, seed=1)
    explanation = model.explain(other)
    adds_up(explanation, model.predict(other))
    adds_up(model.explain(x), model.predict(x))
    if model.scaling_ == "robust":
        return  # a feature has two columns there
    step = 1e-5 * x.std(0)
    for feature in range(5):
        ahead, behind = other.copy(), other.copy()
        ahead[:, feature] += step[feature]
        behind[:, feature] -= step[feature]
        slope = (model.predict(ahead) - model.predict(behind)) / (2 * step[feature])
        scaling = model._model.columns
        dz = (scaling(ahead) - scaling(behind))[:, feature] / (2 * step[feature])
        expected = slope * scaling(other)[:, feature] / dz
        found = explanation.contributions[:, 0, feature]
        np.testing.assert_allclose(found, expected, atol=2e-3 * np.abs(found).max())


@pytest.mark.parametrize("kind", ["ss", "ts-lrc", "ts-ibp-lrc", "ts-ibp"])
@pytest.mark.parametrize("bias", [False, True])
def test_networks_add_up(kind, bias):
    torch.manual_seed(0)
    network = mlp(5, 3, kind=kind, depth=2, width=8, bias=bias)
    for parameter in network.parameters():
        parameter.data += 0.1 * torch.randn_like(parameter)  # biases that are not zero
    x = torch.randn(20, 5)
    explanation = explain(network, x)
    adds_up(explanation, network(x).detach())
    assert (np.abs(explanation.constant).max() > 1e-4) == bias


def test_a_layer_gives_its_effective_weights():
    torch.manual_seed(0)
    layer, x = SwitchedLinear(4, 6, 3, bias=False), torch.randn(7, 4)
    copies = expand(x, layer.gate_weight.detach())  # the expanded tensor of the paper
    dense = torch.einsum("rji,jio->roi", copies, layer.weight.detach())
    np.testing.assert_allclose(explain(layer, x).contributions, dense, atol=1e-6)


def test_deep_layers_and_images_add_up():
    torch.manual_seed(0)
    deep, x = TensorSwitching(4, [5, 3], 2), torch.randn(7, 4)
    adds_up(explain(deep, x), deep(x).detach())
    images = torch.randn(4, 1, 8, 8)
    network = cnn(1, 8, 3, channels=(4,), width=8, ts_blocks=(1,))
    explanation = explain(network, images)
    assert explanation.contributions.shape == (4, 3, 1, 8, 8)
    adds_up(explanation, network(images).detach())


def test_networks_of_estimators_add_up():
    x, y = rows()
    x = (x - x.mean(0)) / x.std(0)
    model = TSMLPRegressor((8, 8), max_iter=3, random_state=0).fit(x, y)
    adds_up(model.explain(x), model.predict(x))
    classifier = TSMLPClassifier((8,), max_iter=3, random_state=0).fit(x, labels(y, 3))
    guess = classifier.explain(x).outputs.argmax(1)
    assert (classifier.classes_[guess] == classifier.predict(x)).all()


def test_groups_keep_the_sum():
    explanation = Explanation(np.random.default_rng(0).normal(size=(4, 2, 5)), np.ones((4, 2)))
    grouped = explanation.grouped(np.array([0, 0, 1, 2, 2]), 3)
    np.testing.assert_allclose(grouped.outputs, explanation.outputs)
    assert grouped.importance.shape == (3,)


def test_patterns_of_gates():
    x, y = rows()
    model = TSRidgeRegressor(gates=6, random_state=0).fit(x, y)
    gates = model.open_gates(x)
    assert gates.shape == (120, 6)
    places, share = nearest_patterns(gates, gates, 4)
    assert (share[:, 0] == 1).all()
    agreement = (gates[:, None] == gates[None]).mean(2)
    np.testing.assert_allclose(share, -np.sort(-agreement, axis=1)[:, :4], atol=1e-6)
    np.testing.assert_allclose(np.take_along_axis(agreement, places, 1), share, atol=1e-6)


def test_what_has_no_exact_explanation_is_named():
    with pytest.raises(TypeError, match="object has no exact explanation"):
        explain(object(), np.ones((1, 2)))
    with pytest.raises(ValueError, match=r"outputs of shape \(2, 3, 4\)"):
        explain(torch.nn.Identity(), torch.ones(2, 3, 4))


SMOOTH = {
    "gelu": lambda: torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.GELU()),
    "softmax": lambda: torch.nn.Sequential(torch.nn.Linear(6, 3), torch.nn.Softmax(1)),
    "layer norm": lambda: torch.nn.Sequential(torch.nn.LayerNorm(6), torch.nn.Linear(6, 3)),
    "attention": lambda: torch.nn.Sequential(
        torch.nn.Unflatten(1, (3, 2)),
        torch.nn.TransformerEncoderLayer(2, 1, 4, activation="relu", batch_first=True),
        torch.nn.Flatten(),
    ),
}


@pytest.mark.parametrize("smooth", SMOOTH.values(), ids=SMOOTH.keys())
def test_networks_that_are_not_affine_between_gates_are_refused(smooth):
    with pytest.raises(TypeError, match="between its gates it is not affine"):
        explain(smooth(), torch.randn(4, 6))


AFFINE = {
    "no gates": lambda: torch.nn.Linear(6, 3),
    "no parameters": lambda: torch.nn.Flatten(),
    "norm": lambda: torch.nn.Sequential(
        torch.nn.BatchNorm1d(6), torch.nn.LeakyReLU(), torch.nn.Dropout()
    ),
    "limits": lambda: torch.nn.Sequential(torch.nn.Hardtanh(), torch.nn.Linear(6, 2)),
    "pooling": lambda: torch.nn.Sequential(
        torch.nn.Unflatten(1, (1, 6)), torch.nn.MaxPool1d(2), torch.nn.Flatten()
    ),
}


@pytest.mark.parametrize("affine", AFFINE.values(), ids=AFFINE.keys())
def test_networks_that_are_affine_between_gates_add_up(affine):
    network, x = affine(), torch.randn(4, 6)
    np.testing.assert_allclose(explain(network, x).outputs, network.eval()(x).detach(), atol=1e-5)
    assert len(explain(network, x[:0]).outputs) == 0


def test_functions_without_a_second_derivative_are_believed():
    class Doubled(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return 2 * x

        @staticmethod
        @torch.autograd.function.once_differentiable
        def backward(ctx, gradient):
            return 2 * gradient

    class Network(torch.nn.Module):
        def forward(self, x):
            return Doubled.apply(x.relu())

    x = torch.randn(4, 6)
    np.testing.assert_allclose(explain(Network(), x).outputs, 2 * x.relu(), atol=1e-6)


def test_modes_of_the_parts_stay_and_rows_of_numpy_are_taken():
    network = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4), torch.nn.ReLU())
    network.train()
    network[1].eval()  # frozen
    found = explain(network, np.random.default_rng(0).normal(size=(5, 3)))
    assert found.contributions.shape == (5, 4, 3)
    assert [part.training for part in network.modules()] == [True, True, False, True]
