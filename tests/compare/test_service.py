"""From a folder that `train` wrote to predictions in a service."""

import numpy as np
import pandas as pd
import pytest

import tensorswitch
from tensorswitch.compare import load_problem, train
from tensorswitch.datasets import DataError
from tensorswitch.estimators import TSRidgeClassifier, load_estimator, save_estimator
from tests.compare.test_questions import patients

MISSING = (None, np.nan, pd.NA, "", float("nan"), "NA")


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("service")
    frame = patients()
    frame["ward"] = np.random.default_rng(1).choice(["a", "b", ""], 600)
    frame.loc[::9, "x"] = np.nan
    frame.to_csv(folder / "patients.csv", index=False)
    problem = load_problem(folder / "patients.csv", target="ill", id_column="patient_id")
    train(problem, "rr", folder / "run", settings={"gates": 16})
    return folder


@pytest.fixture
def model(place):
    return tensorswitch.load(place / "run")


ROW = {"day": "2020-03-01", "x": 1.5, "ward": "a"}


def test_rows_may_be_frames_dictionaries_lists_and_files(model, place):
    rows = [ROW, ROW | {"x": -1.0}, ROW | {"ward": "b"}]
    frame = pd.DataFrame(rows)
    frame.to_csv(place / "rows.csv", index=False)
    expected = model.predict_proba(frame)
    for given in (rows, frame.to_dict("list"), place / "rows.csv", str(place / "rows.csv")):
        np.testing.assert_allclose(model.predict_proba(given), expected, rtol=1e-5)
    np.testing.assert_allclose(model.predict_proba(ROW), expected[:1], rtol=1e-5)
    np.testing.assert_allclose(model.predict_proba(frame.iloc[1]), expected[1:2], rtol=1e-5)
    labels = model.predict(frame)
    assert list(labels) == labels.labels.tolist() == np.asarray(labels).tolist()
    assert {*labels} <= {"yes", "no"}


@pytest.mark.parametrize("column", ["x", "ward", "day"])
def test_all_that_is_missing_is_alike(model, column):
    found = [model.predict_proba(ROW | {column: value}) for value in MISSING]
    for other in found[1:]:
        np.testing.assert_array_equal(other, found[0])
    without = {name: value for name, value in ROW.items() if name != column}
    np.testing.assert_array_equal(model.predict_proba(without), found[0])
    assert not np.allclose(found[0], model.predict_proba(ROW))


def test_what_is_unusual_is_noted(model):
    assert model.predict(ROW).notes == ()
    (note,) = model.predict(ROW | {"ward": "z"}).notes
    assert note == "column 'ward': 1 row with a word that was not seen in training: 'z'"
    missing, new = model.predict({"x": 1.0, "y": 2.0, "day": "2020-03-01"}).notes
    assert missing == "missing columns, which count as missing values: ward"
    assert new == "new columns, which are not used: y"


def test_contributions_add_up(model):
    found = model.explain(ROW)
    assert found.contributions.shape[-1] == len(model.encoder.columns) == 3


@pytest.mark.parametrize(
    ("rows", "error", "message"),
    [
        ([1, 2], TypeError, "rows must be a DataFrame, a dictionary, a list of dictionaries or"),
        (np.zeros((2, 3)), TypeError, "since columns are known by name; got ndarray"),
        ({"a": 1}, DataError, "the rows have none of the columns of training: day, x, ward"),
    ],
)
def test_wrong_rows_are_named(model, rows, error, message):
    with pytest.raises(error, match=message):
        model.predict(rows)


def test_a_model_of_images_takes_arrays():
    digits = load_problem("digits")
    model, _ = train(digits, "rr", settings={"gates": 16})
    assert len(model.predict(digits.rows[:3])) == 3
    with pytest.raises(DataError, match=r"the array has rows of shape \(3, 3\)"):
        model.predict(np.zeros((2, 3, 3), np.uint8))


def test_every_kind_of_file_is_loaded_or_explained(place, tmp_path):
    model = TSRidgeClassifier(gates=4, random_state=0).fit(np.eye(4), [0, 1, 0, 1])
    save_estimator(model, tmp_path / "model.safetensors")
    assert isinstance(tensorswitch.load(tmp_path), TSRidgeClassifier)
    assert isinstance(load_estimator(tmp_path), TSRidgeClassifier)
    with pytest.raises(ValueError, match=r"it holds a Predictor.*tensorswitch\.load reads all"):
        load_estimator(place / "run")
    with pytest.raises(FileNotFoundError, match="is not a file"):
        tensorswitch.load(place)
