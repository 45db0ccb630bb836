"""A comparison, its explanations and its report, for images and for numbers."""

import json
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from sklearn.model_selection import train_test_split

from tensorswitch.data import DataError, Problem, Table, load
from tensorswitch.experiments import compare
from tensorswitch.experiments.comparison import check_methods
from tensorswitch.experiments.explaining import examples, explain_rows
from tensorswitch.experiments.figures import COLOURS, look
from tensorswitch.experiments.methods import COMPARED
from tensorswitch.experiments.metrics import regression_metrics
from tensorswitch.experiments.predictor import decisions, load_predictor, predicted_numbers
from tensorswitch.experiments.report import write_report
from tensorswitch.experiments.summary import cells, conclusion, legend

pytestmark = pytest.mark.xdist_group("comparison")  # one worker, to share the fixtures
QUICK = {"epochs": 2, "width": 8}


def small_digits():
    data = load("digits")
    rows, target = data.train_images[:200], data.train_labels[:200]
    names = data.class_names
    return Problem("digits", rows, target, names, given_test=np.arange(150, 200))


def small_table():
    rng = np.random.default_rng(0)
    size, kind = rng.normal(size=100), rng.choice(["flat", "house"], 100).astype(object)
    rows = Table("houses", {"size": size, "kind": kind, "noise": rng.normal(size=100)})
    return Problem("houses", rows, 3 * np.abs(size) + (kind == "house"), None, "price")


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    folder = tmp_path_factory.mktemp("images")
    methods = ["linear", "rr", "ss", "kernel-ridge"]
    result = compare(small_digits(), folder, methods=methods, components=12, **QUICK)
    write_report(result, folder / "report.html", "tensorswitch compare")
    return result


@pytest.fixture(scope="module")
def numbers(tmp_path_factory):
    folder = tmp_path_factory.mktemp("numbers")
    methods = ["linear", "boosting", "rr", "kernel-ridge", "ts-lrc"]
    result = compare(small_table(), folder, methods=methods, **QUICK)
    write_report(result, folder / "report.html", "tensorswitch compare")
    return result


def test_the_best_is_first_and_named(images, numbers):
    errors = [r.error for r in images.ranked]
    assert errors == sorted(errors)
    assert conclusion(images).startswith(f"{images.ranked[0].label} is best: ")
    assert "R² " in conclusion(numbers)
    assert "the best of this library" in conclusion(images) or images.ranked[0].method != "linear"
    assert set(legend(images)) == {"TS", "RR", "SS"}
    assert len(numbers.records[0].results) == 5  # folds
    assert all(len(row) == 6 for row in cells(numbers))


def test_a_fold_that_is_done_is_not_repeated(numbers):
    path = numbers.folder / f"{numbers.records[2].name}.json"
    content = json.loads(path.read_text())
    whole = content["results"]
    content["results"] = whole[:3]
    path.write_text(json.dumps(content))
    again = compare(numbers.problem, numbers.folder, methods=["rr"], **QUICK)
    assert [r.metrics["error"] for r in again.records[0].results] == [
        r["metrics"]["error"] for r in whole
    ]
    kept = json.loads(path.read_text())["results"]
    assert [r["fit_seconds"] for r in kept[:3]] == [r["fit_seconds"] for r in whole[:3]]
    assert kept[4]["fit_seconds"] != whole[4]["fit_seconds"]


@pytest.mark.parametrize("text", ["", "{", "[]", '{"results": [{"metrics": {"error": "x"}}]}'])
def test_a_broken_record_is_named(tmp_path, text):
    problem = small_table()
    run = partial(compare, problem, tmp_path, methods=["linear"])
    (record,) = run().records
    (tmp_path / f"{record.name}.json").write_text(text)
    with pytest.raises(ValueError, match="is not a valid result of a comparison"):
        run()


@pytest.mark.parametrize("method", ["rr", "kernel-ridge", "ss"])
def test_contributions_of_pixels_add_up(images, method):
    (record,) = [r for r in images.records if r.method == method]
    predictor = load_predictor(images.model_path(record))
    rows = images.problem.rows[150:160]
    found = explain_rows(predictor, rows)
    assert found.contributions.shape[2:] == (1, 8, 8)
    x = predictor.inputs(rows)
    outputs = (
        predictor.model.explain(x).outputs if method == "ss" else decisions(predictor.model, x)
    )
    np.testing.assert_allclose(found.outputs, outputs, atol=1e-4 * np.abs(outputs).max())


@pytest.mark.parametrize("method", ["rr", "kernel-ridge", "ts-lrc"])
def test_contributions_of_columns_add_up(numbers, method):
    (record,) = [r for r in numbers.records if r.method == method]
    predictor = load_predictor(numbers.model_path(record))
    rows = numbers.problem.rows.take(np.arange(20))
    found = explain_rows(predictor, rows)
    assert found.contributions.shape == (20, 1, 3)
    expected = predicted_numbers(predictor, predictor.inputs(rows))[0]
    np.testing.assert_allclose(found.outputs[:, 0], expected, atol=1e-4 * np.abs(expected).max())


def test_examples_are_wrong_and_right_ones_with_neighbours(images):
    (record,) = [r for r in images.records if r.method == "rr"]
    predictor = load_predictor(images.model_path(record))
    chosen, importance = examples(predictor, images.problem, images.problem.splits()[0])
    assert len(chosen) == 6
    assert importance.shape == (1, 8, 8)
    for example in chosen:
        assert example.correct == (example.said == example.right) == (example.against is None)
        assert "% of gates agree" in example.neighbours[0]
        assert "exactly its pattern" in example.neighbours[-1]


def test_the_report_says_the_conclusion_first_and_stands_alone(images, numbers):
    for result, sections in (
        (
            images,
            ["Error against time", "confuses", "be trusted?", "looks at", "Filters of MLP SS"],
        ),
        (numbers, ["Error against time", "looks at"]),
    ):
        page = (result.folder / "report.html").read_text(encoding="utf-8")
        assert page.index("is best") < page.index("<table")
        for section in sections:
            assert section in page
        assert page.count('<figure class="') == 6
        assert "http" not in page
    assert "Filters" not in page  # of numbers


def test_the_report_in_a_browser(images, browser):
    """Nothing scrolls sideways on a phone or a laptop, and dark pages have dark figures."""
    from selenium.webdriver.common.by import By

    for width in (1280, 375):
        for scheme in ("light", "dark"):
            medium = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
            browser.execute_cdp_cmd("Emulation.setEmulatedMedia", medium)
            browser.set_window_size(width, 900)
            browser.get((images.folder / "report.html").as_uri())
            assert browser.find_element(By.CLASS_NAME, "conclusion").is_displayed()
            pictures = browser.find_elements(By.TAG_NAME, "img")
            assert len(pictures) >= 10
            for picture in pictures:
                assert browser.execute_script("return arguments[0].naturalWidth", picture) > 300
            assert browser.execute_script(
                "const page = document.documentElement; return page.scrollWidth <= page.clientWidth"
            )
            shade = browser.execute_script("return getComputedStyle(document.body).backgroundColor")
            assert shade == {"light": "rgb(255, 255, 255)", "dark": "rgb(27, 27, 27)"}[scheme]
            same = browser.execute_script(
                "return arguments[0].currentSrc === arguments[0].src", pictures[0]
            )
            assert same == (scheme == "light")
    assert browser.get_log("browser") == []


def test_methods_that_do_not_suit_are_refused():
    with pytest.raises(ValueError, match="svm-ts cannot be used for a regression of a table"):
        check_methods(["svm-ts"], small_table())
    with pytest.raises(DataError, match="is numeric, but classes are required"):
        small_table().dataset()


def test_every_method_has_a_colour_of_its_own():
    colours = [COLOURS[name] for name in COMPARED]
    assert len(set(colours)) == len(colours)


def luminance(colour):
    """Relative luminance, as defined for the contrast of pages (WCAG)."""
    parts = np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)]) / 255
    linear = np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)
    return float(linear @ [0.2126, 0.7152, 0.0722])


@pytest.mark.parametrize(("dark", "least"), [(False, 2.0), (True, 2.5)])
def test_colours_can_be_told_from_the_page(dark, least):
    matplotlib = pytest.importorskip("matplotlib")
    with look(dark):
        ground = luminance(matplotlib.colors.to_hex(matplotlib.rcParams["figure.facecolor"]))
    for name in COMPARED:
        low, high = sorted([luminance(COLOURS[name]), ground])
        assert (high + 0.05) / (low + 0.05) >= least, name


@pytest.mark.parametrize("components", [None, 5])
def test_contributions_of_padded_images_have_the_pixels_of_the_image(tmp_path, components):
    """Images of 28 × 28 are learned with a margin."""
    rng = np.random.default_rng(0)
    rows = rng.integers(0, 255, (80, 1, 28, 28)).astype(np.uint8)
    target = np.arange(80) % 2
    rows[target == 1, :, 5:20, 9:14] //= 4
    problem = Problem("noise", rows, target, ("a", "b"), given_test=np.arange(60, 80))
    result = compare(problem, tmp_path, methods=["rr"], components=components, **QUICK)
    predictor = load_predictor(result.model_path(result.records[0]))
    found = explain_rows(predictor, rows[60:70])
    assert found.contributions.shape == (10, 1, 1, 28, 28)
    outputs = decisions(predictor.model, predictor.inputs(rows[60:70]))
    np.testing.assert_allclose(found.outputs, outputs, atol=1e-4 * np.abs(outputs).max())
    chosen, importance = examples(predictor, problem, problem.splits()[0])
    whole = explain_rows(predictor, rows[60:80]).importance
    np.testing.assert_allclose(importance, whole, rtol=1e-4)
    assert all(example.shares.shape == (1, 28, 28) for example in chosen)


def test_constant_targets_have_no_r2():
    for rows in (10, 20, 50):
        assert np.isnan(regression_metrics(np.full(rows, 0.1), np.full(rows, 0.15))["r2"])


def test_a_network_learns_on_if_the_held_out_targets_are_constant(tmp_path):
    rng = np.random.default_rng(0)
    x, target = rng.normal(size=120), np.zeros(120)
    target[:5] = 3 + x[:5]  # mostly zero
    problem = Problem("rare", Table("rare", {"x": x}), target, None, "y")
    notes = []
    options = {"methods": ["ss"], "epochs": 5, "width": 8}
    result = compare(problem, tmp_path, watch=lambda *said: notes.append(said[-1]), **options)
    assert any(fold.note != "epoch 1" for fold in result.records[0].results)
    assert any(note.startswith("test R² ") for note in notes)


def test_a_machine_learns_a_class_of_one_row_and_names_its_sample(tmp_path, monkeypatch):
    rng = np.random.default_rng(0)
    target, sample = np.zeros(100, dtype=int), np.random.default_rng(0).permutation(80)[:60]
    held = train_test_split(np.arange(80), test_size=0.2, random_state=0)[1]
    target[[np.intersect1d(held, sample)[0], 90]] = 1  # one row, which validation would hold out
    rows = Table("rare", {"x": rng.normal(size=100) + 5 * target})
    problem = Problem("rare", rows, target, ("a", "b"), given_test=np.arange(80, 100))
    for name, most in (("all", None), ("some", 60)):
        monkeypatch.setitem(COMPARED, "svm-ts", replace(COMPARED["svm-ts"], most_rows=most))
        result = compare(problem, tmp_path / name, methods=["svm-ts"], **QUICK)
        assert result.records[0].failure is None
        assert ("learned from 60 of 80 rows" in cells(result)[0][-1]) == (most is not None)
