"""The app, its consoles, shared options and the handling of errors."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

import tensorswitch
from tensorswitch import data as datasets
from tensorswitch.data import Dataset

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Train Tensor Switching networks and compare them with ReLU networks.",
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


@contextmanager
def stoppable(folder: Path) -> Iterator[None]:
    """Turn Ctrl-C into a message on how to resume."""
    try:
        yield
    except KeyboardInterrupt:
        err.print(f"stopped; run the same command again to resume from {folder}")
        raise typer.Exit(130) from None


def load(data: str) -> Dataset:
    """Load a data set, exiting quietly on Ctrl-C."""
    try:
        return datasets.load(data)
    except KeyboardInterrupt:
        err.print("stopped while loading data")
        raise typer.Exit(130) from None


def describe(content: Dataset) -> str:
    """Return size, shape and number of classes of a data set in one line."""
    shape = " × ".join(map(str, content.train_images.shape[1:]))
    kind = f"images of {shape}" if content.train_images.ndim == 4 else f"rows of {shape} features"
    rows = f"{len(content.train_images)} training and {len(content.test_images)} test {kind}"
    return f"{content.name}: {rows}, {len(content.class_names)} classes"


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
        sys.exit(130)
    except known as error:
        if _state["debug"]:
            raise
        err.print("error: ", style="red", end="")
        err.print(str(error) or type(error).__name__, markup=False, highlight=False, soft_wrap=True)
        sys.exit(1)
