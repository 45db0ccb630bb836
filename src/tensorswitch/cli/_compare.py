"""The command `compare`: which learner is best on one's own data, and what it sees."""

import shlex
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic
from typing import Annotated, Any

import typer
from rich.box import SIMPLE_HEAD
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from tensorswitch.cli import _app as cli

LONG = 20  # seconds, beyond which the user is told before


@cli.app.command()
def compare(
    data: cli.Data = "digits",
    target: cli.Target = None,
    ignore: cli.Ignore = None,
    id_column: cli.Id = None,
    task: cli.Task = None,
    methods: Annotated[str | None, cli.option("NAMES", "all, or some with commas [a few].")] = None,
    settings: Annotated[
        list[str] | None, cli.option("LEARNER.NAME=VALUE", "Parameter of a learner.", "--set")
    ] = None,
    metric: cli.Metric = None,
    split: cli.Split = None,
    cv: Annotated[int | None, cli.option("N", "Cross-validate in N folds.", "--cv")] = None,
    repeats: Annotated[int, cli.option("N", "Draw the folds N times.")] = 1,
    test: cli.Test = None,
    class_weight: cli.Weight = None,
    time_budget: Annotated[
        float, cli.option("SECONDS", "Leave out learners that would take longer.")
    ] = float("inf"),
    components: cli.Components = None,
    seed: Annotated[int, cli.option("N", "Seed of all learners.")] = 0,
    folder: Annotated[
        Path | None, cli.option(None, "Folder; what is done there is kept.", "--out", "-o")
    ] = None,
    sep: cli.Sep = None,
    decimal: cli.Decimal = None,
    dayfirst: cli.Day = None,
) -> None:
    """Compare learners on your data; print a table and write report.html."""
    from tensorswitch._files import make_folder
    from tensorswitch._progress import clock
    from tensorswitch.compare import compare as run
    from tensorswitch.compare import write_report

    divides = (split or "").partition(":")[2]  # a column that is needed for the folds
    ignored = [name for name in ignore or () if name != divides]
    columns = {"target": target, "ignore": ignored, "id_column": id_column, "test": test}
    form = {"sep": sep, "decimal": decimal, "dayfirst": dayfirst}
    problem = cli.load(data, task=task, **columns, **form)
    given: dict[str, dict[str, Any]] = {}
    for name, value in cli.parameters(settings).items():
        learner, dot, parameter = name.partition(".")
        if not dot:
            raise ValueError(f"--set of compare needs LEARNER.NAME=VALUE, got {name!r}")
        given.setdefault(learner, {})[parameter] = value
    how: dict[str, Any] = {"metric": metric, "cv": cv, "repeats": repeats, "split": split}
    how |= {"class_weight": cli.class_weight(class_weight)}
    how |= {"settings": given, "components": components, "seed": seed}
    # What is wrong is said before anything is written.
    result = run(problem, methods, folder, **how, run=False)
    folder = result.folder
    make_folder(folder)
    cli.say(cli.describe(problem, components, split or test))
    if (split or "").startswith("group:"):
        cli.say(f"  {divides!r} keeps rows together and is not learned from")
    _say_what_is_done(result.records, folder)
    if (estimate := sum(map(result.seconds_left, result.records))) > LONG:
        cli.say(
            f"This takes about {clock(estimate)}, if the cores are free; --time-budget limits it"
        )
    advice = f"; run the same command again to resume from {folder}"
    with cli.stoppable(advice), _watching(result.records) as watch:
        result.run(watch, time_budget)
    _show(result)
    write_report(result, folder / "report.html", shlex.join(["tensorswitch", *sys.argv[1:]]))
    cli.say(f"Report: {folder / 'report.html'}")
    own = next((r for r in result.ranked if result.model_path(r).exists()), None)
    if own is not None and data != problem.name:
        same = [("--data", data), ("--target", problem.target_name), ("--id", id_column)]
        same += [("--task", task), ("--sep", sep), ("--decimal", decimal), ("--split", split)]
        same += [("--metric", metric), ("--class-weight", class_weight), ("--test", test)]
        same += [("--ignore", name) for name in ignored if name != id_column]
        words = [word for name, value in same if value for word in (name, value)]
        if dayfirst is not None:
            words.append("--dayfirst" if dayfirst else "--monthfirst")
        command = ["train", *words, "--method", own.learner, "--out", "run"]
        cli.say(f"Next: tensorswitch {shlex.join(command)}; tensorswitch predict run NEW_FILE")
    if result.failed:
        raise typer.Exit(1)


def _say_what_is_done(records: list[Any], folder: Path) -> None:
    """Print which results already exist."""
    done = [r for r in records if r.complete]
    if len(done) == len(records):
        last = max(r.made.get("date", "")[:16] for r in done).replace("T", " ")
        when = f"an earlier run ({last})"
        cli.say(f"All {len(done)} results are from {when}; delete {folder} to repeat it")
    elif done or any(r.results for r in records):
        many = f"{len(done)} of {len(records)} learners"
        cli.say(f"{many} are done in {folder}; continuing with the others")
    else:
        cli.say(f"Writing results to {folder}")


@contextmanager
def _watching(records: list[Any]) -> Iterator[Callable[[str, int, int, str], None]]:
    """Show a bar for the running learner, and one for all with the remaining time."""
    from tensorswitch._progress import clock

    left = {r.learner: r.label for r in records if not r.complete}
    columns = [TextColumn("{task.description:18}"), BarColumn(20)]
    columns += [TextColumn("{task.fields[note]}"), TimeElapsedColumn()]
    start, work = monotonic(), dict.fromkeys(left, 0.0)
    with Progress(*columns, console=cli.err, disable=not left) as bars:
        whole = bars.add_task("all learners", total=len(left) or 1, note="")
        tasks: dict[str, Any] = {}

        def watch(learner: str, done: int, total: int, note: str) -> None:
            if learner not in left:
                return
            if learner not in tasks:
                tasks[learner] = bars.add_task(left[learner], total=None, note=note)
            finished = done >= total
            # A single fit reports no progress, so its bar pulses.
            known = total if total > 1 or finished else None
            bars.update(tasks[learner], total=known, completed=done, note=note)
            work[learner] = done / total
            spent, share = monotonic() - start, sum(work.values()) / len(work)
            rest = f"about {clock(spent / share * (1 - share))} left" if share else ""
            bars.update(whole, completed=sum(work.values()), note="" if share >= 1 else rest)
            if finished:
                bars.stop_task(tasks[learner])

        yield watch


def _show(result: Any) -> None:
    """Print the table with its conclusion, legend, warnings and the reasons of failures."""
    from tensorswitch.compare._report import conclusion, how_measured, legend, remarks, table

    shown = Table(box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    names, rows = table(result)
    # That a class is always predicted is said below, where there is room.
    rows = [[*row, "" if note.startswith("always ") else note] for *row, note in rows]
    if not any(row[-1] for row in rows):  # there are no notes
        names, rows = names[:-1], [row[:-1] for row in rows]
    for i, name in enumerate(names):
        side: Any = "left" if i == 0 or name == "note" else "right"
        shown.add_column(name, justify=side, no_wrap=name != "note")
    for row in rows:
        shown.add_row(*row)
    cli.out.print(shown)
    for remark in remarks(result):
        cli.say(remark)
    cli.out.print(conclusion(result), style="bold")
    cli.out.print(f"({how_measured(result)})")
    for name, text in legend(result).items():
        cli.out.print(f"  {name:4}{text}")
