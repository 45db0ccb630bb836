import io
import math

import pytest
from rich.console import Console

from reproduction import Experiment, Record, Result, published, rendering, table1


def record(method="ss", data="mnist", one=(0.2, 0.2), best=(0.1, 0.1), seconds=1.0, **settings):
    """Return a record; errors are pairs of (validation, test)."""
    experiment = Experiment(data=data, method=method, **settings)
    return Record(
        experiment,
        Result(experiment.depth, seconds, one[1], one[0], best[1], best[0], 1),
        None,
        {"threads": 1},
    )


def test_the_model_is_chosen_by_validation_not_by_test():
    records = [record(depth=1, one=(0.10, 0.30)), record(depth=2, one=(0.20, 0.10))]
    (row,) = table1.rows(records)
    assert row.one_pass["mnist"].error == pytest.approx(30)
    assert row.one_pass["mnist"].depth == "1"


def test_seeds_are_averaged_before_the_choice():
    """A single lucky seed must not win."""
    lucky = [record(depth=1, seed=s, one=(v, v)) for s, v in enumerate((0.01, 0.5, 0.5))]
    steady = [record(depth=2, seed=s, one=(v, v)) for s, v in enumerate((0.2, 0.2, 0.26))]
    (row,) = table1.rows(lucky + steady)
    entry = row.one_pass["mnist"]
    assert entry.depth == "2"
    assert entry.error == pytest.approx(22)
    assert entry.spread == pytest.approx(6)
    assert len(entry.records) == 3
    assert "3 seeds within 6.00" in rendering.as_html([row])


def test_a_long_run_stands_for_the_short_one_with_the_same_settings():
    (row,) = table1.rows([record(epochs=1), record(epochs=100, best=(0.02, 0.03))])
    assert len(row.one_pass["mnist"].records) == 1
    assert row.asymptotic["mnist"].error == pytest.approx(3)
    assert row.asymptotic["mnist"].remark == ""


def test_one_pass_gives_no_asymptotic_error():
    (row,) = table1.rows([record(epochs=1)])
    assert not row.asymptotic


def test_what_departs_from_the_protocol_is_said():
    (row,) = table1.rows([record(data="svhn", epochs=5)])
    assert row.asymptotic["svhn"].remark == "without extra images, 5 epochs"
    assert row.one_pass["svhn"].remark == "without extra images"
    (row,) = table1.rows([record("svm-ss", "svhn")])
    assert row.asymptotic["svhn"].remark == ""


def test_remarks_stand_below_the_table_in_every_form():
    table = table1.rows([record(epochs=5, depth=2), record("ts-lrc", data="svhn")])
    assert "10.00**<sup>2 a</sup>" in rendering.as_markdown(table)
    assert "<sup>a</sup> 5 epochs" in rendering.as_markdown(table)
    assert "<sup>b</sup> without extra images" in rendering.as_markdown(table)
    assert r"\textsuperscript{2 a}" in rendering.as_latex(table)
    assert r"{\scriptsize a: 5 epochs}" in rendering.as_latex(table)
    assert "5 epochs" in rendering.as_html(table)
    assert "a: 5 epochs" in rendering.as_terminal(table).caption


def test_time_is_a_mean_of_ratios_at_the_same_shape():
    records = [
        record(depth=1, seconds=1),
        record(depth=2, seconds=2),
        record("ts-lrc", depth=1, seconds=3),
        record("ts-lrc", depth=2, seconds=10),
    ]
    ss, ts = table1.rows(records)
    assert ss.time == 1
    assert ts.time == pytest.approx((3 / 1 + 10 / 2) / 2)
    assert math.isnan(table1.rows([record("ts-lrc")])[0].time)


def test_rows_and_columns_are_in_the_order_of_the_paper():
    records = [
        record(method=m, data=d)
        for d in ("digits", "svhn", "mnist")
        for m in ("cnn-ts-lrc", "ss", "svm-ts")
    ]
    table = table1.rows(records)
    assert [r.method for r in table] == ["svm-ts", "ss", "cnn-ts-lrc"]
    assert table1.columns(table) == ["mnist", "svhn", "digits"]


def test_every_form_has_the_error_the_depth_the_paper_and_the_difference():
    records = [
        record("cnn-ss", convolutions=(1, 2, 2), depth=3, one=(0.1, 0.4274)),
        record("cnn-ts-lrc", one=(0.1, 0.0385)),
    ]
    table = table1.rows(records)
    assert "42.74<sup>5+3</sup> (43.74, −1.00)" in rendering.as_markdown(table)
    assert "**3.85**<sup>3+1</sup> (3.85, +0.00)" in rendering.as_markdown(table)
    assert r"42.74\textsuperscript{5+3} {\scriptsize (43.74, $-1.00$)}" in rendering.as_latex(table)
    assert (
        "42.74<sup>5+3</sup><small>paper 43.74<sup>3+1</sup>, −1.00</small>"
        in rendering.as_html(table)
    )
    console = Console(record=True, width=100, file=io.StringIO())
    console.print(rendering.as_terminal(table))
    text = console.export_text()
    assert "42.74⁵⁺³" in text
    assert "(43.74, −1.00)" in text


def test_the_narrow_form_fits_into_eighty_columns():
    records = [
        record(method=m, data=d, one=(0.5, 0.5), epochs=2)
        for d in published.DATA
        for m in published.ROWS
        if m != "rr"
    ]
    console = Console(record=True, width=80, file=io.StringIO())
    console.print(rendering.as_terminal(table1.rows(records), narrow=True))
    text = console.export_text()
    assert "…" not in text
    assert text.count("50.00³⁺¹") == 6


def test_latex_is_a_whole_tabular():
    text = rendering.as_latex(table1.rows([record(), record("svm-ss")]))
    assert text.startswith(r"\begin{tabular}{lrrr}")
    assert {
        line.count("&")
        for line in text.splitlines()
        if line.endswith(r"\\") and "multicolumn" not in line
    } == {3}


def test_measured_times_stand_for_those_of_the_experiments():
    records = [record(seconds=1), record("ts-lrc", seconds=30), record("rr", seconds=90)]
    times = {row.method: row.time for row in table1.rows(records, {"ts-lrc": 20.0})}
    assert times == {"ss": 1.0, "ts-lrc": 20.0, "rr": 90.0}


def test_times_of_both_sides_are_taken_alike():
    records = [
        record(m, seed=seed, seconds=1.0 + seed) for m in ("ss", "ts-lrc") for seed in (0, 1)
    ]
    assert table1.rows(records)[1].time == 1
    assert math.isnan(table1.rows([record(batch_size=128), record("ts-lrc", batch_size=8)])[1].time)


def test_a_model_that_fails_for_some_seeds_is_not_chosen():
    failed = Record(Experiment(data="mnist", method="ss", lr=0.5, seed=1), None, "diverged", {})
    (row,) = table1.rows(
        [record(lr=0.5, one=(0.05, 0.05)), failed, record(lr=0.1, one=(0.06, 0.06))]
    )
    assert row.one_pass["mnist"].error == pytest.approx(6)


def test_only_the_longest_runs_count_in_the_end():
    (row,) = table1.rows(
        [record(epochs=2, seed=1, best=(0.5, 0.5)), record(epochs=100, best=(0.02, 0.02))]
    )
    assert row.asymptotic["mnist"].error == pytest.approx(2)
    assert len(row.one_pass["mnist"].records) == 2


def test_without_validation_a_model_is_the_last_choice():
    (row,) = table1.rows([record(depth=1, one=(math.nan, 0.9)), record(depth=2, one=(0.01, 0.01))])
    assert row.one_pass["mnist"].error == pytest.approx(1)


def test_there_are_letters_for_every_remark():
    records = [
        record(m, d, epochs=2 + 3 * i + j)
        for i, d in enumerate(published.DATA)
        for j, m in enumerate(("ss", "ts-lrc", "ts-ibp-lrc"))
    ]
    assert "<sup>i</sup>" in rendering.as_markdown(table1.rows(records))


def test_failed_runs_are_left_out():
    failed = Record(Experiment(data="mnist", method="ss"), None, "no", {})
    assert table1.rows([failed]) == []


def test_published_values_are_those_of_the_paper():
    """Check relations that the text of the paper states."""
    assert set(published.ROWS) == set(published.TIME)
    for data in published.DATA:
        assert published.ONE_PASS["ts-lrc"][data].error < published.ONE_PASS["ss"][data].error
        assert (
            published.ONE_PASS["cnn-ts-lrc"][data].error < published.ONE_PASS["cnn-ss"][data].error
        )
    assert (
        published.ASYMPTOTIC["svm-ss"]["mnist"].error
        == published.ASYMPTOTIC["svm-ts"]["mnist"].error
        == 1.40
    )


def test_a_long_run_that_failed_does_not_take_the_short_ones_away():
    failed = record(epochs=100)
    failed.result, failed.error = None, "OSError: no space left"
    (row,) = table1.rows([record(epochs=1, one=(0.1, 0.1)), failed])
    assert row.one_pass["mnist"].error == pytest.approx(10)
    diverged = record(epochs=1, seed=1)
    diverged.result, diverged.error = None, "DivergedError"
    assert table1.rows([record(epochs=1), record(epochs=100), diverged]) == []
