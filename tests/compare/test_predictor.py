"""A fitted pipeline: one file, and rows of other files."""

import numpy as np
import pytest

from tensorswitch.compare import (
    Predictions,
    Predictor,
    Problem,
    load_predictor,
    predict_rows,
    train,
)
from tensorswitch.datasets import load
from tensorswitch.estimators import TSRidgeClassifier, save_estimator
from tensorswitch.models import mlp, save_model
from tests.compare.test_comparison import table

SMALL = {
    "rr": {"gates": 8},
    "ss": {"hidden_layer_sizes": 8, "max_iter": 3},
    "conv-rr": {"features": 128, "grid": 2, "sizes": (3,), "flips": False},
    "svm-ts": {"depth": 1},
}


@pytest.mark.parametrize("learner", ["rr", "kernel-ridge", "ss", "conv-rr", "svm-ts"])
def test_a_loaded_pipeline_predicts_the_same(tmp_path, learner):
    data = load("digits")
    problem = small_digits(data)
    settings = SMALL.get(learner)
    predictor, result = train(problem, learner, tmp_path, settings=settings, components=12)
    rows = data.test_images[:50]
    before, after = (p.predict(rows) for p in (predictor, load_predictor(tmp_path)))
    np.testing.assert_allclose(before.probabilities, after.probabilities, atol=1e-6)
    assert before.labels.tolist() == after.labels.tolist()
    np.testing.assert_allclose(after.probabilities.sum(1), 1, rtol=1e-5)
    assert learner == "ss" or 1 - result.metrics["error"] > 0.5


def small_digits(data):
    given = np.arange(150, 200)
    rows, target = data.train_images[:200], data.train_labels[:200]
    return Problem("digits", rows, target, data.class_names, given_test=given)


def test_the_refit_has_seen_all_rows_and_keeps_the_interval(tmp_path):
    problem = table(tmp_path)
    held, _ = train(problem, "kernel-ridge", holdout=True)
    whole, _ = train(problem, "kernel-ridge")
    assert held.interval == whole.interval
    test_rows = problem.split()[1]
    test = problem.rows.take(test_rows)
    far = [np.abs(p.predict(test).values - problem.target[test_rows]).mean() for p in (held, whole)]
    assert far[1] < far[0]


@pytest.mark.parametrize("learner", ["linear", "rr", "kernel-ridge", "forest"])
def test_intervals_cover_about_nine_tenths(tmp_path, learner):
    problem = table(tmp_path, 400)
    predictor, _ = train(problem, learner, holdout=True)
    test = problem.split()[1]
    found = predictor.predict(problem.rows.take(test))
    inside = (found.low <= problem.target[test]) & (problem.target[test] <= found.high)
    assert 0.85 <= inside.mean() <= 0.97


@pytest.mark.parametrize("learner", ["rr", "kernel-ridge", "ss"])
@pytest.mark.parametrize("components", [0, 12])
def test_contributions_of_pixels_add_up(learner, components):
    problem = small_digits(load("digits"))
    options = {"settings": SMALL.get(learner), "components": components, "holdout": True}
    predictor, _ = train(problem, learner, **options)
    rows = problem.rows[150:160]
    found = predictor.explain(rows)
    assert found.contributions.shape[2:] == (1, 8, 8)
    x = predictor.encoder(rows)
    model = predictor.model
    outputs = model.explain(x).outputs if learner == "ss" else model.decision_function(x)
    np.testing.assert_allclose(found.outputs, outputs, atol=1e-4 * np.abs(outputs).max())


@pytest.mark.parametrize("components", [0, 5])
def test_contributions_of_padded_images_have_the_pixels_of_the_image(components):
    """Images of 28 × 28 are learned with a margin."""
    rows = np.random.default_rng(0).integers(0, 255, (80, 1, 28, 28)).astype(np.uint8)
    target = np.arange(80) % 2
    rows[target == 1, :, 5:20, 9:14] //= 4
    problem = Problem("noise", rows, target, ("a", "b"), given_test=np.arange(60, 80))
    predictor, _ = train(problem, "rr", settings=SMALL["rr"], components=components, holdout=True)
    found = predictor.explain(rows[60:70])
    assert found.contributions.shape == (10, 1, 1, 28, 28)
    outputs = predictor.model.decision_function(predictor.encoder(rows[60:70]))[:, None]
    np.testing.assert_allclose(found.outputs, outputs, atol=1e-4 * np.abs(outputs).max())


@pytest.mark.parametrize("learner", ["rr", "kernel-ridge", "ss"])
def test_contributions_of_columns_add_up(tmp_path, learner):
    problem = table(tmp_path)
    predictor, _ = train(problem, learner, settings=SMALL.get(learner), holdout=True)
    rows = problem.rows.take(np.arange(20))
    found = predictor.explain(rows)
    expected = predictor.predict(rows).values
    np.testing.assert_allclose(found.outputs[:, 0], expected, atol=1e-4 * np.abs(expected).max())


def test_only_learners_of_this_library_are_saved(tmp_path):
    with pytest.raises(TypeError, match="random forest cannot be saved without pickle"):
        train(small_digits(load("digits")), "forest", tmp_path / "m")
    assert not (tmp_path / "m").exists()


def test_files_of_other_things_are_refused(tmp_path):
    x = np.random.default_rng(0).normal(size=(20, 2))
    save_estimator(TSRidgeClassifier(2).fit(x, x[:, 0] > 0), tmp_path / "estimator")
    save_model(mlp(3, 2, kind="ts-lrc", depth=1, width=4), tmp_path / "network")
    for name in ("estimator", "network"):
        with pytest.raises(ValueError, match=f"{name} .*use a model written by .tensorswitch"):
            load_predictor(tmp_path / name)
    with pytest.raises(FileNotFoundError, match="nothing does not exist"):
        load_predictor(tmp_path / "nothing")


def test_rows_without_labels_have_no_error(tmp_path):
    predictor, _ = train(small_digits(load("digits")), "linear", holdout=True)
    np.save(tmp_path / "new.npy", np.zeros((3, 8, 8), np.uint8))
    found, rows = predict_rows(predictor, tmp_path / "new.npy")
    assert len(found) == 3
    assert np.isnan(found.error)
    assert rows.truth is None
    with pytest.raises(ValueError, match="true targets are not known"):
        found.metrics()


def test_metrics_of_equal_targets():
    for rows in (10, 20, 50):
        found = Predictions(None, values=np.full(rows, 0.15), truth=np.full(rows, 0.1))
        assert np.isnan(found.metrics()["r2"])


def test_a_predictor_needs_no_target(tmp_path):
    predictor, _ = train(table(tmp_path), "linear", holdout=True)
    assert isinstance(predictor, Predictor)
    lines = (tmp_path / "houses.csv").read_text().splitlines()
    (tmp_path / "new.csv").write_text("\n".join(line.rsplit(",", 1)[0] for line in lines))
    found, rows = predict_rows(predictor, tmp_path / "new.csv")
    assert len(found) == 100
    assert rows.notes == []
