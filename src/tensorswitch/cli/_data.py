"""Commands for data sets: list, fetch, info."""

from __future__ import annotations

from typing import Annotated

import numpy as np
import typer
from rich.table import Table

from tensorswitch import datasets
from tensorswitch.cli._app import (
    Target,
    app,
    describe,
    describe_problem,
    load_problem,
    out,
    say,
)

data_app = typer.Typer(no_args_is_help=True, help="List, download and inspect data sets.")
app.add_typer(data_app, name="data")


@data_app.command("list")
def data_list() -> None:
    """List the data sets known by name, and whether they are available locally."""
    table = Table("name", "available", "location")
    for name in datasets.NAMES:
        if name == "digits":
            table.add_row(name, "yes", "included in scikit-learn")
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
    extra: Annotated[
        bool, typer.Option("--extra", help="Include the extra images of SVHN.")
    ] = False,
) -> None:
    """Download a data set, verify its checksums and print its location."""
    say(f"{name} is in {datasets.fetch(name, extra=extra)}")


@data_app.command("info")
def data_info(
    name: Annotated[str, typer.Argument(help="Name of a data set or path of your own.")],
    target: Target = None,
) -> None:
    """Show the size and shape of a data set and the rows of each class."""
    problem = load_problem(name, target, None, None, None)
    content = None if problem.class_names is None else problem.dataset()
    say(describe_problem(problem) if content is None else describe(content))
    for note in problem.notes:
        say(f"  {note}")
    if content is None:
        least, middle, most = np.quantile(problem.target, [0, 0.5, 1])
        say(f"{problem.target_name}: {least:.10g} to {most:.10g}, median {middle:.10g}")
        return
    table = Table("class", "training", "test")
    for i, label in enumerate(content.class_names):
        table.add_row(
            label,
            str(int((content.train_labels == i).sum())),
            str(int((content.test_labels == i).sum())),
        )
    out.print(table)
