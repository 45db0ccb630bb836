"""A comparison: learners, splits, records that are not repeated, and what is said of them."""

import html
import json
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from sklearn.neighbors import KNeighborsClassifier, KNeighborsRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from tensorswitch.compare import (
    LEARNERS,
    Problem,
    compare,
    load_predictor,
    load_problem,
    train,
    write_report,
)
from tensorswitch.estimators import TSRidgeClassifier

BASELINES = {"majority", "mean"}
QUICK = {"rr": {"gates": 8}}


def table(folder, rows=100, classes=False):
    """A csv whose target is |size| and 1 for houses, or whether that is large."""
    rng = np.random.default_rng(0)
    size, kind = rng.normal(size=rows), rng.choice(["flat", "house"], rows)
    price = 3 * np.abs(size) + (kind == "house")
    target = np.where(price > 3, "dear", "cheap") if classes else price.round(3)
    lines = zip(size.round(3), kind, np.arange(rows) // 5 + 100.5, target, strict=True)
    text = "".join(f"{a},{b},p{int(c)},{c},{d}\n" for a, b, c, d in lines)
    (folder / "houses.csv").write_text("size,kind,street,day,price\n" + text)
    return load_problem(folder / "houses.csv", target="price")


def page(found):
    """The text of the report."""
    write_report(found, found.folder / "report.html")
    return html.unescape((found.folder / "report.html").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def numbers(tmp_path_factory):
    folder = tmp_path_factory.mktemp("numbers")
    learners = ["linear", "boosting", "rr", "kernel-ridge"]
    return compare(table(folder), learners, folder, settings=QUICK)


def test_the_best_is_first_and_a_baseline_is_always_there(numbers):
    errors = [r.error for r in numbers.ranked]
    assert errors == sorted(errors)
    text = page(numbers)
    assert text.index(f"{numbers.ranked[0].label} is best: R² ") < text.index("<table")
    assert "means of 5-fold cross-validation; 80 training and 20 test rows" in text.lower()
    assert text.count('<figure class="') == 6
    assert "looks at" in text
    assert "http" not in text  # the page is self-contained
    assert numbers.records[0].learner == "mean"
    assert numbers.ranked[-1].mean("r2") < 0.1
    assert len(numbers.records[0].results) == 5  # folds


def test_a_fold_that_is_done_is_not_repeated(numbers):
    record = next(r for r in numbers.records if r.learner == "rr")
    path = numbers.folder / f"{record.name}.json"
    content = json.loads(path.read_text())
    whole = content["results"]
    path.write_text(json.dumps({**content, "results": whole[:3]}))
    again = compare(numbers.problem, ["rr"], numbers.folder, settings=QUICK).records[1]
    assert again.name == record.name
    assert [r.metrics["error"] for r in again.results] == [r["metrics"]["error"] for r in whole]
    kept = json.loads(path.read_text())["results"]
    assert [r["fit_seconds"] for r in kept[:3]] == [r["fit_seconds"] for r in whole[:3]]
    assert kept[4]["fit_seconds"] != whole[4]["fit_seconds"]
    other = compare(numbers.problem, ["rr"], numbers.folder, settings={}, run=False).records[1]
    assert other.name != record.name
    assert not other.results


@pytest.mark.parametrize("text", ["", "{", "[]", '{"results": [{"metrics": {"error": "x"}}]}'])
def test_a_broken_record_is_named(tmp_path, text):
    run = partial(compare, table(tmp_path), ["linear"], tmp_path)
    (tmp_path / f"{run().records[1].name}.json").write_text(text)
    with pytest.raises(ValueError, match="is not a valid result of a comparison"):
        run()


def test_any_estimator_can_be_compared(tmp_path):
    mine = {
        "my neighbours": KNeighborsRegressor(3),
        "scaled": make_pipeline(StandardScaler(), KNeighborsRegressor(3)),
        "linear": None,
    }
    found = compare(table(tmp_path), mine, tmp_path, settings={"scaled": {"n_neighbors": 1}})
    assert [r.label for r in found.records][1:] == ["my neighbours", "scaled", "linear model"]
    assert not found.failed
    assert found.records[2].settings["parameters"]["kneighborsregressor__n_neighbors"] == "1"
    assert "KNeighborsRegressor, as it was given" in found.records[1].about
    ours = compare("digits", {"few gates": TSRidgeClassifier(4)}, tmp_path)
    assert ours.records[1].own
    assert load_predictor(tmp_path / "models" / f"{ours.records[1].name}.safetensors").encoder


def test_all_learners_fit_numbers_and_classes(tmp_path):
    for classes in (False, True):
        problem = table(tmp_path, 120, classes)
        quick = {n: {"max_iter": 2} for n in ("ss", "ts-lrc", "ts-ibp-lrc", "ts-ibp", "ss+ts")}
        found = compare(problem, "all", tmp_path / str(classes), settings=quick, cv=2)
        suits = {n for n, one in LEARNERS.items() if problem.task in one.tasks and not one.images}
        assert {r.learner for r in found.records} == suits
        assert [r.failure for r in found.failed] == []
        kernel = [r for r in found.records if r.learner == "svm-ts"]
        assert all("depth" in r.results[0].note for r in kernel)


@pytest.mark.parametrize("classes", [False, True])
def test_splits(tmp_path, classes):
    problem = table(tmp_path, classes=classes)
    plan = partial(compare, problem, ["linear"], tmp_path, run=False)
    assert len(plan(cv=3).splits) == 3
    assert len(plan(cv=3, repeats=2).splits) == 6
    assert plan(cv=3).records[0].name != plan(cv=3, repeats=2).records[0].name
    street, day = (problem.rows[name].to_numpy() for name in ("street", "day"))
    grouped = plan(split="group:street", cv=4)
    for train_rows, test_rows in grouped.splits:
        assert not {*street[train_rows]} & {*street[test_rows]}
    assert "street" not in grouped.problem.rows.columns
    assert sum(len(test_rows) for _, test_rows in grouped.splits) == len(problem)
    for train_rows, test_rows in plan(split="time:day").splits:
        assert day[train_rows].max() <= day[test_rows].min()
    assert "later in 'day'" in plan(split="time:day").how


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"cv": 1}, "cv must be at least 2, got 1"),
        ({"cv": 101}, "101 folds need as many rows, but there are 100"),
        ({"split": "group:kind"}, "5 folds need as many groups, but 'kind' has 2 values"),
        ({"split": "group:stret"}, "houses has no column 'stret'; expected one of size, kind"),
        ({"split": "time:day", "repeats": 2}, "repeats have no effect with split 'time:day'"),
        ({"split": "group"}, "split must be random, time:COLUMN or group:COLUMN; got 'group'"),
        ({"metric": "f1"}, "metric of a regression must be one of r2, rmse, mae; got 'f1'"),
        ({"class_weight": "balanced"}, "is a regression, so there are no classes to weigh"),
        ({"repeats": 0}, "repeats must be a positive integer, got 0"),
        ({"learners": ["magic"]}, "unknown method 'magic'; expected one of mean, linear"),
        ({"learners": ["svm-ts"]}, "svm-ts cannot be used for a regression"),
        ({"learners": []}, "no learners given; expected all, or some of mean"),
        ({"settings": {"rr": {"gate": 3}}}, "TS ridge has no parameter 'gate'; did you mean gates"),
        ({"settings": {"svm": {"C": 3}}}, "settings of svm, which are not compared"),
        ({"seed": -1}, "seed must be an integer of at least 0"),
    ],
)
def test_what_cannot_be_done_is_said_before_anything_is_written(tmp_path, options, message):
    problem = table(tmp_path)
    with pytest.raises(ValueError, match=message):
        compare(problem, **{"learners": ["rr"], "folder": tmp_path / "c", **options})
    assert not (tmp_path / "c").exists()


def test_groups_and_times_need_a_table():
    with pytest.raises(ValueError, match="digits is not a table, so there is no column 'x'"):
        compare("digits", ["linear"], split="group:x", run=False)


def test_a_learner_that_always_predicts_one_class_is_named(tmp_path):
    rng = np.random.default_rng(0)
    rows = "".join(
        f"{a:.3f},{'rare' if i % 10 == 0 else 'often'}\n"
        for i, a in enumerate(rng.normal(size=100))
    )
    (tmp_path / "noise.csv").write_text("a,label\n" + rows)
    learners = {"far": KNeighborsClassifier(50), "linear": None}
    found = compare(load_problem(tmp_path / "noise.csv"), learners, tmp_path)
    assert page(found).count("always 'often'") == 2  # of a baseline that is no news
    words = (
        "No learner is clearly better than predicting always the most frequent class, 10.0 % error"
    )
    assert words in page(found)


def test_a_failure_is_recorded_and_tried_again(tmp_path):
    problem = table(tmp_path)
    found = compare(problem, {"bad": KNeighborsRegressor(1000), "linear": None}, tmp_path)
    assert [r.learner for r in found.failed] == ["bad"]
    assert "n_neighbors" in found.failed[0].failure
    assert "bad failed: ValueError" in page(found)
    again = compare(problem, {"bad": KNeighborsRegressor(1000)}, tmp_path, run=False)
    assert again.records[1].failure is None


def test_constant_targets_have_no_r2():
    rows = np.random.default_rng(0).normal(size=(60, 2))
    target = np.zeros(60)
    target[0] = 1.0
    problem = Problem("rare", rows, target, None)
    learner = train(problem, "linear", holdout=True)[1]
    assert np.isnan(learner.metrics["r2"])


def test_a_machine_learns_a_class_of_one_row_and_names_its_sample(tmp_path, monkeypatch):
    rng = np.random.default_rng(0)
    target = np.zeros(100, dtype=int)
    target[[0, 90]] = 1  # one row to learn from
    rows = rng.normal(size=(100, 1)) + 5 * target[:, None]
    problem = Problem("rare", rows, target, ("a", "b"), given_test=np.arange(80, 100))
    chosen = np.random.default_rng(0).permutation(80)[:60]
    for most in (None, 60):
        machine = replace(LEARNERS["svm-ts"], most_rows=most)
        monkeypatch.setitem(LEARNERS, "svm-ts", machine)
        result = compare(problem, ["svm-ts"], tmp_path / str(most))
        if most is None or 0 in chosen:
            assert result.records[1].failure is None
            note = result.records[1].results[0].note
            assert ("learned from 60 of 80 rows" in note) == (most is not None)


def test_every_learner_has_a_label_a_line_and_good_parameters():
    for name, learner in LEARNERS.items():
        assert learner.label
        assert learner.about
        others = {"linear", "forest", "boosting", "svm", "mlp"} | BASELINES
        assert learner.own == (name not in others)


def test_pictures_are_explained_with_maps(tmp_path):
    found = compare("digits", ["linear", "rr"], tmp_path, settings=QUICK, components=12)
    text = page(found)
    for section in ("Error against time", "learners confuse", "be trusted?", "TS ridge looks at"):
        assert section in text
    assert text.count('<figure class="') == 6
    assert text.count("right is") == text.count('<figure class="wrong"') > 0
    assert "image and contributions" in text


def test_the_report_in_a_browser(numbers, browser):
    """Nothing scrolls sideways on a phone or a laptop, and dark pages have dark figures."""
    from selenium.webdriver.common.by import By

    page(numbers)
    for width in (1280, 375):
        for scheme in ("light", "dark"):
            medium = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
            browser.execute_cdp_cmd("Emulation.setEmulatedMedia", medium)
            browser.set_window_size(width, 900)
            browser.get((numbers.folder / "report.html").as_uri())
            assert browser.find_element(By.CLASS_NAME, "conclusion").is_displayed()
            pictures = browser.find_elements(By.TAG_NAME, "img")
            assert len(pictures) == 8
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


@pytest.mark.parametrize("name", ["% of $ (in 10^$)", "cost_$ per unit_$"])
def test_dollars_in_names_are_no_formulas(tmp_path, name):
    random = np.random.default_rng(0)
    lines = [
        f"{a:.3f},{b:.3f},{'$a' if a > b else 'b_$'}\n" for a, b in random.normal(size=(60, 2))
    ]
    (tmp_path / "prices.csv").write_text(f"{name},b,label\n" + "".join(lines))
    found = compare(tmp_path / "prices.csv", ["rr"], tmp_path, settings=QUICK)
    assert "TS ridge looks at" in page(found)  # matplotlib raises where a formula is not valid
