"""Commands for data sets: list, fetch, info."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.table import Table

from tensorswitch import data as datasets
from tensorswitch.cli._app import app, describe, out, say

data_app = typer.Typer(
    no_args_is_help=True, help="Data sets: which there are, fetch them, look at one."
)
app.add_typer(data_app, name="data")


@data_app.command("list")
def data_list() -> None:
    """The data sets known by name, and whether they are at hand."""
    table = Table("name", "at hand", "where it is looked for")
    for name in datasets.NAMES:
        if name == "digits":
            table.add_row(name, "yes", "comes with scikit-learn")
            continue
        place = datasets.found(name)
        table.add_row(
            name,
            "yes" if place else "no",
            str(place) if place else ", ".join(map(str, datasets.folders(name))),
        )
    out.print(table)


@data_app.command("fetch")
def data_fetch(
    name: str,
    extra: Annotated[bool, typer.Option("--extra", help="SVHN's extra images too.")] = False,
) -> None:
    """Download a data set, check it, and say where it is."""
    say(f"{name} is in {datasets.fetch(name, extra=extra)}")


@data_app.command("info")
def data_info(
    name: Annotated[str, typer.Argument(help="A data set by name, or the path of your own.")],
) -> None:
    """How many rows, of what shape, in which classes."""
    content = datasets.load(name)
    say(describe(content))
    table = Table("class", "training", "test")
    for i, label in enumerate(content.class_names):
        table.add_row(
            label,
            str(int((content.train_labels == i).sum())),
            str(int((content.test_labels == i).sum())),
        )
    out.print(table)
