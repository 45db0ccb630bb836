"""Rows that repeat since inputs have few values are observations; copies of rows are not."""

import numpy as np
import pytest

from tensorswitch.estimators import (
    StreamingRidgeClassifier,
    StreamingRidgeRegressor,
    TSKernelRidgeClassifier,
    TSKernelRidgeRegressor,
    TSKernelSVC,
    TSMLPClassifier,
    TSMLPRegressor,
    TSRidgeClassifier,
    TSRidgeRegressor,
)

REGRESSORS = (TSKernelRidgeRegressor, TSRidgeRegressor, StreamingRidgeRegressor, TSMLPRegressor)
CLASSIFIERS = (
    TSKernelRidgeClassifier,
    TSRidgeClassifier,
    StreamingRidgeClassifier,
    TSMLPClassifier,
    TSKernelSVC,
)


def categories(count, rows=2000, seed=0):
    """Indicators of a column of categories."""
    chosen = np.random.default_rng(seed).integers(0, count, rows)
    return np.eye(count)[chosen], chosen


@pytest.mark.parametrize("model", REGRESSORS)
@pytest.mark.parametrize("noise", [0.0, 0.3])
@pytest.mark.parametrize("values", [3, 30])
def test_targets_of_few_values_are_learned(model, noise, values):
    rng = np.random.default_rng(1)
    x = rng.integers(0, values, (2000, 1)).astype(float)
    y = 2 * x[:, 0] / values - 1
    assert model().fit(x, y + noise * rng.normal(size=2000)).score(x, y) > 0.98


@pytest.mark.parametrize("model", REGRESSORS)
@pytest.mark.parametrize("count", [4, 100])
def test_means_of_categories_are_learned(model, count):
    x, chosen = categories(count)
    rng = np.random.default_rng(2)
    means = rng.normal(size=count)
    y = means[chosen] + rng.normal(size=2000)
    assert model().fit(x, y).score(x, means[chosen]) > 0.88


@pytest.mark.parametrize("model", CLASSIFIERS)
@pytest.mark.parametrize("count", [4, 100])
def test_classes_of_categories_are_learned(model, count):
    x, chosen = categories(count)
    rng = np.random.default_rng(3)
    often = np.where(rng.random(count) < 0.5, 0.15, 0.85)
    y = (rng.random(2000) < often[chosen]).astype(int)
    assert model().fit(x, y).score(x, often[chosen] > 0.5) > 0.95


@pytest.mark.parametrize(
    "model", [TSKernelRidgeClassifier, TSRidgeClassifier, TSMLPClassifier, TSKernelSVC]
)
@pytest.mark.parametrize("noise", [0.0, 0.1])
def test_exclusive_or_is_learned(model, noise):
    rng = np.random.default_rng(4)
    x = rng.integers(0, 2, (2000, 2)).astype(float)
    y = x[:, 0] != x[:, 1]
    flipped = rng.random(2000) < noise
    assert model().fit(x, y != flipped).score(x, y) == 1


@pytest.mark.parametrize("model", [StreamingRidgeRegressor, TSRidgeRegressor])
def test_streams_of_few_values_are_learned(model):
    rng = np.random.default_rng(5)
    x = rng.integers(0, 3, (3000, 1)).astype(float)
    y = 2 * x[:, 0]
    stream = model()
    for part in np.split(np.arange(3000), 10):
        stream.partial_fit(x[part], y[part])
    assert stream.score(x, y) > 0.999
    for part in np.split(np.arange(1000), 10):
        stream.remove(x[part], y[part])
    assert stream.score(x, y) > 0.999


@pytest.mark.parametrize("solver", ["streaming", "matrix-free", "dual"])
def test_every_solver_learns_few_values(solver):
    x, chosen = categories(40)
    rng = np.random.default_rng(6)
    often = np.where(rng.random(40) < 0.5, 0.2, 0.8)
    y = (rng.random(2000) < often[chosen]).astype(int)
    model = TSRidgeClassifier(gates=16, solver=solver, random_state=0).fit(x, y)
    assert model.score(x, often[chosen] > 0.5) == 1
    confidence = np.abs(model.predict_proba(x)[:, 1] - often[chosen]).mean()
    assert confidence < 0.1


@pytest.mark.parametrize(
    "model", [TSKernelRidgeRegressor, TSRidgeRegressor, StreamingRidgeRegressor]
)
def test_copied_rows_say_nothing_new(model):
    rng = np.random.default_rng(7)
    x, new = rng.normal(size=(150, 8)), rng.normal(size=(1000, 8))
    y = x[:, 0] + 2 * rng.normal(size=150)
    once = model().fit(x, y).predict(new)
    copied = model().fit(np.repeat(x, 5, axis=0), np.repeat(y, 5)).predict(new)
    single = np.corrcoef(once, new[:, 0])[0, 1]
    assert np.corrcoef(copied, new[:, 0])[0, 1] > single - 0.05
    assert np.std(copied) < 1.3 * np.std(once) + 0.05
