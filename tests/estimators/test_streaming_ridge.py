import numpy as np
import pytest
from sklearn.datasets import load_digits, make_regression
from sklearn.feature_selection import RFE, SelectFromModel
from sklearn.linear_model import LogisticRegression, Ridge, RidgeClassifier
from sklearn.utils.estimator_checks import parametrize_with_checks

from tensorswitch.estimators import (
    StreamingRidgeClassifier,
    StreamingRidgeRegressor,
    TSRidgeRegressor,
    load_estimator,
    save_estimator,
)


@parametrize_with_checks([StreamingRidgeClassifier(), StreamingRidgeRegressor()])
def test_scikit_learn_checks(estimator, check):
    check(estimator)


def digits():
    X, y = load_digits(return_X_y=True)
    return X + 1e-3 * np.arange(64), y  # no constant columns


def chunks(model, X, y, **first):
    for start in range(0, len(X), 400):
        model.partial_fit(X[start : start + 400], y[start : start + 400], **first)
    return model


def test_regressor_is_ridge_regression():
    X, y = make_regression(300, 20, noise=5.0, random_state=0)
    ours = StreamingRidgeRegressor(alpha=3.0, standardize=False).fit(X, y)
    theirs = Ridge(alpha=3.0).fit(X, y)
    np.testing.assert_allclose(ours.predict(X), theirs.predict(X), rtol=1e-7)


def test_classifier_is_ridge_classification():
    X, y = digits()
    ours = StreamingRidgeClassifier(alpha=50.0, standardize=False).fit(X, y)
    theirs = RidgeClassifier(alpha=50.0).fit(X, y)
    np.testing.assert_allclose(ours.decision_function(X), theirs.decision_function(X), atol=1e-6)


def test_chunks_give_the_model_of_all_rows():
    X, y = digits()
    given = X.mean(0), X.std(0) + 1e-9
    whole = StreamingRidgeClassifier(standardize=given).fit(X, y)
    parts = chunks(StreamingRidgeClassifier(standardize=given), X, y, classes=np.arange(10))
    assert parts.alpha_ == pytest.approx(whole.alpha_, rel=1e-9)
    np.testing.assert_allclose(parts.predict_proba(X), whole.predict_proba(X), atol=1e-8)


def test_classes_may_appear_later_and_rows_can_be_removed():
    X, y = digits()
    given = X.mean(0), X.std(0) + 1e-9
    order = np.argsort(y, kind="stable")
    model = StreamingRidgeClassifier(standardize=given)
    for labels in np.array_split(np.arange(10), 5):
        rows = order[np.isin(y[order], labels)]
        known = {} if hasattr(model, "classes_") else {"classes": labels}
        model.partial_fit(X[rows], y[rows], **known)
    whole = StreamingRidgeClassifier(standardize=given).fit(X, y)
    np.testing.assert_allclose(model.decision_function(X), whole.decision_function(X), atol=1e-8)
    model.remove(X[:18], y[:18])
    without = StreamingRidgeClassifier(standardize=given).fit(X[18:], y[18:])
    np.testing.assert_allclose(model.decision_function(X), without.decision_function(X), atol=1e-9)


def test_failed_chunk_leaves_the_sums_as_they_were():
    X, y = digits()
    model = StreamingRidgeClassifier().partial_fit(X[:500], y[:500], classes=np.arange(10))
    before = model.decision_function(X)
    with pytest.raises(ValueError, match="NaN"):
        model.partial_fit(np.full((2, 64), np.nan), y[:2])
    with pytest.raises(ValueError, match="features"):
        model.partial_fit(X[:2, :5], y[:2])
    np.testing.assert_array_equal(model.decision_function(X), before)


def test_too_little_memory_is_said():
    X, y = digits()
    with pytest.raises(MemoryError, match=r"needs .* GB for .* 64 features"):
        StreamingRidgeClassifier(solver="streaming", memory_gb=1e-6).fit(X, y)


def test_merged_models_are_the_model_of_all_rows():
    X, y = digits()
    sample = StreamingRidgeClassifier().fit(X[:500], y[:500])
    left, right = (sample.without_rows() for _ in range(2))
    late = y == 9
    left.partial_fit(X[~late], y[~late])
    right.partial_fit(X[late], y[late])
    whole = sample.without_rows().partial_fit(X, y)
    left.predict_proba(X[:1])  # what it was calibrated on must not last
    merged = left.merge(right)
    np.testing.assert_allclose(merged.predict_proba(X), whole.predict_proba(X), atol=1e-6)
    np.testing.assert_allclose(merged.decision_function(X), whole.decision_function(X), atol=1e-8)
    other = StreamingRidgeClassifier().fit(X[500:], y[500:])
    with pytest.raises(ValueError, match="different features"):
        merged.merge(other)


def test_features_of_one_task_serve_another():
    X, y = digits()
    sample = StreamingRidgeClassifier().fit(X, y)
    parity = np.where(y % 2, "odd", "even")
    model = sample.without_rows(classes=["odd", "even"]).partial_fit(X, parity)
    np.testing.assert_array_equal(model.classes_, ["even", "odd"])
    expected = StreamingRidgeClassifier().fit(X, parity)
    np.testing.assert_allclose(model.decision_function(X), expected.decision_function(X), atol=1e-8)
    np.testing.assert_array_equal(sample.classes_, range(10))
    with pytest.raises(ValueError, match="only one class: odd"):
        sample.without_rows(classes=["odd"])
    regressor = StreamingRidgeRegressor().fit(X, y)
    with pytest.raises(ValueError, match="no classes"):
        regressor.without_rows(classes=[1, 2])


@pytest.mark.parametrize("left", [range(9), (3, 7)])
def test_classes_without_rows_are_dropped_as_if_they_had_never_appeared(left):
    X, y = digits()
    sample = StreamingRidgeClassifier(alpha="0.1 mean").fit(X, y)
    kept = np.isin(y, left)
    model = sample.without_rows().partial_fit(X, y).remove(X[~kept], y[~kept])
    model.drop_empty_classes()
    expected = sample.without_rows(classes=left).partial_fit(X[kept], y[kept])
    np.testing.assert_array_equal(model.classes_, left)
    for method in ("decision_function", "predict_proba"):
        found = getattr(model, method)(X)
        np.testing.assert_allclose(found, getattr(expected, method)(X), atol=1e-6)
    assert model.cv_score_ == expected.cv_score_
    last = y[kept] == left[0]
    if len(left) == 2:
        model.remove(X[kept][last], y[kept][last])
        with pytest.raises(ValueError, match="only one class: 7"):
            model.drop_empty_classes()
    assert model.partial_fit(X[:1], [99]).classes_[-1] == 99


def test_cross_validated_accuracy_is_that_of_unseen_rows():
    X, y = digits()
    half = slice(None, None, 2), slice(1, None, 2)
    model = StreamingRidgeClassifier().fit(X[half[0]], y[half[0]])
    assert abs(model.cv_score_ - model.score(X[half[1]], y[half[1]])) < 0.02
    noise = np.random.default_rng(0).integers(0, 2, len(X))
    assert abs(StreamingRidgeClassifier().fit(X, noise).cv_score_ - 0.5) < 0.05


def test_clients_with_one_class_each_merge_into_the_model_of_all_rows():
    X, y = digits()
    sample = StreamingRidgeClassifier().fit(X, y)
    order = np.argsort(y, kind="stable")
    total = sample.without_rows()
    for rows in np.array_split(order, 100):
        total.merge(sample.without_rows().partial_fit(X[rows], y[rows]))
    np.testing.assert_allclose(total.decision_function(X), sample.decision_function(X), atol=1e-8)


def test_contributions_add_up_to_the_outputs():
    X, y = digits()
    model = StreamingRidgeClassifier().fit(X, y)
    np.testing.assert_allclose(
        model.explain(X[:9]).outputs, model.decision_function(X[:9]), atol=1e-9
    )
    numbers = StreamingRidgeRegressor().fit(X, y + 100.0)
    np.testing.assert_allclose(numbers.explain(X[:9]).outputs[:, 0], numbers.predict(X[:9]))


@pytest.mark.parametrize("alpha", [30.0, ("1 mean", "0.1 mean", "0.01 mean")])
def test_conjugate_gradients_give_the_readout_of_the_sums(alpha):
    X, y = digits()
    sums, free = (
        StreamingRidgeClassifier(alpha, solver=solver).fit(X[:1200], y[:1200])
        for solver in ("streaming", "matrix-free")
    )
    assert free.solver_ == "matrix-free"
    assert free.alpha_ == pytest.approx(sums.alpha_, rel=1e-3)
    np.testing.assert_allclose(free.decision_function(X), sums.decision_function(X), atol=0.02)
    np.testing.assert_allclose(free.predict_proba(X), sums.predict_proba(X), atol=0.05)
    assert free.cv_score_ == pytest.approx(sums.cv_score_, abs=0.02)


def test_rows_are_kept_if_there_is_no_memory_for_sums():
    generator = np.random.default_rng(0)
    X = generator.normal(size=(60, 9_000)).astype(np.float32)
    y = X[:, 0] + X[:, 1]
    with pytest.raises(MemoryError, match="fit all rows at once with solver='matrix-free'"):
        StreamingRidgeRegressor(solver="streaming", memory_gb=0.5).fit(X, y)
    model = StreamingRidgeRegressor(1.0, memory_gb=0.5).fit(X, y)
    assert model.solver_ == "matrix-free"
    assert model.score(X, y) > 0.99
    with pytest.raises(ValueError, match="fitted by the 'matrix-free' solver, which cannot be"):
        model.partial_fit(X, y)


def test_unknown_solver():
    with pytest.raises(ValueError, match=r"'solver' parameter .* must be a str among"):
        StreamingRidgeClassifier(solver="dual").fit(*digits())


def test_merged_regressions_are_the_one_of_all_rows_whatever_the_scale_of_their_targets():
    X, y = make_regression(300, 6, noise=5.0, random_state=0)
    order = np.argsort(y)
    X, y = X[order], np.column_stack([y, 3 * y + 100])[order]
    options = {"alpha": 3.0, "standardize": False}
    whole = StreamingRidgeRegressor(**options).fit(X, y)
    low, high = (
        StreamingRidgeRegressor(**options).fit(X[p], y[p]) for p in (slice(150), slice(150, 300))
    )
    before = high.predict(X)
    np.testing.assert_allclose(low.merge(high).predict(X), whole.predict(X), rtol=1e-8)
    np.testing.assert_array_equal(high.predict(X), before)


def test_conjugate_gradients_do_not_mind_an_offset():
    X, y = make_regression(200, 10, noise=1.0, random_state=0)
    options = {"alpha": 10.0, "standardize": False}
    sums, free = (
        StreamingRidgeRegressor(**options, solver=solver).fit(X + 1e4, y)
        for solver in ("streaming", "matrix-free")
    )
    np.testing.assert_allclose(free.predict(X + 1e4), sums.predict(X + 1e4), atol=1.0)


def test_given_features_have_no_gates():
    model = StreamingRidgeClassifier().fit(*digits())
    assert not hasattr(model, "open_gates")
    assert not hasattr(model, "nearest_rows")


def test_a_model_from_a_file_says_that_it_has_no_sums(tmp_path):
    X, y = digits()
    save_estimator(StreamingRidgeClassifier().fit(X, y), tmp_path / "model.safetensors")
    loaded = load_estimator(tmp_path / "model.safetensors")
    with pytest.raises(ValueError, match="loaded from a file, which has no sums"):
        loaded.partial_fit(X, y)


def test_a_readout_that_one_fold_leaves_open_still_predicts(caplog):
    random = np.random.default_rng(0)
    X = random.normal(size=(110, 100))
    y = (X[:, 0] > 0).astype(int)
    model = StreamingRidgeClassifier(alpha=0.0).fit(X, y)
    assert model.score(X, y) > 0.9
    assert np.isnan(model.cv_score_)
    assert "without one of the folds the readout is not determined" in caplog.text
    np.testing.assert_allclose(model.predict_proba(X).sum(1), 1)


def test_a_fit_that_fails_at_its_end_leaves_the_model(monkeypatch):
    X, y = load_digits(return_X_y=True)
    model = StreamingRidgeClassifier().fit(X[:200, :20], y[:200])
    before = model.predict_proba(X[:, :20])

    def fail(*_, **__):
        raise MemoryError

    with monkeypatch.context() as patch:
        patch.setattr("tensorswitch.linear.Sums.solve", fail)
        with pytest.raises(MemoryError):
            model.fit(X, y)
    np.testing.assert_array_equal(model.predict_proba(X[:, :20]), before)


def test_given_deviations_may_be_small():
    random = np.random.default_rng(0)
    X = 1e-12 * random.normal(size=(100, 3))  # farads, for example
    y = 1e12 * X[:, 0]
    model = StreamingRidgeRegressor(standardize=(X.mean(0), X.std(0))).fit(X, y)
    assert model.score(X, y) > 0.99


@pytest.mark.parametrize("kind", [StreamingRidgeRegressor, TSRidgeRegressor])
def test_targets_far_from_zero_keep_their_digits(kind):
    X = np.random.default_rng(0).normal(size=(300, 4)).astype(np.float32)
    y = 1.7e9 + 60 * X[:, 0].astype(float)  # Unix times
    assert np.abs(kind().fit(X, y).predict(X) - y).max() < 6


@pytest.mark.parametrize("factors", [(1e200, 1), (1, 1e200)])
def test_numbers_whose_squares_overflow_are_refused(factors):
    X = np.random.default_rng(0).normal(size=(50, 3))
    with pytest.raises(ValueError, match="numbers beyond 1e150 cannot be squared"):
        TSRidgeRegressor(random_state=0).fit(factors[0] * X, factors[1] * X[:, 0])


def test_coefficients_have_the_shape_of_linear_models():
    X = np.random.default_rng(0).normal(size=(120, 5))
    y = X[:, 0] + X[:, 1]
    for targets in (y, X[:, :2]):
        ours, theirs = StreamingRidgeRegressor().fit(X, targets), Ridge().fit(X, targets)
        assert ours.coef_.shape == theirs.coef_.shape
        z = (X - X.mean(0)) / X.std(0)
        np.testing.assert_allclose(z @ ours.coef_.T + ours.intercept_, ours.predict(X))
    for labels in (y > 0, np.digitize(y, [-1, 1])):
        ours = StreamingRidgeClassifier().fit(X, labels)
        theirs = LogisticRegression().fit(X, labels)
        assert ours.coef_.shape == theirs.coef_.shape
    kept = RFE(StreamingRidgeRegressor(), n_features_to_select=2).fit(X, y).support_
    assert kept.tolist() == [True, True, False, False, False]
    kept = SelectFromModel(StreamingRidgeClassifier()).fit(X, X[:, 0] > 0).get_support()
    assert kept.tolist() == [True, False, False, False, False]
