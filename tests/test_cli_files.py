"""From a file to an answer: compare, train, predict and evaluate on tables and pictures."""

import csv
import os
import re
import shutil
import sys

import numpy as np
import pytest
from typer.testing import CliRunner

from tensorswitch.cli import app, main
from tensorswitch.compare import load_predictor, load_problem
from tensorswitch.datasets import DataError
from tensorswitch.tables import read_table

QUICK = ["--methods", "linear,rr,ts-lrc", "--set", "rr.gates=8", "--set", "ts-lrc.max_iter=2"]


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(*arguments):
    result = CliRunner().invoke(app, list(arguments))
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def fails(monkeypatch, capsys, *arguments):
    """Return the one line that a command fails with."""
    monkeypatch.setattr(sys, "argv", ["tensorswitch", *arguments])
    with pytest.raises(SystemExit) as caught:
        main()
    printed = capsys.readouterr().err
    assert caught.value.code == 1
    assert printed.count("\n") == 1, printed
    return printed


def write(path, header, rows):
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(header)
        writer.writerows(rows)
    return str(path)


def houses(path, rows=120, seed=0, header=("key", "size", "kind", "built", "price", "sold")):
    """A table with an id, numbers, words, dates and gaps; the price and the sale are targets."""
    rng = np.random.default_rng(seed)
    lines = []
    for i in range(rows):
        size, kind, day = (
            rng.normal(100, 30),
            rng.choice(["flat", "house", "hut"]),
            rng.integers(3000),
        )
        price = 2.5 * size + {"flat": 0, "house": 200, "hut": -50}[kind] + rng.normal(0, 5)
        values = {
            "key": f"{i:05d}",
            "size": "" if i % 11 == 3 else f"{size:.2f}",
            "kind": "NA" if i % 13 == 5 else kind,
            "built": str(np.datetime64("2010-01-01") + int(day)),
            "price": f"{price:.1f}",
            "sold": "yes" if price > 280 else "no",
        }
        lines.append([values[name] for name in header])
    return write(path, header, lines)


def test_compare_says_what_it_does_and_reuses_what_is_done(folder):
    data = houses(folder / "h.csv")
    arguments = ["compare", "--data", data, "--target", "sold", "--id", "key", "--ignore", "price"]
    printed = run(*arguments, *QUICK, "--out", "c").output
    assert "h: 120 rows of 3 columns, classification of 2 classes" in printed
    assert "target 'sold': 2 classes, so classification" in printed
    assert re.search(r"is best: [\d.]+ % error in [\d.]+ s; ", " ".join(printed.split()))
    assert "means of 5-fold cross-validation" in printed
    assert "LRC linear rotation-compression" in printed
    table = printed[printed.index(" learner") : printed.index("is best")]
    assert max(map(len, table.splitlines())) <= 80
    page = (folder / "c" / "report.html").read_text(encoding="utf-8")
    assert page.index("is best") < page.index("<table")
    assert "http" not in page  # the page is self-contained
    assert page.count('<figure class="') == 6
    changed = {p: p.stat().st_mtime_ns for p in (folder / "c").glob("h-*.json")}
    assert len(changed) == 4
    again = run(*arguments, *QUICK, "--out", "c").output
    assert "All 4 results are from an earlier run" in again
    other = run(*arguments, *QUICK[:4], "--out", "c").output
    assert "3 of 4 learners are done in c; continuing with the others" in other
    assert {p: p.stat().st_mtime_ns for p in changed} == changed


def test_a_regression_is_found_and_explained(folder):
    data = houses(folder / "h.csv")
    arguments = ["--data", data, "--target", "price", "--id", "key", "--ignore", "sold"]
    printed = run("compare", *arguments, *QUICK, "--out", "c").output
    assert "different numbers, so regression" in printed
    assert "R²" in printed
    assert "is best: R² " in printed
    page = (folder / "c" / "report.html").read_text(encoding="utf-8")
    assert "looks at" in page


def test_a_method_that_fails_is_a_short_cell_with_the_reason_below(folder):
    data = houses(folder / "h.csv")
    options = ["--target", "sold", "--methods", "linear,ss", "--set", "ss.learning_rate_init=1e30"]
    result = run("compare", "--data", data, *options, "--out", "c")
    assert result.exit_code == 1
    assert re.search(r"MLP SS +failed +–", result.output)
    assert "MLP SS failed: DivergedError: the loss is not finite" in result.output
    assert (folder / "c" / "report.html").exists()


@pytest.mark.parametrize("method", ["rr", "kernel-ridge", "svm-ts", "ts-lrc"])
def test_train_then_predict_rows_with_and_without_the_target(folder, method):
    data = houses(folder / "h.csv")
    small = {"rr": ["--set", "gates=8"], "ts-lrc": ["--set", "max_iter=3"]}.get(method, [])
    arguments = ["--data", data, "--target", "sold", "--id", "key", "--ignore", "price"]
    printed = run("train", *arguments, "--method", method, *small, "--out", "r").output
    assert re.search(
        r"log-loss [\d.]+ on 36 test rows|balanced accuracy [\d.]+ %, F1 [\d.]+ on 36", printed
    )
    assert "Fitted again to all 120 rows" in printed
    assert ("Counts most: kind" in printed) == (method in ("rr", "kernel-ridge", "ts-lrc"))
    new = houses(folder / "new.csv", 30, seed=1, header=("kind", "key", "size", "built"))
    result = run("predict", "r", new, "--out", "p.csv")
    assert "missing columns" not in result.output
    with open("p.csv", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert [row["key"] for row in rows] == [f"{i:05d}" for i in range(30)]  # order and spelling
    assert {row["label"] for row in rows} <= {"yes", "no"}
    total = [float(r["probability of yes"]) + float(r["probability of no"]) for r in rows]
    np.testing.assert_allclose(total, 1, atol=1e-5)
    measured = run("evaluate", "r", data).output
    assert "balanced accuracy" in measured
    assert "right class" in measured
    assert re.search(r"120 rows of .*h\.csv: error [\d.]+ %", run("predict", "r", data).output)


@pytest.mark.parametrize("method", ["rr", "kernel-ridge", "ts-lrc"])
def test_intervals_cover_nine_tenths(folder, method):
    data = houses(folder / "h.csv", 300)
    arguments = ["--data", data, "--target", "price", "--id", "key", "--ignore", "sold"]
    run("train", *arguments, "--method", method, "--holdout", "--out", "r")
    new = houses(folder / "new.csv", 300, seed=1)
    assert "R²" in run("evaluate", "r", new).output
    run("predict", "r", new, "--out", "p.csv")
    with open("p.csv", encoding="utf-8") as a, open("new.csv", encoding="utf-8") as b:
        inside = [
            float(p["low"]) <= float(t["price"]) <= float(p["high"])
            for p, t in zip(csv.DictReader(a), csv.DictReader(b), strict=True)
        ]
    assert 0.8 < np.mean(inside) < 0.97


def test_missing_new_and_unseen_are_said_and_do_not_fail(folder):
    data = houses(folder / "h.csv")
    run("train", "--data", data, "--target", "sold", "--ignore", "price,key", "--out", "r")
    new = write(
        folder / "n.csv",
        ["size", "kind", "colour"],
        [["80", "castle", "red"], ["oops", "flat", ""], ["", "", "blue"]],
    )
    result = run("predict", "r", new)
    assert "missing columns, which count as missing values: built" in result.output
    assert "new columns, which are not used: colour" in result.output
    labels = [w for w in result.output.split() if w in ("yes", "no")]
    assert len(labels) == 3


def test_predictions_do_not_replace_what_they_are_made_from(folder, monkeypatch, capsys):
    data = houses(folder / "a.csv")
    run("train", "--data", data, "--target", "price", "--method", "rr", "--out", "run")
    before = [(folder / name).read_bytes() for name in ("a.csv", "run/model.safetensors")]
    for model, target, what in (
        ("run", "a.csv", "data"),
        ("run", "run/model.safetensors", "model"),
        ("run/model.safetensors", "run/model.safetensors", "model"),
    ):
        printed = fails(monkeypatch, capsys, "predict", model, data, "--out", target)
        assert f"{target} is the file of the {what}; write predictions to another" in printed
    assert [(folder / name).read_bytes() for name in ("a.csv", "run/model.safetensors")] == before


def test_columns_that_are_left_out_are_named(folder):
    write(
        folder / "a.csv", ["who", "same", "x", "y"], [[f"w{i}", 1, i % 7, i % 2] for i in range(50)]
    )
    printed = run("train", "--data", "a.csv", "--method", "rr").output
    assert "'who' has 50 different words, such as 'w0', in 50 rows and is left out" in printed
    assert "'same' is constant and is left out" in printed


def test_a_class_of_one_row_can_be_predicted(folder):
    rows = [[i % 7, i * i % 5, "ab"[i % 2]] for i in range(60)] + [[3, 3, "rare"]]
    write(folder / "a.csv", ["x", "z", "label"], rows)
    for method in ("kernel-ridge", "svm-ts"):
        run("train", "--data", "a.csv", "--method", method, "--out", method)
        run("predict", method, "a.csv", "--out", "p.csv")
        assert (folder / "p.csv").read_text().count("\n") == 62
        assert "61 rows" in run("evaluate", method, "a.csv").output


def test_folders_to_train_validate_and_test_with(folder):
    for name in ("train", "val", "test"):
        pictures(folder / "pets" / name, 5)
    problem = load_problem(folder / "pets")
    assert problem.class_names == ("dark", "light")
    assert problem.given_test.tolist() == list(range(20, 30))
    assert problem.notes[1] == (
        "pictures of train and val are learned from, those of test are for testing"
    )
    (folder / "pets" / "more").mkdir()
    with pytest.raises(DataError, match="so that more cannot be classes"):
        load_problem(folder / "pets")


def test_mistakes_end_in_one_line_that_says_where(folder, monkeypatch, capsys):
    data = houses(folder / "h.csv")
    said = lambda *a: fails(monkeypatch, capsys, *a)  # noqa: E731
    assert "has no target 'Solt'; did you mean 'sold'?" in said(
        "compare", "--data", data, "--target", "Solt"
    )
    assert "has no column 'keyy'; did you mean 'key'?" in said(
        "train", "--data", data, "--target", "sold", "--id", "keyy"
    )
    for name, text, message in (
        ("constant", "a,label\n" + "1,x\n2,x\n" * 10, "'label' is x in every row"),
        ("twice", "a,a,label\n1,2,x\n", "line 1: several columns are called 'a' (columns 1, 2)"),
        ("ragged", "a,b,label\n1,2,x\n3,4\n", "line 3: 2 fields, but there are 3 columns"),
        ("quotes", 'a,b,label\n1,"2,x\n3,4,y\n', "is a quote not closed?"),
        ("empty", "", "is empty"),
        ("rows", "a,label\n", "has a line of column names but no rows"),
    ):
        (folder / f"{name}.csv").write_text(text)
        assert message in said("compare", "--data", f"{name}.csv")
        assert not (folder / f"compare-{name}").exists()
    run(
        "train",
        "--data",
        data,
        "--target",
        "sold",
        "--method",
        "rr",
        "--set",
        "gates=4",
        "--out",
        "r",
    )
    (folder / "other.csv").write_text("x,y\n1,2\n")
    assert "the rows have none of the columns of training" in said(
        "predict", "r", "other.csv", "--out", "p.csv"
    )
    assert not (folder / "p.csv").exists()
    assert "does not have the target in every row" in said(
        "evaluate", "r", write(folder / "n.csv", ["size"], [["1"]])
    )
    assert "digits is not a table" in said("compare", "--data", "digits", "--target", "x")


def pictures(folder, count=12):
    """Two classes of pictures of several sizes and modes."""
    image = pytest.importorskip("PIL.Image")
    rng = np.random.default_rng(0)
    for name, low in (("dark", 0), ("light", 150)):
        (folder / name).mkdir(parents=True)
        for i in range(count):
            size = (9 + i, 14, 3) if i % 2 else (20, 10)
            pixels = rng.integers(low, low + 100, size, dtype=np.uint8)
            image.fromarray(pixels).save(folder / name / f"{i}.{'png' if i % 3 else 'jpg'}")
    return str(folder)


def test_folders_of_pictures(folder, monkeypatch, capsys):
    data = pictures(folder / "pics")
    printed = run("compare", "--data", data, *QUICK, "--components", "8", "--out", "c").output
    assert "24 pictures as 32 × 32 colour" in printed
    run("train", "--data", data, "--method", "rr", "--set", "gates=4", "--out", "r")
    assert "error 0.00 %" in run("predict", "r", data, "--out", "p.csv").output
    with open("p.csv", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert rows[0]["file"] == os.path.join("dark", "0.jpg")
    shutil.copy(folder / "pics" / "light" / "1.png", folder / "new.png")
    assert "light" in run("predict", "r", "new.png").output
    (folder / "pics" / "dark" / "broken.png").write_bytes(b"not a picture")
    assert "broken.png cannot be read as a picture" in fails(
        monkeypatch, capsys, "compare", "--data", data, "--out", "d"
    )
    assert not (folder / "d").exists()


def test_ids_are_kept_as_they_are_and_may_be_features(folder):
    parquet, pa = pytest.importorskip("pyarrow.parquet"), pytest.importorskip("pyarrow")
    rng = np.random.default_rng(0)
    a = rng.normal(size=60)
    table = {"key": 12345678901234567 + np.arange(60), "a": a, "y": 2459000 + 10 * a}
    parquet.write_table(pa.table(table), folder / "t.parquet")
    run("train", "--data", "t.parquet", "--target", "y", "--id", "key", "--out", "m")
    run("predict", "m", "t.parquet", "--out", "p.csv")
    with open("p.csv", newline="") as file:
        found = list(csv.DictReader(file))
    assert [row["key"] for row in found] == [str(key) for key in table["key"]]
    # Seven digits are before the point.
    np.testing.assert_allclose([float(row["prediction"]) for row in found], table["y"], atol=2)
    assert len({row["prediction"] for row in found}) > 50
    assert "missing columns" not in run("predict", "m", "t.parquet", "--id", "a").output


def test_classes_are_recognised_however_a_new_file_looks(folder):
    rng = np.random.default_rng(0)
    a = rng.normal(size=90)
    labels = np.array(["01", "02", "A"])[np.digitize(a, [-0.4, 0.4])]
    data = write(folder / "t.csv", ["a", "y"], zip(a, labels, strict=True))
    run("train", "--data", data, "--target", "y", "--method", "rr", "--out", "m")
    few = [(x, label) for x, label in zip(a, labels, strict=True) if label != "A"]
    printed = run("evaluate", "m", write(folder / "few.csv", ["a", "y"], few)).output
    assert "does not know" not in printed
    assert float(re.search(r"accuracy ([\d.]+) %", printed)[1]) > 60


def test_arrays_with_labels_beside_them_are_predicted_whole(folder, monkeypatch, capsys):
    x = np.random.default_rng(0).normal(size=(40, 3))
    np.save("x.npy", x)
    np.save("y.npy", (x[:, 0] > 0).astype(int))
    run("train", "--data", "x.npy", "--method", "rr", "--out", "m")
    assert "40 rows of x.npy" in run("predict", "m", "x.npy", "--out", "p.csv").output
    np.savez("b.npz", x=x, y=np.eye(2)[(x[:, 0] > 0).astype(int)])
    printed = fails(monkeypatch, capsys, "evaluate", "m", "b.npz")
    assert "b.npz: y has shape (40, 2), expected one label per row of x" in printed


def test_a_folder_to_train_and_to_test_with_is_evaluated_on_its_test_pictures(folder):
    for name in ("train", "test"):
        pictures(folder / "pets" / name, 6)
    run("train", "--data", "pets", "--method", "conv-rr", "--out", "m")
    assert "12 pictures of pets/test: accuracy 100.00 %" in run("evaluate", "m", "pets").output


def test_images_of_two_channels_have_a_report(folder):
    rng = np.random.default_rng(0)
    images = rng.integers(0, 255, (60, 2, 9, 7), dtype=np.uint8)
    images[:30, 0] //= 4
    np.savez("two.npz", x=images, y=np.arange(60) // 30)
    run("compare", "--data", "two.npz", "--methods", "linear,rr", "--out", "c")
    assert "image and contributions" in (folder / "c" / "report.html").read_text("utf-8")


def test_an_interval_in_units_of_a_deviation_needs_the_deviation(folder):
    run("train", "--data", houses(folder / "h.csv"), "--target", "price", "--out", "m")
    predictor = load_predictor(folder / "m")
    rows = read_table(folder / "h.csv")[0]
    assert predictor.interval.scaled
    assert predictor.predict(rows).low is not None
    predictor.model.memory_gb = 1e-6  # too little for deviations
    assert predictor.predict(rows).low is None


def test_labels_of_bytes_are_known_again(folder):
    x = np.random.default_rng(0).normal(size=(80, 2))
    np.savez("bytes.npz", x=x, y=np.where(x[:, 0] > 0, b"cat", b"dog"))
    run("train", "--data", "bytes.npz", "--method", "rr", "--out", "net")
    printed = run("evaluate", "net", "bytes.npz").output
    assert "does not know" not in printed
    assert "cat" in printed


def test_predictions_have_all_their_digits(folder):
    x = np.random.default_rng(0).normal(size=60)
    data = write("ms.csv", ["x", "ms"], [[a, 1.7e12 + round(1e4 * a)] for a in x])
    run("train", "--data", data, "--target", "ms", "--method", "rr", "--out", "net")
    run("predict", "net", data, "--out", "found.csv")
    found = read_table("found.csv")[0]["prediction"].astype(float)
    assert np.abs(found - 1.7e12 - 1e4 * x).std() < 1e3


def test_rows_of_a_report_have_their_numbers_or_names(folder):
    x = np.random.default_rng(0).normal(size=60)
    lines = [[f"k{i}", a, "" if i < 10 else 3 * a] for i, a in enumerate(x)]
    data = write("gap.csv", ["key", "a", "y"], lines)
    problem = load_problem(data, target="y", id_column="key")
    assert [problem.row_name(i) for i in (0, 49)] == ["row k10", "row k59"]
    problem = load_problem(data, target="y", ignore=["key"])
    assert problem.row_name(0) == "row 10"
    assert load_problem("digits").row_name(1300) == "test row 43"
    run("compare", "--data", data, "--ignore", "key", "--methods", "rr")
    rows = re.findall(
        r"Row (\d+): predicted ([-\d.]+).*?right is ([-\d.]+)",
        (folder / "compare-gap" / "report.html").read_text(),
    )
    assert rows
    for row, _, right in rows:
        assert float(right) == pytest.approx(3 * x[int(row)], rel=1e-2)


def test_components_are_not_used_for_tables_and_commas_may_be_in_names(folder):
    x = np.random.default_rng(0).normal(size=(60, 2))
    data = write("t.csv", ["Price, EUR", "b", "label"], [[*row, row[1] > 0] for row in x])
    options = ["--data", data, "--ignore", "Price, EUR", "--methods", "rr", "--components", "1"]
    printed = run("compare", *options).output
    assert "--components is not used" in printed
    assert "--ignore 'Price, EUR'" in printed.replace("\n", " ")
    assert "components 1" not in (folder / "compare-t" / "report.html").read_text()
    options = ["--data", data, "--method", "rr", "--components", "1", "--out", "net"]
    assert "--components is not used" in run("train", *options, "--ignore", "Price, EUR").output
    assert load_predictor("net").encoder.input_names == ["b"]


def test_info_of_a_regression(folder):
    houses(folder / "houses.csv")
    printed = run("data", "info", "houses.csv", "--target", "price").output
    assert "regression" in printed
    assert re.search(r"price: .* to .*, median", printed)


def test_groups_and_times_split_the_rows(folder):
    x = np.random.default_rng(0).normal(size=100)
    lines = [[f"p{i // 5}", i, a, a > 0] for i, a in enumerate(x)]
    data = write("visits.csv", ["patient", "visit", "a", "well"], lines)
    options = ["--data", data, "--methods", "linear", "--cv", "4"]
    printed = run("compare", *options, "--split", "group:patient", "--out", "g").output
    assert "'patient' keeps rows together and is not learned from" in printed
    assert "no value of 'patient' on both sides" in " ".join(printed.split())
    printed = run("compare", *options, "--split", "time:visit", "--out", "t").output
    assert "4 folds, each tested on rows that are later in 'visit'" in " ".join(printed.split())
    printed = run("compare", *options, "--repeats", "3", "--out", "r").output
    assert "means of 3 times 4-fold cross-validation" in " ".join(printed.split())


def test_a_learner_without_a_chance_is_said_aloud(folder):
    random = np.random.default_rng(0)
    lines = [[a, "rare" if i % 12 == 0 else "often"] for i, a in enumerate(random.normal(size=120))]
    data = write("noise.csv", ["a", "label"], lines)
    printed = " ".join(run("compare", "--data", data, "--methods", "linear").output.split())
    assert "warning: linear model predicts always 'often', whatever the row" in printed
    assert "No learner is clearly better than predicting always the most frequent class" in printed
