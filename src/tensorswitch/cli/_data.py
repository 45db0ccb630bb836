"""Commands for data sets: list, fetch, info."""

from typing import Annotated

import typer
from rich.table import Table

from tensorswitch.cli import _app as cli

data_app = typer.Typer(
    no_args_is_help=True, rich_markup_mode=None, help="List, download and inspect data sets."
)
cli.app.add_typer(data_app, name="data")


@data_app.command("list")
def data_list() -> None:
    """List the data sets known by name, and whether they are available locally."""
    from tensorswitch import datasets

    table = Table("name", "available", "location")
    for name in datasets.NAMES:
        place = "included in scikit-learn" if name == "digits" else datasets.found(name)
        where = str(place) if place else ", ".join(map(str, datasets.folders(name)))
        table.add_row(name, "yes" if place else "no", where)
    cli.out.print(table)


@data_app.command("fetch")
def data_fetch(
    name: str,
    extra: Annotated[
        bool, cli.option(None, "Include the extra images of SVHN.", "--extra")
    ] = False,
) -> None:
    """Download a data set, verify its checksums and print its location."""
    from tensorswitch import datasets

    cli.say(f"{name} is in {datasets.fetch(name, extra=extra)}")


@data_app.command("info")
def data_info(
    name: Annotated[str, typer.Argument(help="Name of a data set or path of your own.")],
    target: cli.Target = None,
    sep: cli.Sep = None,
    decimal: cli.Decimal = None,
    dayfirst: cli.Day = None,
) -> None:
    """Show the size and shape of a data set and the rows of each class."""
    import numpy as np

    problem = cli.load(name, target=target, sep=sep, decimal=decimal, dayfirst=dayfirst)
    cli.say(cli.describe(problem))
    names = problem.class_names
    if names is None:
        least, middle, most = np.quantile(problem.target, [0, 0.5, 1])
        cli.say(f"{problem.target_name}: {least:.10g} to {most:.10g}, median {middle:.10g}")
        return
    table = Table("class", "training", "test")
    counts = [np.bincount(problem.target[rows], minlength=len(names)) for rows in problem.split()]
    for label, *rows in zip(names, *counts, strict=True):
        table.add_row(label, *map(str, rows))
    cli.out.print(table)
