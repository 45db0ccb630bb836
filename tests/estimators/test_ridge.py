import logging
import pickle

import numpy as np
import pytest
from sklearn.datasets import load_digits, load_iris
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV
from sklearn.utils.estimator_checks import parametrize_with_checks

from tensorswitch.estimators import (
    StreamingRidgeClassifier,
    StreamingRidgeRegressor,
    TSKernelRidgeClassifier,
    TSMLPClassifier,
    TSRidgeClassifier,
    TSRidgeRegressor,
)

SOLVERS = ["streaming", "matrix-free", "dual"]


@parametrize_with_checks(
    [
        *(TSRidgeClassifier(4, solver=solver, tol=1e-11) for solver in SOLVERS),
        TSRidgeClassifier((4, 3), [0.1, 1, "mean"], standardize=False, fit_intercept=False),
        *(TSRidgeRegressor(4, 0.1, solver=solver, tol=1e-11) for solver in SOLVERS),
        TSRidgeRegressor((4, 3), [0.1, 1, "mean"]),
    ]
)
def test_scikit_learn_checks(estimator, check):
    check(estimator)


@pytest.mark.usefixtures("threads")
@parametrize_with_checks([TSRidgeClassifier(), TSRidgeRegressor()])
def test_scikit_learn_checks_of_the_defaults(estimator, check):
    check(estimator)


@pytest.fixture(scope="module")
def digits():
    X, y = load_digits(return_X_y=True)
    X = (X / 16).astype(np.float32)
    return X[:1200], y[:1200], X[1200:], y[1200:]


@pytest.mark.parametrize("gates", [(16,), (8, 6), (4, 3, 3)])
def test_all_solvers_give_the_same_model(digits, gates):
    X, y, X_test, _ = digits
    options = {"alpha": "0.1 mean", "components": 10, "tol": 1e-6, "random_state": 0}
    models = [
        TSRidgeClassifier(gates, solver=solver, standardize="common", **options).fit(X, y)
        for solver in SOLVERS
    ]
    assert [m.solver_ for m in models] == SOLVERS
    for model in models[1:]:
        np.testing.assert_allclose(
            model.decision_function(X_test), models[0].decision_function(X_test), atol=2e-3
        )


@pytest.mark.parametrize("kind", [TSRidgeClassifier, TSRidgeRegressor])
def test_chunks_give_the_model_of_the_whole(digits, kind):
    X, y, X_test, _ = (part.astype(np.float64) for part in digits)
    X, X_test = X[:, 20:40], X_test[:, 20:40]
    options = {"standardize": (X.mean(0), X.std(0)), "random_state": 0}
    whole = kind((4, 3), solver="streaming", **options).fit(X, y, np.arange(1.0, len(y) + 1))
    chunks = kind((4, 3), **options)
    for rows in np.array_split(np.arange(len(y)), 7):
        known = {"classes": np.arange(10.0)} if kind is TSRidgeClassifier else {}
        chunks.partial_fit(X[rows], y[rows], sample_weight=rows + 1.0, **known)
    np.testing.assert_allclose(chunks.alpha_, whole.alpha_)
    np.testing.assert_allclose(chunks.predict(X_test), whole.predict(X_test), rtol=1e-6)
    dual = kind((4, 3), whole.alpha_, solver="dual", **options)
    dual.fit(X, y, np.arange(1.0, len(y) + 1))
    np.testing.assert_allclose(dual.predict(X_test), whole.predict(X_test), rtol=1e-6)


def test_predicting_between_chunks_changes_nothing(digits):
    X, y, X_test, _ = digits
    one, other = (TSRidgeClassifier(4, random_state=0) for _ in range(2))
    for rows in np.array_split(np.arange(len(y)), 3):
        one.partial_fit(X[rows], y[rows], classes=range(10)).predict(X_test)
        other.partial_fit(X[rows], y[rows], classes=range(10))
    np.testing.assert_array_equal(one.decision_function(X_test), other.decision_function(X_test))


@pytest.mark.parametrize("solver", SOLVERS)
def test_the_selected_alpha_generalises(digits, solver):
    X, y, X_test, y_test = digits
    alphas = [0.01, 0.1, 10.0, 1e3]
    options = {"standardize": False, "random_state": 0}
    model = TSRidgeClassifier(8, alphas, solver=solver, **options).fit(X[:600], y[:600])
    tried = [a for a, _ in model.solution_.path]
    assert tried == sorted(alphas, reverse=True)[: len(tried)]
    single = {
        a: TSRidgeClassifier(8, a, solver="dual", **options).fit(X[:600], y[:600]) for a in alphas
    }
    errors = {
        a: np.square(
            np.where(y_test[:, None] == np.arange(10), 1, -1) - m.decision_function(X_test)
        ).mean()
        for a, m in single.items()
    }
    assert errors[model.alpha_] <= 1.1 * min(errors.values())


@pytest.mark.parametrize("labels", [np.array(["no", "yes"]), np.array(["a", "b", "c"])])
def test_string_labels(labels):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 4))
    y = labels[np.digitize(X[:, 0], np.linspace(-0.5, 0.5, len(labels) - 1))]
    model = TSRidgeClassifier(16, 0.1, random_state=0).fit(X, y)
    assert model.score(X, y) > 0.9
    assert model.decision_function(X).shape == ((300,) if len(labels) == 2 else (300, 3))


def test_two_outputs_are_two_regressions():
    rng = np.random.default_rng(0)
    X, Y = rng.normal(size=(100, 3)), rng.normal(size=(100, 2))
    both = TSRidgeRegressor(5, 0.1, random_state=0).fit(X, Y).predict(X)
    for column in range(2):
        np.testing.assert_allclose(
            TSRidgeRegressor(5, 0.1, random_state=0).fit(X, Y[:, column]).predict(X),
            both[:, column],
        )


def test_an_intercept_follows_the_level_of_the_targets():
    X = np.random.default_rng(0).normal(size=(200, 3))
    y = np.full(200, 100.0)
    model = TSRidgeRegressor(5, 1e-6, random_state=0).fit(X, y)
    assert model.predict(X) == pytest.approx(y, rel=1e-4)


def test_works_in_a_grid_search(digits):
    X, y = digits[:2]
    search = GridSearchCV(
        TSRidgeClassifier(random_state=0), {"gates": [(8,), (16, 16)], "alpha": ["mean", 1.0]}, cv=2
    ).fit(X[:400], y[:400])
    assert search.best_score_ > 0.85


def test_the_choice_of_solver_is_logged(digits, caplog):
    with caplog.at_level(logging.INFO):
        TSRidgeClassifier((32, 32), random_state=0).fit(*(part[:400] for part in digits[:2]))
    assert "solver 'dual': least work" in caplog.text


def chunk(rows=20, features=3, labels=(0, 1)):
    X = np.random.default_rng(0).normal(size=(rows, features))
    return X, np.resize(labels, rows)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: TSRidgeClassifier(gates=()).fit(*chunk()), ValueError, "gates is empty"),
        (
            lambda: TSRidgeClassifier(gates=(4, 0)).fit(*chunk()),
            ValueError,
            "'gates' parameter|gates must be a positive integer, got 0",
        ),
        (
            lambda: TSRidgeClassifier(alpha=-1).fit(*chunk()),
            ValueError,
            "'alpha' parameter .* must be a float in the range",
        ),
        (lambda: TSRidgeClassifier(alpha=[]).fit(*chunk()), ValueError, "alpha is empty"),
        (
            lambda: TSRidgeClassifier(solver="exact").fit(*chunk()),
            ValueError,
            "'solver' parameter .* must be a str among",
        ),
        (
            lambda: TSRidgeClassifier(components=4).fit(*chunk()),
            ValueError,
            "components=4 exceeds the smaller of 20 rows and 3 features",
        ),
        (
            lambda: TSRidgeClassifier().partial_fit(*chunk()),
            ValueError,
            "classes must be passed to the first call",
        ),
        (
            lambda: TSRidgeClassifier(memory_gb=1e-6).partial_fit(*chunk(), classes=[0, 1]),
            MemoryError,
            r"the 'streaming' solver needs .* or fit all rows at once",
        ),
        (
            lambda: TSRidgeClassifier().fit(*chunk(labels=(1,))),
            ValueError,
            "contains only one class: 1",
        ),
        (
            lambda: TSRidgeClassifier(alpha=0.0, solver="streaming").fit(*chunk(100, 2)),
            ValueError,
            "singular to working precision",
        ),
        (
            lambda: TSRidgeClassifier(tol=0, solver="matrix-free").fit(*chunk()),
            ValueError,
            "'tol' parameter .* must be a float in the range",
        ),
        (
            lambda: TSRidgeClassifier((1000, 1000), solver="streaming", memory_gb=1).fit(*chunk()),
            MemoryError,
            r"'streaming' solver needs .* GB for 20 rows and 4,000,000 features, "
            r"but the budget is 1\.00 GB; 'dual' fits",
        ),
        (
            lambda: TSRidgeClassifier((1000, 1000, 1000), memory_gb=1).fit(*chunk()),
            MemoryError,
            "no other solver fits; raise memory_gb, or use fewer gates or PCA",
        ),
    ],
)
def test_wrong_arguments_are_named(call, error, message):
    with pytest.raises(error, match=message):
        call()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda X, y: (X, np.where(y == 1, "a", "b")), "y has labels of type"),
        (lambda X, y: (X[:, :2], y), "2 features"),
        (lambda X, y: (np.where(X > 1, np.nan, X), y), "NaN"),
    ],
)
def test_an_invalid_chunk_changes_nothing(change, message):
    X, y = chunk()
    model = TSRidgeClassifier(4, random_state=0).partial_fit(X, y, classes=[0, 1])
    before = model.decision_function(X)
    with pytest.raises(ValueError, match=message):
        model.partial_fit(*change(X, y))
    np.testing.assert_array_equal(model.decision_function(X), before)
    model.partial_fit(X, y)


def test_an_invalid_first_chunk_leaves_the_model_unfitted():
    X, y = chunk()
    model = TSRidgeClassifier(4, random_state=0)
    with pytest.raises(ValueError, match="not among the classes"):
        model.partial_fit(X, y, classes=[1, 2])
    assert model.partial_fit(X, y, classes=[0, 1]).score(X, y) > 0.5


def test_only_streaming_has_partial_fit():
    with pytest.raises(AttributeError) as caught:
        _ = TSRidgeClassifier(solver="dual").partial_fit
    assert "partial_fit needs solver='streaming' or 'auto', got solver='dual'" in str(
        caught.value.__cause__
    )


def test_a_model_of_another_solver_cannot_be_updated():
    X, y = chunk()
    model = TSRidgeClassifier((64, 64, 64)).fit(X, y)
    assert model.solver_ == "dual"
    with pytest.raises(ValueError, match="fitted by the 'dual' solver, which cannot be updated"):
        model.partial_fit(X, y)


@pytest.mark.parametrize(
    "change",
    [{"alpha": -1}, {"memory_gb": 1e-6}, {"gates": 0}, {"components": 99}, {"solver": "none"}],
)
def test_a_failed_refit_leaves_the_model_as_it_was(change):
    X, y = chunk(60)
    model = TSRidgeClassifier(6, random_state=0).fit(X, y)
    before = model.decision_function(X)
    with pytest.raises((ValueError, MemoryError)):
        model.set_params(**change).fit(X, y)
    np.testing.assert_array_equal(model.decision_function(X), before)


@pytest.mark.parametrize(
    "change",
    [{"alpha": -1}, {"memory_gb": 1e-6}, {"gates": 0}, {"components": 99}, {"forgetting": 0}],
)
def test_a_failed_first_chunk_leaves_the_model_unfitted(change):
    X, y = chunk(60)
    model = TSRidgeClassifier(6, random_state=0).set_params(**change)
    with pytest.raises((ValueError, MemoryError)):
        model.partial_fit(X, y, classes=[0, 1])
    with pytest.raises(NotFittedError):
        model.predict(X)
    model.set_params(
        alpha="mean", memory_gb=None, gates=6, components=None, forgetting=1.0
    ).partial_fit(X, y, classes=[0, 1]).predict(X)


@pytest.mark.parametrize("solver", SOLVERS)
def test_integer_weights_are_repetitions_even_with_pca(solver):
    X, y = chunk(80, 5)
    weight = np.arange(80) % 3
    options = {"solver": solver, "components": 3, "tol": 1e-10, "random_state": 0}
    options["alpha"] = ["mean", "0.1 mean", "10 mean"]
    weighted = TSRidgeClassifier(6, **options).fit(X, y, weight).decision_function(X)
    repeated = (
        TSRidgeClassifier(6, **options)
        .fit(np.repeat(X, weight, 0), np.repeat(y, weight))
        .decision_function(X)
    )
    np.testing.assert_allclose(weighted, repeated, atol=1e-6)


def test_parameters_changed_after_the_fit_do_not_change_predictions():
    X, y = chunk(60)
    model = TSRidgeClassifier(6, random_state=0).fit(X, y)
    before = model.decision_function(X)
    np.testing.assert_array_equal(
        model.set_params(fit_intercept=False, components=2).decision_function(X), before
    )


@pytest.mark.parametrize("gates", [np.int64(4), np.array([4, 3]), [4], (4, 3)])
def test_gates_of_any_integer_type(gates):
    model = TSRidgeClassifier(gates).fit(*chunk())
    assert [len(w) for w in model.gate_weights_] == np.atleast_1d(gates).tolist()


@pytest.mark.parametrize(
    ("classes", "message"),
    [
        ([], "classes contains no labels"),
        ([1], "classes contains only one class: 1"),
        (["a", "b"], "y has labels of type int64, but the classes have type"),
    ],
)
def test_wrong_classes_are_named(classes, message):
    with pytest.raises(ValueError, match=message):
        TSRidgeClassifier(4).partial_fit(*chunk(), classes=classes)


@pytest.mark.parametrize("solver", SOLVERS)
def test_affine_targets_give_affine_predictions(solver):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(120, 3)) * [1, 1e3, 1e-3] + [5, -1e4, 0]
    y = np.abs(X[:, 0]) + rng.normal(size=120)
    options = {"solver": solver, "random_state": 0, "tol": 1e-10}
    plain = TSRidgeRegressor(6, **options).fit(X, y).predict(X)
    for a, b in ((1.0, 100.0), (-1e6, 1e9), (1e-9, 3.0)):
        moved = TSRidgeRegressor(6, **options).fit(X, a * y + b).predict(X)
        np.testing.assert_allclose((moved - b) / a, plain, rtol=1e-5, atol=1e-5)


def test_removed_rows_leave_no_trace():
    X, y = chunk(90, 3, (0, 1, 2))
    options = {"standardize": (X.mean(0), X.std(0)), "random_state": 0}
    rest = TSRidgeClassifier(5, solver="streaming", **options).fit(X[30:], y[30:])
    model = TSRidgeClassifier(5, solver="streaming", **options).fit(X, y).remove(X[:30], y[:30])
    assert model.alpha_ == pytest.approx(rest.alpha_, rel=1e-12)
    np.testing.assert_allclose(
        model.decision_function(X), rest.decision_function(X), rtol=1e-9, atol=1e-9
    )
    np.testing.assert_allclose(model.predict_proba(X), rest.predict_proba(X), atol=1e-6)
    with pytest.raises(ValueError, match="cannot be removed"):
        model.remove(X, y)
    regressor = TSRidgeRegressor(5, "mean", solver="streaming", **options).fit(X, X[:, 0])
    other = TSRidgeRegressor(5, "mean", solver="streaming", **options).fit(X[30:], X[30:, 0])
    np.testing.assert_allclose(
        regressor.remove(X[:30], X[:30, 0]).predict(X), other.predict(X), rtol=1e-9, atol=1e-9
    )


@pytest.mark.parametrize("known", [(0, 1), (0, 1, 2)])
def test_classes_may_appear_later(known):
    X, y = chunk(120, 3, (*known, 7, -3))
    late = (y == 7) | (y == -3)
    options = {"standardize": (X.mean(0), X.std(0)), "random_state": 0}
    grown = TSRidgeClassifier(5, **options).partial_fit(X[~late], y[~late], classes=known)
    grown.predict_proba(X)
    grown.partial_fit(X[late], y[late])
    whole = TSRidgeClassifier(5, solver="streaming", **options).fit(X, y)
    np.testing.assert_array_equal(grown.classes_, whole.classes_)
    assert grown.alpha_ == pytest.approx(whole.alpha_)
    np.testing.assert_allclose(
        grown.decision_function(X), whole.decision_function(X), rtol=1e-6, atol=1e-9
    )
    assert grown.predict_proba(X).shape == (120, len(known) + 2)


@pytest.mark.parametrize("solver", SOLVERS)
def test_probabilities_are_calibrated(solver):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(600, 2))
    chance = 1 / (1 + np.exp(-2 * X[:, 0]))
    y = (rng.random(600) < chance).astype(int)
    model = TSRidgeClassifier(6, solver=solver, random_state=0).fit(X[:300], y[:300])
    p = model.predict_proba(X)
    np.testing.assert_allclose(p.sum(1), 1)
    np.testing.assert_array_equal(p.argmax(1), model.predict(X))
    assert np.abs(p[300:, 1] - chance[300:]).mean() < 0.12
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.predict_proba(X), p)


def test_class_weights_are_sample_weights():
    X, y = chunk(60, 3, (0, 1, 1))
    weighted = TSRidgeClassifier(5, class_weight={0: 2, 1: 1}, random_state=0).fit(X, y)
    sampled = TSRidgeClassifier(5, random_state=0).fit(X, y, np.where(y == 0, 2.0, 1.0))
    np.testing.assert_allclose(weighted.decision_function(X), sampled.decision_function(X))
    with pytest.raises(ValueError, match="needs all rows at once"):
        TSRidgeClassifier(5, class_weight="balanced").partial_fit(X, y, classes=[0, 1])


@pytest.mark.parametrize("standardize", [True, False, "auto", "common"])
def test_sparse_rows_are_dense_rows(standardize):
    sparse = pytest.importorskip("scipy.sparse")
    X, y = chunk(60, 4)
    X = np.where(X > 0.5, X, 0)
    options = {"standardize": standardize, "components": 3, "random_state": 0}
    dense = TSRidgeClassifier(5, **options).fit(X, y)
    found = TSRidgeClassifier(5, **options).fit(sparse.csr_array(X), y)
    np.testing.assert_allclose(
        found.decision_function(sparse.csr_array(X)), dense.decision_function(X), atol=1e-8
    )
    with pytest.raises(MemoryError, match="60 sparse rows of 4 features need"):
        TSRidgeClassifier(5, memory_gb=1e-7).fit(sparse.csr_array(X), y)


def test_unscaled_columns_are_scaled():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 4))
    y = np.abs(X[:, 0]) + X[:, 1]
    X_far = X * [1, 1e4, 1e-3, 1e6] + [0, 1e5, 3, -1e7]
    model = TSRidgeRegressor(random_state=0).fit(X_far[:200], y[:200])
    assert model.scaling_ == "columns"
    assert model.score(X_far[200:], y[200:]) > 0.9
    pixels = rng.normal(size=(300, 30)) * np.where(np.arange(30) < 3, 1, 1e-3)
    target = np.abs(pixels[:, :3]).sum(1)
    model = TSRidgeRegressor(32, random_state=0).fit(pixels, target)
    assert model.scaling_ == "common"


@pytest.mark.parametrize("standardize", ["sometimes", 3, ([1.0, 2.0], [1.0]), None])
def test_wrong_scalings_are_named(standardize):
    with pytest.raises(ValueError, match="standardize"):
        TSRidgeRegressor(4, standardize=standardize).fit(*chunk())


def test_the_raw_form_is_that_of_the_paper():
    import torch

    from tensorswitch.ridge import solve_dual

    X, y = chunk(80, 3, (0, 1, 2))
    raw = {"standardize": False, "fit_intercept": False}
    model = TSRidgeClassifier(6, "mean", random_state=0, **raw).fit(X, y)
    targets = torch.from_numpy(np.where(y[:, None] == np.arange(3), 1.0, -1.0))
    weights = [torch.from_numpy(w) for w in model.gate_weights_]
    expected = solve_dual(torch.from_numpy(X), targets, weights, "mean")
    np.testing.assert_allclose(model.coef_, expected.weight.numpy(), rtol=1e-6, atol=1e-9)
    assert not model.intercept_.any()


@pytest.mark.parametrize("kind", [TSRidgeRegressor, StreamingRidgeRegressor])
def test_a_first_chunk_that_hides_the_columns_is_reported(kind):
    X = np.random.default_rng(0).normal(size=(20, 4))
    model = kind().partial_fit(X[:1], X[:1, 0])
    with pytest.warns(UserWarning, match="4 of 4 columns were constant in the first chunk"):
        model.partial_fit(X[1:], X[1:, 0])
    given = kind(standardize=(0.0, 1.0)).partial_fit(X[:1], X[:1, 0])
    given.partial_fit(X[1:], X[1:, 0])  # no warning


@pytest.mark.parametrize("kind", [TSRidgeClassifier, StreamingRidgeClassifier])
def test_forgetting_is_checked_and_stays(kind):
    X, y = load_iris(return_X_y=True)
    for wrong in (0, 1.5):
        with pytest.raises(
            ValueError, match=r"'forgetting' parameter .* must be a float in the range"
        ):
            kind(forgetting=wrong).fit(X, y)
    model = kind().partial_fit(X, y, classes=[0, 1, 2]).set_params(forgetting=0.5)
    with pytest.raises(ValueError, match=r"forgetting was 1\.0 for earlier rows and is now 0\.5"):
        model.partial_fit(X, y)
    assert model.n_samples_seen_ == 150


def test_rows_are_forgotten_once_however_many_parts_a_chunk_has(monkeypatch):
    X, y = load_iris(return_X_y=True)
    monkeypatch.setattr("tensorswitch.estimators._front.CHUNK_BYTES", 1)  # 64 rows each
    model = StreamingRidgeClassifier(forgetting=0.5).fit(X, y)
    assert model.n_samples_seen_ == 150
    assert model.partial_fit(X, y).n_samples_seen_ == 225


def test_classes_may_be_passed_in_every_call():
    X, y = load_iris(return_X_y=True)
    start = TSRidgeClassifier(gates=4, random_state=0).partial_fit(X[:100], y[:100], [0, 1])
    start.partial_fit(X[100:], y[100:]).partial_fit(X[:10], y[:10], [0, 1])
    assert start.classes_.tolist() == [0, 1, 2]
    assert start.partial_fit(X[:10], y[:10], [0, 7]).classes_.tolist() == [0, 1, 2, 7]


def test_an_unknown_scaling_is_named():
    X, y = load_iris(return_X_y=True)
    with pytest.raises(ValueError, match=r"'columns', 'common', .* got 'rows'"):
        TSRidgeClassifier(standardize="rows").fit(X, y)


ROWS = np.random.default_rng(0).normal(size=(200, 4))


@pytest.mark.parametrize("rows", [3, 90, 200])
@pytest.mark.parametrize("solver", ["auto", *SOLVERS])
def test_constant_targets_are_predicted(rows, solver):
    model = TSRidgeRegressor(8, solver=solver, random_state=0)
    model.fit(ROWS[:rows], np.full(rows, 0.1))
    np.testing.assert_allclose(model.predict(ROWS), 0.1, atol=1e-12)


def test_one_constant_target_of_two_leaves_the_other_as_it_is():
    y = ROWS[:, :1] ** 2
    both = TSRidgeRegressor(8, solver="dual", alpha=1, random_state=0)
    both.fit(ROWS, np.hstack([y, np.full_like(y, 0.1)]))
    np.testing.assert_allclose(both.predict(ROWS)[:, 1], 0.1, atol=1e-12)
    single = TSRidgeRegressor(8, solver="dual", alpha=1, random_state=0).fit(ROWS, y[:, 0])
    np.testing.assert_allclose(both.predict(ROWS)[:, 0], single.predict(ROWS), rtol=1e-6)


@pytest.mark.parametrize("gates", [3, 8, "auto"])
def test_repeated_rows_with_equal_means_predict_the_mean(gates):
    x, y = np.array([[0.0], [1.0], [2.0]] * 66), np.tile(np.repeat([0.1, 0.7], 3), 33)
    model = TSRidgeRegressor(gates, random_state=0).fit(x, y)
    np.testing.assert_allclose(model.predict(x), 0.4, atol=1e-9)
    classes = TSRidgeClassifier(gates, random_state=0)
    classes.fit(np.array([[0.0], [1.0]])[np.arange(90) % 2], [0] * 32 + [1] * 30 + [2] * 28)
    assert set(classes.predict(x)) == {0}


@pytest.mark.parametrize("estimator", [StreamingRidgeClassifier(), TSRidgeClassifier()])
@pytest.mark.parametrize("classes", [3, 5, 8])
def test_without_rows_to_calibrate_with_no_class_is_certain(estimator, classes):
    y = np.repeat(np.arange(classes), np.arange(12, 12 + classes))
    probability = estimator.fit(np.ones((len(y), 2)), y).predict_proba(np.ones((1, 2)))
    np.testing.assert_allclose(probability, 1 / classes, rtol=0.25)
    assert probability.argmax() == classes - 1


@pytest.mark.parametrize("estimator", [TSKernelRidgeClassifier(), TSMLPClassifier()])
def test_weights_that_leave_one_class_are_named(estimator):
    y, weight = (ROWS[:, 0] > 0).astype(int), np.ones(len(ROWS))
    weight[3] = 1e13
    with pytest.raises(ValueError, match="y of the rows whose sample_weight is not negl"):
        estimator.fit(ROWS, y, sample_weight=weight)


def test_a_dictionary_may_weigh_classes_that_appear_later():
    X = np.random.default_rng(0).normal(size=(30, 3))
    y = np.arange(30) % 3
    models = [
        TSRidgeClassifier(4, class_weight=weights, random_state=0)
        .partial_fit(X[y < 2], y[y < 2], classes=[0, 1])
        .partial_fit(X[y == 2], y[y == 2])
        for weights in ({2: 5.0}, {0: 1.0, 1: 1.0, 2: 5.0})
    ]
    np.testing.assert_array_equal(*(m.decision_function(X) for m in models))
