"""Write the table, the figures and all runs, each with its command, to ``report.html``."""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from tensorswitch.experiments.experiment import Experiment
from tensorswitch.experiments.figures import MISSING, can_draw, embedded
from tensorswitch.experiments.machine import describe
from tensorswitch.experiments.pages import FigurePart, write_page
from tensorswitch.experiments.records import Record
from tensorswitch.paper import figure2, figure4, figure5, rendering
from tensorswitch.paper.errors import NoResultsError
from tensorswitch.paper.table1 import Row
from tensorswitch.training._history import percent

__all__ = ["command", "write_report"]

HEADER = ("run", "one pass, %", "best, %", "at epoch", "seconds", "date", "command")


def command(experiment: Experiment) -> str:
    """Return the command line that repeats an experiment.

    Parameters
    ----------
    experiment : Experiment
        The experiment.

    Returns
    -------
    str
        A ``tensorswitch run`` command with all settings that differ from their defaults.
    """
    usual = Experiment(data=experiment.data, method=experiment.method)
    words = [f"data={experiment.data}", f"method={experiment.method}"]
    for name, value in experiment.settings.items():
        if name not in ("data", "method", "fingerprint") and value != getattr(usual, name):
            if isinstance(value, tuple):
                text = str(list(value)).replace(" ", "")
            else:
                text = str(value).lower() if value in (None, True, False) else str(value)
            words.append(f"{name}={text}")
    return shlex.join(["tensorswitch", "run", *words])


def write_report(
    path: Path, records: list[Record], table: list[Row], left_out: Iterable[str], made_by: str
) -> None:
    """Write the report, with all figures that have results.

    Parameters
    ----------
    path : Path
        The file to write.
    records : list of Record
        Runs to list and draw.
    table : list of Row
        Rows of table 1.
    left_out : iterable of str
        Descriptions of what is missing.
    made_by : str
        Command line to show in the report.
    """
    write_page(
        path,
        "paper.html",
        title="Tensor Switching networks: the paper, reproduced",
        table=rendering.as_html(table) if table else "",
        figures=_figures(records),
        missing_figures="" if can_draw() else MISSING.capitalize(),
        left_out=list(left_out),
        header=HEADER,
        runs=[_run(record) for record in records],
        command=made_by,
        machines=dict.fromkeys(describe(r.made) for r in records if "machine" in r.made),
    )


def _figures(records: list[Record]) -> list[FigurePart]:
    """Draw the figures that have results."""
    if not can_draw():
        return []
    image = embedded(figure2.draw(), "Figure 2: kernels against the angle")
    parts = [FigurePart("Figure 2", image, figure2.CAPTION)]
    for name, module in (("Figure 4", figure4), ("Figure 5", figure5)):
        with suppress(NoResultsError):
            parts.append(FigurePart(name, embedded(module.draw(records), name), module.CAPTION))
    return parts


def _run(record: Record) -> dict[str, object]:
    """Return a row of the list of runs."""
    cells = ["–", "–", "–", "–"]
    if (result := record.result) is not None:
        epoch = str(result.best_epoch or "–")
        cells = [percent(result.one_pass), percent(result.best), epoch, f"{result.seconds:.1f}"]
    return {
        "title": record.experiment.title,
        "error": record.error,
        "cells": [*cells, str(record.made.get("date", ""))[:10]],
        "command": command(record.experiment),
    }
