"""Write a comparison as a self-contained page, ``report.html``."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
from markupsafe import Markup

from tensorswitch.experiments.comparison import Comparison
from tensorswitch.experiments.experiment import METHODS, Result
from tensorswitch.experiments.figures import (
    COLOURS,
    MISSING,
    as_images,
    can_draw,
    embedded,
    look,
    show_filter,
)
from tensorswitch.experiments.machine import describe, today
from tensorswitch.experiments.pages import FigurePart, write_page
from tensorswitch.history import percent


def cells(comparison: Comparison) -> list[list[str]]:
    """Return the table of a comparison as text.

    Parameters
    ----------
    comparison : Comparison
        The comparison.

    Returns
    -------
    list of list of str
        One row per method, with the columns of :data:`HEADER`.
    """
    return [
        [
            METHODS[method],
            str(r.depth),
            percent(r.one_pass),
            percent(r.best),
            "–" if r.best_epoch is None else str(r.best_epoch),
            "–" if math.isnan(ratio := comparison.relative_time(r)) else f"{ratio:.1f} ×",
            r.note,
        ]
        for method, r in comparison.results
    ]


HEADER = ["method", "depth", "one pass, %", "best, %", "at epoch", "time", ""]


def write_report(comparison: Comparison, path: Path, command: str) -> None:
    """Write table, learning curves and filters to one file.

    Parameters
    ----------
    comparison : Comparison
        The comparison.
    path : Path
        The file to write.
    command : str
        Command line to show in the report.
    """
    results = comparison.results
    least = min((r.best for _, r in results if not math.isnan(r.best)), default=math.nan)
    rows = [
        {"cells": row, "best": result.best == least}
        for row, (_, result) in zip(cells(comparison), results, strict=True)
    ]
    settings = vars(comparison.settings).items()
    write_page(
        path,
        "comparison.html",
        title=f"SS and TS on {comparison.data}",
        header=HEADER,
        rows=rows,
        figures=_figures(comparison),
        command=command,
        settings=", ".join(f"{name} {value}" for name, value in settings),
        machine=f"{today()}, {describe()}",
    )


def _figures(comparison: Comparison) -> list[FigurePart]:
    """Draw learning curves and filters."""
    if not can_draw():
        return [FigurePart("Figures", Markup(""), MISSING.capitalize())]
    figures = []
    curves = [(method, r) for method, r in comparison.results if r.epochs]
    with look():
        if curves:
            caption = "Test error against epochs and against seconds of training."
            figures.append(FigurePart("Learning curves", _curves(curves), caption))
        for method, r in curves:
            images = as_images(r.filters, r.filter_shape) if r.filter_shape else None
            if images is not None:
                title = f"Filters of {METHODS[method]}"
                figures.append(FigurePart(title, _filters(images), FILTER_CAPTION))
    return figures


FILTER_CAPTION = (
    "Weights of the first hidden units, in pixels. "
    "For images of one channel, red is positive and blue negative."
)


def _curves(results: list[tuple[str, Result]]) -> Markup:
    """Draw test errors against epochs and seconds."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import LogLocator, NullFormatter

    figure = Figure(figsize=(9, 3.8), layout="constrained")
    by_epoch, by_time = figure.subplots(1, 2, sharey=True)
    for method, r in results:
        errors = [100 * e["test_error"] for e in r.epochs]
        seconds = [sum(e["seconds"] for e in r.epochs[: i + 1]) for i in range(len(r.epochs))]
        style: dict[str, Any] = {
            "color": COLOURS[method],
            "label": METHODS[method],
            "marker": "o",
            "markersize": 3,
            "linewidth": 1.5,
        }
        by_epoch.plot(range(1, len(errors) + 1), errors, **style)
        by_time.plot(seconds, errors, **style)
    positive = all(e["test_error"] > 0 for _, r in results for e in r.epochs)
    yscale = "log" if positive else "linear"
    by_epoch.set(xlabel="epoch", ylabel="test error, %", yscale=yscale)
    by_epoch.xaxis.get_major_locator().set_params(integer=True)
    by_time.set(xlabel="seconds", xscale="log")
    for axis in (by_epoch.yaxis, by_time.xaxis) if positive else (by_time.xaxis,):
        axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axis.set_major_formatter("{x:g}")
        axis.set_minor_formatter(NullFormatter())
    by_epoch.legend(frameon=False, fontsize=9)
    return embedded(figure, "test error against epochs and seconds")


def _filters(images: np.ndarray) -> Markup:
    """Draw filters in a row."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 0.75), layout="constrained")
    for axes, image in zip(figure.subplots(1, len(images), squeeze=False)[0], images, strict=True):
        show_filter(axes, image)
    return embedded(figure, "filters")
