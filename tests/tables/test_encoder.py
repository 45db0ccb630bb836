"""Columns become numbers as their training rows say, and whatever comes later has a place."""

import json

import numpy as np
import pytest

from tensorswitch.data import DataError, Table, TableEncoder, load_problem, table_problem


def words(*values):
    column = np.empty(len(values), dtype=object)
    column[:] = values
    return column


def days(*values):
    return np.array(values, dtype="datetime64[s]")


TRAIN = Table(
    "train",
    {
        "size": np.array([1.0, 2.0, np.nan, 5.0]),
        "colour": words("red", "blue", None, "red"),
        "sex": words("f", "m", "f", "m"),
        "day": days("2020-01-01", "2020-07-01", "2021-01-01", "2021-07-01"),
        "same": np.ones(4),
    },
)


def test_numbers_are_standardised_with_the_statistics_of_the_training_rows():
    encoder = TableEncoder.fit(TRAIN)
    x = encoder(TRAIN)
    assert x.dtype == np.float32
    filled = np.array([1, 2, 2, 5])
    np.testing.assert_allclose(x[:, 0], (filled - filled.mean()) / filled.std(), rtol=1e-6)
    assert x[:, 1].tolist() == [0, 0, 1, 0]
    assert encoder.left_out == {"same": "is constant"}
    assert len(encoder.input_names) == x.shape[1] == len(encoder.sources)
    other = Table("new", {**TRAIN.columns, "size": np.array([100.0, 0, 0, np.nan])})
    np.testing.assert_allclose(encoder(other)[0, 0], (100 - filled.mean()) / filled.std())


def test_unseen_words_gaps_and_missing_columns():
    encoder = TableEncoder.fit(TRAIN)
    names = encoder.input_names
    new = Table("new", {"colour": words("green", None), "sex": words("x", "m")})
    x = encoder(new)
    colour = [i for i, name in enumerate(names) if name.startswith("colour")]
    assert x[0, colour].tolist() == [0, 0, 0]  # an unseen word is none of those known
    assert x[1, colour].tolist() == [0, 0, 1]
    assert x[:, names.index("sex = m")].tolist() == [0.5, 1]
    assert np.isfinite(x).all()
    assert encoder.differences(new) == (["size", "day"], [])
    assert encoder.differences(Table("n", {**TRAIN.columns, "more": np.ones(4)}))[1] == ["more"]


def test_surprises_are_described():
    encoder = TableEncoder.fit(TRAIN)
    assert encoder.surprises(TRAIN) == []
    new = {
        "size": words("3", "tall", None, "2"),
        "colour": words("green", "red", "pink", None),
        "day": words("2020-02-01", "soon", "later", None),
    }
    assert encoder.surprises(Table("new", new)) == [
        "column 'size': 1 row with a value that is not a number and counts as missing: 'tall'",
        "column 'colour': 2 rows with a word that was not seen in training: 'green', 'pink'",
        "column 'day': 2 rows with a value that is not a date and counts as missing: "
        "'soon', 'later'",
    ]


def test_many_words_share_an_input_and_identifiers_are_left_out():
    rng = np.random.default_rng(0)
    many = words(*(f"w{int(i)}" for i in rng.geometric(0.04, 400)))
    keys = words(*(f"k{i}" for i in range(400)))
    encoder = TableEncoder.fit(Table("t", {"many": many, "key": keys}))
    assert len(encoder.columns[0].levels) == 30
    assert encoder.input_names[-1] == "many = other"
    assert encoder.left_out == {"key": "has 400 different words, such as 'k0', in 400 rows"}
    rare = encoder(Table("n", {"many": words("never seen")}))
    assert rare[0].tolist() == [0] * 30 + [1]


def test_a_column_of_another_kind_is_converted_or_missing():
    encoder = TableEncoder.fit(TRAIN)
    new = Table("new", {"size": words("2", "many"), "colour": np.array([1.0, np.nan])})
    x, names = encoder(new), encoder.input_names
    assert x[:, names.index("size is missing")].tolist() == [0, 1]
    assert x[:, names.index("colour is missing")].tolist() == [0, 1]


def test_the_encoder_survives_json():
    encoder = TableEncoder.fit(TRAIN)
    again = TableEncoder.from_json(json.loads(json.dumps(encoder.to_json())))
    assert again == encoder
    with pytest.raises(ValueError, match="not the description of a table's columns"):
        TableEncoder.from_json({"columns": [{}]})


def test_the_task_is_found_from_the_target(tmp_path):
    rows = [f"{i},{i % 3},{i / 7:.3f},{'ab'[i % 2]},{1900 + i}" for i in range(60)]
    path = tmp_path / "a.csv"
    path.write_text("n,few,real,letters,year\n" + "\n".join(rows))
    assert table_problem(path, "few").class_names == ("0", "1", "2")
    assert table_problem(path, "few", task="regression").class_names is None
    assert table_problem(path, "real").task == "regression"
    assert table_problem(path, "letters").class_names == ("a", "b")
    year = table_problem(path, "year", ignore=["few"])
    assert year.task == "regression"
    assert set(year.rows.columns) == {"real", "letters"}  # n numbers the rows
    assert year.ignored == ("n", "few")
    with pytest.raises(DataError, match="contains text such as 'a'"):
        table_problem(path, "letters", task="regression")


@pytest.mark.parametrize(
    ("values", "names"),
    [
        (range(10, 20), None),  # as many values as rows
        ([*range(20)] * 3, None),
        ([*range(20)] * 5, tuple(map(str, range(20)))),
        ([3, 4, 5, 6, 7] * 2, ("3", "4", "5", "6", "7")),
        (["01", "02", "10"] * 4, ("01", "02", "10")),
        (["None", "Light", "Heavy", ""] * 4, ("Heavy", "Light", "None")),
        (["None", *("Light", "Heavy") * 6], ("Heavy", "Light")),
        (["NA", "a", "b"] * 5, ("a", "b")),
    ],
)
def test_classes_and_their_names(tmp_path, values, names):
    path = tmp_path / "a.csv"
    path.write_text("x,y\n" + "".join(f"{i * i % 7},{v}\n" for i, v in enumerate(values)))
    assert table_problem(path).class_names == names


def test_numbers_with_zeros_in_front_are_numbers_on_request(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("x,y\n" + "".join(f"{i * i % 7},0{i % 4}\n" for i in range(20)))
    assert table_problem(path).class_names == ("00", "01", "02", "03")
    assert table_problem(path, task="regression").target.max() == 3


def test_names_that_differ_in_case_only_are_said(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("x,y\n" + "".join(f"{i % 7},{'pPq'[i % 3]}\n" for i in range(30)))
    assert any("such as 'P' and 'p'" in note for note in table_problem(path).notes)


def test_rare_classes_are_in_the_training_rows_of_every_fold(tmp_path):
    path = tmp_path / "a.csv"
    names = ["a"] * 24 + ["b"] * 2 + ["c"]
    path.write_text("x,y\n" + "".join(f"{i % 7},{y}\n" for i, y in enumerate(names)))
    problem = table_problem(path)
    for train, test in problem.splits():
        assert set(problem.target[train]) == {0, 1, 2}
        assert 2 not in problem.target[test]
        assert sorted([*train, *test]) == list(range(27))


def test_only_training_rows_are_learned_from(tmp_path):
    rows = "".join(f"{i % 7},{'ab'[i % 2]}\n" for i in range(40))
    path = tmp_path / "a.csv"
    path.write_text("x,y\n" + rows)
    problem = load_problem(path)
    train, test = problem.split()
    encoder = problem.parts(train, test).encoder
    mean = problem.rows.columns["x"][train].mean()
    assert encoder.columns[0].centre == pytest.approx(mean)
    assert len(problem.splits()) == 5
    for some, others in problem.splits():
        assert not set(some) & set(others)


def test_rows_without_a_target_are_left_out(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text(
        "x,y\n" + "".join(f"{i % 7},{'ab'[i % 2] if i % 4 else ''}\n" for i in range(40))
    )
    problem = load_problem(path)
    assert len(problem) == 30
    assert "left out: 10 rows without a value of 'y'" in problem.notes


def test_new_rows_are_read_as_the_training_rows_were_written():
    """One cell that does not fit makes no others ambiguous."""
    numbers = Table("t", {"n": np.array([1.5, 2.5])}, formats={"n": "comma"})
    dates = Table("t", {"n": days("2023-02-05", "2023-11-25")}, formats={"n": "swapped date"})
    encoders = [TableEncoder.fit(table) for table in (numbers, dates)]
    assert [e.kinds for e in encoders] == [{"n": "comma"}, {"n": "swapped date"}]
    again = [TableEncoder.from_json(json.loads(json.dumps(e.to_json()))) for e in encoders]
    assert again == encoders
    new = Table("new", {"n": words("1,5", "unknown", "2,5")})
    np.testing.assert_array_equal(encoders[0](new)[[0, 2]], encoders[0](numbers))
    (note,) = encoders[0].surprises(new)
    assert "1 row with a value that is not a number and counts as missing: 'unknown'" in note
    new = Table("new", {"n": words("05/02/2023", "unknown", "25/11/2023")})
    np.testing.assert_array_equal(encoders[1](new)[[0, 2]], encoders[1](dates))


def test_a_wrong_way_of_writing_is_refused():
    content = TableEncoder.fit(TRAIN).to_json()
    content["columns"][0] = {**content["columns"][0], "written": "swapped date"}
    with pytest.raises(ValueError, match="of kind 'number' cannot be written as 'swapped date'"):
        TableEncoder.from_json(content)


def test_every_class_has_rows_to_learn_from(tmp_path):
    for seed in range(8):
        labels = [*"aabbccddee", *"fffghh"]
        order = np.random.default_rng(seed).permutation(len(labels))
        path = tmp_path / "a.csv"
        path.write_text("x,label\n" + "".join(f"{i / 7:.3f},{labels[i]}\n" for i in order))
        problem = load_problem(path)
        train, test = problem.split()
        assert set(problem.target[train]) == set(range(8))
        assert sorted([*train, *test]) == list(range(len(labels)))
        assert len(test) >= 3


def test_a_counter_is_found_although_targets_are_missing(tmp_path):
    path = tmp_path / "a.csv"
    lines = [f"{i},{i * i % 7},{'' if i == 5 else i % 2}\n" for i in range(40)]
    path.write_text("id,x,y\n" + "".join(lines))
    problem = load_problem(path)
    assert list(problem.rows.columns) == ["x"]
    assert "'id' numbers the rows and is left out" in problem.notes


def test_names_of_classes_are_part_of_the_fingerprint(tmp_path):
    found = []
    for names in (("no", "yes"), ("ill", "well")):
        (tmp_path / "a.csv").write_text(
            "x,y\n" + "".join(f"{i % 7},{names[i % 2]}\n" for i in range(20))
        )
        found.append(load_problem(tmp_path / "a.csv").fingerprint)
    assert found[0] != found[1]
