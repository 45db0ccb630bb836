"""Commands for experiments: sweep, run, paper, compact."""

from __future__ import annotations

import math
import shlex
import sys
import tomllib
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from tensorswitch.cli._app import app, err, out, say, stoppable
from tensorswitch.training._history import percent

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
    from tensorswitch.experiments.records import best_records

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
    texts = ("data", "method", "target")
    given = {name: value if name in texts else _toml_value(value) for name, value in pairs}
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
    failed = [r for r in records if r.error is not None]
    for record in failed:
        err.print(f"failed: {record.experiment.title}: {record.error}", soft_wrap=True)
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
