import csv
import json
import os
import re
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from typer.testing import CliRunner

from tensorswitch import _process
from tensorswitch.cli import app, main
from tensorswitch.models import load_model

QUICK = ["--epochs", "2", "--width", "8", "--lr", "0.05", "--batch-size", "32"]


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("TENSORSWITCH_DATA", raising=False)
    return tmp_path


def run(*arguments):
    result = CliRunner().invoke(app, list(arguments))
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def test_help_names_every_command():
    text = run("--help").output
    for command in (
        "compare",
        "train",
        "predict",
        "evaluate",
        "data",
    ):
        assert command in text


def test_train_then_predict(folder):
    printed = run("train", *QUICK, "--out", "a").output
    error = re.search(r"([\d.]+) % at epoch (\d)", printed)
    assert error is not None
    assert sorted(p.name for p in (folder / "a").glob("[!.]*")) == [
        "best.safetensors",
        "checkpoint.safetensors",
        "history.csv",
        "history.json",
        "model.safetensors",
    ]
    assert load_model(folder / "a" / "model.safetensors").description["kind"] == "ts-lrc"
    assert (
        f"540 test rows of digits: error {error[1]} %"
        in run("predict", "a", "digits", "--out", "p.csv").output
    )
    with (folder / "p.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 540
    assert {row["label"] for row in rows} <= set("0123456789")
    assert all(0.1 <= float(row["probability"]) <= 1 for row in rows)


def test_predict_rows_without_labels(folder):
    run("train", *QUICK, "--components", "10", "--kind", "ss", "--out", "a")
    np.save(folder / "new.npy", np.zeros((3, 8, 8), np.uint8))
    assert len(run("predict", "a/model.safetensors", "new.npy").output.split()) == 3


def test_a_cnn_on_images(folder):
    np.savez(
        folder / "mine.npz",
        x=np.random.default_rng(0).integers(0, 256, (60, 8, 8), dtype=np.uint8),
        y=np.arange(60) % 2,
    )
    assert (
        "ts-lrc cnn"
        in run(
            "train", "--data", "mine.npz", "--architecture", "cnn", "--epochs", "1", "--width", "8"
        ).output
    )


def test_settings_from_a_file_are_overridden_by_options(folder):
    (folder / "a.toml").write_text(
        'kind = "ss"\nepochs = 3\nwidth = 8\nbatch-size = 64\nout = "there"\n'
    )
    run("train", "--config", "a.toml", "--epochs", "1")
    assert load_model(folder / "there" / "model.safetensors").description["kind"] == "ss"
    assert len(json.loads((folder / "there" / "history.json").read_text())) == 1


def test_training_goes_on_in_its_folder(folder):
    run("train", *QUICK, "--out", "a")
    run("train", *QUICK, "--epochs", "4", "--out", "a")
    assert len(json.loads((folder / "a" / "history.json").read_text())) == 4


def test_data_commands():
    assert "included in scikit-learn" in run("data", "list").output
    assert (
        "1257 training and 540 test images of 1 × 8 × 8, 10 classes"
        in run("data", "info", "digits").output
    )


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["train", "--data", "nist"], 1, "error: 'nist' is neither a data set known by name"),
        (["train", "--kind", "relu"], 1, "error: unknown method relu; expected one of ss, ts-lrc"),
        (["train", "--lr", "0"], 1, "error: lr must be a finite number above 0"),
        (
            ["compare", "--methods", "magic"],
            1,
            "error: unknown methods magic; expected some of linear, forest",
        ),
        (["predict", "nowhere", "digits"], 1, "error: nowhere does not exist"),
        (["data", "fetch", "digits"], 1, "error: nothing to download for 'digits'"),
        (["train", "--config", "none.toml"], 2, "none.toml does not exist"),
        (["train", "--depth", "x"], 2, "Invalid value"),
        (["fly"], 2, "No such command"),
        (
            ["train", "--momentum", "nan"],
            1,
            "error: momentum must be a finite number of at least 0, got nan",
        ),
        (["train", "--patience", "0"], 1, "error: patience must be a positive integer, got 0"),
        (
            ["train", "--out", "file"],
            1,
            "error: file must be a folder, but there is a file of that name",
        ),
        (
            ["compare", "--out", "file"],
            1,
            "error: file must be a folder, but there is a file of that name",
        ),
        (["compare", "--depth", "0"], 1, "error: depth must be a positive integer, got 0"),
        (["compare", "--seed", "-1"], 1, "error: seed must be an integer of at least 0"),
        (["train", "--seed", "-1"], 1, "error: seed must be an integer of at least 0"),
        (["train", "--device", "nowhere"], 1, "error: device 'nowhere' cannot be used here"),
        (["train", "--width", "10000000"], 1, "error: a network of depth 2, width 10000000 has"),
        (
            ["train", "--depth", "99999999"],
            1,
            "error: depth must be at most 10,000 in all, got 99,999,999",
        ),
        (["train", "--config", "deep.toml"], 2, "deep.toml is not a valid TOML file"),
        (
            ["compare", "--methods", ","],
            1,
            "error: no methods given; expected some of linear, forest",
        ),
    ],
)
def test_errors_are_one_line_and_tell_what_to_do(
    arguments, code, message, monkeypatch, capsys, folder
):
    (folder / "file").touch()
    (folder / "deep.toml").write_text("a = " + "[" * 10_000)
    monkeypatch.setattr(sys, "argv", ["tensorswitch", *arguments])
    with pytest.raises(SystemExit) as caught:
        main()
    assert caught.value.code == code
    printed = capsys.readouterr().err
    assert message in " ".join(printed.replace("│", " ").split())
    assert "Traceback" not in printed
    if code == 1:
        assert printed.count("\n") == 1


def test_debug_shows_the_traceback(monkeypatch):
    monkeypatch.setattr(sys, "argv", ["tensorswitch", "--debug", "train", "--kind", "relu"])
    with pytest.raises(ValueError, match="unknown method relu"):
        main()


@pytest.mark.skipif(os.name == "nt", reason="signals")
def test_control_c_leaves_a_folder_to_go_on_from(folder):
    command = [
        sys.executable,
        "-m",
        "tensorswitch",
        "train",
        *QUICK,
        "--epochs",
        "100000",
        "--out",
        "a",
    ]
    child = subprocess.Popen(
        command,
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    deadline = time.monotonic() + 60
    while not (folder / "a" / "history.json").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    child.send_signal(signal.SIGINT)
    _, printed = child.communicate(timeout=60)
    assert child.returncode == 130
    assert "stopped; run the same command again to resume from a" in printed
    done = len(json.loads((folder / "a" / "history.json").read_text()))
    run("train", *QUICK, "--epochs", str(done + 2), "--out", "a")
    assert len(json.loads((folder / "a" / "history.json").read_text())) == done + 2


def test_torchrun_gives_the_history_of_one_process_with_the_doubled_batch(folder):
    command = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--standalone",  # on any free port
        "--nproc-per-node",
        "2",
        "-m",
        "tensorswitch",
    ]
    options = ["train", "--kind", "ts-ibp-lrc", "--width", "8", "--lr", "0.05", "--epochs", "2"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [*command, *options, "--batch-size", "16", "--out", "two"],
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("writing results to two") == 1
    run(*options, "--batch-size", "32", "--out", "one")
    two, one = (json.loads((folder / name / "history.json").read_text()) for name in ("two", "one"))
    for a, b in zip(two, one, strict=True):
        assert a["train_loss"] == pytest.approx(b["train_loss"], rel=1e-4)
        assert a["test_error"] == pytest.approx(b["test_error"], abs=0.01)


def table(path, labels, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(60, 3))
    path.parent.mkdir(exist_ok=True)
    path.write_text(
        "a,b,c,label\n"
        + "".join(f"{r[0]:.3f},{r[1]:.3f},{r[2]:.3f},{labels[int(r[0] > 0)]}\n" for r in x)
    )
    return str(path)


def test_a_folder_is_not_shared_by_other_data_of_the_same_name(folder):
    first, other = table(folder / "a" / "d.csv", "xy"), table(folder / "b" / "d.csv", "xy", seed=1)
    run("train", "--data", first, "--kind", "ts-lrc", *QUICK, "--out", "t")
    with pytest.raises(ValueError, match=r"made with other settings \(data differ\)"):
        run("train", "--data", other, "--kind", "ts-lrc", *QUICK, "--out", "t")


def test_predictions_are_compared_by_name_and_quoted(folder):
    data = table(folder / "d.csv", ['"no, ""sir"""', "yes"])
    run("train", "--data", data, "--kind", "ts-lrc", *QUICK, "--epochs", "20", "--out", "t")
    error = re.search(r"error ([\d.]+) %", run("predict", "t", data, "--out", "p.csv").output)
    assert error is not None
    assert float(error[1]) < 30
    with (folder / "p.csv").open() as file:
        assert {row["label"] for row in csv.DictReader(file)} == {'no, "sir"', "yes"}
    other = table(folder / "e.csv", ["yes", '"no, ""sir"""'])  # the same rows, labels swapped
    swapped = re.search(r"error ([\d.]+) %", run("predict", "t", other).output)
    assert swapped is not None
    assert float(swapped[1]) == pytest.approx(100 - float(error[1]), abs=0.02)


def test_predict_refuses_other_types_and_nan(folder):
    run("train", *QUICK, "--out", "a")
    np.save(folder / "new.npy", np.zeros((3, 8, 8)))
    with pytest.raises(ValueError, match="contains float32, but the model was trained on uint8"):
        run("predict", "a", "new.npy")


def test_predict_says_what_is_wrong_with_rows_and_targets(folder):
    rng = np.random.default_rng(0)
    np.savez(folder / "d.npz", x=rng.normal(size=(40, 3)).astype(np.float32), y=np.arange(40) % 2)
    run("train", "--data", "d.npz", *QUICK, "--out", "a")
    np.save(folder / "none.npy", np.zeros((0, 3), np.float32))
    with pytest.raises(ValueError, match=r"none\.npy has no rows to predict"):
        run("predict", "a", "none.npy")
    with pytest.raises(
        ValueError, match="a is a folder; give the path of a file for the predictions"
    ):
        run("predict", "a", "d.npz", "--out", "a")
    # Without a file of labels next to it, x.npy has rows to predict like any other file.
    np.save(folder / "x.npy", np.zeros((4, 3), np.float32))
    assert len(run("predict", "a", "x.npy").output.split()) == 4


def test_train_says_by_what_the_best_is_and_what_was_done_before(folder):
    parts = {
        "x_train": np.eye(4),
        "y_train": [0, 1, 0, 1],
        "x_test": np.eye(4),
        "y_test": [0, 1, 0, 1],
    }
    np.savez(folder / "d.npz", **parts)
    assert (
        "best by training loss (there are no validation rows)"
        in run("train", "--data", "d.npz", *QUICK, "--out", "a").output
    )
    assert "best by validation error" in run("train", *QUICK, "--epochs", "3", "--out", "b").output
    assert (
        "b already has 3 epochs, more than the 1 requested"
        in run("train", *QUICK, "--epochs", "1", "--out", "b").output
    )
    (folder / "b" / "best.safetensors").unlink()
    with pytest.raises(ValueError, match=r"b has checkpoint.safetensors but no best.safetensors"):
        run("train", *QUICK, "--epochs", "3", "--out", "b")


def test_labels_spelt_otherwise_are_the_same(folder):
    x = np.random.default_rng(0).normal(size=(60, 3)).astype(np.float32)
    for name, labels in (
        ("whole", np.arange(60) % 2),
        ("float", (np.arange(60) % 2).astype(float)),
        ("words", np.array(["a", "b"])[np.arange(60) % 2]),
    ):
        np.savez(folder / f"{name}.npz", x=x, y=labels)
    run("train", "--data", "whole.npz", *QUICK, "--out", "a")
    numbers, floats = (
        run("predict", "a", f"{name}.npz").output.split("error")[1] for name in ("whole", "float")
    )
    assert numbers == floats
    assert "the model does not know the classes a, b" in run("predict", "a", "words.npz").output


def test_ctrl_c_while_data_are_read(monkeypatch):
    from tensorswitch import data

    def interrupted(name, **_):
        raise KeyboardInterrupt

    monkeypatch.setattr(data, "load_problem", interrupted)
    result = CliRunner().invoke(app, ["train"])
    assert result.exit_code == 130


def test_names_with_brackets_are_printed_as_they_are(folder):
    data = table(folder / "[bold].csv", ["[/x]b", "y"])
    assert "[bold]: 42 training and 18 test rows" in run("data", "info", data).output
    assert "[/x]b" in run("data", "info", data).output


def test_escape_codes_in_names_do_not_reach_the_terminal(folder):
    data = table(folder / "d.csv", ["\x1b[31mred", "b\x07ell"])
    printed = run("data", "info", data).output
    assert "\x1b" not in printed
    assert "\x07" not in printed
    assert r"\x1b[31mred" in printed


def test_bfloat16_that_does_not_work_ends_in_one_line(folder, monkeypatch):
    monkeypatch.setattr(_process, "PROBE", "import os, signal; os.kill(os.getpid(), signal.SIGILL)")
    _process.bfloat16_problem.cache_clear()
    try:
        with pytest.raises(
            ValueError, match=r"do not work on this machine .*SIGILL.* ONEDNN_MAX_CPU_ISA"
        ):
            run("train", *QUICK, "--precision", "bf16")
    finally:
        _process.bfloat16_problem.cache_clear()
