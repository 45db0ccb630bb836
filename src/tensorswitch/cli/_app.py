"""The app, its consoles, shared options and the handling of errors."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Annotated, Any, NoReturn

import numpy as np
import typer
from rich.console import Console
from rich.text import Text

import tensorswitch
from tensorswitch.compare import Problem
from tensorswitch.data import load as load_data
from tensorswitch.datasets import Dataset

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Learn from tables and images with Tensor Switching, and compare with other learners.",
)


class _SafeConsole(Console):
    """Console that escapes control characters, since names may come from untrusted files."""

    def render_str(self, text: str, **options: Any) -> Text:
        return super().render_str(printable(text), **options)


def printable(text: str) -> str:
    """Escape control characters except line breaks and tabs."""
    return "".join(c if c.isprintable() or c in "\n\t" else ascii(c)[1:-1] for c in text)


out = _SafeConsole(markup=False, highlight=False, emoji=False)
err = _SafeConsole(stderr=True, markup=False, highlight=False, emoji=False)
say = partial(out.print, soft_wrap=True)  # never wraps paths

Data = Annotated[
    str,
    typer.Option(
        "--data",
        "-d",
        help="Name of a data set (see `tensorswitch data list`) or path of your own.",
    ),
]
Target = Annotated[
    str | None,
    typer.Option(help="Column to predict; by default label, class, target or y, or the last one."),
]
Ignore = Annotated[
    list[str] | None,
    typer.Option(help="Column not to learn from; several with commas, or the option repeated."),
]
Id = Annotated[
    str | None,
    typer.Option("--id", help="Column that identifies rows; it is kept in predictions."),
]
Task = Annotated[
    str | None,
    typer.Option(help="classification or regression; by default found from the target."),
]
Components = Annotated[
    int | None, typer.Option(help="Number of principal components; 0 keeps the pixels.")
]
Seed = Annotated[int, typer.Option(help="Seed of the weights and of the order of the rows.")]


def _version(wanted: bool) -> None:
    """Print the version and exit."""
    if wanted:
        print(tensorswitch.__version__)
        raise typer.Exit


@app.callback()
def options(
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks.")] = False,
    version: Annotated[
        bool,
        typer.Option(
            "--version", help="Show the version and exit.", is_eager=True, callback=_version
        ),
    ] = False,
) -> None:
    """Handle the options that come before the command."""
    _state["debug"] = debug


_state = {"debug": False}


STOPPED = 130  # exit status after Ctrl-C, as shells have it


@contextmanager
def stoppable(folder: Path | None) -> Iterator[None]:
    """Turn Ctrl-C into a message on how to resume, if there is a folder to resume from."""
    try:
        yield
    except KeyboardInterrupt:
        how = f"; run the same command again to resume from {folder}" if folder else ""
        err.print(f"stopped{how}")
        raise typer.Exit(STOPPED) from None


def load(data: str) -> Dataset:
    """Load a data set, exiting quietly on Ctrl-C."""
    try:
        return load_data(data)
    except KeyboardInterrupt:
        err.print("stopped while loading data")
        raise typer.Exit(STOPPED) from None


def load_problem(
    data: str,
    target: str | None,
    ignore: list[str] | None,
    id_column: str | None,
    task: str | None,
) -> Problem:
    """Load rows and what is to be predicted, exiting quietly on Ctrl-C."""
    options: dict[str, Any] = {"id_column": id_column, "task": task}
    from tensorswitch import compare

    try:
        return compare.load_problem(data, target=target, ignore=ignore or (), **options)
    except KeyboardInterrupt:
        err.print("stopped while loading data")
        raise typer.Exit(STOPPED) from None


def describe_problem(problem: Problem) -> str:
    """Return size, kind and task of a problem in one line."""
    if not isinstance(problem.rows, np.ndarray):
        kind = f"rows of {len(problem.rows.columns)} columns"
    else:
        shape = " × ".join(map(str, problem.rows.shape[1:]))
        kind = f"images of {shape}" if problem.is_image else f"rows of {shape} features"
    classes = "" if problem.class_names is None else f" of {len(problem.class_names)} classes"
    return f"{problem.name}: {len(problem):,} {kind}, {problem.task}{classes}"


def describe(content: Dataset) -> str:
    """Return size, shape and number of classes of a data set in one line."""
    shape = " × ".join(map(str, content.train_images.shape[1:]))
    kind = f"images of {shape}" if content.train_images.ndim == 4 else f"rows of {shape} features"
    rows = f"{len(content.train_images)} training and {len(content.test_images)} test {kind}"
    return f"{content.name}: {rows}, {len(content.class_names)} classes"


def _stop() -> NoReturn:
    """End at once, since what was interrupted may not survive Python's own shutdown."""
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(STOPPED)


def main() -> None:
    """Run the command line, printing errors in one line (or as tracebacks with --debug)."""
    from tensorswitch.training import DivergedError

    known: Any = (
        ValueError,
        TypeError,
        OSError,
        ImportError,
        MemoryError,
        RuntimeError,
        AssertionError,
        DivergedError,
    )
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
        err.print("error: ", style="red", end="")
        err.print(str(error) or type(error).__name__, markup=False, highlight=False, soft_wrap=True)
        sys.exit(1)
