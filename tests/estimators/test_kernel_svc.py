from concurrent.futures import ThreadPoolExecutor

import joblib
import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits, make_classification
from sklearn.model_selection import GridSearchCV
from sklearn.svm import SVC
from sklearn.utils.estimator_checks import parametrize_with_checks

from benchmarks._measure import peak_extra_bytes
from tensorswitch.estimators import TSKernelSVC, kernel_svc_grid
from tensorswitch.estimators._kernel_svc import solve
from tensorswitch.kernels import ss_kernel, ts_kernel
from tensorswitch.persistence import load, save

EXPECTED_FAILURES = {  # those that scikit-learn expects of its own SVC
    "check_sample_weight_equivalence_on_dense_data": (
        "sample_weight is not equivalent to removing/repeating samples."
    )
}


@pytest.mark.usefixtures("threads")
@parametrize_with_checks(
    [TSKernelSVC(), TSKernelSVC("ss", 2, normalize=True)],
    expected_failed_checks=lambda _: EXPECTED_FAILURES,
)
def test_scikit_learn_checks(estimator, check):
    check(estimator)


@pytest.fixture(scope="module")
def digits():
    X, y = load_digits(return_X_y=True)
    return X[:800], y[:800], X[800:], y[800:]


def whole(kernel, C, data, depth, **options):
    """Fit libsvm with the full Gram matrix."""
    X, y, X_test, _ = data
    model = SVC(kernel="precomputed", C=C, **options).fit(kernel(X, depth=depth), y)
    return model, kernel(X_test, X, depth)


@pytest.mark.parametrize("weights", [None, "balanced", {3: 5.0}])
@pytest.mark.parametrize(
    ("kind", "kernel", "C", "depth"), [("ts", ts_kernel, 1e-3, 2), ("ss", ss_kernel, 1.0, 3)]
)
def test_same_as_libsvm_with_the_full_matrix(digits, kind, kernel, C, depth, weights):
    exact, across = whole(
        kernel, C, digits, depth, class_weight=weights, decision_function_shape="ovo"
    )
    options = {"class_weight": weights, "decision_function_shape": "ovo", "n_jobs": 2}
    ours = TSKernelSVC(kind, depth, C, bias=False, **options).fit(*digits[:2])
    assert (ours.predict(digits[2]) == exact.predict(across)).all()
    np.testing.assert_allclose(
        ours.decision_function(digits[2]), exact.decision_function(across), rtol=1e-7, atol=1e-9
    )
    assert set(ours.support_) == set(exact.support_)
    np.testing.assert_allclose(ours.intercept_, exact.intercept_, atol=1e-9)
    exact.decision_function_shape = ours.decision_function_shape = "ovr"
    np.testing.assert_allclose(
        ours.decision_function(digits[2]), exact.decision_function(across), rtol=1e-7, atol=1e-9
    )


def test_two_classes_with_string_labels_and_sample_weights(digits):
    X, y, X_test, _ = digits
    names = np.array(["low", "high"])[(y >= 5).astype(int)]
    weight = np.linspace(0.1, 2, len(y))
    exact = SVC(kernel="precomputed", C=0.01).fit(ts_kernel(X), names, sample_weight=weight)
    ours = TSKernelSVC(C=0.01, bias=False).fit(X, names, sample_weight=weight)
    assert (ours.predict(X_test) == exact.predict(ts_kernel(X_test, X))).all()
    np.testing.assert_allclose(
        ours.decision_function(X_test),
        exact.decision_function(ts_kernel(X_test, X)),
        rtol=1e-6,
        atol=1e-9,
    )


def test_samples_of_zero_weight_are_ignored(digits):
    X, y, X_test, _ = digits
    weight = np.where(np.arange(len(y)) % 3 == 0, 0.0, 1.0)
    with_zeros = TSKernelSVC(C=0.01).fit(X, y, weight)
    without = TSKernelSVC(C=0.01).fit(X[weight > 0], y[weight > 0])
    np.testing.assert_allclose(
        with_zeros.decision_function(X_test), without.decision_function(X_test)
    )
    assert (weight[with_zeros.support_] > 0).all()
    with pytest.raises(ValueError, match="all samples of class 4 have a sample_weight of zero"):
        TSKernelSVC().fit(X, y, np.where(y == 4, 0.0, 1.0))


def test_normalising_is_scaling_rows_to_unit_length(digits):
    X, y, X_test, _ = digits
    unit, unit_test = (rows / np.linalg.norm(rows, axis=1, keepdims=True) for rows in (X, X_test))
    a = TSKernelSVC(depth=2, C=10, normalize=True).fit(X, y).decision_function(X_test)
    b = TSKernelSVC(depth=2, C=10).fit(unit, y).decision_function(unit_test)
    np.testing.assert_allclose(a, b, atol=1e-6)


def test_float32_stays_float32_and_agrees(digits):
    X, y, X_test, y_test = digits
    single = TSKernelSVC(depth=3, C=10, normalize=True).fit(X.astype(np.float32), y)
    double = TSKernelSVC(depth=3, C=10, normalize=True).fit(X, y)
    assert single.support_vectors_.dtype == np.float32
    assert (single.predict(X_test) != double.predict(X_test)).mean() < 0.005
    assert single.score(X_test, y_test) > 0.93


def test_grid_equals_single_fits_and_shares_the_kernel(digits):
    X, y, X_val, y_val = digits
    grid = kernel_svc_grid(X, y, X_val, y_val, depths=(1, 4), Cs=(0.1, 10))
    assert len(grid) == 8
    for (kind, depth, C), error in grid.items():
        assert error == pytest.approx(
            1
            - TSKernelSVC(kind, depth, C, normalize=True, bias=False).fit(X, y).score(X_val, y_val)
        )
    assert grid == kernel_svc_grid(
        X, y, X_val, y_val, depths=(1, 4), Cs=(0.1, 10), memory_gb=0.21, n_jobs=2
    )


def test_machines_that_reach_no_bound_are_those_of_any_larger_penalty(digits, monkeypatch):
    X, y, X_val, y_val = digits
    two = np.isin(y, (3, 8))
    first = TSKernelSVC(depth=2, C=1000, normalize=True).fit(X[two], y[two])
    largest = float(np.abs(first.pair_coef_).max())
    second = TSKernelSVC(depth=2, C=1.001 * largest, normalize=True).fit(X[two], y[two])
    np.testing.assert_allclose(
        second.decision_function(X_val), first.decision_function(X_val), atol=2e-3
    )
    solved = []
    monkeypatch.setattr(
        "tensorswitch.estimators._svc_grid.solve",
        lambda solver, *rest: solved.append(solver.C) or solve(solver, *rest),
    )
    grid = kernel_svc_grid(
        *(X[two], y[two], X_val, y_val),
        kinds=["ts"],
        depths=[2],
        bias=True,
        Cs=(1000, 1.001 * largest, 0.5 * largest, 100_000),
    )
    assert solved == [0.5 * largest, 1.001 * largest]  # the others are free
    assert len(grid) == 4


def test_in_grid_search_and_under_a_joblib_backend(digits):
    X, y, _, _ = digits
    search = GridSearchCV(TSKernelSVC(normalize=True), {"depth": [1, 3], "C": [1, 10]}, cv=2).fit(
        X[:300], y[:300]
    )
    assert search.best_score_ > 0.8
    with joblib.parallel_config("loky", n_jobs=2):
        model = TSKernelSVC(normalize=True).fit(X[:300], y[:300])
    assert (
        model.predict(X[:300]) == TSKernelSVC(normalize=True).fit(X[:300], y[:300]).predict(X[:300])
    ).all()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"y": [0, 1]}, "inconsistent numbers of samples"),
        ({"y_val": [0, 1]}, "inconsistent numbers of samples"),
        ({"X_val": np.ones((6, 5)), "y_val": np.arange(6)}, "X has 4 features but X_val has 5"),
        ({"X_val": np.full((6, 4), np.nan), "y_val": np.arange(6)}, "contains NaN"),
        ({"depths": []}, "the grid is empty"),
        ({"Cs": [-1]}, "C must be a finite number above 0, got -1"),
        ({"memory_gb": -1}, "memory_gb must be a finite number above 0, got -1"),
    ],
)
def test_wrong_arguments_of_the_grid_are_named(change, message):
    arguments = {
        "X": np.eye(4),
        "y": [0, 0, 1, 1],
        "X_val": np.eye(4),
        "y_val": [0, 0, 1, 1],
        **change,
    }
    with pytest.raises(ValueError, match=message):
        kernel_svc_grid(**arguments)


def test_integer_features():
    X = np.array([[0, 1], [1, 0], [0, 2], [2, 0]])
    X_val = np.array([[0.4, 0.9], [0.9, 0.4]])
    assert kernel_svc_grid(X, [0, 1, 0, 1], X_val, [0, 1], depths=[1], Cs=[1], normalize=False) == {
        ("ss", 1, 1): 0.0,
        ("ts", 1, 1): 0.0,
    }


def test_parameters_changed_after_the_fit_do_not_change_predictions(digits):
    model = TSKernelSVC(depth=3, normalize=True).fit(*digits[:2])
    before = model.predict(digits[2])
    assert (
        model.set_params(depth=1, kernel="ss", normalize=False).predict(digits[2]) == before
    ).all()


def test_the_number_of_torch_threads_is_left_as_it_was(digits):
    before = torch.get_num_threads()
    for _ in range(3):
        TSKernelSVC(n_jobs=2).fit(digits[0][:200], digits[1][:200])
    with ThreadPoolExecutor(1) as pool:
        assert torch.get_num_threads() == pool.submit(torch.get_num_threads).result() == before


def fit_within(budget):
    X, y = make_classification(3000, 20, n_informative=10, n_classes=3, random_state=0)
    TSKernelSVC().fit(X[:100], y[:100])
    model = TSKernelSVC(cache_size=20, n_jobs=2, memory_gb=budget)
    return lambda: model.fit(X, y)


def search_within(budget):
    X, y = make_classification(4000, 20, n_informative=10, n_classes=3, random_state=0)
    kernel_svc_grid(X[:100], y[:100], X[-100:], y[-100:], depths=[1], Cs=[1])
    return lambda: kernel_svc_grid(
        X[:3000],
        y[:3000],
        X[3000:],
        y[3000:],
        depths=range(1, 4),
        Cs=[1],
        cache_size=20,
        memory_gb=budget,
    )


@pytest.mark.parametrize(("prepare", "budget"), [(fit_within, 0.06), (search_within, 0.16)])
def test_the_memory_budget_is_kept(prepare, budget):
    """The budget does not include tiles and support vectors, which take up to 40 MB.

    A pair takes 2000² · 8 bytes and 20 MB for libsvm; in the search, a matrix takes 48 MB.
    """
    assert peak_extra_bytes(prepare, budget) < budget * 2**30 + 40e6


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"C": 0}, ValueError, "'C' parameter of TSKernelSVC must be a float .* Got 0 instead"),
        ({"C": np.nan}, ValueError, "'C' parameter of .* Got nan instead"),
        ({"C": None}, ValueError, "'C' parameter of .* Got None instead"),
        ({"memory_gb": 0}, ValueError, "'memory_gb' parameter of .* Got 0 instead"),
        ({"depth": -1}, ValueError, "'depth' parameter of .* Got -1 instead"),
        ({"depth": 1.0}, TypeError, "'depth' parameter of .* Got 1.0 instead"),
        ({"kernel": "rbf"}, ValueError, "'kernel' parameter of .* Got 'rbf' instead"),
        ({"decision_function_shape": "x"}, ValueError, "'decision_function_shape' parameter"),
        (
            {"memory_gb": 1e-3},
            MemoryError,
            "classes 0 and 3 need 0.20 GB for their Gram matrix and libsvm's cache",
        ),
    ],
)
def test_wrong_parameters_are_named(digits, options, error, message):
    with pytest.raises(error, match=message):
        TSKernelSVC(**options).fit(*digits[:2])


@pytest.mark.parametrize(
    ("X", "y", "message"),
    [
        (np.ones((4, 2)), [0, 0, 0, 0], "at least 2 classes, but y contains only one class: 0"),
        (np.array([[1.0], [np.nan]]), [0, 1], "contains NaN"),
        (np.array([[1.0], [np.inf]]), [0, 1], "contains infinity"),
        (np.ones((2, 2)), [0, 1, 1], "inconsistent numbers of samples"),
        (np.ones((3, 2)), [0.1, 0.2, 0.3], "Unknown label type"),
    ],
)
def test_wrong_data_is_named(X, y, message):
    with pytest.raises(ValueError, match=message):
        TSKernelSVC().fit(X, y)


def test_as_many_classes_as_samples_is_allowed():
    model = TSKernelSVC().fit(np.eye(4), ["a", "b", "c", "d"])
    assert (model.predict(np.eye(4)) == ["a", "b", "c", "d"]).all()
    with pytest.raises(ValueError, match="4 features"):
        model.predict(np.ones((1, 3)))


@pytest.mark.filterwarnings("ignore")
def test_pairs_run_on_a_dask_cluster(digits):
    distributed = pytest.importorskip("distributed")
    X, y, X_test, _ = digits
    options = {
        "n_workers": 2,
        "threads_per_worker": 1,
        "processes": True,
        "dashboard_address": None,
        "memory_limit": 0,
    }
    cluster = distributed.LocalCluster(**options)
    with (
        cluster,
        distributed.Client(cluster) as client,
        joblib.parallel_config(backend="dask"),
        distributed.get_task_stream(client) as tasks,
    ):
        there = TSKernelSVC(depth=2, C=1e-3).fit(X, y)
    assert tasks.data  # the work was done on the cluster
    np.testing.assert_array_equal(
        there.decision_function(X_test),
        TSKernelSVC(depth=2, C=1e-3).fit(X, y).decision_function(X_test),
    )


def stripes():
    X = np.random.default_rng(0).uniform(-3, 3, (300, 1))
    return X, (np.floor(X[:, 0]) % 2).astype(int)


def test_the_constant_input_is_one_more_column():
    X, y = stripes()
    length = np.sqrt(np.square(X).mean())
    model = TSKernelSVC(depth=2, C=100).fit(X, y)
    assert model.bias_ == pytest.approx(length)
    assert model.support_vectors_.shape[1] == 1
    by_hand = TSKernelSVC(depth=2, C=100, bias=False).fit(np.c_[X, np.full(300, length)], y)
    np.testing.assert_allclose(
        model.decision_function(X), by_hand.decision_function(np.c_[X, np.full(300, length)])
    )
    assert model.score(X, y) > TSKernelSVC(depth=2, C=100, bias=False).fit(X, y).score(X, y) + 0.1
    given = TSKernelSVC(bias=0.5).fit(X, y)
    assert given.bias_ == 0.5
    with pytest.raises(ValueError, match=r"'bias' parameter .* Got -1 instead"):
        TSKernelSVC(bias=-1).fit(X, y)


@pytest.mark.parametrize("classes", [2, 3])
def test_probabilities_are_calibrated(classes):
    X, y = make_classification(
        400, 6, n_informative=4, n_classes=classes, flip_y=0.2, random_state=0
    )
    model = TSKernelSVC(probability=True).fit(X[:300], y[:300])
    p = model.predict_proba(X[300:])
    np.testing.assert_allclose(p.sum(1), 1)
    assert (p.argmax(1) == model.predict(X[300:])).mean() > 0.9
    right = p.max(1)[p.argmax(1) == y[300:]].sum() / p.max(1).sum()
    assert right == pytest.approx(p.max(1).mean(), abs=0.15)
    assert not hasattr(TSKernelSVC(), "predict_proba")


def test_probabilities_need_two_rows_of_each_class():
    X, y = stripes()
    y[0] = 7
    with pytest.raises(ValueError, match="probability=True needs 2 rows of each class, but 7 has"):
        TSKernelSVC(probability=True).fit(X, y)


def test_what_is_wrong_with_weights_and_probabilities_is_said():
    X, y = make_classification(60, random_state=0)
    with pytest.raises(ValueError, match="class_weight must be positive, but that of class 0"):
        TSKernelSVC(class_weight={0: 0, 1: 1}).fit(X, y)
    model = TSKernelSVC().fit(X, y).set_params(probability=True)
    with pytest.raises(ValueError, match="fitted with probability=False; fit it again"):
        model.predict_proba(X)


def test_a_grid_compares_labels_of_one_type():
    X, y = make_classification(60, random_state=0)
    grid = {"depths": [1], "Cs": [1.0]}
    found = kernel_svc_grid(X, y, X, y, kinds="ts", **grid)
    assert list(found) == [("ts", 1, 1.0)]
    with pytest.raises(ValueError, match=r"labels of y have the type .*, but those of y_val"):
        kernel_svc_grid(X, y, X, y.astype(str), **grid)


@pytest.mark.parametrize("probability", [False, True])
def test_saved_and_loaded_it_predicts_the_same(digits, tmp_path, probability):
    X, y, X_test, _ = digits
    names = np.array([f"digit {k}" for k in range(10)])
    model = TSKernelSVC("ntk", 2, 10, normalize=True, probability=probability)
    model.fit(X[:300], names[y[:300]])
    save(model, tmp_path / "model")
    loaded = load(tmp_path / "model", TSKernelSVC)
    assert loaded.get_params() == model.get_params()
    np.testing.assert_array_equal(loaded.predict(X_test), model.predict(X_test))
    np.testing.assert_array_equal(loaded.n_support_, model.n_support_)
    of = "predict_proba" if probability else "decision_function"
    np.testing.assert_array_equal(getattr(loaded, of)(X_test), getattr(model, of)(X_test))
