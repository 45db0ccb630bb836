"""Write the table, the figures and all runs, each with its command, to ``report.html``."""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from pathlib import Path

from reproduction import figure2, figure4, figure5, rendering
from reproduction.experiment import Experiment, percent
from reproduction.files import write
from reproduction.machine import describe
from reproduction.pages import render
from reproduction.records import Record
from reproduction.table1 import Row

HEADER = ("run", "one pass, %", "best, %", "at epoch", "seconds", "date", "command")
CAPTIONS = {"figure2": figure2.CAPTION, "figure4": figure4.CAPTION, "figure5": figure5.CAPTION}


def command(experiment: Experiment) -> str:
    """Return the command that repeats an experiment, with all settings that are not defaults."""
    usual = Experiment(data=experiment.data, method=experiment.method)
    words = [f"data={experiment.data}", f"method={experiment.method}"]
    for name, value in experiment.settings.items():
        if name not in ("data", "method", "fingerprint") and value != getattr(usual, name):
            if isinstance(value, tuple):
                text = str(list(value)).replace(" ", "")
            else:
                text = str(value).lower() if isinstance(value, bool) else str(value)
            words.append(f"{name}={text}")
    return shlex.join(["python", "-m", "reproduction", "run", *words])


def write_report(
    path: Path, records: list[Record], table: list[Row], left_out: Iterable[str], made_by: str
) -> None:
    """Write the report; it shows the figures that are beside it."""
    figures = [
        {"name": name, "title": f"Figure {name[-1]}", "caption": caption}
        for name, caption in CAPTIONS.items()
        if (path.parent / f"{name}.png").exists()
    ]
    text = render(
        "report.html",
        title="Tensor Switching networks: the paper, reproduced",
        table=rendering.as_html(table) if table else "",
        figures=figures,
        left_out=list(left_out),
        header=HEADER,
        runs=[_run(record) for record in records],
        command=made_by,
        machines=dict.fromkeys(describe(r.made) for r in records if "machine" in r.made),
    )
    write(path, text)


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
