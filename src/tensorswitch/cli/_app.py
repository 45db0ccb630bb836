"""What all commands share: the app, its consoles, options that several have, and errors in one line."""

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
    help="Tensor Switching networks, side by side with ReLU ones.",
)


class _SafeConsole(Console):
    """Shows control characters as escapes: names come from files, and the terminal obeys them."""

    def render_str(self, text: str, **options: Any) -> Text:
        return super().render_str(printable(text), **options)


def printable(text: str) -> str:
    """Replace control characters, but for line breaks and tabs."""
    return "".join(c if c.isprintable() or c in "\n\t" else ascii(c)[1:-1] for c in text)


out = _SafeConsole(markup=False, highlight=False, emoji=False)
err = _SafeConsole(stderr=True, markup=False, highlight=False, emoji=False)
say = partial(out.print, soft_wrap=True)  # a path broken over lines is no path

Data = Annotated[
    str,
    typer.Option(
        "--data",
        "-d",
        help="A data set by name (see `tensorswitch data list`), or the path of your own.",
    ),
]
Components = Annotated[
    int | None, typer.Option(help="Principal components to project on; 0 leaves the pixels.")
]
Seed = Annotated[int, typer.Option(help="Seed of weights and order.")]


def _version(wanted: bool) -> None:
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
    _state["debug"] = debug


_state = {"debug": False}


@contextmanager
def stoppable(folder: Path) -> Iterator[None]:
    """Ctrl-C leaves a folder to go on from."""
    try:
        yield
    except KeyboardInterrupt:
        err.print(f"stopped; the same command goes on from what is in {folder}")
        raise typer.Exit(130) from None


def load(data: str) -> Dataset:
    """Ctrl-C while data are read or fetched leaves nothing behind."""
    try:
        return datasets.load(data)
    except KeyboardInterrupt:
        err.print("stopped; nothing was begun")
        raise typer.Exit(130) from None


def describe(content: Dataset) -> str:
    shape = " × ".join(map(str, content.train_images.shape[1:]))
    kind = "images" if content.train_images.ndim == 4 else "rows of features"
    rows = f"{len(content.train_images)} to learn, {len(content.test_images)} to test"
    return f"{content.name}: {rows}, {kind} {shape}, {len(content.class_names)} classes"


def main() -> None:
    """Errors are one line with what to do; tracebacks only with --debug."""
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
