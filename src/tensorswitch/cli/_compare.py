"""The command `compare`: which learner is best on one's own data, and what it sees."""

from __future__ import annotations

import shlex
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.box import SIMPLE_HEAD
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from tensorswitch._files import make_folder
from tensorswitch._progress import clock
from tensorswitch.cli._app import (
    Components,
    Data,
    Id,
    Ignore,
    Seed,
    Target,
    Task,
    app,
    describe_problem,
    err,
    load_problem,
    out,
    say,
    stoppable,
)

Depth = Annotated[int | None, typer.Option(help="Number of hidden layers.")]
Width = Annotated[int | None, typer.Option(help="Units (gates) per layer.")]
Epochs = Annotated[int | None, typer.Option(help="Passes over the data.")]
Rate = Annotated[float | None, typer.Option("--lr", help="Learning rate of networks.")]
Batch = Annotated[int | None, typer.Option(help="Rows per step.")]


@app.command()
def compare(
    data: Data = "digits",
    target: Target = None,
    ignore: Ignore = None,
    id_column: Id = None,
    task: Task = None,
    folder: Annotated[
        Path | None,
        typer.Option(
            "--out", "-o", help="Output folder, by default compare-NAME; interrupted runs resume."
        ),
    ] = None,
    methods: Annotated[
        str | None, typer.Option(help="Comma-separated methods; by default all that suit.")
    ] = None,
    depth: Depth = None,
    width: Width = None,
    epochs: Epochs = None,
    lr: Rate = None,
    batch_size: Batch = None,
    components: Components = None,
    seed: Seed = 0,
) -> None:
    """Compare learners on your data; print a table and write report.html."""
    from tensorswitch.experiments.comparison import compare as run
    from tensorswitch.experiments.comparison import prepare
    from tensorswitch.experiments.report import write_report

    problem = load_problem(data, target, ignore, id_column, task)
    given: dict[str, Any] = {
        "depth": depth,
        "width": width,
        "epochs": epochs,
        "lr": lr,
        "batch_size": batch_size,
        "components": components,
        "seed": seed,
    }
    folder = folder or Path(f"compare-{problem.name}")
    chosen = [m.strip() for m in methods.split(",")] if methods is not None else None
    _, records = prepare(problem, folder, chosen, **given)  # raises before anything is written
    make_folder(folder)
    say(describe_problem(problem))
    for note in problem.notes:
        say(f"  {note}")
    if components and problem.is_table:
        say("  --components is not used: columns of tables are not projected")
    _say_what_is_done(records, folder)
    with stoppable(folder), _watching(records) as watch:
        result = run(problem, folder, methods=chosen, watch=watch, **given)
    _show(result)
    write_report(result, folder / "report.html", shlex.join(["tensorswitch", *sys.argv[1:]]))
    say(f"Report: {folder / 'report.html'}")
    own = next((r for r in result.ranked if result.model_path(r).exists()), None)
    if own is not None and data != problem.name:
        same = {"--target": problem.target_name, "--id": id_column, "--task": task}
        options = [word for name, value in same.items() if value for word in (name, value)]
        options += [word for name in ignore or () for word in ("--ignore", name)]
        command = ["train", "--data", data, *options, "--method", own.method, "--out", "run"]
        say(f"Next: tensorswitch {shlex.join(command)}; tensorswitch predict run NEW_FILE")
    if result.failed:
        raise typer.Exit(1)


def _say_what_is_done(records: list[Any], folder: Path) -> None:
    """Print which results already exist."""
    done = [r for r in records if r.complete]
    if len(done) == len(records):
        dates = sorted(r.made.get("date", "")[:16].replace("T", " ") for r in done)
        when = f"an earlier run ({dates[-1]})"
        say(f"All {len(done)} results are from {when}; delete {folder} to repeat it")
    elif done or any(r.results for r in records):
        many = f"{len(done)} of {len(records)} methods"
        say(f"{many} are done in {folder}; continuing with the others")
    else:
        say(f"Writing results to {folder}")


@contextmanager
def _watching(records: list[Any]) -> Iterator[Callable[[str, int, int, str], None]]:
    """Show a bar for the running method, and one for all with the remaining time."""
    left = [r for r in records if not r.complete]
    start = time.monotonic()
    columns = [
        TextColumn("{task.description:18}"),
        BarColumn(20),
        TextColumn("{task.fields[note]}"),
        TimeElapsedColumn(),
    ]
    labels = {r.method: r.label for r in records}
    work = {r.method: 0.0 for r in left}
    with Progress(*columns, console=err, disable=not left) as bars:
        whole = bars.add_task("all methods", total=len(left) or 1, note="")
        tasks: dict[str, Any] = {}

        def watch(method: str, done: int, total: int, note: str) -> None:
            if method not in work:
                return
            if method not in tasks:
                tasks[method] = bars.add_task(labels[method], total=None, note=note)
            finished = done >= total
            # A single fit reports no progress, so its bar pulses.
            known = total if total > 1 or finished else None
            bars.update(tasks[method], total=known, completed=done, note=note)
            work[method] = done / total
            spent, share = time.monotonic() - start, sum(work.values()) / len(work)
            rest = f"about {clock(spent / share * (1 - share))} left" if share else ""
            bars.update(whole, completed=sum(work.values()), note="" if share >= 1 else rest)
            if finished:
                bars.stop_task(tasks[method])

        yield watch


def _show(result: Any) -> None:
    """Print the table with its conclusion, legend and the reasons of failures."""
    from tensorswitch.experiments.summary import (
        cells,
        conclusion,
        header,
        how_measured,
        legend,
        reason,
    )

    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    names = header(result)
    for i, name in enumerate(names):
        side: Any = "left" if i in (0, len(names) - 1) else "right"
        table.add_column(name, justify=side, no_wrap=i < len(names) - 1)
    for row in cells(result):
        table.add_row(*row)
    out.print(table)
    for record in result.failed:
        say(reason(record))
    out.print(conclusion(result), style="bold")
    out.print(f"({how_measured(result)})")
    for name, text in legend(result).items():
        out.print(f"  {name:4}{text}")
