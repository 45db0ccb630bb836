"""The command `teach`: a page where the library learns what is drawn."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from tensorswitch.cli._app import app, say


@app.command()
def teach(
    folder: Annotated[
        Path, typer.Option(help="Folder where lessons are saved and read from.")
    ] = Path("lessons"),
    start: Annotated[
        str, typer.Option(help="empty, digits, or the name of a saved lesson.")
    ] = "empty",
    port: Annotated[
        int, typer.Option(help="Port on 127.0.0.1; 0 takes a free one.", min=0, max=65535)
    ] = 0,
    browser: Annotated[
        bool | None,
        typer.Option("--browser/--no-browser", help="Whether to open the page in a browser."),
    ] = None,
) -> None:
    """Open a page where you draw symbols and a model learns them while you watch."""
    from tensorswitch.teach import serve

    def ready(address: str) -> None:
        say(f"open {address}\nthe address contains a password; stop with Ctrl-C")
        if browser if browser is not None else sys.stdout.isatty():
            import webbrowser

            webbrowser.open(address)

    serve(folder, start=start, port=port, ready=ready)
