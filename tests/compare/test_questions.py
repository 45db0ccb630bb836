"""The right question: what counts, what rows are tested on, and what is suspicious."""

import numpy as np
import pandas as pd
import pytest

from tensorswitch.compare import compare, load_problem, train
from tensorswitch.compare._comparison import Record
from tensorswitch.compare._fitting import KERNEL_ROWS, Result, usual_learner
from tensorswitch.compare._metrics import classification_metrics, metric_name
from tensorswitch.compare._report import conclusion, table
from tensorswitch.datasets import DataError


def patients(rows=600, seed=0):
    """Rows of few positives, in the order of time, several of each patient."""
    rng = np.random.default_rng(seed)
    patient, risk = rng.integers(100, 160, rows), rng.normal(size=200)
    x = rng.normal(size=rows)
    score = 1.5 * x + risk[patient] + rng.normal(size=rows) - 2.6
    days = pd.Timestamp("2020-01-01") + pd.to_timedelta(np.arange(rows), unit="D")
    content = {"patient_id": patient, "day": days.strftime("%Y-%m-%d"), "x": x.round(4)}
    return pd.DataFrame(content | {"ill": np.where(score > 0, "yes", "no")})


@pytest.fixture
def file(tmp_path):
    patients().to_csv(tmp_path / "patients.csv", index=False)
    return tmp_path / "patients.csv"


def record(metric, *metrics):
    one = Record("a", "rr", "TS ridge", "", True, {}, len(metrics), metric)
    one.results = [Result(m, 1.0, 1.0) for m in metrics]
    return one


def test_ties_are_broken_by_the_log_loss():
    a = {"error": 0.06, "log_loss": 0.3}
    records = [record("error", a), record("error", a | {"log_loss": 0.2})]
    assert sorted(records, key=lambda r: r.rank) == records[::-1]
    better = record("roc-auc", a | {"roc_auc": 0.8}), record("roc-auc", a | {"roc_auc": 0.7})
    assert better[0].rank < better[1].rank


def test_measures_of_the_rarer_class():
    truth = np.array([0, 0, 0, 0, 1, 1])
    p = np.array([0.1, 0.2, 0.3, 0.6, 0.4, 0.9])
    found = classification_metrics(truth, (p > 0.5).astype(int), np.column_stack([1 - p, p]), 2)
    assert found["f1"] == pytest.approx(0.5)
    assert found["roc_auc"] == pytest.approx(7 / 8)
    assert found["average_precision"] == pytest.approx((1 + 2 / 3) / 2)
    swapped = classification_metrics(
        1 - truth, (p < 0.5).astype(int), np.column_stack([p, 1 - p]), 2
    )
    assert {k: swapped[k] for k in ("f1", "roc_auc")} == {k: found[k] for k in ("f1", "roc_auc")}


def test_a_metric_suits_the_task():
    assert metric_name(None, "regression") == "r2"
    assert metric_name("Balanced_Accuracy", "classification") == "balanced-accuracy"
    with pytest.raises(ValueError, match="must be one of r2, rmse, mae; got 'f1'"):
        metric_name("f1", "regression")


def test_learners_are_ranked_by_the_metric(file, tmp_path):
    options = {"metric": "roc-auc", "class_weight": "balanced"}
    found = compare(load_problem(file, target="ill"), ["linear", "forest"], tmp_path, **options)
    values = [r.mean("roc_auc") for r in found.ranked]
    assert values == sorted(values, reverse=True)
    assert values[-1] == 0.5  # of the baseline
    assert table(found)[0][:4] == ["learner", "ROC AUC", "±", "error, %"]
    assert "ROC AUC 0." in conclusion(found)
    assert "class_weight" in found.about["settings"]["linear"]


def test_weights_of_classes_have_names(file):
    problem = load_problem(file, target="ill")
    weighed, _ = train(problem, "linear", class_weight={"yes": 20.0})
    plain, _ = train(problem, "linear")
    rows = problem.rows
    assert weighed.predict_proba(rows)[:, 1].mean() > 2 * plain.predict_proba(rows)[:, 1].mean()
    with pytest.raises(ValueError, match="class_weight of 'ja'; classes are no, yes"):
        train(problem, "linear", class_weight={"ja": 2.0})


def test_a_threshold_is_chosen_on_rows_held_out_and_saved(file, tmp_path):
    problem = load_problem(file, target="ill")
    plain, before = train(problem, "rr", settings={"gates": 16})
    model, after = train(problem, "rr", tmp_path, metric="f1", settings={"gates": 16})
    assert after.metrics["f1"] > before.metrics["f1"] + 0.05
    rare, least = model.threshold
    assert (rare, plain.threshold) == (1, None)
    assert 0 < least < 0.5
    shares = model.predict_proba(problem.rows)[:, 1]
    assert model.predict(problem.rows).codes.tolist() == (shares >= least).astype(int).tolist()


def test_rows_of_a_second_file_are_tested_on(file, tmp_path):
    patients(50, seed=1).to_csv(tmp_path / "more.csv", index=False)
    problem = load_problem(file, target="ill", test=tmp_path / "more.csv")
    assert len(problem) == 650
    assert problem.split()[1].tolist() == [*range(600, 650)]
    found = compare(problem, ["linear"], tmp_path / "c", run=False)
    assert [len(rows) for rows in found.splits[0]] == [600, 50]
    patients(50).drop(columns="x").to_csv(tmp_path / "less.csv", index=False)
    with pytest.raises(DataError, match=r"less.csv has no column 'x', which patients.csv has"):
        load_problem(file, target="ill", test=tmp_path / "less.csv")


@pytest.mark.parametrize("split", ["time:day", "group:patient_id"])
def test_training_divides_the_rows_as_it_is_told(file, split, tmp_path):
    problem = load_problem(file, target="ill")
    model, result = train(problem, "linear", split=split)
    assert np.sum(result.metrics["confusion"]) == pytest.approx(180, abs=15)
    assert ("patient_id" in model.encoder.columns) == (split == "time:day")


def test_dates_and_identifiers_that_repeat_are_pointed_out(file):
    notes = " ".join(load_problem(file, target="ill").notes)
    assert "rows have dates; if new rows are later ones, test so with --split time:day" in notes
    assert "values of 'patient_id' repeat" in notes
    assert "--split group:patient_id" in notes
    assert "copy" not in notes
    named = " ".join(load_problem(file, target="ill", id_column="patient_id").notes)
    assert "--split group:patient_id" in named


@pytest.mark.parametrize(("column", "task"), [("ill", None), ("x", "regression")])
def test_copies_of_the_target_are_pointed_out(tmp_path, column, task):
    frame = patients()
    codes = {"yes": 7, "no": 3} if column == "ill" else None
    frame["leak"] = frame[column].map(codes) if codes else 3 * frame[column] - 1
    frame.to_csv(tmp_path / "leak.csv", index=False)
    notes = load_problem(tmp_path / "leak.csv", target=column, task=task).notes
    assert "'leak' is a copy of the target; leave it out with --ignore leak" in notes
    assert sum("copy" in note for note in notes) == 1


def test_learners_beyond_the_budget_are_not_run(file, tmp_path):
    problem = load_problem(file, target="ill")
    found = compare(problem, ["forest"], tmp_path, time_budget=0.1)
    states = {r.learner: r.complete for r in found.records}
    assert states == {"majority": True, "forest": False}
    assert any("not run: it takes about" in row[-1] for row in table(found)[1])
    again = compare(problem, ["forest"], tmp_path)
    assert all(r.complete for r in again.records)
    assert all(again.seconds_left(r) == 0 for r in again.records)


def test_the_usual_learner_depends_on_the_rows(file):
    problem = load_problem(file, target="ill")
    assert usual_learner(problem) == "kernel-ridge"
    assert usual_learner(load_problem("digits")) == "conv-rr"
    many = np.zeros((KERNEL_ROWS + 1, 2), np.float32)
    data = type(problem)("many", many, np.arange(len(many)) % 2, ("a", "b"))
    assert usual_learner(data) == "rr"


def test_a_model_of_another_target_is_not_replaced(file, tmp_path):
    folder = tmp_path / "run"
    train(load_problem(file, target="ill"), "rr", folder, settings={"gates": 8})
    before = (folder / "model.safetensors").read_bytes()
    other = load_problem(file, target="x")
    with pytest.raises(ValueError, match="is a model of 'ill', which would be lost"):
        train(other, "rr", folder, settings={"gates": 8})
    (folder / "model.safetensors").write_bytes(before[: len(before) // 2])
    with pytest.raises(ValueError, match="would be replaced, but"):
        train(other, "rr", folder, settings={"gates": 8})
