"""Run the commands of the paper at the smallest scale, and open their page in a browser."""

import re
import shlex
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tensorswitch.cli import app
from tensorswitch.experiments import Experiment, Result
from tensorswitch.experiments.records import Record
from tensorswitch.experiments.sweeps import Sweep
from tensorswitch.paper import figure4, figure5, report
from tensorswitch.paper._reproduce import finished, plans
from tensorswitch.paper.grids import SCALES, plan

pytestmark = pytest.mark.xdist_group("sweeps")  # one worker, to share the fixtures
PARTS = ("table1", "figure4", "figure5")


@pytest.fixture(scope="module")
def smoke(tmp_path_factory):
    folder = tmp_path_factory.mktemp("paper")
    result = CliRunner().invoke(
        app,
        ["paper", "all", "--scale", "smoke", "--out", str(folder), "--jobs", "1"],
        catch_exceptions=False,
    )
    assert result.exit_code == 0
    return folder, result.output


def test_all_files_are_written(smoke):
    folder, printed = smoke
    names = {
        "table1.md",
        "table1.tex",
        "table1.html",
        "report.html",
        *(f"figure{n}.{kind}" for n in (2, 4, 5) for kind in ("png", "svg")),
    }
    assert names <= {path.name for path in folder.iterdir()}
    for row in (
        "SVM SS",
        "SVM TS",
        "MLP SS",
        "MLP TS RR",
        "MLP TS LRC",
        "MLP TS IBP-LRC",
        "CNN SS",
        "CNN TS LRC",
    ):
        assert row in printed
    assert printed.count("Left out: ") == 3


def test_a_second_time_nothing_is_run_and_the_figures_are_the_same_files(smoke):
    folder, _ = smoke
    before = {path: path.stat().st_mtime_ns for path in folder.glob("runs/*.json")}
    figures = {
        path: path.read_bytes() for kind in ("png", "svg") for path in folder.glob(f"*.{kind}")
    }
    result = CliRunner().invoke(app, ["paper", "all", "--out", str(folder)], catch_exceptions=False)
    assert result.exit_code == 0
    assert {path: path.stat().st_mtime_ns for path in folder.glob("runs/*.json")} == before
    assert len(figures) == 6
    assert {path: path.read_bytes() for path in figures} == figures


def test_what_there_is_can_be_shown_without_running(smoke, tmp_path):
    (tmp_path / "runs").mkdir()
    for path in smoke[0].glob("runs/*-ss-*.json"):
        shutil.copy(path, tmp_path / "runs")
    failed = replace(
        Record.read(next(smoke[0].glob("runs/digits-rr-*.json"))),
        result=None,
        error="DivergedError: too fast",
    )
    (tmp_path / "runs" / "rr.json").write_text(failed.to_json())
    result = CliRunner().invoke(
        app, ["paper", "all", "--out", str(tmp_path), "--no-run"], catch_exceptions=False
    )
    assert result.exit_code == 0
    assert "experiments, which have not been run" in result.output
    failure = "digits, MLP TS RR, 32 gates, pixels, seed 0, which failed: DivergedError: too fast"
    assert f"Left out: {failure}" in result.output
    assert not (tmp_path / "runs" / "running").exists()
    assert {"table1.md", "figure2.png", "figure5.png", "report.html"} <= {
        p.name for p in tmp_path.iterdir()
    }
    with pytest.raises(
        ValueError, match="has no results for figure4; run it without --no-run first"
    ):
        CliRunner().invoke(
            app,
            ["paper", "figure4", "--out", str(tmp_path / "empty"), "--no-run"],
            catch_exceptions=False,
        )


def test_records_are_in_the_order_of_the_plan(smoke):
    experiments = plan("table1", "smoke").experiments
    for planned in (experiments, experiments[::-1]):
        records = finished(planned, smoke[0])
        assert [replace(r.experiment, fingerprint=None) for r in records] == planned


def test_times_may_be_measured_apart_from_the_experiments(smoke, tmp_path):
    shutil.copytree(smoke[0] / "runs", tmp_path / "runs")
    arguments = ["paper", "table1", "--out", str(tmp_path), "--no-run"]
    times = tmp_path / "times.json"
    times.write_text('{"times": {"ts-lrc": 123.4}}')
    assert CliRunner().invoke(app, arguments, catch_exceptions=False).exit_code == 0
    assert "| 123.4 (11.7) |" in (tmp_path / "table1.md").read_text()
    for wrong in ("{", "[]", '{"times": 3}', '{"times": {"ss": "fast"}}'):
        times.write_text(wrong)
        with pytest.raises(
            ValueError, match=r"times\.json is not a file of benchmarks/paper_times"
        ):
            CliRunner().invoke(app, arguments, catch_exceptions=False)


def test_commands_repeat_the_very_experiment(smoke):
    folder, _ = smoke
    for path in folder.glob("runs/*.json"):
        experiment = Record.read(path).experiment
        _, _, *settings = shlex.split(report.command(experiment))
        out = folder / "again"
        out.mkdir(exist_ok=True)
        shutil.copy(path, out)
        result = CliRunner().invoke(
            app, ["run", *settings, "--out", str(out)], catch_exceptions=False
        )
        assert result.exit_code == 0
        assert f"{experiment.name}.json" in result.output  # equal names mean equal settings


def test_the_page_stands_alone(smoke):
    text = (smoke[0] / "report.html").read_text()
    assert not re.findall(r'(?:src|href)="(?!data:)', text)
    assert text.count("<img ") == 3


def test_the_page_in_a_browser(smoke, browser):
    """Table and figures are visible, columns sort, and no screen scrolls sideways."""
    from selenium.webdriver.common.by import By

    driver = browser
    driver.get((smoke[0] / "report.html").as_uri())
    for width in (1280, 375):
        driver.set_window_size(width, 900)
        assert driver.find_element(By.ID, "table1").is_displayed()
        assert len(driver.find_elements(By.CSS_SELECTOR, "#table1 tbody tr")) == 8
        for image in driver.find_elements(By.TAG_NAME, "img"):
            assert image.is_displayed()
            assert driver.execute_script("return arguments[0].naturalWidth", image) > 500
        assert driver.execute_script(
            "const page = document.documentElement; return page.scrollWidth <= page.clientWidth"
        )
    head = driver.find_element(By.CSS_SELECTOR, "#runs th:nth-child(3)")

    def errors():
        texts = [
            e.get_attribute("textContent")
            for e in driver.find_elements(By.CSS_SELECTOR, "#runs tbody td:nth-child(3)")
        ]
        return [float(t) for t in texts]

    for direction in (1, -1):
        driver.execute_script("arguments[0].click()", head)
        assert errors() == sorted(errors())[::direction]
    assert driver.get_log("browser") == []
    driver.set_window_size(1280, 900)
    driver.get((Path(__file__).parents[2] / "docs" / "results" / "report.html").as_uri())
    table = driver.find_element(By.ID, "table1")  # all three data sets fit a laptop screen
    assert driver.execute_script(
        "const page = document.documentElement;"
        "return arguments[0].getBoundingClientRect().right <= page.clientWidth",
        table,
    )


@pytest.mark.parametrize("part", PARTS)
def test_plans_grow_with_the_scale_and_say_what_they_leave_out(part):
    sizes = [len(plan(part, scale).experiments) for scale in SCALES]
    assert sizes[0] <= sizes[1] <= sizes[2]
    assert plan(part, "smoke").left_out
    assert plan(part, "small").left_out
    assert not plan(part, "full").left_out
    for scale in SCALES:
        experiments = plan(part, scale).experiments
        assert len({e.name for e in experiments}) == len(experiments)


def test_the_full_grid_is_that_of_the_paper():
    experiments = plan("table1", "full").experiments
    count = {
        family: sum(e.family == family for e in experiments)
        for family in ("svm", "rr", "mlp", "cnn")
    }
    assert count == {"svm": 3 * 2 * 5, "rr": 3 * 4, "mlp": 3 * 3 * 3 * 4, "cnn": 3 * 27 * 3 * 2}
    assert {e.epochs for e in experiments if e.family in ("mlp", "cnn") and e.data == "svhn"} == {
        20
    }
    assert all(e.extra == (e.data == "svhn" and e.family != "svm") for e in experiments)


def test_plans_share_experiments():
    both = plans(["table1", "figure4"], "smoke").experiments
    assert len(both) == len(plan("table1", "smoke").experiments)


def test_wrong_names():
    with pytest.raises(ValueError, match="scale must be one of smoke, small, full; got 'tiny'"):
        plans(["figure2"], "tiny")
    with pytest.raises(
        ValueError, match="experiments are defined for table1, figure4, figure5; got 'figure3'"
    ):
        plan("figure3", "smoke")


def test_figures_without_results_say_what_to_run():
    with pytest.raises(ValueError, match="run `tensorswitch paper figure4` first"):
        figure4.draw([])
    with pytest.raises(ValueError, match="run `tensorswitch paper figure5` first"):
        figure5.draw([])


def test_pairs_differ_in_the_method_only(smoke):
    folder, _ = smoke
    records = [Record.read(path) for path in folder.glob("runs/*.json")]
    both = figure4.pairs(records)
    assert [pair.label for pair in sorted(both, key=lambda p: p.depth)] == ["2+1", "2+2"]
    for ss, ts in (records for pair in both for records in pair.long):
        assert {k: v for k, v in ss.experiment.settings.items() if k != "method"} == {
            k: v for k, v in ts.experiment.settings.items() if k != "method"
        }


def cnns(data="mnist", seeds=(0,), **settings):
    """Return an SS and a TS record for each seed."""
    return [
        Record(
            Experiment(data=data, method=method, seed=seed, **settings),
            Result(1, 1.0, error + seed / 100, error, error / 2, error, 1),
            None,
            {},
        )
        for seed in seeds
        for method, error in (("cnn-ss", 0.2), ("cnn-ts-lrc", 0.1))
    ]


def test_a_pair_has_its_longest_runs_and_all_seeds_of_one_pass():
    records = cnns(seeds=(0, 1, 2)) + cnns(epochs=5) + cnns(epochs=100) + cnns("cifar10", epochs=5)
    alone = cnns(epochs=200)[0]  # of SS only
    first, second = figure4.pairs([*records, alone, *cnns("svhn")])
    assert [[r.experiment.epochs for r in both] for both in first.long] == [[100, 100]]
    assert [ss.experiment.seed for ss, _ in first.first] == [0, 1, 2]
    assert (first.label, second.label) == ("3+1", "3+1 (5)")


def test_learning_curves_have_the_time_of_all_threads_and_of_the_median_epoch():
    ss, ts = cnns(epochs=3)
    times, errors = (1800.0, 9000.0, 1200.0), (0.4, 0.3, 0.35)
    epochs = [
        {"seconds": seconds, "validation_error": error}
        for seconds, error in zip(times, errors, strict=True)
    ]
    one, two = (
        replace(r, result=replace(r.result, epochs=epochs), made={"threads": threads})
        for r, threads in ((ss, 1), (ts, 2))
    )
    lines = figure4.draw([one, two]).axes[1].lines
    assert [list(line.get_xdata()) for line in lines] == [[0.5, 1.0, 1.5], [1.0, 2.0, 3.0]]
    assert list(lines[0].get_ydata()) == [40.0, 30.0, 35.0]


def test_a_failed_run_is_shown_with_its_error(tmp_path):
    failed = Record(
        Experiment(data="digits", method="ss"), None, "it <broke>", {"date": "2026-01-01"}
    )
    report.write_report(tmp_path / "report.html", [failed], [], [], "tensorswitch paper table1")
    assert "failed: it &lt;broke&gt;" in (tmp_path / "report.html").read_text()
    assert Sweep([failed.experiment], tmp_path).left() == [failed.experiment]


def test_of_records_on_data_that_changed_the_last_one_counts(tmp_path):
    experiments = plan("table1", "smoke").experiments[:2]
    (tmp_path / "runs").mkdir()
    for day, fingerprint in enumerate(("old", "new", "older")):
        for experiment in experiments:
            made = {"date": f"2026-01-0{(2, 3, 1)[day]}"}
            record = Record(
                replace(experiment, fingerprint=fingerprint), Result(1, 1.0), None, made
            )
            (tmp_path / "runs" / f"{record.experiment.name}.json").write_text(record.to_json())
    records = finished(experiments, tmp_path)
    assert [r.experiment.fingerprint for r in records] == ["new", "new"]


def test_commands_keep_the_case_of_columns():
    experiment = Experiment(data="t.csv", method="ss", target="Price", precision="bf16")
    assert "target=Price" in report.command(experiment)
