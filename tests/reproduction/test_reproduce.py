"""Run the commands of the paper at the smallest scale, and open their page in a browser."""

import re
import shlex
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from reproduction import (
    PARTS,
    Experiment,
    Record,
    Result,
    Sweep,
    figure4,
    figure5,
    records_in,
    rendering,
    report,
    table1,
)
from reproduction.commands import app
from reproduction.paper import measured_times, of_plan, of_the_table, plans
from reproduction.plans import SCALES, plan
from reproduction.records import compact

pytestmark = pytest.mark.xdist_group("sweeps")  # one worker, to share the fixtures
PLANNED = ("table1", "figure4", "figure5")
RESULTS = Path(__file__).parents[2] / "docs" / "results"


def run(*arguments):
    result = CliRunner().invoke(app, list(map(str, arguments)), catch_exceptions=False)
    assert result.exit_code == 0
    return result.output


@pytest.fixture(scope="module")
def smoke(tmp_path_factory):
    folder = tmp_path_factory.mktemp("paper")
    return folder, run("all", "--scale", "smoke", "--out", folder, "--jobs", "1")


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
    run("all", "--out", folder)
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
    printed = run("all", "--out", tmp_path, "--no-run")
    assert "experiments, which have not been run" in printed
    failure = "digits, MLP TS RR, 32 gates, pixels, seed 0, which failed: DivergedError: too fast"
    assert f"Left out: {failure}" in printed
    assert not (tmp_path / "runs" / "running").exists()
    assert {"table1.md", "figure2.png", "figure5.png", "report.html"} <= {
        p.name for p in tmp_path.iterdir()
    }
    with pytest.raises(
        ValueError, match="has no results for figure4; run it without --no-run first"
    ):
        run("figure4", "--out", tmp_path / "empty", "--no-run")


def test_compact_records_give_the_same_table_and_figures(smoke, tmp_path):
    shutil.copytree(smoke[0] / "runs", tmp_path / "runs")
    compact(tmp_path / "runs")
    run("all", "--out", tmp_path, "--no-run")
    for name in ("table1.md", "table1.tex", "table1.html", "figure5.png", "figure5.svg"):
        assert (tmp_path / name).read_bytes() == (smoke[0] / name).read_bytes()
    assert "0 to go" in run("figure5", "--out", tmp_path)  # nothing is run again
    assert not list((tmp_path / "runs").glob("*.json"))


def test_records_are_in_the_order_of_the_plan(smoke):
    planned, records = plan("table1", "smoke"), records_in(smoke[0] / "runs")
    for p in (planned, planned._replace(experiments=planned.experiments[::-1])):
        found = [replace(r.experiment, fingerprint=None) for r in of_plan(p, records)]
        assert found == p.experiments


def test_times_may_be_measured_apart_from_the_experiments(smoke, tmp_path):
    shutil.copytree(smoke[0] / "runs", tmp_path / "runs")
    arguments = ["table1", "--out", tmp_path, "--no-run"]
    times = tmp_path / "times.json"
    times.write_text('{"times": {"ts-lrc": 123.4}}')
    run(*arguments)
    assert "| 123.4 (11.7) |" in (tmp_path / "table1.md").read_text()
    for wrong in ("{", "[]", '{"times": 3}', '{"times": {"ss": "fast"}}'):
        times.write_text(wrong)
        with pytest.raises(
            ValueError, match=r"times\.json is not a file of benchmarks/paper_times"
        ):
            run(*arguments)


def test_commands_repeat_the_very_experiment(smoke, tmp_path):
    shutil.copytree(smoke[0] / "runs", tmp_path, dirs_exist_ok=True)
    for path in sorted(tmp_path.glob("*.json"))[::4]:
        command = shlex.split(report.command(Record.read(path).experiment))
        assert command[:4] == ["python", "-m", "reproduction", "run"]
        printed = run(*command[3:], "--out", tmp_path)
        assert path.name in printed  # equal names mean equal settings


def test_the_page_needs_only_what_is_beside_it(smoke):
    text = (smoke[0] / "report.html").read_text()
    linked = re.findall(r'(?:src|href)="([^"]*)"', text)
    assert linked == ["figure2.png", "figure4.png", "figure5.png"]
    assert all((smoke[0] / name).exists() for name in linked)


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
    driver.get((RESULTS / "report.html").as_uri())
    table = driver.find_element(By.ID, "table1")  # all three data sets fit a laptop screen
    assert driver.execute_script(
        "const page = document.documentElement;"
        "return arguments[0].getBoundingClientRect().right <= page.clientWidth",
        table,
    )


@pytest.mark.parametrize("part", PLANNED)
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
    with pytest.raises(ValueError, match="run `python -m reproduction figure4` first"):
        figure4.draw([])
    with pytest.raises(ValueError, match="run `python -m reproduction figure5` first"):
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
    report.write_report(tmp_path / "report.html", [failed], [], [], "python -m reproduction table1")
    assert "failed: it &lt;broke&gt;" in (tmp_path / "report.html").read_text()
    assert Sweep([failed.experiment], tmp_path).left() == [failed.experiment]


def test_of_records_on_data_that_changed_the_last_one_counts():
    planned = plan("table1", "smoke")
    records = [
        Record(replace(e, fingerprint=name), Result(1, 1.0), None, {"date": f"2026-01-0{day}"})
        for e in planned.experiments
        for day, name in ((2, "old"), (3, "new"), (1, "older"))
    ]
    assert {r.experiment.fingerprint for r in of_plan(planned, records)} == {"new"}


def test_the_published_table_is_made_from_the_published_records():
    planned = plans(PARTS, "small")  # its order decides between equal validation errors
    records = of_the_table(of_plan(planned, records_in(RESULTS / "runs")))
    table = table1.rows(records, measured_times(RESULTS))
    assert rendering.as_markdown(table) == (RESULTS / "table1.md").read_text(encoding="utf-8")
    assert rendering.as_latex(table) == (RESULTS / "table1.tex").read_text(encoding="utf-8")
    assert rendering.as_html(table) == (RESULTS / "table1.html").read_text(encoding="utf-8")
