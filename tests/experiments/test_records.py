"""Check that records can be read, written and compacted without losing results."""

from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from tensorswitch.cli import app
from tensorswitch.experiments import (
    Experiment,
    compact_records,
    records_in,
    with_fingerprints,
)
from tensorswitch.experiments.records import Record, run_one

PUBLISHED = Path(__file__).parents[2] / "docs" / "results" / "runs"
QUICK = {"data": "digits", "method": "ts-lrc", "epochs": 2, "lr": 1e-2, "batch_size": 32}


def files(folder):
    return {path.name: path.read_bytes() for path in folder.glob("*.json")}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("records")
    for width in (16, 17):
        run_one(Experiment(width=width, **QUICK), folder, filters=True)
    failed = Record(Experiment(data="digits", method="ss"), None, "DivergedError: no", {})
    (folder / f"{failed.experiment.name}.json").write_text(failed.to_json())
    return folder


def test_compacting_keeps_results_to_six_digits(folder, tmp_path):
    paths = compact_records(folder, tmp_path)
    assert sorted(path.name for path in paths) == sorted(files(folder))
    for before, after in zip(records_in(folder), records_in(tmp_path), strict=True):
        assert after.experiment == before.experiment
        assert (after.error, after.made) == (before.error, before.made)
        if before.result is None:
            assert after.result is None
            continue
        assert replace(after.result, epochs=[], filters=None) == replace(
            before.result, epochs=[], filters=None
        )
        for exact, rounded in zip(before.result.epochs, after.result.epochs, strict=True):
            assert rounded == pytest.approx(exact, rel=5e-6)
            assert all(value == float(f"{value:.6g}") for value in rounded.values())


def test_compacting_drops_the_filters_of_wide_networks(folder, tmp_path):
    compact_records(folder, tmp_path)
    kept = {
        r.experiment.width: r.result.filters is not None for r in records_in(tmp_path) if r.result
    }
    assert kept == {16: True, 17: False}
    assert sum(map(len, files(tmp_path).values())) < sum(map(len, files(folder).values()))


def test_compacting_compact_records_changes_nothing(folder, tmp_path):
    compact_records(folder, tmp_path)
    before = files(tmp_path)
    compact_records(tmp_path, tmp_path)
    assert files(tmp_path) == before


def test_published_records_are_compact(tmp_path):
    compact_records(PUBLISHED, tmp_path)
    assert files(tmp_path) == files(PUBLISHED)


def test_the_command_compacts(folder, tmp_path):
    arguments = ["compact", str(folder), str(tmp_path / "new")]
    result = CliRunner().invoke(app, arguments, catch_exceptions=False)
    assert "Wrote 3 records to" in result.output
    assert files(tmp_path / "new").keys() == files(folder).keys()


def test_nothing_is_written_if_a_record_is_invalid(folder, tmp_path):
    source, target = tmp_path / "source", tmp_path / "target"
    source.mkdir()
    with pytest.raises(ValueError, match="there are no records in"):
        compact_records(source, target)
    compact_records(folder, source)
    (source / "bad.json").write_text("{}")
    with pytest.raises(ValueError, match=r"bad\.json is not a valid record of an experiment"):
        compact_records(source, target)
    assert not target.exists()


def test_records_survive_a_round_trip(folder):
    for path in folder.glob("*.json"):
        record = Record.read(path)
        assert record.to_json() == path.read_text()
        assert asdict(record)["experiment"] == asdict(record.experiment)


def test_a_run_resumes_after_its_data_have_moved(tmp_path, monkeypatch):
    random = np.random.default_rng(0)
    text = "\n".join(["a,y", *(f"{x},{'up' if x > 0 else 'down'}" for x in random.normal(size=60))])
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "t.csv").write_text(text)
    here, there = (
        with_fingerprints(
            [Experiment(**{**QUICK, "data": str(tmp_path / n / "t.csv"), "epochs": 3})]
        )
        for n in ("first", "second")
    )
    assert here[0].name == there[0].name

    def stop(done, total, note):
        if done == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_one(here[0], tmp_path / "runs", watch=stop)
    record = run_one(there[0], tmp_path / "runs")
    assert record.error is None
    assert len(record.result.epochs) == 3


def test_numbers_of_numpy_name_the_same_experiment():
    plain = Experiment(data="digits", method="cnn-ss", width=8, convolutions=(1, 2, 1), seed=3)
    numpy = replace(plain, width=np.int64(8), convolutions=np.array([1, 2, 1]).tolist())
    numpy = replace(numpy, seed=np.int64(3), channels=tuple(np.array(plain.channels)))
    assert numpy.name == plain.name
