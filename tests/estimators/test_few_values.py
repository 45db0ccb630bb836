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


@pytest.mark.parametrize("times", [5, 12])
@pytest.mark.parametrize("zeros", [0, 60])
@pytest.mark.parametrize(
    "model", [TSKernelRidgeRegressor, TSRidgeRegressor, StreamingRidgeRegressor]
)
def test_copied_rows_say_nothing_new(model, zeros, times):
    """Not even beside a cell of its own with many targets."""
    rng = np.random.default_rng(7)
    x, new = rng.normal(size=(150, 8)), rng.normal(size=(1000, 8))
    y = x[:, 0] + 2 * rng.normal(size=150)
    once = model().fit(x, y).predict(new)
    x, y = np.repeat(x, times, axis=0), np.repeat(y, times)
    x = np.concatenate([x, np.zeros((zeros, 8))])
    y = np.concatenate([y, 2 * rng.normal(size=zeros)])
    copied = model().fit(x, y).predict(new)
    single = np.corrcoef(once, new[:, 0])[0, 1]
    assert np.corrcoef(copied, new[:, 0])[0, 1] > single - 0.07
    assert np.std(copied) < 1.3 * np.std(once) + 0.05


@pytest.mark.parametrize("model", [TSKernelRidgeClassifier, TSRidgeClassifier])
@pytest.mark.parametrize("count", [4, 40])
def test_a_table_of_counts_is_its_rows(model, count):
    _, chosen = categories(count)
    rng = np.random.default_rng(8)
    often = np.where(rng.random(count) < 0.5, 0.2, 0.8)
    y = (rng.random(2000) < often[chosen]).astype(int)
    cells, counts = np.unique(np.column_stack([chosen, y]), axis=0, return_counts=True)
    made = model().fit(np.eye(count)[cells[:, 0]], cells[:, 1], counts.astype(float))
    shares = made.predict_proba(np.eye(count))[:, 1]
    assert np.abs(shares - often).mean() < 0.12


@pytest.mark.parametrize("scale", [1, 50])
@pytest.mark.parametrize("model", [TSKernelRidgeRegressor, TSRidgeRegressor])
def test_weights_of_a_survey_are_no_counts(model, scale):
    rng = np.random.default_rng(9)
    x, new = rng.normal(size=(300, 8)), rng.normal(size=(1000, 8))
    y, weight = x[:, 0] + 2 * rng.normal(size=300), scale * rng.integers(1, 9, 300).astype(float)
    given = {"random_state": 0} if model is TSRidgeRegressor else {}
    assert model(**given).fit(x, y, weight).score(new, new[:, 0]) > 0.5


@pytest.mark.parametrize("model", [TSRidgeRegressor, StreamingRidgeRegressor])
@pytest.mark.parametrize("solver", ["streaming", "matrix-free"])
def test_rows_of_zeros_do_not_decide(model, solver):
    rng = np.random.default_rng(2)
    x = rng.normal(size=(1000, 200))
    x[rng.random(1000) < 0.8] = 0
    y = x[:, 0] + 2 * rng.normal(size=1000) * x.any(1)
    new = rng.normal(size=(2000, 200))
    options = {"gates": 8, "random_state": 0} if model is TSRidgeRegressor else {}
    assert model(solver=solver, **options).fit(x, y).score(new, new[:, 0]) > -0.1


def test_small_grids_are_learned_whatever_the_number_of_rows():
    for rows in (24, 54, 60, 120):
        i = np.arange(rows)
        x = np.column_stack([i % 3, i % 2]).astype(float)
        assert TSKernelRidgeClassifier().fit(x, x.sum(1).astype(int)).score(x, x.sum(1)) == 1


def test_an_oversampled_class_is_not_certain():
    rng = np.random.default_rng(3)
    x, new = rng.normal(size=(300, 5)), rng.normal(size=(2000, 5))
    y = (x[:, 0] + rng.normal(size=300) > 1).astype(int)
    times = np.where(y == 1, 30, 1)
    model = TSKernelRidgeClassifier().fit(np.repeat(x, times, axis=0), np.repeat(y, times))
    assert model.loo_score_ < 0.98
    assert model.alpha_ > 0.01
    assert np.mean(model.predict_proba(new).max(1) > 0.99) < 0.2


@pytest.mark.parametrize("model", [TSRidgeClassifier, StreamingRidgeClassifier])
def test_classes_that_come_later_leave_copies_what_they_are(model):
    rng = np.random.default_rng(4)
    x, y = np.tile(rng.normal(size=(60, 30)), (6, 1)), np.tile(rng.integers(0, 2, 60), 6)
    late = rng.normal(size=(3, 30))
    given = {"gates": 4, "random_state": 0} if model is TSRidgeClassifier else {}
    start = model(**given, standardize=False).partial_fit(x, y, [0, 1]).without_rows()
    stream = start.without_rows().partial_fit(x[:180], y[:180])
    stream.partial_fit(late, [2] * 3).partial_fit(x[180:], y[180:])
    once = start.without_rows(classes=[0, 1, 2])
    once.partial_fit(np.concatenate([x, late]), np.concatenate([y, [2] * 3]))
    assert stream.alpha_ == pytest.approx(once.alpha_, rel=1e-3)
