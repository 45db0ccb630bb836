import numpy as np
import pytest
from scipy.sparse import csr_matrix
from sklearn.datasets import load_diabetes, load_digits, load_wine, make_moons
from sklearn.ensemble import RandomForestClassifier
from sklearn.exceptions import NotFittedError
from sklearn.metrics import log_loss
from sklearn.utils.estimator_checks import parametrize_with_checks

from tensorswitch.estimators import TSKernelRidgeClassifier, TSKernelRidgeRegressor
from tensorswitch.persistence import load, save

BOTH = [TSKernelRidgeClassifier, TSKernelRidgeRegressor]


@pytest.mark.usefixtures("threads")
@parametrize_with_checks([TSKernelRidgeClassifier(), TSKernelRidgeRegressor()])
def test_scikit_learn_checks(estimator, check):
    check(estimator)


@pytest.fixture(scope="module")
def digits():
    X, y = load_digits(return_X_y=True)
    return X[:600], y[:600], X[600:1000], y[600:1000]


@pytest.fixture(scope="module")
def fitted(digits):
    return TSKernelRidgeClassifier().fit(*digits[:2])


def test_digits_without_any_setting(digits, fitted):
    X, y, X_test, y_test = digits
    assert fitted.score(X_test, y_test) > 0.95
    forest = RandomForestClassifier(random_state=0).fit(X, y)
    assert fitted.score(X_test, y_test) > forest.score(X_test, y_test)
    assert log_loss(y_test, fitted.predict_proba(X_test)) < 0.2
    assert fitted.loo_score_ == pytest.approx(fitted.score(X_test, y_test), abs=0.04)
    assert fitted.scaling_ == "common"  # pixels


def test_the_candidates_are_a_table(fitted):
    columns = fitted.candidates_
    assert len({len(values) for values in columns.values()}) == 1
    assert {"scaling", "kind", "depth", "bias", "penalty", "rows", "error"} <= columns.keys()
    assert len(columns["kind"]) >= 21
    assert columns["rows"][-1] == 600
    assert columns["penalty"][-1] == fitted.alpha_


def test_leave_one_out_predictions_are_those_of_refits_with_the_same_settings():
    X, y = load_diabetes(return_X_y=True)
    X, y = X[:60], y[:60]
    fixed = {"kernel": "ts", "depth": 1, "alpha": 0.3, "scaling": "common", "bias": 1.0}
    model = TSKernelRidgeRegressor(**fixed, column_weights=False).fit(X, y)
    # The penalty is a multiple of a scale of the data, and so is the scaling: both stay.
    search = model._model
    K = search.kernel(search.support).numpy()
    order = [int(np.flatnonzero((row == X).all(1))[0]) for row in _unscaled(model, X)]
    for i in range(0, 60, 17):
        rest = [j for j in range(60) if j != i]
        system = np.zeros((60, 60))
        system[:59, :59] = K[np.ix_(rest, rest)] + search.noise * np.eye(59)
        system[59, :59] = system[:59, 59] = 1
        answer = np.linalg.solve(system, np.append(y[order][rest], 0))
        expected = K[i, rest] @ answer[:59] + answer[59]
        assert model.loo_predictions_[order[i]] == pytest.approx(expected)


def _unscaled(model, X):
    """The rows of X in the order of the support."""
    z = model._model.columns(X, model.bias_)
    support = model._model.support.numpy()
    return [X[np.argmin(np.square(z - row).sum(1))] for row in support]


@pytest.mark.parametrize("kind", BOTH)
def test_whole_weights_are_repetitions(kind):
    X, y = load_wine(return_X_y=True)
    X, y = X[::3], y[::3]
    weight = np.arange(len(y)) % 3
    weighted = kind().fit(X, y, weight)
    repeated = kind().fit(np.repeat(X, weight, 0), np.repeat(y, weight))
    np.testing.assert_allclose(weighted.predict(X), repeated.predict(X), rtol=1e-6)
    assert weighted.loo_score_ == pytest.approx(repeated.loo_score_)
    assert np.isnan(weighted.loo_predictions_[weight == 0]).all()
    assert not np.isnan(weighted.loo_predictions_[weight > 0]).any()


def test_every_row_twice_changes_nothing():
    X, y = load_diabetes(return_X_y=True)
    once = TSKernelRidgeRegressor().fit(X[:150], y[:150])
    twice = TSKernelRidgeRegressor().fit(np.tile(X[:150], (2, 1)), np.tile(y[:150], 2))
    assert twice.alpha_ == pytest.approx(once.alpha_)
    np.testing.assert_allclose(twice.predict(X[150:]), once.predict(X[150:]), rtol=1e-8)
    assert twice.loo_score_ == pytest.approx(once.loo_score_)


def test_units_do_not_matter():
    X, y = load_wine(return_X_y=True)
    factor = 10.0 ** np.arange(-6, 7)
    plain = TSKernelRidgeClassifier(scaling="standard").fit(X[::2], y[::2])
    other = TSKernelRidgeClassifier(scaling="standard").fit(X[::2] * factor + 3, y[::2])
    np.testing.assert_allclose(
        other.predict_proba(X[1::2] * factor + 3), plain.predict_proba(X[1::2]), atol=1e-4
    )


def test_the_level_and_unit_of_targets_do_not_matter():
    X, y = load_diabetes(return_X_y=True)
    plain = TSKernelRidgeRegressor().fit(X[:200], y[:200])
    other = TSKernelRidgeRegressor().fit(X[:200], 1e-3 * y[:200] + 1e4)
    np.testing.assert_allclose(other.predict(X[200:]), 1e-3 * plain.predict(X[200:]) + 1e4)
    std, other_std = (m.predict(X[200:], return_std=True)[1] for m in (plain, other))
    np.testing.assert_allclose(other_std, 1e-3 * std, rtol=1e-4)


def test_standard_deviations_cover_what_they_should():
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, (600, 2))
    y = np.sin(2 * X[:, 0]) + X[:, 1] + 0.3 * rng.normal(size=600)
    mean, std = TSKernelRidgeRegressor().fit(X[:400], y[:400]).predict(X[400:], return_std=True)
    inside = np.abs(y[400:] - mean) < 1.64 * std
    assert 0.84 < inside.mean() < 0.96
    assert std.mean() == pytest.approx(0.3, rel=0.25)


def test_several_outputs():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 3))
    Y = np.stack([np.abs(X).sum(1), 1000 * X[:, 0]], 1)
    model = TSKernelRidgeRegressor().fit(X[:150], Y[:150])
    mean, std = model.predict(X[150:], return_std=True)
    assert mean.shape == std.shape == (50, 2)
    assert model.score(X[150:], Y[150:]) > 0.95
    assert model.loo_predictions_.shape == (150, 2)


@pytest.mark.parametrize("kind", BOTH)
def test_many_rows_by_conjugate_gradients_are_as_good_as_few(kind, caplog):
    X, y = make_moons(900, noise=0.2, random_state=0)
    direct = kind().fit(X[:700], y[:700])
    with caplog.at_level("INFO"):
        tiled = kind(memory_gb=0.007).fit(X[:700], y[:700])  # enough for 480 rows
    assert "conjugate gradients on kernel tiles" in caplog.text
    assert tiled.score(X[700:], y[700:]) == pytest.approx(direct.score(X[700:], y[700:]), abs=0.02)


def test_irrelevant_columns_are_weighed_down():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 12))
    y = np.sin(2 * X[:, 3]) + X[:, 7] ** 2
    model = TSKernelRidgeRegressor().fit(X[:200], y[:200])
    plain = TSKernelRidgeRegressor(column_weights=False).fit(X[:200], y[:200])
    assert set(np.argsort(model.column_weights_)[-2:]) == {3, 7}
    assert model.score(X[200:], y[200:]) > plain.score(X[200:], y[200:]) + 0.05


def test_class_weights_are_sample_weights():
    X, y = make_moons(200, noise=0.3, random_state=0)
    by_class = TSKernelRidgeClassifier(class_weight={0: 1, 1: 5}).fit(X, y)
    by_row = TSKernelRidgeClassifier().fit(X, y, np.where(y == 1, 5, 1))
    np.testing.assert_allclose(by_class.predict_proba(X), by_row.predict_proba(X))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kernel": "rbf"}, "'kernel' parameter of .* must be a str among .* Got 'rbf'"),
        ({"depth": -1}, "'depth' parameter .* range .0, inf.* Got -1"),
        ({"alpha": 0}, "'alpha' parameter .* range .0.0, inf.* Got 0"),
        ({"alpha": "mean"}, "'alpha' parameter .* Got 'mean'"),
        ({"bias": np.nan}, "'bias' parameter .* Got nan"),
        ({"bias": np.inf}, "'bias' parameter .* Got inf"),
        ({"scaling": "none"}, "'scaling' parameter .* Got 'none'"),
        ({"memory_gb": 0}, "'memory_gb' parameter .* Got 0"),
    ],
)
@pytest.mark.parametrize("kind", BOTH)
def test_wrong_settings_are_named(kind, options, message):
    X, y = make_moons(30, random_state=0)
    model = kind(**options)
    with pytest.raises((ValueError, TypeError), match=message):
        model.fit(X, y)
    with pytest.raises(NotFittedError):
        model.predict(X)


@pytest.mark.parametrize(
    ("X", "y", "weight", "message"),
    [
        (np.ones((5, 2)), np.arange(5) % 2, None, "1 distinct row"),
        (np.eye(4), [0, 1, 0, 1], np.zeros(4), "[Ss]ample.weight"),
    ],
)
@pytest.mark.parametrize("kind", BOTH)
def test_data_that_say_nothing_are_refused(kind, X, y, weight, message):
    with pytest.raises(ValueError, match=message):
        kind().fit(X, y, weight)


@pytest.mark.parametrize("kind", BOTH)
def test_few_rows_many_columns_and_constants_are_no_trouble(kind):
    rng = np.random.default_rng(0)
    for X in (rng.normal(size=(6, 40)), np.c_[np.ones(8), np.arange(8.0)], np.eye(5) * 1e9):
        y = np.arange(len(X)) % 2
        assert np.isfinite(kind().fit(X, y).predict(X)).all()
    constant = TSKernelRidgeRegressor().fit(rng.normal(size=(20, 2)), np.full(20, 7.0))
    np.testing.assert_allclose(constant.predict(rng.normal(size=(5, 2))), 7.0)


@pytest.mark.parametrize("kind", BOTH)
def test_sparse_rows_are_dense_rows(kind):
    X, y = load_digits(n_class=3, return_X_y=True)
    X, y, X_test = X[:120], y[:120], X[120:150]
    sparse = kind().fit(csr_matrix(X), y)
    dense = kind().fit(X, y)
    np.testing.assert_allclose(sparse.predict(csr_matrix(X_test)), dense.predict(X_test))


def test_sparse_rows_that_do_not_fit_are_refused():
    with pytest.raises(MemoryError, match="X is sparse with 10,000 rows and 1,000,000,000 columns"):
        TSKernelRidgeRegressor().fit(csr_matrix((10**4, 10**9)), np.zeros(10**4))


@pytest.mark.parametrize("kind", BOTH)
def test_tables_of_words_get_a_hint(kind):
    pandas = pytest.importorskip("pandas")
    words = pandas.DataFrame({"colour": ["red", "blue", "red"], "size": [1.0, 2.0, 3.0]})
    days = pandas.DataFrame({"day": pandas.to_datetime(["2020-01-01"] * 3), "size": [1.0, 2, 3]})
    for table, problem in ((words, "X holds text"), (days, "column 'day' of X holds dates")):
        message = rf"{problem} .*skrub.tabular_pipeline.*tensorswitch\[tables\]"
        with pytest.raises(ValueError, match=message):
            kind().fit(table, [0, 1, 0])


@pytest.mark.parametrize("memory_gb", [None, 1e-8])
def test_columns_that_hardly_vary_give_the_mean(memory_gb):
    X, y = 1e12 + np.arange(20.0)[:, None], np.arange(20.0)
    model = TSKernelRidgeRegressor(memory_gb=memory_gb).fit(X, y)
    np.testing.assert_allclose(model.predict(X[:2]), y.mean(), rtol=1e-4)
    if memory_gb is None:
        deviations = model.predict(X[:2], return_std=True)[1]
        np.testing.assert_allclose(deviations, y.std(), rtol=0.2)


@pytest.mark.parametrize("kind", BOTH)
def test_a_saved_model_is_the_same_model(kind, tmp_path):
    pandas = pytest.importorskip("pandas")
    X, y = load_wine(return_X_y=True)
    X = pandas.DataFrame(X, columns=[f"c{j}" for j in range(13)])
    model = kind(kernel="ts", random_state=3).fit(X[::3], y[::3])
    save(model, tmp_path / "model.safetensors")
    loaded = load(tmp_path / "model.safetensors")
    assert type(loaded) is kind
    assert loaded.get_params() == model.get_params()
    np.testing.assert_array_equal(loaded.predict(X), model.predict(X))
    np.testing.assert_array_equal(loaded.loo_predictions_, model.loo_predictions_)
    assert loaded.candidates_ == model.candidates_
    with pytest.raises(ValueError, match="feature names"):
        loaded.predict(X.rename(columns={"c0": "other"}))
    if kind is TSKernelRidgeClassifier:
        found, expected = (m.predict_proba(X) for m in (loaded, model))
        np.testing.assert_allclose(found, expected, rtol=1e-12)  # axes are stored in another order
    else:
        for a, b in zip(loaded.predict(X, True), model.predict(X, True), strict=True):
            np.testing.assert_array_equal(a, b)
