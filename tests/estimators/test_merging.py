import dask.array as da
import numpy as np
import pytest
from sklearn.datasets import load_digits, load_iris, make_regression

from tensorswitch.estimators import (
    TSRidgeClassifier,
    TSRidgeRegressor,
    fit_on_dask,
    load_estimator,
    save_estimator,
)


def digits(rows=400):
    X, y = load_digits(return_X_y=True)
    return X[:rows], y[:rows]


@pytest.mark.parametrize(
    "options", [{"gates": 6}, {"gates": (3, 2), "components": 10}, {"gates": 6, "switch": "maxout"}]
)
def test_classifiers_of_different_rows_and_classes_merge_into_that_of_all_rows(options):
    X, y = digits()
    sample = TSRidgeClassifier(**options, random_state=0).fit(X[:200], y[:200])
    assert sample.solver_ == "dual"  # has no sums, and needs none for the features
    whole = sample.without_rows().partial_fit(X, y)
    late = y == 9
    left = sample.without_rows(classes=range(9)).partial_fit(X[~late], y[~late])
    right = sample.without_rows().partial_fit(X[late], y[late])
    merged = left.merge(right)
    np.testing.assert_allclose(merged.decision_function(X), whole.decision_function(X), atol=1e-8)
    np.testing.assert_allclose(merged.predict_proba(X), whole.predict_proba(X), atol=1e-6)


def test_a_fitted_model_is_merged_into_one_without_changing_it():
    X, y = digits()
    sample = TSRidgeClassifier(gates=6, random_state=0).fit(X[:200], y[:200])
    before = sample.decision_function(X)
    merged = sample.without_rows().partial_fit(X[200:], y[200:]).merge(sample)
    assert sample.solver_ == "dual"
    np.testing.assert_array_equal(sample.decision_function(X), before)
    whole = sample.without_rows().partial_fit(X, y)
    np.testing.assert_allclose(merged.decision_function(X), whole.decision_function(X), atol=1e-8)


def test_regressors_merge_whatever_the_scale_of_their_targets():
    X, y = make_regression(300, 6, noise=5.0, random_state=0)
    order = np.argsort(y)
    X, y = X[order], np.column_stack([y, 3 * y + 100])[order]
    options = {"gates": 5, "alpha": 3.0, "standardize": False, "random_state": 0}
    whole = TSRidgeRegressor(**options, solver="streaming").fit(X, y)
    low, high = (TSRidgeRegressor(**options).fit(X[p], y[p]) for p in (slice(150), slice(150, 300)))
    np.testing.assert_allclose(low.merge(high).predict(X), whole.predict(X), rtol=1e-8)


def test_other_gates_are_refused_and_change_nothing():
    X, y = digits(200)
    one, two = (TSRidgeClassifier(gates=6, random_state=s).fit(X, y) for s in (0, 1))
    before = one.decision_function(X)
    with pytest.raises(ValueError, match=r"different features .* start both from without_rows\(\)"):
        one.merge(two)
    np.testing.assert_array_equal(one.decision_function(X), before)


def test_models_of_files_have_nothing_to_merge(tmp_path):
    X, y = digits(200)
    model = TSRidgeClassifier(gates=6, random_state=0).fit(X, y)
    save_estimator(model, tmp_path / "model")
    loaded = load_estimator(tmp_path / "model")
    for left, right in ((loaded, model), (model, loaded)):
        with pytest.raises(ValueError, match="loaded from a file, which has no sums of its rows"):
            left.merge(right)
    with pytest.raises(ValueError, match="loaded from a file, which has no sums of its rows"):
        loaded.partial_fit(X, y)


def test_chunks_on_dask_give_the_model_of_all_rows():
    X, y = digits()
    sample = TSRidgeClassifier(gates=6, random_state=0).fit(X[:200], y[:200])
    whole = sample.without_rows().partial_fit(X, y)
    model = fit_on_dask(sample, da.from_array(X, chunks=130), da.from_array(y, chunks=100))
    np.testing.assert_allclose(model.decision_function(X), whole.decision_function(X), atol=1e-8)


def test_models_of_a_given_scaling_merge_without_a_warning():
    X, y = load_iris(return_X_y=True)
    model = TSRidgeClassifier(4, standardize=(X.mean(0), X.std(0)), random_state=0).fit(X, y)
    twice = model.merge(model.without_rows().partial_fit(X, y))
    assert twice.score(X, y) > 0.9
