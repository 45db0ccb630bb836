"""Run the experiments of the paper and write its table and figures."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from rich.table import Table

from reproduction import figure2, figure4, figure5, rendering, table1
from reproduction.figures import NoResultsError, save_figure
from reproduction.files import make_folder
from reproduction.plans import SCALES, Plan, plan
from reproduction.records import Record, records_in
from reproduction.report import write_report
from reproduction.sweeps import During, sweep

PARTS = ("table1", "figure2", "figure4", "figure5")


@dataclass(frozen=True)
class Reproduction:
    """Records of the experiments, rows of table 1, the files written, and what is missing."""

    records: list[Record]
    table: list[table1.Row]
    paths: list[Path]
    left_out: list[str]

    def terminal_table(self, width: int) -> Table:
        """Return table 1 for a terminal of so many columns."""
        narrow = width < 24 + 36 * len(table1.columns(self.table))
        return rendering.as_terminal(self.table, narrow=narrow)


def reproduce(
    parts: Sequence[str] = PARTS,
    scale: str = "smoke",
    folder: str | Path | None = None,
    *,
    run: bool = True,
    jobs: int | None = None,
    dask: str | None = None,
    retry: bool = False,
    during: During = nullcontext,
    command: str = "",
) -> Reproduction:
    """Reproduce tables or figures of the paper, and write them with a one-page report.

    Parameters
    ----------
    parts : sequence of str, default=("table1", "figure2", "figure4", "figure5")
        What to reproduce.
    scale : {"smoke", "small", "full"}, default="smoke"
        Size of the experiments: "smoke" takes a minute on the digits of scikit-learn, "small" takes
        hours on two cores, and "full" is the whole grid of the paper.
    folder : str or Path, default=None
        Output folder, ``paper-SCALE`` if None. Results found there are reused.
    run : bool, default=True
        Whether to run missing experiments. If False, only existing results are used.
    jobs, dask, retry, during
        As in :func:`~reproduction.sweep`.
    command : str, default=""
        Command line to show in the report.

    Returns
    -------
    Reproduction
        Records, table and written files.
    """
    planned = plans(parts, scale)
    if set(parts) - {"table1"} and find_spec("matplotlib") is None:
        raise ValueError(
            "figures need matplotlib; install it with: pip install 'tensorswitch[plots]'"
        )
    folder = Path(f"paper-{scale}" if folder is None else folder)
    if run and planned.experiments:
        options: dict[str, Any] = {"jobs": jobs, "dask": dask, "retry": retry, "during": during}
        records = sweep(planned.experiments, folder / "runs", **options)
        every = records_in(folder / "runs")
    else:
        every = records_in(folder / "runs")
        records = of_plan(planned, every)
        if planned.experiments and not records:
            what = ", ".join(parts)
            raise ValueError(f"{folder} has no results for {what}; run it without --no-run first")
    make_folder(folder)
    table = table1.rows(of_the_table(records), measured_times(folder))
    paths = [path for part in parts for path in _save(part, records, table, folder)]
    paths.append(folder / "report.html")
    whole = plans(PARTS, scale)
    done = of_plan(whole, every)
    whole_table = table1.rows(of_the_table(done), measured_times(folder))
    write_report(paths[-1], every, whole_table, left_out(whole, done), command)
    return Reproduction(records, table, paths, left_out(planned, records))


def plans(parts: Sequence[str], scale: str) -> Plan:
    """Return the experiments of several parts without duplicates, and what they leave out."""
    for name, value, known in [("scale", scale, SCALES), *(("part", p, PARTS) for p in parts)]:
        if value not in known:
            raise ValueError(f"{name} must be one of {', '.join(known)}; got {value!r}")
    several = [(part, plan(part, scale)) for part in parts if part != "figure2"]
    experiments = list({e.name: e for _, p in several for e in p.experiments}.values())
    return Plan(experiments, [f"{part}: {text}" for part, p in several for text in p.left_out])


def of_plan(plan: Plan, records: Sequence[Record]) -> list[Record]:
    """Return the records of the experiments of a plan, whatever the fingerprints of their data.

    They are in the order of the plan, which decides between equal validation errors. Of records
    with several fingerprints, the last one counts.
    """
    found: dict[str, Record] = {}
    for record in sorted(records, key=lambda r: str(r.made.get("date", ""))):
        found[replace(record.experiment, fingerprint=None).name] = record
    return [found[e.name] for e in plan.experiments if e.name in found]


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
    found = ((r, r.experiment) for r in records)
    return [r for r, e in found if not (e.family == "mlp" and e.width == figure5.UNITS)]


def _save(part: str, records: list[Record], table: list[table1.Row], folder: Path) -> list[Path]:
    """Write the files of a part; without results there are none."""
    if part == "table1":
        return rendering.save_table(table, folder)
    draw: dict[str, Callable[[], Any]] = {
        "figure2": figure2.draw,
        "figure4": lambda: figure4.draw(records),
        "figure5": lambda: figure5.draw(records),
    }
    with suppress(NoResultsError):  # said by left_out
        return save_figure(draw[part](), folder, part)
    return []
