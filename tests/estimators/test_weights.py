"""A weight of two is a repeated row, also for balanced classes and probabilities."""

import numpy as np
import pytest
from sklearn.datasets import load_iris

from tensorswitch.estimators import (
    TSKernelRidgeClassifier,
    TSKernelRidgeRegressor,
    TSKernelSVC,
    TSMLPClassifier,
    TSRidgeClassifier,
    load_estimator,
    save_estimator,
)


def noisy(rows=60, seed=0):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(rows, 2)), rng.integers(0, 2, rows)


@pytest.mark.parametrize(
    "model",
    [
        TSKernelRidgeClassifier(kernel="ss", depth=1, class_weight="balanced"),
        TSRidgeClassifier(gates=8, alpha=1.0, random_state=0, class_weight="balanced"),
        TSKernelSVC(class_weight="balanced"),
    ],
)
def test_balanced_classes_are_counted_by_weights(model):
    X, y = load_iris(return_X_y=True)
    X, y = X[::3], y[::3]
    weight = np.where(y == 0, 3, 1)
    repeated = np.repeat(np.arange(len(y)), weight)
    weighted = model.fit(X, y, sample_weight=weight.astype(float)).decision_function(X)
    expected = model.fit(X[repeated], y[repeated]).decision_function(X)
    np.testing.assert_allclose(weighted, expected, atol=2e-3 * np.abs(expected).max())


def test_rows_without_weight_do_not_count_for_balance():
    X, y = load_iris(return_X_y=True)
    X, y = X[50::4], y[50::4]
    more = np.concatenate([X, X[:10].repeat(9, axis=0)]), np.concatenate([y, y[:10].repeat(9)])
    weight = np.concatenate([np.ones(len(y)), np.zeros(90)])
    model = TSKernelSVC(class_weight="balanced")
    found = model.fit(*more, sample_weight=weight).decision_function(X)
    np.testing.assert_allclose(found, model.fit(X, y).decision_function(X), atol=1e-6)


def test_copies_of_a_row_do_not_make_probabilities_certain():
    X, y = noisy()
    model = TSKernelSVC(C=100.0, probability=True)
    new = np.random.default_rng(1).normal(size=(200, 2))
    once = model.fit(X, y).predict_proba(new)
    copies = model.fit(np.repeat(X, 5, axis=0), np.repeat(y, 5)).predict_proba(new)
    assert np.abs(once - 0.5).mean() < 0.1
    assert np.abs(copies - 0.5).mean() < 0.15


def test_probabilities_of_an_earlier_fit_are_not_kept():
    X, y = noisy()
    model = TSKernelSVC(probability=True).fit(X, y).set_params(probability=False).fit(X, y)
    with pytest.raises(ValueError, match="fitted with probability=False"):
        model.set_params(probability=True).predict_proba(X)


def test_weights_of_whole_chunks_matter():
    """Each chunk has one class; the second hardly counts."""
    X, y = noisy()
    models = []
    for weights in (None, {0: 1.0, 1: 1e-6}):
        model = TSMLPClassifier((8,), class_weight=weights, random_state=0)
        model.partial_fit(X, y, classes=[0, 1])
        for _ in range(30):
            model.partial_fit(X[y == 0], y[y == 0]).partial_fit(X[y == 1], y[y == 1])
        models.append(model.predict_proba(X)[:, 0].mean())
    assert models[1] > models[0] + 0.1


def test_a_loaded_network_goes_on_with_its_optimiser(tmp_path):
    X, y = noisy()
    model = TSMLPClassifier((8,), random_state=0).partial_fit(X, y, classes=[0, 1])
    save_estimator(model, tmp_path / "model", sums=True)
    loaded = load_estimator(tmp_path / "model")
    outputs = [m.partial_fit(X, y).predict_proba(X) for m in (model, loaded)]
    np.testing.assert_allclose(*outputs, rtol=1e-6)


def test_rows_that_have_decayed_are_left_out():
    X, y = noisy(400)
    weight = 0.5 ** np.arange(400.0)
    found = TSKernelRidgeRegressor().fit(X, y, sample_weight=weight)
    assert np.isfinite(found.candidates_["error"]).all()
    expected = TSKernelRidgeRegressor().fit(X[:40], y[:40], sample_weight=weight[:40])
    np.testing.assert_allclose(found.predict(X), expected.predict(X), atol=1e-6)


def test_a_class_without_weight_and_rows_at_the_mean():
    X, y = load_iris(return_X_y=True)
    model = TSKernelRidgeClassifier(kernel="ss", depth=1, class_weight={0: 0, 1: 1, 2: 1})
    assert not (model.fit(X, y).predict(X[50:]) == 0).any()
    grid = np.stack(np.meshgrid(np.arange(-2.0, 3), np.arange(-2.0, 3)), -1).reshape(-1, 2)
    flat = TSKernelRidgeRegressor(kernel="ss", depth=1, scaling="standard", bias=0)
    assert flat.fit(grid, grid[:, 0]).score(grid, grid[:, 0]) > 0.9


def test_columns_that_do_not_vary_score_nothing():
    y = np.random.default_rng(0).normal(size=20)
    model = TSKernelRidgeRegressor(kernel="ss", depth=1, scaling="standard", bias=1.0)
    assert model.fit(1e12 + np.arange(20.0)[:, None], y).loo_score_ < 0.1


def test_the_deviation_of_a_repeated_row_is_that_of_one():
    x = np.repeat(np.linspace(-1, 1, 30), 20)[:, None]
    y = np.sin(2 * x[:, 0]) + np.random.default_rng(0).normal(size=len(x))
    model = TSKernelRidgeRegressor(kernel="ss", depth=1, scaling="standard")
    found = model.fit(x, y).predict(x[::20], return_std=True)[1]
    assert 0.8 < found.mean() < 1.25  # the noise is 1
    copied = model.fit(np.repeat(x[::20], 4, axis=0), np.repeat(y[::20], 4))
    deviations = copied.predict(x[::20], return_std=True)[1]
    once = model.fit(x[::20], y[::20]).predict(x[::20], return_std=True)[1]
    np.testing.assert_allclose(deviations, once, rtol=0.05)  # copies of the target tell nothing


def test_chunks_after_a_weighted_fit_count_as_much():
    X, y = noisy(200)
    found = []
    for weight in (1.0, 1e-3):
        given = np.full(len(y), weight)
        model = TSMLPClassifier((8,), random_state=0, max_iter=5).fit(X, y, sample_weight=given)
        for _ in range(3):
            model.partial_fit(X, 1 - y, sample_weight=given)
        found.append(model.predict_proba(X))
    np.testing.assert_allclose(found[0], found[1], atol=1e-4)
