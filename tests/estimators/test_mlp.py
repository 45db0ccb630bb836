import pickle
from functools import partial

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from tensorswitch.estimators import TSMLPClassifier, TSMLPRegressor
from tensorswitch.models import KINDS
from tensorswitch.persistence import load, save

# It needs 1e-7, but float32 products depend on the batch size, by how much on the machine.
MAY_FAIL = "check_methods_subset_invariance"


@pytest.mark.usefixtures("threads")
@parametrize_with_checks(
    [
        TSMLPClassifier((8, 8), learning_rate_init=0.01, max_iter=30),
        TSMLPClassifier(8, "ts-ibp-lrc", learning_rate_init=0.01, max_iter=20),
        TSMLPRegressor((16, 16), learning_rate_init=0.01, max_iter=40),
    ]
)
def test_scikit_learn_checks(estimator, check):
    try:
        check(estimator)
    except AssertionError:
        if isinstance(estimator, TSMLPRegressor) and check.func.__name__ == MAY_FAIL:
            pytest.xfail(MAY_FAIL)
        raise


@pytest.fixture(scope="module")
def digits():
    X, y = load_digits(return_X_y=True)
    X = (X / 16).astype(np.float32)
    return X[:700], y[:700], X[700:], y[700:]


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_learns(digits, kind):
    model = TSMLPClassifier(
        (16, 8), kind, learning_rate_init=0.01, max_iter=10, random_state=0
    ).fit(*digits[:2])
    assert model.score(*digits[2:]) > 0.8
    assert len(model.loss_curve_) == model.n_iter_ == 10
    np.testing.assert_allclose(model.predict_proba(digits[2]).sum(1), 1)


def test_the_same_seed_gives_the_same_model(digits):
    one, two = (
        TSMLPClassifier(8, max_iter=2, random_state=3).fit(*digits[:2]).predict_proba(digits[2])
        for _ in range(2)
    )
    np.testing.assert_array_equal(one, two)
    state = torch.get_rng_state()
    TSMLPClassifier(8, max_iter=1).fit(*digits[:2])
    assert torch.equal(state, torch.get_rng_state())


def test_a_pickled_model_continues_like_the_original(digits):
    X, y, X_test, _ = digits
    model = TSMLPClassifier(8, "ts-ibp-lrc", max_iter=2, random_state=0, warm_start=True).fit(X, y)
    copy = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(copy.predict_proba(X_test), model.predict_proba(X_test))
    np.testing.assert_array_equal(
        copy.fit(X, y).predict_proba(X_test), model.fit(X, y).predict_proba(X_test)
    )
    assert model.n_iter_ == 4


def test_a_pickle_keeps_what_the_model_was_made_with(digits):
    X, y, X_test, _ = digits
    model = (
        TSMLPClassifier(8, max_iter=1, random_state=0)
        .fit(X, y)
        .set_params(learning_rate_init=-1, optimizer="none")
    )
    copy = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(
        copy.partial_fit(X, y).predict_proba(X_test), model.partial_fit(X, y).predict_proba(X_test)
    )


def test_chunks_by_partial_fit_are_epochs(digits):
    X, y, X_test, _ = digits
    model = TSMLPClassifier(8, random_state=0)
    for _ in range(3):
        model.partial_fit(X, y, classes=range(10))
    whole = TSMLPClassifier(8, max_iter=3, early_stopping=False, random_state=0).fit(X, y)
    np.testing.assert_allclose(model.predict_proba(X_test), whole.predict_proba(X_test), atol=1e-6)


def test_early_stopping_keeps_the_best_epoch(digits):
    X, y = digits[:2]
    model = TSMLPClassifier(
        16,
        learning_rate_init=0.05,
        max_iter=40,
        early_stopping=True,
        n_iter_no_change=3,
        random_state=0,
    ).fit(X, y)
    assert model.n_iter_ < 40
    assert len(model.validation_curve_) == model.n_iter_


@pytest.mark.parametrize("standardize", [True, False])
@pytest.mark.parametrize("kind", ["ts-lrc", "ts-ibp-lrc"])
def test_a_random_readout_of_copies_adds_nothing_where_there_are_no_rows(kind, standardize):
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(40, 6)), rng.normal(5, 3, 40)
    model = TSMLPRegressor(
        (8, 8), kind, learning_rate_init=1e-12, standardize=standardize, max_iter=1
    )
    np.testing.assert_allclose(model.fit(X, y).predict(10 * X), y.mean(), rtol=1e-3)


def test_learn_gates_overrides_the_kind(digits):
    fixed = TSMLPClassifier(8, "ts-ibp-lrc", learn_gates=False, max_iter=1).fit(*digits[:2])
    assert not fixed.network_[0].gate_weight.requires_grad
    assert (
        TSMLPClassifier(8, "ts-lrc", learn_gates=True, max_iter=1)
        .fit(*digits[:2])
        .network_[0]
        .gate_weight.requires_grad
    )


def test_in_a_pipeline_and_a_grid(digits):
    X, y = digits[:2]
    search = GridSearchCV(
        make_pipeline(StandardScaler(), TSMLPClassifier(8, max_iter=5, random_state=0)),
        {"tsmlpclassifier__kind": ["ss", "ts-lrc"]},
        cv=2,
    )
    assert search.fit(X, y).best_params_ == {"tsmlpclassifier__kind": "ts-lrc"}


def test_two_outputs():
    X = np.random.default_rng(0).normal(size=(300, 3))
    model = TSMLPRegressor(32, learning_rate_init=0.02, random_state=0).fit(X, np.abs(X[:, :2]))
    assert model.predict(X).shape == (300, 2)
    assert model.score(X, np.abs(X[:, :2])) > 0.8


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kind": "relu"}, "'kind' parameter of TSMLPClassifier must be a str among"),
        (
            {"hidden_layer_sizes": (8, 0)},
            r"hidden_layer_sizes must be a positive integer or a list of them, got \(8, 0\)",
        ),
        ({"hidden_layer_sizes": ()}, "hidden_layer_sizes must be a positive integer"),
        (
            {"hidden_layer_sizes": 8.5},
            "'hidden_layer_sizes' parameter of TSMLPClassifier must be an array-like or an int",
        ),
        (
            {"hidden_layer_sizes": "8"},
            "'hidden_layer_sizes' parameter of TSMLPClassifier must be an array-like or an int",
        ),
        ({"batch_size": "all"}, "'batch_size' parameter of .* Got 'all' instead"),
        ({"batch_size": 0}, "'batch_size' parameter of .* Got 0 instead"),
        ({"early_stopping": "yes"}, "'early_stopping' parameter of .* Got 'yes' instead"),
        (
            {"learning_rate_init": "adaptive"},
            "'learning_rate_init' parameter of .* Got 'adaptive' instead",
        ),
        ({"alpha": -1}, r"'alpha' parameter of .* in the range \[0.0, inf\). Got -1 instead"),
        ({"momentum": float("nan")}, "'momentum' parameter of .* Got nan instead"),
        ({"max_iter": 0}, "'max_iter' parameter of .* Got 0 instead"),
        ({"optimizer": "lbfgs"}, "'optimizer' parameter of .* Got 'lbfgs' instead"),
        (
            {"early_stopping": True, "validation_fraction": 2.0},
            "'validation_fraction' parameter of .* Got 2.0 instead",
        ),
    ],
)
def test_wrong_arguments_are_named(digits, options, message):
    with pytest.raises(ValueError, match=message):
        TSMLPClassifier(**options).fit(*digits[:2])


def test_a_warm_start_can_change_the_learning_rate_but_not_the_network(digits):
    X, y = digits[:2]
    model = TSMLPClassifier(8, max_iter=1, random_state=0, warm_start=True).fit(X, y)
    before = model.network_
    model.set_params(learning_rate_init=1e-9, batch_size=50).fit(X, y)
    assert model.network_ is before
    assert model.n_iter_ == 2
    weights = [p.clone() for p in before.parameters()]
    model.fit(X, y)
    for old, new in zip(weights, before.parameters(), strict=True):
        # The new learning rate is so small that nothing moves.
        torch.testing.assert_close(old, new, atol=1e-6, rtol=0)
    with pytest.raises(
        ValueError,
        match=r"warm_start continues with the same network, but width was \[8\] and is \[9\]",
    ):
        model.set_params(hidden_layer_sizes=9).fit(X, y)


@pytest.mark.parametrize("in_chunks", [False, True])
def test_a_failed_continuation_leaves_the_model_as_it_was(digits, in_chunks):
    """Includes weights, curves and counts, all of which are modified in place."""
    X, y, X_test, _ = digits
    model = TSMLPClassifier(
        8, optimizer="sgd", learning_rate_init=0.05, max_iter=3, random_state=0, warm_start=True
    ).fit(X, y)
    before, curve = model.predict_proba(X_test), list(model.loss_curve_)
    fit = (
        partial(model.partial_fit, X * 1e30)
        if in_chunks
        else partial(model.set_params(learning_rate_init=1e6).fit, X)
    )
    with pytest.raises(ArithmeticError, match="not finite"):
        fit(y)
    np.testing.assert_array_equal(model.predict_proba(X_test), before)
    assert model.loss_curve_ == curve
    assert model.n_iter_ == 3


def test_an_unknown_class_is_named(digits):
    X, y = digits[:2]
    with pytest.raises(ValueError, match=r"labels that are not among the classes \[0 1 2\]"):
        TSMLPClassifier(8).partial_fit(X, y, classes=[0, 1, 2])


@pytest.mark.parametrize(
    "change",
    [
        {"kind": "bad"},
        {"optimizer": "bad"},
        {"max_iter": 0},
        {"learning_rate_init": 1e30, "optimizer": "sgd"},
    ],
)
def test_a_failed_refit_leaves_the_model_as_it_was(digits, change):
    X, y, X_test, _ = digits
    model = TSMLPClassifier(8, max_iter=2, random_state=0).fit(X, y)
    before = model.predict_proba(X_test)
    with pytest.raises((ValueError, ArithmeticError)):
        model.set_params(**change).fit(X[:, :5], y)
    np.testing.assert_array_equal(model.predict_proba(X_test), before)


def test_a_failed_first_chunk_leaves_the_model_unfitted(digits):
    X, y = digits[:2]
    model = TSMLPClassifier(8, "bad")
    with pytest.raises(ValueError, match="'kind' parameter of"):
        model.partial_fit(X, y, classes=range(10))
    model.set_params(kind="ss").partial_fit(X, y, classes=range(10)).predict(X)


def test_the_shape_of_the_targets_may_not_change():
    X = np.random.default_rng(0).normal(size=(40, 3))
    model = TSMLPRegressor(4).partial_fit(X, X[:, 0])
    with pytest.raises(
        ValueError, match=r"y has rows of shape \(2,\), but previous targets had shape \(\)"
    ):
        model.partial_fit(X, X[:, :2])
    assert model.predict(X).shape == (40,)


def columns(rows=150):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(rows, 3))
    return X, np.abs(X[:, 0]) + X[:, 1], rng.integers(0, 3, rows)


@pytest.mark.parametrize("kind", [TSMLPClassifier, TSMLPRegressor])
def test_whole_weights_are_repetitions(kind):
    X, y, weight = columns()
    y = (y > 0).astype(int) if kind is TSMLPClassifier else y
    weighted = kind(8, max_iter=3, random_state=0).fit(X, y, weight)
    repeated = kind(8, max_iter=3, random_state=0).fit(
        np.repeat(X, weight, 0), np.repeat(y, weight)
    )
    np.testing.assert_array_equal(weighted.predict(X), repeated.predict(X))
    with pytest.raises(ValueError, match=r"[Ss]ample.weight"):
        kind(8).fit(X, y, np.zeros(len(X)))


def test_units_of_columns_and_targets_do_not_matter():
    X, y, _ = columns()
    factor = np.array([1e6, 1e-3, 1.0])
    plain = TSMLPRegressor(8, max_iter=3, random_state=0, early_stopping=False).fit(X, y)
    other = TSMLPRegressor(8, max_iter=3, random_state=0, early_stopping=False)
    other.fit(X * factor + 5, 100 * y - 7)
    # Rows are taken in the order of their hashes, which differ, so that only the result is close.
    assert np.corrcoef(plain.predict(X), other.predict(X * factor + 5))[0, 1] > 0.9
    assert other.predict(X * factor + 5).mean() == pytest.approx(100 * y.mean() - 7, abs=60)


def test_without_standardization_the_network_sees_the_rows():
    X, y, _ = columns()
    model = TSMLPRegressor(8, max_iter=2, random_state=0, standardize=False).fit(X, y)
    assert model.network_[0].hidden.weight.shape == (8, 3)
    standardized = TSMLPRegressor(8, max_iter=2, random_state=0).fit(X, y)
    assert standardized.network_[0].hidden.weight.shape == (8, 4)  # and a constant


def test_class_weights_are_sample_weights():
    X, y, _ = columns()
    y = (y > 1).astype(int)
    by_class = TSMLPClassifier(8, max_iter=3, random_state=0, class_weight={0: 1, 1: 4}).fit(X, y)
    by_row = TSMLPClassifier(8, max_iter=3, random_state=0).fit(X, y, np.where(y == 1, 4, 1))
    np.testing.assert_array_equal(by_class.predict_proba(X), by_row.predict_proba(X))
    with pytest.raises(ValueError, match="class_weight='balanced' needs all rows at once"):
        TSMLPClassifier(8, class_weight="balanced").partial_fit(X, y, classes=[0, 1])


def test_learn_gates_is_refused_where_it_would_be_ignored(digits):
    with pytest.raises(ValueError, match="learn_gates is for kinds"):
        TSMLPClassifier(8, learn_gates=True).fit(*digits[:2])


def test_warm_start_needs_the_same_columns():
    X, y, _ = columns()
    model = TSMLPRegressor(8, max_iter=2, warm_start=True).fit(X, y)
    with pytest.raises(ValueError, match="but columns was 3 and is 2"):
        model.fit(X[:, :2], y)


def test_the_default_dtype_does_not_matter():
    X = np.random.default_rng(0).normal(size=(40, 3))
    found = []
    for dtype in (torch.float32, torch.float64):
        torch.set_default_dtype(dtype)
        try:
            found.append(TSMLPRegressor(4, max_iter=2, random_state=0).fit(X, X[:, 0]).predict(X))
        finally:
            torch.set_default_dtype(torch.float32)
    assert found[0].shape == found[1].shape
    assert np.isfinite(found[1]).all()


@pytest.mark.parametrize("constant", [1.7e18, 1e25, -3.3e9, 0.1])
def test_constant_columns_of_any_size_are_ignored(constant):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(600, 3))
    y = np.abs(X[:, 0]) + X[:, 1]
    wide = np.column_stack([X, np.full(600, constant)])
    model = TSMLPRegressor(32, learning_rate_init=0.01, max_iter=60, random_state=0)
    assert model.fit(wide[:500], y[:500]).score(wide[500:], y[500:]) > 0.9
    before = model.predict(wide)
    assert not model.explain(wide).contributions[:, :, 3].any()
    wide[:, 3] *= 2
    np.testing.assert_array_equal(model.predict(wide), before)


def test_columns_and_targets_that_hardly_vary_compared_with_their_size():
    """Nanoseconds within a tenth of a second, for example."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(600, 3))
    y = np.abs(X[:, 0]) + X[:, 1]
    options = {"learning_rate_init": 0.01, "max_iter": 60, "random_state": 0}
    wide = np.column_stack([X, 1.7e18 + 1e7 * rng.normal(size=600)])
    model = TSMLPRegressor(32, **options).fit(wide[:500], y[:500])
    assert model.score(wide[500:], y[500:]) > 0.9
    times = 1.7e18 + 1e7 * y
    found = TSMLPRegressor(32, **options).fit(X[:500], times[:500])
    assert found.score(X[500:], times[500:]) > 0.9
    same = TSMLPRegressor(8, max_iter=1, random_state=0).fit(X, np.full(600, 1.7e18))
    np.testing.assert_array_equal(same.predict(X), 1.7e18)


@pytest.mark.parametrize("kind", ["ss+ts", "ts-ibp"])
def test_saved_and_loaded_it_predicts_the_same(digits, tmp_path, kind):
    X, y, X_test, _ = digits
    X = np.column_stack([X, np.full(len(X), 1e12)])
    X_test = np.column_stack([X_test, np.full(len(X_test), 1e12)])
    names = np.array([f"digit {k}" for k in range(10)])
    model = TSMLPClassifier(8, kind, class_weight={"digit 3": 2.0}, max_iter=2, random_state=0)
    model.fit(X, names[y])
    save(model, tmp_path / "model")
    loaded = load(tmp_path / "model", TSMLPClassifier)
    assert loaded.get_params() == model.get_params()
    assert loaded.loss_curve_ == model.loss_curve_
    np.testing.assert_array_equal(loaded.predict_proba(X_test), model.predict_proba(X_test))
    np.testing.assert_array_equal(loaded.predict(X_test), model.predict(X_test))
    loaded.partial_fit(X[:20], names[y[:20]])
    both = TSMLPRegressor(8, max_iter=2, random_state=0).fit(X[:90], X[:90, :2])
    save(both, tmp_path / "model")
    np.testing.assert_array_equal(load(tmp_path / "model").predict(X_test), both.predict(X_test))
