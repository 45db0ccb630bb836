"""The command line: help, errors in one line, and what it imports."""

import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from typer.testing import CliRunner

from tensorswitch.cli import app, main
from tensorswitch.cli._app import wait_quietly

COMMANDS = ["compare", "train", "predict", "evaluate", "data"]


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


def table(path, labels, seed=0):
    x = np.random.default_rng(seed).normal(size=(60, 3))
    lines = [f"{r[0]:.3f},{r[1]:.3f},{r[2]:.3f},{labels[int(r[0] > 0)]}\n" for r in x]
    path.write_text("a,b,c,label\n" + "".join(lines))
    return str(path)


def test_help_names_every_command():
    text = run("--help").output
    assert all(command in text for command in COMMANDS)


@pytest.mark.parametrize(
    "command", [[], *([c] for c in COMMANDS), *(["data", c] for c in ("list", "fetch", "info"))]
)
def test_help_fits_a_screen(command, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    lines = run(*command, "--help").output.splitlines()
    assert len(lines) <= 30
    assert max(map(len, lines)) <= 80


@pytest.mark.parametrize("option", ["--help", "--version"])
def test_help_and_version_import_neither_torch_nor_scikit_learn(option):
    code = (
        f"import sys; sys.argv = ['tensorswitch', '{option}']\n"
        "from tensorswitch.cli import main\n"
        "try:\n    main()\nexcept SystemExit as end:\n    assert not end.code\n"
        "assert not {'torch', 'sklearn', 'numpy', 'pandas'} & {*sys.modules}"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ({}, ("PASSIVE", "0")),
        ({"OMP_WAIT_POLICY": "ACTIVE"}, ("ACTIVE", None)),
        ({"KMP_BLOCKTIME": "7"}, ("PASSIVE", "7")),
    ],
)
def test_threads_sleep_unless_the_user_says_otherwise(monkeypatch, given, found):
    names = ("OMP_WAIT_POLICY", "KMP_BLOCKTIME")
    for name in names:
        monkeypatch.setenv(name, "")  # so that it is restored
        monkeypatch.delenv(name)
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys, "argv", ["tensorswitch", "--version"])
    with pytest.raises(SystemExit):
        main()
    assert tuple(os.environ.get(name) for name in names) == found


def test_data_commands():
    assert "included in scikit-learn" in run("data", "list").output
    printed = run("data", "info", "digits").output
    assert "digits: 1,797 images of 1 × 8 × 8, classification of 10 classes" in printed


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["train", "--data", "nist"], 1, "error: 'nist' is neither a data set known by name"),
        (["train", "--method", "relu"], 1, "error: unknown method 'relu'; expected one of"),
        (["train", "--method", "svm"], 1, "error: SVM RBF cannot be saved without pickle"),
        (["train", "--set", "gates"], 1, "error: --set needs NAME=VALUE, got 'gates'"),
        (
            ["train", "--method", "kernel-ridge", "--set", "x=1"],
            1,
            "error: TS kernel ridge has no parameter 'x'; expected one",
        ),
        (
            ["train", "--method", "rr", "--set", "gates=-1"],
            1,
            "error: The 'gates' parameter of TSRidgeClassifier must be",
        ),
        (["train", "--components", "-3"], 1, "error: components must be a positive integer"),
        (["train", "--out", "file"], 1, "error: file must be a folder, but there is a file of"),
        (["train", "--depth", "2"], 2, "No such option"),
        (["compare", "--methods", "magic"], 1, "error: unknown method 'magic'; expected one of"),
        (["compare", "--methods", ","], 1, "error: no learners given; expected all, or some of"),
        (["compare", "--set", "gates=3"], 1, "error: --set of compare needs LEARNER.NAME=VALUE"),
        (["compare", "--out", "file"], 1, "error: file must be a folder, but there is a file"),
        (["compare", "--seed", "-1"], 1, "error: seed must be an integer of at least 0"),
        (["compare", "--cv", "1"], 1, "error: cv must be at least 2, got 1"),
        (
            ["compare", "--split", "group:x"],
            1,
            "error: digits is not a table, so there is no column",
        ),
        (["predict", "nowhere", "digits"], 1, "error: nowhere does not exist"),
        (["data", "fetch", "digits"], 1, "error: nothing to download for 'digits'"),
        (["fly"], 2, "No such command"),
    ],
)
def test_errors_are_one_line_and_tell_what_to_do(
    arguments, code, message, monkeypatch, capsys, folder
):
    (folder / "file").touch()
    monkeypatch.setattr(sys, "argv", ["tensorswitch", *arguments])
    with pytest.raises(SystemExit) as caught:
        main()
    assert caught.value.code == code
    printed = capsys.readouterr().err
    assert message in " ".join(printed.split())
    assert "Traceback" not in printed
    if code == 1:
        assert printed.count("\n") == 1


def test_debug_shows_the_traceback(monkeypatch):
    arguments = ["tensorswitch", "--debug", "train", "--method", "relu"]
    monkeypatch.setattr(sys, "argv", arguments)
    with pytest.raises(ValueError, match="unknown method 'relu'"):
        main()


def test_ctrl_c_while_data_are_read(monkeypatch):
    from tensorswitch import compare

    def interrupted(name, **_):
        raise KeyboardInterrupt

    monkeypatch.setattr(compare, "load_problem", interrupted)
    result = run("train")
    assert result.exit_code == 130
    assert "stopped while loading data" in result.output


@pytest.mark.skipif(os.name == "nt", reason="signals")
def test_control_c_keeps_what_is_done(folder):
    command = [sys.executable, "-m", "tensorswitch", "compare", "--methods", "linear,ss"]
    slow = ["--set", "ss.max_iter=100000", "--set", "ss.early_stopping=false"]
    slow += ["--set", "ss.n_iter_no_change=100000"]
    child = subprocess.Popen(
        [*command, *slow, "--out", "c"],
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    deadline = time.monotonic() + 60
    while not list(folder.glob("c/digits-linear-*.json")) and time.monotonic() < deadline:
        time.sleep(0.05)
    time.sleep(0.5)
    child.send_signal(signal.SIGINT)
    _, printed = child.communicate(timeout=60)
    assert child.returncode == 130
    assert "stopped; run the same command again to resume from c" in printed
    done = run("compare", "--methods", "linear,ss", "--set", "ss.max_iter=2", "--out", "c").output
    assert "2 of 3 learners are done in c; continuing with the others" in done


def test_names_with_brackets_are_printed_as_they_are(folder):
    printed = run("data", "info", table(folder / "[bold].csv", ["[/x]b", "y"])).output
    assert "[bold]: 60 rows of 3 columns" in printed
    assert "[/x]b" in printed


def test_escape_codes_in_names_do_not_reach_the_terminal(folder):
    printed = run("data", "info", table(folder / "d.csv", ["\x1b[31mred", "b\x07ell"])).output
    assert "\x1b" not in printed
    assert "\x07" not in printed
    assert r"\x1b[31mred" in printed


@pytest.mark.parametrize(("content", "threads"), [("150000 100000", "2"), ("max 100000", None)])
def test_threads_follow_the_share_of_a_container(tmp_path, monkeypatch, content, threads):
    monkeypatch.setattr(os, "environ", {})
    (tmp_path / "cpu.max").write_text(content)
    wait_quietly(tmp_path / "cpu.max")
    assert os.environ.get("OMP_NUM_THREADS") == threads
    assert os.environ["OMP_WAIT_POLICY"] == "PASSIVE"
    os.environ["OMP_NUM_THREADS"] = "7"
    wait_quietly(tmp_path / "cpu.max")
    assert os.environ["OMP_NUM_THREADS"] == "7"
