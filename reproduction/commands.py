"""The command line: ``python -m reproduction``."""

from __future__ import annotations

import math
import shlex
import sys
import tomllib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from reproduction import records as store
from reproduction.experiment import METHODS, Experiment, percent
from reproduction.grid import experiments_from_toml
from reproduction.live import live_table
from reproduction.paper import PARTS, reproduce
from reproduction.records import Record, best_records
from reproduction.sweeps import sweep as run_sweep

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Run the experiments of the paper, and write its table and figures.",
)
out = Console(markup=False, highlight=False, emoji=False)
err = Console(stderr=True, markup=False, highlight=False, emoji=False)
say = partial(out.print, soft_wrap=True)  # never wraps paths

STOPPED = 130  # exit status after Ctrl-C, as shells have it
SHOWS = {
    "table1": "table 1, errors and times of all methods",
    "figure2": "figure 2, kernels against the angle",
    "figure4": "figure 4, pairs of CNNs",
    "figure5": "figure 5, learned filters",
}

Jobs = Annotated[
    int | None, typer.Option(help="Experiments to run at a time; by default one per core.", min=1)
]
Dask = Annotated[
    str | None,
    typer.Option(
        help="Address of a Dask scheduler whose workers run the experiments; "
        "start them in the repository, on machines that share the output folder."
    ),
]
Retry = Annotated[bool, typer.Option("--retry", help="Run failed experiments again.")]
Device = Annotated[str, typer.Option(help="Device for training.")]


def _part_command(parts: tuple[str, ...]) -> Callable[..., None]:
    """Return the command that reproduces some parts."""

    def command(
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
        folder = folder or Path(f"paper-{scale}")
        say(f"Writing results to {folder}")
        with _stoppable(folder):
            result = reproduce(
                parts,
                scale,
                folder,
                run=not no_run,
                jobs=jobs,
                dask=dask,
                retry=retry,
                during=lambda state: live_table(state, err),
                command=shlex.join(["python", "-m", "reproduction", *sys.argv[1:]]),
            )
        if "table1" in parts:
            out.print(result.terminal_table(out.width))
        for path in result.paths:
            say(f"Wrote {path}")
        for missing in result.left_out:
            say(f"Left out: {missing}")
        if not no_run:  # otherwise earlier failures are listed as left out
            _report_failures(result.records)

    return command


app.command("all", help="Reproduce table 1 and figures 2, 4 and 5.")(_part_command(PARTS))
for _part in PARTS:
    app.command(_part, help=f"Reproduce {SHOWS[_part]}.")(_part_command((_part,)))


@app.command()
def sweep(
    file: Annotated[Path, typer.Argument(help="TOML file with grids of settings.")],
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
    device: Device = "cpu",
) -> None:
    """Run grids of experiments with one result file each; interrupted sweeps can be resumed."""
    experiments = experiments_from_toml(file)
    folder = folder or Path(file.stem)
    records = _sweep(experiments, folder, jobs=jobs, dask=dask, retry=retry, device=device)
    varied = [
        n
        for n in Experiment.__dataclass_fields__
        if len({repr(getattr(e, n)) for e in experiments}) > 1 and n not in ("data", "method")
    ]
    table = Table("best by validation", *varied, "one pass, %", "best, %")
    best = best_records(records).values()
    for e, result in ((r.experiment, r.result) for r in best if r.result is not None):
        values = [_setting(e.settings[n]) if n in e.settings else "" for n in varied]
        errors = percent(result.one_pass), percent(result.best)
        table.add_row(f"{e.data}, {METHODS[e.method]}", *values, *errors)
    out.print(table)
    for record in best:
        say(f"Result: {folder / record.experiment.name}.json")
    _report_failures(records)


@app.command()
def run(
    settings: Annotated[
        list[str],
        typer.Argument(help="NAME=VALUE, e.g. data=mnist method=ts-lrc depth=2 components=256."),
    ],
    folder: Annotated[
        Path, typer.Option("--out", "-o", help="Output folder; results in it are reused.")
    ] = Path("runs"),
    device: Device = "cpu",
) -> None:
    """Run one experiment of a sweep or of the paper."""
    pairs = [setting.split("=", 1) for setting in settings]
    if wrong := [p[0] for p in pairs if len(p) != 2]:
        raise ValueError(f"settings must have the form NAME=VALUE; got {', '.join(wrong)}")
    if len(dict(pairs)) < len(pairs):
        raise ValueError(
            f"settings must not be repeated; got {' '.join(name for name, _ in pairs)}"
        )
    experiment = Experiment.from_settings({name: _toml_value(value) for name, value in pairs})
    (record,) = _sweep([experiment], folder, jobs=1, retry=True, device=device)
    _report_failures([record])
    if (result := record.result) is not None:
        for name, error in (("after one pass", result.one_pass), ("best", result.best)):
            if not math.isnan(error):
                say(f"Test error {percent(error)} % {name}")
    say(f"Result: {folder / record.experiment.name}.json")


@app.command()
def compact(
    folder: Annotated[Path, typer.Argument(help="Folder with the record files of a sweep.")],
) -> None:
    """Move records to FOLDER.jsonl.gz, a line for each, with epochs rounded to six digits."""
    say(f"Wrote {store.compact(folder)}")


def _setting(value: Any) -> str:
    """Return the value of a setting as it is shown in tables."""
    if isinstance(value, tuple):
        return ", ".join(map(_setting, value))
    return f"{value:g}" if isinstance(value, float) else str(value)


def _toml_value(text: str) -> Any:
    """Parse a number, list or boolean as in TOML; anything else is a string."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except (ValueError, RecursionError):
        return text


def _sweep(experiments: list[Experiment], folder: Path, **options: Any) -> list[Record]:
    """Run experiments with a live table."""
    with _stoppable(folder):
        return run_sweep(
            experiments, folder, during=lambda state: live_table(state, err), **options
        )


def _report_failures(records: Iterable[Record]) -> None:
    """Print failed experiments, and exit with an error if there are any."""
    failed = [r for r in records if r.error is not None]
    for record in failed:
        err.print(f"failed: {record.experiment.title}: {record.error}", soft_wrap=True)
    if failed:
        raise typer.Exit(1)


@contextmanager
def _stoppable(folder: Path) -> Iterator[None]:
    """Turn Ctrl-C into a message on how to resume."""
    try:
        yield
    except KeyboardInterrupt:
        err.print(f"stopped; run the same command again to resume from {folder}")
        raise typer.Exit(STOPPED) from None


def main() -> None:
    """Run the command line, printing errors in one line."""
    try:
        app(prog_name="python -m reproduction")
    except (ValueError, OSError, ImportError, MemoryError, RuntimeError) as error:
        err.print(f"error: {str(error) or type(error).__name__}", soft_wrap=True)
        sys.exit(1)
