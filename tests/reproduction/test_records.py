"""Check that records can be read, written and compacted without losing results."""

from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from reproduction import Experiment, Record, Result, Sweep, records_in, run_one
from reproduction.commands import app
from reproduction.records import compact, compact_records

RESULTS = Path(__file__).parents[2] / "docs" / "results"
QUICK = {"data": "digits", "method": "ts-lrc", "epochs": 2, "lr": 1e-2, "batch_size": 32}


@pytest.fixture
def folder(tmp_path):
    """A folder with a network, a method without epochs and a failure."""
    run_one(Experiment(width=16, **QUICK), tmp_path / "runs")
    done = Record(Experiment(data="digits", method="svm-ts"), Result(2, 0.123456789), None, {})
    failed = Record(Experiment(data="digits", method="ss"), None, "DivergedError: no", {})
    for record in (done, failed):
        (tmp_path / "runs" / f"{record.experiment.name}.json").write_text(record.to_json())
    return tmp_path / "runs"


def test_records_survive_a_round_trip(folder):
    for path in folder.glob("*.json"):
        assert Record.read(path).to_json() == path.read_text()


def test_compacting_keeps_results_and_six_digits_of_epochs(folder):
    before = records_in(folder)
    path = compact(folder)
    assert path == folder.with_name("runs.jsonl.gz")
    assert not list(folder.glob("*.json"))
    for one, other in zip(before, records_in(folder), strict=True):
        assert other.experiment == one.experiment
        assert (other.error, other.made) == (one.error, one.made)
        if one.result is not None:
            without = [replace(r.result, epochs=[]) for r in (one, other)]
            assert repr(without[0]) == repr(without[1])  # NaN is not equal to itself
            for exact, rounded in zip(one.result.epochs, other.result.epochs, strict=True):
                assert rounded == pytest.approx(exact, rel=5e-6)
    content = path.read_bytes()
    assert compact(folder).read_bytes() == content


def test_a_file_of_a_record_takes_the_place_of_the_compact_one(folder):
    compact(folder)
    network = next(r for r in records_in(folder) if r.experiment.method == "ts-lrc")
    newer = replace(network, made={"date": "2100-01-01"})
    (folder / f"{network.experiment.name}.json").write_text(newer.to_json())
    found = {r.experiment.method: r.made for r in records_in(folder)}
    assert found["ts-lrc"] == newer.made
    assert set(found) == {"ts-lrc", "svm-ts", "ss"}


def test_sweeps_know_compact_records(folder):
    experiments = [r.experiment for r in records_in(folder)]
    compact(folder)
    state = Sweep([*experiments, Experiment(data="digits", method="rr")], folder)
    assert [e.method for e in state.left()] == ["rr"]
    state.forget_failures()
    assert {e.method for e in state.left()} == {"rr", "ss"}


def test_the_command_compacts(folder):
    result = CliRunner().invoke(app, ["compact", str(folder)], catch_exceptions=False)
    assert "Wrote" in result.output
    assert "runs.jsonl.gz" in result.output


def test_nothing_is_written_if_a_record_is_invalid(folder, tmp_path):
    with pytest.raises(ValueError, match="there are no records in"):
        compact(tmp_path / "none")
    (folder / "bad.json").write_text("{}")
    with pytest.raises(ValueError, match=r"bad\.json is not a valid record of an experiment"):
        compact(folder)
    assert not compact_records(folder)
    (folder / "bad.json").unlink()
    (tmp_path / "runs.jsonl.gz").write_bytes(b"not compressed")
    with pytest.raises(ValueError, match=r"runs\.jsonl\.gz is not a file of compact records"):
        records_in(folder)


def test_published_records_are_compact_and_belong_to_their_experiments():
    counts = {}
    for name in ("runs", "trials"):
        records = compact_records(RESULTS / name)
        counts[name] = len(records)
        assert all(r.compact().to_json() == r.to_json() for r in records)
    assert counts == {"runs": 376, "trials": 69}
    # Names must stay the same for ever, or else the experiments would run again.
    longest = Experiment(data="cifar10", method="ss", width=16, epochs=200)
    bound = replace(longest, fingerprint="38649f73cad5ab57")
    assert bound.name == "cifar10-ss-aa0a0d63ae96"
    shuffled = replace(bound, shuffle=True)
    assert shuffled.name in {r.experiment.name for r in compact_records(RESULTS / "trials")}
