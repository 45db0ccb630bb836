"""Switches other than ReLU in ridge estimators."""

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.datasets import load_digits
from torch.testing import assert_close

from tensorswitch.estimators import (
    TSRidgeClassifier,
    TSRidgeRegressor,
    load_estimator,
    save_estimator,
)
from tensorswitch.switches import AllOpen, Maxout, combine_gates, deep_gates

X = np.random.default_rng(0).normal(size=(120, 3))
Y = np.abs(X).sum(1)


def regressor(gates=(6,), switch=None, **options):
    options = {"alpha": 0.1, "random_state": 0, "tol": 1e-12, **options}
    return TSRidgeRegressor(gates, switch=switch or Maxout(2), **options)


@pytest.mark.parametrize("gates", [(6,), (6, 4)])
@pytest.mark.parametrize("solver", ["streaming", "matrix-free", "dual"])
def test_maxout_is_ridge_regression_on_the_expanded_tensor(gates, solver):
    options = {"fit_intercept": False, "standardize": False}
    model = regressor(gates, solver=solver, **options).fit(X, Y)
    x = torch.from_numpy(X)
    weights = [torch.from_numpy(w) for w in model.gate_weights_]
    z = combine_gates(deep_gates(x, weights, Maxout(2)))[:, :, None] * x[:, None, :]
    z = z.flatten(1)
    expected = torch.linalg.solve(z.T @ z + 0.1 * torch.eye(z.shape[1]), z.T @ torch.from_numpy(Y))
    assert_close(torch.from_numpy(model.coef_).flatten(), expected)
    assert_close(torch.from_numpy(model.predict(X)), z @ expected)


@pytest.mark.parametrize("gates", [(6,), (6, 6)])
@pytest.mark.parametrize("switch", ["maxout:3", Maxout(2), AllOpen()])
def test_every_way_to_fit_and_predict_uses_the_switch(switch, gates, tmp_path):
    scale = (X.mean(0), X.std(0))
    model = regressor(gates, switch, standardize=scale).fit(X, Y)
    predicted = model.predict(X)
    for solver in ("streaming", "matrix-free", "dual"):
        other = clone(model).set_params(solver=solver).fit(X, Y)
        np.testing.assert_allclose(other.predict(X), predicted, rtol=1e-6)
    chunks = regressor(gates, switch, standardize=scale)
    for part in (slice(0, 70), slice(70, None)):
        chunks.partial_fit(X[part], Y[part])
    np.testing.assert_allclose(chunks.predict(X), predicted, rtol=1e-6)
    outputs = model.to_torch()(torch.from_numpy(X)).detach().numpy()[:, 0]
    np.testing.assert_allclose(outputs, predicted, rtol=1e-6)
    explained = model.explain(X)
    total = explained.contributions.sum(2) + explained.constant
    np.testing.assert_allclose(total[:, 0], predicted, rtol=1e-6)
    save_estimator(model, tmp_path / "model")
    np.testing.assert_array_equal(load_estimator(tmp_path / "model").predict(X), predicted)


def test_one_piece_of_each_maxout_unit_is_open():
    model = regressor((6, 4)).fit(X, Y)
    opened = model.open_gates(X)
    assert (opened.reshape(len(X), 5, 2).sum(2) == 1).all()
    assert opened[:, [0, 6]].all()  # of the first unit of each layer, for the linear part


def test_maxout_classifies_digits():
    images, labels = load_digits(return_X_y=True)
    model = TSRidgeClassifier(switch="maxout:3", random_state=0).fit(images[:1000], labels[:1000])
    assert model.gate_weights_[0].shape[0] % 3 == 0
    assert model.score(images[1000:], labels[1000:]) > 0.93


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"gates": 7}, "gates must be a multiple of the 2 pieces"),
        ({"switch": "tanh"}, "switch must be a Switch, 'relu', 'maxout'"),
    ],
)
def test_what_is_wrong_is_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        regressor().set_params(**arguments).fit(X, Y)
