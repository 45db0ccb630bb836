"""Commands for experiments: compare, sweep, run, paper, compact."""

from __future__ import annotations

import math
import shlex
import sys
import tomllib
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from tensorswitch._files import make_folder
from tensorswitch.cli._app import (
    Components,
    Data,
    Seed,
    app,
    describe,
    err,
    load,
    out,
    say,
    stoppable,
)
from tensorswitch.history import percent

Depth = Annotated[int | None, typer.Option(help="Number of hidden layers.")]
Width = Annotated[int | None, typer.Option(help="Units (gates) per layer.")]
Epochs = Annotated[int | None, typer.Option(help="Passes over the data.")]
Rate = Annotated[float | None, typer.Option("--lr", help="Learning rate.")]
Batch = Annotated[int | None, typer.Option(help="Rows per step.")]


@app.command()
def compare(
    data: Data = "digits",
    folder: Annotated[
        Path | None,
        typer.Option(
            "--out", "-o", help="Output folder, by default compare-NAME; interrupted runs resume."
        ),
    ] = None,
    methods: Annotated[
        str | None, typer.Option(help="Comma-separated methods; by default all of them.")
    ] = None,
    depth: Depth = None,
    width: Width = None,
    epochs: Epochs = None,
    lr: Rate = None,
    batch_size: Batch = None,
    components: Components = None,
    seed: Seed = 0,
) -> None:
    """Compare SS and all TS methods on one data set; print a table and write report.html."""
    from tensorswitch.experiments.comparison import COMPARED, Settings, check_methods
    from tensorswitch.experiments.comparison import compare as run
    from tensorswitch.experiments.experiment import METHODS
    from tensorswitch.experiments.report import HEADER, cells, write_report

    content = load(data)
    given = {
        "depth": depth,
        "width": width,
        "epochs": epochs,
        "lr": lr,
        "batch_size": batch_size,
        "components": components,
        "seed": seed,
    }
    folder = folder or Path(f"compare-{content.name}")
    chosen = check_methods([m.strip() for m in methods.split(",")] if methods else COMPARED)
    Settings.for_data(content, **given)  # raises before any progress is shown
    make_folder(folder)
    say(f"{describe(content)}; writing results to {folder}")
    columns = [
        TextColumn("{task.description:28}"),
        BarColumn(),
        TextColumn("{task.fields[note]}"),
        TimeElapsedColumn(),
    ]
    with stoppable(folder), Progress(*columns, console=err) as bars:
        tasks = {
            m: bars.add_task(METHODS[m], total=None, start=False, note="", visible=False)
            for m in chosen
        }

        def watch(method: str, done: int, total: int, note: str) -> None:
            if not bars.tasks[tasks[method]].started:
                bars.start_task(tasks[method])
            finished = total == done == 1
            bars.update(
                tasks[method],
                visible=True,
                note=note,
                total=None if total == 1 and not done else total,
                completed=done,
            )
            if finished:
                bars.stop_task(tasks[method])

        result = run(content, folder, methods=chosen, watch=watch, name=data, **given)
    table = Table(title=f"Test error on {content.name}")
    for i, name in enumerate(HEADER):
        table.add_column(name, justify="left" if i in (0, 6) else "right")
    for row in cells(result):
        table.add_row(*row)
    out.print(table)
    write_report(result, folder / "report.html", shlex.join(["tensorswitch", *sys.argv[1:]]))
    say(f"Report: {folder / 'report.html'}")
    _report_failures(result.records)


Jobs = Annotated[
    int | None, typer.Option(help="Experiments to run at a time; by default one per core.", min=1)
]
Dask = Annotated[
    str | None,
    typer.Option(
        help="Address of a Dask scheduler whose workers run the experiments; "
        "they must share the output folder."
    ),
]
Retry = Annotated[bool, typer.Option("--retry", help="Run failed experiments again.")]


@app.command()
def sweep(
    file: Annotated[
        Path,
        typer.Argument(help="TOML file with grids of settings; see README for an example."),
    ],
    folder: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            help="Output folder, by default the name of the file; results in it are reused.",
        ),
    ] = None,
    jobs: Jobs = None,
    dask: Dask = None,
    retry: Retry = False,
    device: Annotated[str, typer.Option(help="Device for training.")] = "cpu",
) -> None:
    """Run grids of experiments with one result file each; interrupted sweeps can be resumed."""
    from tensorswitch.experiments.experiment import METHODS, Experiment
    from tensorswitch.experiments.grid import experiments_from_toml
    from tensorswitch.experiments.live import best_records

    experiments = experiments_from_toml(file)
    folder = folder or Path(file.stem)
    records = _sweep(experiments, folder, jobs, dask, retry, device)
    varied = [
        n
        for n in Experiment.__dataclass_fields__
        if len({repr(getattr(e, n)) for e in experiments}) > 1 and n not in ("data", "method")
    ]
    table = Table("best by validation", *varied, "one pass, %", "best, %")
    best = list(best_records(records).values())
    for record in best:
        e, result = record.experiment, record.result
        assert result is not None
        values = [_setting(getattr(e, n)) if n in e.settings_names else "" for n in varied]
        table.add_row(
            f"{Path(e.data).stem}, {METHODS[e.method]}",
            *values,
            percent(result.one_pass),
            percent(result.best),
        )
    out.print(table)
    for record in best:
        say(f"Result: {folder / record.experiment.name}.json")
    _report_failures(records)


def _setting(value: Any) -> str:
    """Return the value of a setting as it is shown in tables."""
    return (
        ", ".join(map(_setting, value))
        if isinstance(value, tuple)
        else f"{value:g}"
        if isinstance(value, float)
        else str(value)
    )


@app.command("run")
def run_experiment(
    settings: Annotated[
        list[str],
        typer.Argument(help="NAME=VALUE, e.g. data=mnist method=ts-lrc depth=2 components=256."),
    ],
    folder: Annotated[
        Path,
        typer.Option("--out", "-o", help="Output folder; results in it are reused."),
    ] = Path("runs"),
    device: Annotated[str, typer.Option(help="Device for training.")] = "cpu",
) -> None:
    """Run one experiment of a sweep or of the paper."""
    from tensorswitch.experiments.experiment import Experiment

    pairs = [setting.split("=", 1) for setting in settings]
    if wrong := [p[0] for p in pairs if len(p) != 2]:
        raise ValueError(f"settings must have the form NAME=VALUE; got {', '.join(wrong)}")
    if len(dict(pairs)) < len(pairs):
        raise ValueError(
            f"settings must not be repeated; got {' '.join(name for name, _ in pairs)}"
        )
    given = {
        name: value if name in ("data", "method") else _toml_value(value) for name, value in pairs
    }
    experiment = Experiment.from_settings(given)
    (record,) = _sweep([experiment], folder, 1, None, True, device)
    _report_failures([record])
    result = record.result
    for name, error in (("after one pass", result.one_pass), ("best", result.best)):
        if not math.isnan(error):
            say(f"Test error {percent(error)} % {name}")
    say(f"Result: {folder / record.experiment.name}.json")


def _toml_value(text: str) -> Any:
    """Parse a number, list or boolean as in TOML; anything else is a string."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except (ValueError, RecursionError):
        return text


def _report_failures(records: Any) -> None:
    """Print failed experiments, and exit with an error if there are any."""
    from tensorswitch.experiments.live import title

    failed = [r for r in records if r.error is not None]
    for record in failed:
        err.print(f"failed: {title(record.experiment)}: {record.error}", soft_wrap=True)
    if failed:
        raise typer.Exit(1)


def _sweep(
    experiments: Any, folder: Path, jobs: int | None, dask: str | None, retry: bool, device: str
) -> Any:
    """Run experiments with a live table."""
    from tensorswitch.experiments.live import live_table
    from tensorswitch.experiments.sweeps import sweep as run

    with stoppable(folder):
        return run(
            experiments,
            folder,
            jobs=jobs,
            dask=dask,
            retry=retry,
            device=device,
            during=lambda state: live_table(state, err),
        )


@app.command()
def paper(
    what: Annotated[
        str,
        typer.Argument(
            help="table1 (errors of all methods), figure2 (kernels), figure4 (pairs of CNNs), "
            "figure5 (filters) or all."
        ),
    ],
    scale: Annotated[
        str,
        typer.Option(
            help="smoke (a minute, on the digits), small (hours on two cores) or "
            "full (the whole grid of the paper)."
        ),
    ] = "smoke",
    folder: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            help="Output folder, by default paper-SCALE; results in it are reused.",
        ),
    ] = None,
    jobs: Jobs = None,
    dask: Dask = None,
    retry: Retry = False,
    no_run: Annotated[
        bool, typer.Option("--no-run", help="Use existing results and run no experiments.")
    ] = False,
) -> None:
    """Run the experiments of a table or figure of the paper; write it and report.html."""
    from tensorswitch.experiments.live import live_table
    from tensorswitch.paper import reproduce

    folder = folder or Path(f"paper-{scale}")
    say(f"Writing results to {folder}")
    with stoppable(folder):
        result = reproduce(
            what,
            scale,
            folder,
            run=not no_run,
            jobs=jobs,
            dask=dask,
            retry=retry,
            during=lambda state: live_table(state, err),
            command=shlex.join(["tensorswitch", *sys.argv[1:]]),
        )
    if what in ("table1", "all"):
        out.print(result.terminal_table(out.width))
    for path in result.paths:
        say(f"Wrote {path}")
    for missing in result.left_out:
        say(f"Left out: {missing}")
    if not no_run:  # otherwise earlier failures are listed as left out
        _report_failures(result.records)


@app.command()
def compact(
    source: Annotated[Path, typer.Argument(help="Folder with the record files of a sweep.")],
    target: Annotated[
        Path, typer.Argument(help="Output folder; the same folder replaces the files.")
    ],
) -> None:
    """Shrink records: drop the filters of wide networks and round epochs to six digits."""
    from tensorswitch.experiments.records import compact_records

    paths = compact_records(source, target)
    say(f"Wrote {len(paths)} records to {target}")
