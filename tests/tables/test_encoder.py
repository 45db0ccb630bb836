"""Columns become numbers as their training rows say, and whatever comes later has a place."""

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline

from tensorswitch import persistence
from tensorswitch.datasets import DataError
from tensorswitch.tables import TableEncoder


def days(*values):
    return np.array(values, dtype="datetime64[s]")


TRAIN = pd.DataFrame(
    {
        "size": [1.0, 2.0, np.nan, 5.0],
        "colour": ["red", "blue", None, "red"],
        "sex": ["f", "m", "f", "m"],
        "day": days("2020-01-01", "2020-07-01", "2021-01-01", "2021-07-01"),
        "same": np.ones(4),
    }
)


def test_numbers_are_standardised_with_the_statistics_of_the_training_rows():
    encoder = TableEncoder().fit(TRAIN)
    x = encoder.transform(TRAIN)
    assert x.dtype == np.float32
    filled = np.array([1, 2, 2, 5])
    np.testing.assert_allclose(x[:, 0], (filled - filled.mean()) / filled.std(), rtol=1e-6)
    assert x[:, 1].tolist() == [0, 0, 1, 0]
    assert encoder.columns == ["size", "colour", "sex", "day"]
    assert encoder.left_out == {"same": "is constant"}
    assert len(encoder.input_names) == x.shape[1] == len(encoder.sources)
    assert encoder.get_feature_names_out().tolist() == encoder.input_names
    other = TRAIN.assign(size=[100.0, 0, 0, np.nan])
    np.testing.assert_allclose(encoder(other)[0, 0], (100 - filled.mean()) / filled.std())


def test_dates_are_days_and_phases():
    when = pd.date_range("2020-01-01 06:00", periods=400, freq="D")
    encoder = TableEncoder().fit(pd.DataFrame({"t": when}))
    parts = ["t", *(f"t, {c} {f}" for c in ("year", "week", "day") for f in ("cos", "sin"))]
    assert encoder.input_names == parts
    x = encoder.transform(pd.DataFrame({"t": ["2020-01-08 12:00", "soon"]}))
    np.testing.assert_allclose(x[0, 5:], [-1, 0], atol=1e-6)
    assert x[1].tolist() == [pytest.approx(0, abs=1e-2), 0, 0, 0, 0, 0, 0]


def test_large_numbers_keep_their_differences():
    times = 1.7e9 + np.arange(200.0)
    for column in (times, [f"{t:.0f}" for t in times], times.astype(np.int64)):
        x = TableEncoder().fit_transform(pd.DataFrame({"t": column}))
        np.testing.assert_allclose(np.diff(x[:, 0]), np.diff(x[:, 0]).mean(), rtol=1e-4)


def test_unseen_words_gaps_and_missing_columns():
    encoder = TableEncoder().fit(TRAIN)
    names = encoder.input_names
    new = pd.DataFrame({"colour": ["green", None], "sex": ["x", "m"]})
    x = encoder.transform(new)
    colour = [i for i, name in enumerate(names) if name.startswith("colour")]
    assert x[0, colour].tolist() == [0, 0, 0]  # an unseen word is none of those known
    assert x[1, colour].tolist() == [0, 0, 1]
    assert x[:, names.index("sex = m")].tolist() == [0.5, 1]
    assert np.isfinite(x).all()
    missing, *_ = encoder.describe_differences(new)
    assert missing == "missing columns, which count as missing values: size, day"
    (more,) = encoder.describe_differences(TRAIN.assign(more=1))
    assert more == "new columns, which are not used: more"
    assert not encoder.describe_differences(TRAIN.assign(more=1), besides=["more"])
    with pytest.raises(DataError, match="have none of the columns of training: size, colour"):
        encoder.describe_differences(TRAIN[[]])


def test_what_was_not_seen_is_described():
    encoder = TableEncoder().fit(TRAIN)
    assert encoder.describe_differences(TRAIN) == []
    new = {
        "size": ["3", "tall", None, "2"],
        "colour": ["green", "red", "pink", None],
        "day": ["2020-02-01", "soon", "later", None],
    }
    assert encoder.describe_differences(pd.DataFrame(new)) == [
        "missing columns, which count as missing values: sex",
        "column 'size': 1 row with a value that is not a number and counts as missing: 'tall'",
        "column 'day': 2 rows with a value that is not a date and counts as missing: "
        "'soon', 'later'",
        "column 'colour': 2 rows with a word that was not seen in training: 'green', 'pink'",
    ]


def test_many_words_share_an_input_and_identifiers_are_left_out():
    rng = np.random.default_rng(0)
    many = [f"w{int(i)}" for i in rng.geometric(0.04, 400)]
    frame = pd.DataFrame({"many": many, "key": [f"k{i}" for i in range(400)]})
    encoder = TableEncoder().fit(frame)
    assert len(encoder.input_names) == 31
    assert encoder.input_names[-1] == "many = other"
    assert encoder.left_out == {"key": "has 400 different words, such as 'k0', in 400 rows"}
    rare = encoder.transform(pd.DataFrame({"many": ["never seen"]}))
    assert rare[0].tolist() == [0] * 30 + [1]
    assert len(TableEncoder(levels=5).fit(frame).input_names) == 6
    gaps = frame.assign(many=[None, *many[1:]])
    x = TableEncoder().fit_transform(gaps)
    assert x[0].tolist() == [0] * 31 + [1]
    assert x.sum(1).tolist() == [1] * 400


def test_a_column_of_another_kind_is_converted_or_missing():
    encoder = TableEncoder().fit(TRAIN)
    new = pd.DataFrame({"size": ["2", "many"], "colour": [1.0, np.nan]})
    x, names = encoder.transform(new), encoder.input_names
    assert x[:, names.index("size is missing")].tolist() == [0, 1]
    assert x[:, names.index("colour is missing")].tolist() == [0, 1]
    x = encoder.transform(pd.DataFrame({"size": days("2020-01-01"), "day": [5.0]}))
    assert x[:, names.index("size is missing")].tolist() == [1]


def test_the_encoder_is_saved_without_pickle(tmp_path):
    encoder = TableEncoder(written={"n": "number ,"}).fit(TRAIN.assign(n=["1,5", "2,5", "x", "3"]))
    persistence.save(encoder, tmp_path / "e")
    again = persistence.load(tmp_path / "e", TableEncoder)
    assert again.get_params() == encoder.get_params()
    assert (again.columns, again.left_out) == (encoder.columns, encoder.left_out)
    np.testing.assert_array_equal(again.transform(TRAIN), encoder.transform(TRAIN))
    state = encoder.state()
    state["written"]["size"] = "date"
    with pytest.raises(ValueError, match="'size' of kind 'number' cannot be written as 'date'"):
        TableEncoder.from_state(state)


def test_new_rows_are_read_as_the_training_rows_were_written():
    """One cell that does not fit makes no others ambiguous."""
    for cells, new in (
        (["1,5", "2,5"], ["1,5", "unknown", "2,5"]),
        (["05/02/2023", "25/11/2023"], ["05/02/2023", "unknown", "25/11/2023"]),
    ):
        frame = pd.DataFrame({"n": cells})
        encoder, rows = TableEncoder().fit(frame), pd.DataFrame({"n": new})
        np.testing.assert_array_equal(encoder.transform(rows)[[0, 2]], encoder.transform(frame))
        (note,) = encoder.describe_differences(rows)
        assert "1 row with a value that is not a" in note
        known = TableEncoder(written={"n": "words"}).fit(frame)
        assert known.input_names == [f"n = {cells[1]}"]


def test_it_is_a_step_of_a_pipeline():
    rng = np.random.default_rng(0)
    size, kind = rng.normal(size=100), rng.choice(["a", "b", "c"], 100)
    frame = pd.DataFrame({"size": [f"{v:.2f} €" for v in size], "kind": kind})
    target = (size > 0) ^ (kind == "a")
    frame.loc[3, "size"] = "?"
    model = make_pipeline(TableEncoder(), LogisticRegression())
    assert cross_val_score(model, frame, target).mean() > 0.6
    assert clone(model.fit(frame, target))[0].get_params()["levels"] == 30
    names = model[:1].get_feature_names_out().tolist()
    assert names == ["size", "size is missing", "kind = a", "kind = b", "kind = c"]
    framed = TableEncoder().set_output(transform="pandas").fit(frame).transform(frame[:2])
    assert list(framed) == names
    x = rng.normal(size=(5, 3))
    assert TableEncoder().fit_transform(x).shape == (5, 3)


@pytest.mark.parametrize("frame", [{"a": [1, 1, 1]}, {"a": [None, None]}, {"a": [[1], [2]]}])
def test_nothing_to_learn_from_is_named(frame):
    with pytest.raises(DataError, match="no column to learn from"):
        TableEncoder().fit(pd.DataFrame(frame))


@pytest.mark.parametrize("value", ["2020-01-01", "1.5", "word"])
def test_a_column_of_one_value_and_gaps_says_where_it_is_missing(value):
    frame = pd.DataFrame({"a": [value, None] * 10, "b": np.arange(20.0)})
    encoder = TableEncoder().fit(frame)
    inputs = encoder(frame)[:, encoder.sources == 0]
    assert set(np.abs(np.diff(inputs[:2], axis=0)).max(0)) >= {1.0}
    assert np.isfinite(encoder(pd.DataFrame({"a": ["2021-05-05"], "b": [1.0]}))).all()
