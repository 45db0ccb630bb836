"""What is learned from a table, and which of its rows are tested."""

import numpy as np
import pandas as pd
import pytest

from tensorswitch.compare import _problem, load_problem
from tensorswitch.datasets import DataError

true_target = _problem.true_target


def write(path, header, rows):
    path.write_text(header + "\n" + "".join(",".join(map(str, row)) + "\n" for row in rows))
    return path


def test_the_task_is_found_from_the_target(tmp_path):
    rows = [[i, i % 3, f"{i / 7:.3f}", "ab"[i % 2], 1900 + i] for i in range(60)]
    path = write(tmp_path / "a.csv", "n,few,real,letters,year", rows)
    assert load_problem(path, target="few").class_names == ("0", "1", "2")
    assert load_problem(path, target="few", task="regression").class_names is None
    assert load_problem(path, target="real").task == "regression"
    assert load_problem(path, target="letters").class_names == ("a", "b")
    year = load_problem(path, target="year", ignore=["few"])
    assert year.task == "regression"
    assert year.is_table
    assert not year.is_image
    assert set(year.rows.columns) == {"real", "letters"}  # n numbers the rows
    assert year.ignored == ("n", "few")
    with pytest.raises(DataError, match="contains text such as 'a'"):
        load_problem(path, target="letters", task="regression")
    with pytest.raises(ValueError, match="task must be classification or regression, got 'x'"):
        load_problem(path, task="x")


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
    rows = [[i * i % 7, v] for i, v in enumerate(values)]
    assert load_problem(write(tmp_path / "a.csv", "x,y", rows)).class_names == names


def test_numbers_with_zeros_in_front_are_numbers_on_request(tmp_path):
    path = write(tmp_path / "a.csv", "x,y", [[i * i % 7, f"0{i % 4}"] for i in range(20)])
    assert load_problem(path).class_names == ("00", "01", "02", "03")
    assert load_problem(path, task="regression").target.max() == 3


def test_names_that_differ_in_case_only_are_said(tmp_path):
    path = write(tmp_path / "a.csv", "x,y", [[i % 7, "pPq"[i % 3]] for i in range(30)])
    assert any("such as 'P' and 'p'" in note for note in load_problem(path).notes)


def test_rare_classes_are_in_the_training_rows_of_every_fold(tmp_path):
    names = ["a"] * 24 + ["b"] * 2 + ["c"]
    problem = load_problem(
        write(tmp_path / "a.csv", "x,y", [[i % 7, y] for i, y in enumerate(names)])
    )
    for train, test in problem.splits():
        assert set(problem.target[train]) == {0, 1, 2}
        assert 2 not in problem.target[test]
        assert sorted([*train, *test]) == list(range(27))


def test_only_training_rows_are_learned_from(tmp_path):
    rows = [[i % 7, f"w{i}", "ab"[i % 2]] for i in range(40)]
    problem = load_problem(write(tmp_path / "a.csv", "x,key,y", rows), id_column="key")
    train, test = problem.split()
    parts = problem.parts(train, test)
    x = problem.rows["x"].to_numpy()[train]
    np.testing.assert_allclose(parts.train[:, 0], (x - x.mean()) / x.std(), rtol=1e-6)
    np.testing.assert_array_equal(parts.encoder(problem.rows.take(test)), parts.test)
    assert parts.encoder.left_out == {"key": "is ignored"}
    assert problem.row_name(3) == "row w3"
    assert len(problem.splits()) == 5
    for some, others in problem.splits():
        assert not set(some) & set(others)


def test_rows_without_a_target_are_left_out(tmp_path):
    rows = [[i % 7, "ab"[i % 2] if i % 4 else ""] for i in range(40)]
    problem = load_problem(write(tmp_path / "a.csv", "x,y", rows))
    assert len(problem) == len(problem.rows) == 30
    assert "left out: 10 rows without a value of 'y'" in problem.notes
    assert problem.row_name(0) == "row 1"


def test_every_class_has_rows_to_learn_from(tmp_path):
    for seed in range(8):
        labels = [*"aabbccddee", *"fffghh"]
        order = np.random.default_rng(seed).permutation(len(labels))
        path = write(tmp_path / "a.csv", "x,label", [[f"{i / 7:.3f}", labels[i]] for i in order])
        problem = load_problem(path)
        train, test = problem.split()
        assert set(problem.target[train]) == set(range(8))
        assert sorted([*train, *test]) == list(range(len(labels)))
        assert len(test) >= 3


def test_a_counter_is_found_although_targets_are_missing(tmp_path):
    rows = [[i, i * i % 7, "" if i == 5 else i % 2] for i in range(40)]
    problem = load_problem(write(tmp_path / "a.csv", "id,x,y", rows))
    assert list(problem.rows.columns) == ["x"]
    assert "'id' numbers the rows and is left out" in problem.notes


def test_the_fingerprint_is_of_rows_target_and_names(tmp_path):
    found = set()
    for names in (("no", "yes"), ("ill", "well"), ("ill", "well")):
        rows = [[i % 7, names[i % 2]] for i in range(20)]
        path = write(tmp_path / "a.csv", "x,y", rows)
        found.add(load_problem(path).fingerprint)
    assert len(found) == 2
    found.add(load_problem(write(path, "x,y", [[0, "ill"], *rows[1:-1], [9, "well"]])).fingerprint)
    assert len(found) == 3
    assert load_problem("digits").fingerprint == load_problem("digits").fingerprint


def test_what_cannot_be_seen_may_be_given(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text(
        "n~day~y\n" + "".join(f"{i}.125~05/0{1 + i % 9}/2023~{i % 2}\n" for i in range(20))
    )
    problem = load_problem(path, sep="~", decimal=",", dayfirst=True)
    assert problem.rows["n"][3] == 3125
    assert problem.rows["day"].dt.day.eq(5).all()
    with pytest.raises(DataError, match=r"digits is not a table .* decimal does not apply"):
        load_problem("digits", decimal=",")


def test_columns_that_do_not_exist_are_named(tmp_path):
    path = write(tmp_path / "a.csv", "size,sold", [[i, i % 2] for i in range(20)])
    with pytest.raises(DataError, match="has no target 'Solt'; did you mean 'sold'"):
        load_problem(path, target="Solt")
    with pytest.raises(DataError, match="has no column 'x'; its columns are size, sold"):
        load_problem(path, id_column="x")
    with pytest.raises(DataError, match="the target 'sold' is also to be ignored"):
        load_problem(path, target="sold", ignore=["sold"])


def test_names_of_columns_may_have_commas(tmp_path):
    rows = [[i, i % 7, i % 2, i * i % 5] for i in range(20)]
    path = write(tmp_path / "a.csv", '"Price, EUR",b,label,c', rows)
    assert list(load_problem(path, ignore=["Price, EUR"]).rows) == ["b", "c"]
    assert list(load_problem(path, ignore=["b, c"]).ignored) == ["b", "c"]


@pytest.mark.parametrize(
    ("cells", "known", "written", "expected"),
    [
        (["1.0", "0"], ("0", "1"), "number", ["1", "0"]),
        (["1,0", "0,0"], ("0", "1"), "number ,", ["1", "0"]),
        (["01", " 02 "], ("01", "02"), "words", ["01", "02"]),
        (["None", "x"], ("None", "x"), "words", ["None", "x"]),
        (["None", "x"], ("y", "x"), "words", None),
        ([1, 0], ("0", "1"), "number", ["1", "0"]),
        ([True, False], ("False", "True"), "words", ["True", "False"]),
        (["1,5", "2"], None, "number ,", [1.5, 2.0]),
        (["1", ""], None, "number", None),
    ],
)
def test_true_targets_are_named_as_in_training(cells, known, written, expected):
    found = true_target(pd.Series(cells, name="y"), known, written)
    assert (None if found is None else found.tolist()) == expected


def test_a_target_that_has_no_numbers_is_named():
    with pytest.raises(DataError, match="'y' is not a column of numbers"):
        true_target(pd.Series(["a", "b"], name="y"), None)


def test_identifiers_keep_their_digits(tmp_path):
    frame = pd.DataFrame({"key": 12345678901234567 + np.arange(20), "a": np.arange(20) % 7, "y": 0})
    frame["y"] = frame.a % 2
    frame.to_parquet(tmp_path / "t.parquet")
    problem = load_problem(tmp_path / "t.parquet", id_column="key")
    assert problem.row_names[1] == "12345678901234568"
