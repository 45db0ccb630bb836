"""What the commands for single experiments and grids print."""

import re

import pytest
from typer.testing import CliRunner

from reproduction.commands import app, main


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(*arguments):
    return CliRunner().invoke(app, list(arguments), catch_exceptions=False)


def test_help_names_every_command():
    text = run("--help").output
    names = ("all", "table1", "figure2", "figure4", "figure5", "run", "sweep", "compact")
    assert all(re.search(rf"\b{name}\b", text) for name in names)


def test_the_result_of_a_sweep_names_what_was_varied(folder):
    (folder / "g.toml").write_text(
        'data = "digits"\nmethod = "ss"\nwidth = [4, 8]\nlr = [0.01, 0.1]\n'
    )
    printed = run("sweep", "g.toml", "--jobs", "1").output
    assert "width" in printed
    assert "lr" in printed
    (path,) = re.findall(r"Result: (.*)", printed)
    assert (folder / path).exists()


def test_one_experiment(folder):
    printed = run("run", "data=digits", "method=ss", "width=8", "lr=0.1").output
    assert re.search(r"Test error [\d.]+ % after one pass", printed)
    (path,) = re.findall(r"Result: (.*)", printed)
    assert (folder / path).exists()


def test_a_failure_ends_with_its_reason():
    result = run("run", "data=digits", "method=ss", "lr=1e30")
    assert result.exit_code == 1
    assert "failed: digits, MLP SS, depth 1, pixels, seed 0: DivergedError" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["sweep", "none.toml"], "error: none.toml does not exist"),
        (["run", "data=digits"], "error: an experiment needs the settings method"),
        (
            ["run", "data=digits", "method=ss", "depth=1", "depth=2"],
            "error: settings must not be repeated; got data method depth depth",
        ),
        (["run", "data=5", "method=ss"], "error: unknown data 5; expected one of digits, mnist"),
        (
            ["run", "data=digits", "method"],
            "error: settings must have the form NAME=VALUE; got method",
        ),
        (
            ["table1", "--scale", "tiny"],
            "error: scale must be one of smoke, small, full; got 'tiny'",
        ),
        (["compact", "nowhere"], "error: there are no records in nowhere"),
    ],
)
def test_errors_are_one_line(arguments, message, monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["reproduction", *arguments])
    with pytest.raises(SystemExit) as end:
        main()
    assert end.value.code == 1
    assert capsys.readouterr().err.startswith(message)


def test_ctrl_c_says_how_to_resume(monkeypatch):
    def stopped(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("reproduction.commands.run_sweep", stopped)
    result = run("run", "data=digits", "method=ss")
    assert result.exit_code == 130
    assert "run the same command again to resume from runs" in result.stderr
