"""From plans to files: what the commands of the paper do around the sweep."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from rich.table import Table

from tensorswitch._figures import save_figure
from tensorswitch._files import make_folder
from tensorswitch._live import title
from tensorswitch.experiments import Experiment
from tensorswitch.paper import NoResultsError, figure2, figure4, figure5, page, table1
from tensorswitch.paper.grids import SCALES, Plan, plan
from tensorswitch.records import Record, records_in

PARTS = ("table1", "figure2", "figure4", "figure5")

__all__ = ["PARTS", "finished", "left_out", "parts_of", "plans", "terminal_table", "write"]


def parts_of(what: str) -> Sequence[str]:
    """The parts that a name stands for."""
    if what not in (*PARTS, "all"):
        raise ValueError(f"there are {', '.join(PARTS)} and all; got {what!r}")
    return PARTS if what == "all" else (what,)


def plans(what: Sequence[str], scale: str) -> Plan:
    """The experiments of several parts, each once, and what they leave out."""
    if scale not in SCALES:
        raise ValueError(f"scale must be one of {', '.join(SCALES)}; got {scale!r}")
    several = [(part, plan(part, scale)) for part in what if part != "figure2"]
    experiments = list({e.name: e for _, p in several for e in p.experiments}.values())
    return Plan(experiments, [f"{part}: {missing}" for part, p in several for missing in p.left_out])


def finished(experiments: Sequence[Experiment], folder: Path) -> list[Record]:
    """Those that have come to an end in an earlier run, on whatever data of their name."""
    wanted = {e.name for e in experiments}
    return [r for r in records_in(folder / "runs") if replace(r.experiment, fingerprint=None).name in wanted]


def left_out(plan: Plan, records: Sequence[Record]) -> list[str]:
    """In words: what the plan leaves out of the paper's experiments, and what of the plan is not done or failed."""
    missing, count = len(plan.experiments) - len(records), len(plan.experiments)
    failed = [f"{title(r.experiment)}, which failed: {r.error}" for r in records if r.error is not None]
    return [*plan.left_out, *([f"{missing} of {count} experiments, which are not done"] if missing else []), *failed]


def terminal_table(records: list[Record], width: int) -> Table:
    rows = table1.rows(page.of_the_table(records))
    return table1.as_terminal(rows, narrow=width < 24 + 36 * len(table1.columns(rows)))


def write(what: Sequence[str], records: list[Record], scale: str, folder: Path, command: str) -> list[Path]:
    """The files of each part, and ``report.html`` with all that the folder has by now."""
    make_folder(folder)
    paths = []
    if "table1" in what:
        paths += table1.save(table1.rows(page.of_the_table(records)), folder)
    for name, figure in (("figure2", figure2.draw), ("figure4", lambda: figure4.draw(records)), ("figure5", lambda: figure5.draw(records))):
        if name in what:
            with suppress(NoResultsError):  # what failed, or is not done, is told of elsewhere
                paths += save_figure(figure(), folder, name)
    everything = plans(PARTS, scale)
    page.write(folder / "report.html", records_in(folder / "runs"), left_out(everything, finished(everything.experiments, folder)), command)
    return [*paths, folder / "report.html"]
