"""Run the experiments of the paper and write its table and figures."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rich.table import Table

from tensorswitch._files import make_folder
from tensorswitch.experiments.experiment import Experiment
from tensorswitch.experiments.figures import MISSING, can_draw, save_figure
from tensorswitch.experiments.records import Record, records_in
from tensorswitch.experiments.sweeps import Sweep, sweep
from tensorswitch.paper import figure2, figure4, figure5, rendering, table1
from tensorswitch.paper.errors import NoResultsError
from tensorswitch.paper.grids import SCALES, Plan, plan
from tensorswitch.paper.report import write_report

PARTS = ("table1", "figure2", "figure4", "figure5")


@dataclass(frozen=True)
class Reproduction:
    """Results of :func:`reproduce`.

    Parameters
    ----------
    records : list of Record
        Records of the finished and failed experiments.
    table : list of Row
        Rows of table 1 from these records.
    paths : list of Path
        Files that were written.
    left_out : list of str
        Descriptions of what is missing.
    """

    records: list[Record]
    table: list[table1.Row]
    paths: list[Path]
    left_out: list[str]

    def terminal_table(self, width: int) -> Table:
        """Return table 1 for a terminal.

        Parameters
        ----------
        width : int
            Number of columns of the terminal.

        Returns
        -------
        rich.table.Table
            The table, with fewer details if the terminal is narrow.
        """
        narrow = width < 24 + 36 * len(table1.columns(self.table))
        return rendering.as_terminal(self.table, narrow=narrow)


def reproduce(
    what: str,
    scale: str = "smoke",
    folder: str | Path | None = None,
    *,
    run: bool = True,
    jobs: int | None = None,
    dask: str | None = None,
    retry: bool = False,
    during: Callable[[Sweep], Any] | None = None,
    command: str = "",
) -> Reproduction:
    """Reproduce a table or figure of the paper and write it with a one-page report.

    Parameters
    ----------
    what : {"table1", "figure2", "figure4", "figure5", "all"}
        What to reproduce.
    scale : {"smoke", "small", "full"}, default="smoke"
        Size of the experiments: "smoke" takes a minute on the digits of scikit-learn, "small" takes
        hours on two cores, and "full" is the whole grid of the paper.
    folder : str or Path, default=None
        Output folder, ``paper-SCALE`` if None. Results found there are reused.
    run : bool, default=True
        Whether to run missing experiments. If False, only existing results are used.
    jobs : int, default=None
        Number of experiments to run at a time; None runs one per core.
    dask : str, default=None
        Address of a Dask scheduler whose workers run the experiments.
    retry : bool, default=False
        Whether to run failed experiments again.
    during : callable, default=None
        Takes the :class:`~tensorswitch.experiments.Sweep` and returns a context manager that is
        entered while experiments run.
    command : str, default=""
        Command line to show in the report.

    Returns
    -------
    Reproduction
        Records, table and written files.

    Raises
    ------
    ValueError
        If ``what`` or ``scale`` is unknown, or ``run`` is False and there are no results.
    """
    parts = parts_of(what)
    planned = plans(parts, scale)
    if what != "table1" and not can_draw():
        raise ValueError(MISSING)
    folder = Path(f"paper-{scale}" if folder is None else folder)
    if run and planned.experiments:
        options: dict[str, Any] = {"jobs": jobs, "dask": dask, "retry": retry, "during": during}
        records = sweep(planned.experiments, folder / "runs", **options)
    else:
        records = finished(planned.experiments, folder)
        if planned.experiments and not records:
            raise ValueError(f"{folder} has no results for {what}; run it without --no-run first")
    times = measured_times(folder)
    table = table1.rows(of_the_table(records), times)
    paths = _save(parts, records, table, folder)
    everything = plans(PARTS, scale)
    every = records_in(folder / "runs") if (folder / "runs").is_dir() else []
    done = finished(everything.experiments, folder)
    same = {r.experiment.name for r in done} == {r.experiment.name for r in records}
    every_row = table if same else table1.rows(of_the_table(every), times)
    report = folder / "report.html"
    write_report(report, every, every_row, left_out(everything, done), command)
    return Reproduction(records, table, [*paths, report], left_out(planned, records))


def parts_of(what: str) -> Sequence[str]:
    """Return the tables and figures that a name stands for; raise ValueError if unknown."""
    if what not in (*PARTS, "all"):
        raise ValueError(f"unknown part {what!r}; expected one of {', '.join(PARTS)}, all")
    return PARTS if what == "all" else (what,)


def plans(what: Sequence[str], scale: str) -> Plan:
    """Return the experiments of several parts without duplicates, and what they leave out."""
    if scale not in SCALES:
        raise ValueError(f"scale must be one of {', '.join(SCALES)}; got {scale!r}")
    several = [(part, plan(part, scale)) for part in what if part != "figure2"]
    experiments = list({e.name: e for _, p in several for e in p.experiments}.values())
    return Plan(experiments, [f"{part}: {text}" for part, p in several for text in p.left_out])


def finished(experiments: Sequence[Experiment], folder: Path) -> list[Record]:
    """Return existing records of experiments, whatever the fingerprints of their data.

    They are in the order of the experiments, which decides between equal validation errors. Of
    records with several fingerprints, the last one counts.
    """
    found: dict[str, Record] = {}
    for record in sorted(records_in(folder / "runs"), key=lambda r: str(r.made.get("date", ""))):
        found[replace(record.experiment, fingerprint=None).name] = record
    return [found[e.name] for e in experiments if e.name in found]


def measured_times(folder: Path) -> dict[str, float]:
    """Return the times of methods that were measured apart from the experiments, if any.

    ``python -m benchmarks.paper_times`` writes them, alone on the machine.
    """
    path = folder / "times.json"
    if not path.exists():
        return {}
    try:
        times = json.loads(path.read_text(encoding="utf-8"))["times"]
        return {str(method): float(time) for method, time in times.items()}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{path} is not a file of benchmarks/paper_times.py: {error}") from None


def left_out(plan: Plan, records: Sequence[Record]) -> list[str]:
    """Describe what the plan leaves out of the paper and what of it is missing or failed."""
    count = len(plan.experiments)
    missing = count - len(records)
    failed = [
        f"{r.experiment.title}, which failed: {r.error}" for r in records if r.error is not None
    ]
    undone = [f"{missing} of {count} experiments, which have not been run"] if missing else []
    return [*plan.left_out, *undone, *failed]


def of_the_table(records: Sequence[Record]) -> list[Record]:
    """Return the records without the small networks of figure 5, which are not in table 1."""
    return [
        r
        for r in records
        if not (r.experiment.family == "mlp" and r.experiment.width == figure5.UNITS)
    ]


def _save(
    parts: Sequence[str], records: list[Record], table: list[table1.Row], folder: Path
) -> list[Path]:
    """Write the files of each part."""
    make_folder(folder)
    paths = rendering.save_table(table, folder) if "table1" in parts else []
    figures: dict[str, Callable[[], Any]] = {
        "figure2": figure2.draw,
        "figure4": lambda: figure4.draw(records),
        "figure5": lambda: figure5.draw(records),
    }
    for name, draw in figures.items():
        if name in parts:
            with suppress(NoResultsError):  # reported by left_out
                paths += save_figure(draw(), folder, name)
    return paths
