"""The app, its consoles, shared options and the handling of errors.

Only commands import the library, inside their functions, so that help and version are immediate.
"""

from __future__ import annotations

import ast
import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from importlib.metadata import version as installed
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer
from rich.console import Console
from rich.text import Text

if TYPE_CHECKING:
    from tensorswitch.compare import Problem

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # boxes take twice the room
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 80},
    help="Learn from tables and images with Tensor Switching, and compare with other learners.",
)


class _SafeConsole(Console):
    """Console that escapes control characters, since names may come from untrusted files."""

    def render_str(self, text: str, **options: Any) -> Text:
        shown = (c if c.isprintable() or c in "\n\t" else ascii(c)[1:-1] for c in text)
        return super().render_str("".join(shown), **options)


out = _SafeConsole(markup=False, highlight=False, emoji=False)
err = _SafeConsole(stderr=True, markup=False, highlight=False, emoji=False)
say = partial(out.print, soft_wrap=True)  # never wraps paths


def option(metavar: str | None, text: str, *names: str) -> Any:
    """Return an option without its default in the help."""
    return typer.Option(*names, metavar=metavar, help=text, show_default=False)


Data = Annotated[str, option(None, "Data set, or path of your own [digits].", "--data", "-d")]
Target = Annotated[str | None, option("COLUMN", "What to predict [label, or last].")]
Ignore = Annotated[list[str] | None, option("COLUMNS", "Not learned from; commas between.")]
Id = Annotated[str | None, option("COLUMN", "Names rows; not learned from.", "--id")]
Task = Annotated[str | None, option(None, "classification or regression [by the target].")]
Test = Annotated[str | None, option("FILE", "A table of rows to test on.")]
Split = Annotated[str | None, option("HOW", "random, time:COLUMN or group:COLUMN.")]
Metric = Annotated[str | None, option(None, "What counts, such as f1 or log-loss [error, R²].")]
Weight = Annotated[str | None, option("HOW", "balanced, or CLASS=NUMBER with commas.")]
Components = Annotated[int | None, option("N", "Principal components of images; 0 for none.")]
Set = Annotated[list[str] | None, option("NAME=VALUE", "Parameter of the learner.", "--set")]
Sep = Annotated[str | None, option("CHAR", "Separator of columns [found].")]
Decimal = Annotated[str | None, option("CHAR", "Decimal mark, . or , [found].")]
Day = Annotated[bool | None, option(None, "Order in 3/4/2024 [found].", "--dayfirst/--monthfirst")]


def _version(wanted: bool) -> None:
    """Print the version and exit."""
    if wanted:
        print(installed("tensorswitch"))
        raise typer.Exit


@app.callback()
def options(
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks.")] = False,
    version: Annotated[
        bool, typer.Option("--version", help="Show the version.", is_eager=True, callback=_version)
    ] = False,
) -> None:
    """Handle the options that come before the command."""
    _state["debug"] = debug


_state = {"debug": False}
STOPPED = 130  # exit status after Ctrl-C, as shells have it


@contextmanager
def stoppable(advice: str = "") -> Iterator[None]:
    """Turn Ctrl-C into a message."""
    try:
        yield
    except KeyboardInterrupt:
        err.print(f"stopped{advice}", soft_wrap=True)
        raise typer.Exit(STOPPED) from None


def load(data: str, **options: Any) -> Problem:
    """Load rows and what is to be predicted, exiting quietly on Ctrl-C."""
    from tensorswitch import compare

    with stoppable(" while loading data"):
        return compare.load_problem(data, **options)


def describe(problem: Problem, components: int | None = None, divided: str | None = None) -> str:
    """Return size, kind and task of a problem in one line, and what was decided below it.

    How rows could be ``divided`` for the test is not said if it has been decided.
    """
    rows: Any = problem.rows
    if problem.is_table:
        kind = f"rows of {len(rows.columns)} columns"
    else:
        shape = " × ".join(map(str, rows.shape[1:]))
        kind = f"images of {shape}" if problem.is_image else f"rows of {shape} features"
    classes = "" if problem.class_names is None else f" of {len(problem.class_names)} classes"
    first = f"{problem.name}: {len(problem):,} {kind}, {problem.task}{classes}"
    unused = "--components is not used: columns of tables are not projected"
    more = [unused] if components and problem.is_table else []
    notes = [note for note in problem.notes if not (divided and "--split" in note)]
    return "\n  ".join([first, *notes, *more])


def parameters(given: Iterable[str] | None) -> dict[str, Any]:
    """Return the values of NAME=VALUE: literals of Python, true, false, none, or words."""
    found: dict[str, Any] = {}
    for text in given or ():
        name, equals, value = text.partition("=")
        if not (name.strip() and equals):
            raise ValueError(f"--set needs NAME=VALUE, got {text!r}")
        found[name.strip()] = value
        is_name = value.lower() in ("true", "false", "none")
        with suppress(ValueError, SyntaxError, RecursionError, MemoryError):  # where it is a word
            found[name.strip()] = ast.literal_eval(value.capitalize() if is_name else value)
    return found


def class_weight(text: str | None) -> str | dict[str, float] | None:
    """Return weights of classes from "balanced" or NAME=NUMBER with commas."""
    if text is None or text == "balanced":
        return text
    found = {}
    for part in text.split(","):
        name, equals, value = part.rpartition("=")
        try:
            found[name.strip()] = float(value)
        except ValueError:
            equals = ""
        if not equals:
            raise ValueError(f"--class-weight must be balanced or CLASS=NUMBER, got {part!r}")
    return found


def measures(metrics: dict[str, Any]) -> str:
    """Return the main measures in a line."""
    from tensorswitch.compare._metrics import number

    if "r2" in metrics:
        rmse, mae = number(metrics["rmse"]), number(metrics["mae"])
        return f"R² {metrics['r2']:.4f}, RMSE {rmse}, MAE {mae}"
    loss = f", log-loss {metrics['log_loss']:.4f}" if "log_loss" in metrics else ""
    balanced = f"balanced accuracy {100 * metrics['balanced_accuracy']:.2f} %"
    f1 = f", F1 {metrics['f1']:.3f}" if len(metrics["confusion"]) == 2 else ""
    return f"accuracy {100 * metrics['accuracy']:.2f} %, {balanced}{f1}{loss}"


def _stop() -> NoReturn:
    """End at once, since what was interrupted may not survive Python's own shutdown."""
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(STOPPED)


def wait_quietly(limits: Path = Path("/sys/fs/cgroup/cpu.max")) -> None:
    """Let OpenMP's threads sleep while they wait, and start no more than a container may use.

    Spinning slows down whoever shares the cores. OpenMP itself knows the cores that the process may
    use, but not the share of their time that the file ``limits`` has.
    """
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ["OMP_WAIT_POLICY"] = "PASSIVE"
        os.environ.setdefault("KMP_BLOCKTIME", "0")
    with suppress(OSError, ValueError):  # "max 100000" without a limit
        quota, period = map(int, limits.read_text(encoding="ascii").split())
        os.environ.setdefault("OMP_NUM_THREADS", str(max(1, -(-quota // period))))


def main() -> None:
    """Run the command line, printing errors in one line (or as tracebacks with --debug)."""
    wait_quietly()
    known = ValueError, TypeError, OSError, ImportError, MemoryError, RuntimeError, AssertionError
    try:
        app()
    except KeyboardInterrupt:
        _stop()
    except SystemExit as end:
        if end.code == STOPPED:
            _stop()
        raise
    except known as error:
        if _state["debug"]:
            raise
        text = " ".join(str(error).split()) or type(error).__name__
        err.print("error: ", style="red", end="")
        err.print(text, soft_wrap=True)
        sys.exit(1)
