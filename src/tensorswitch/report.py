"""``report.html``: a comparison as one self-contained page."""

from __future__ import annotations

import html
import math
from pathlib import Path
from typing import Any

import numpy as np

from tensorswitch._figures import COLOURS, MISSING, as_images, can_draw, embedded, look, show_filter
from tensorswitch._machine import describe, today
from tensorswitch._page import figure_part, write_page
from tensorswitch.compare import Comparison
from tensorswitch.experiments import METHODS, Result
from tensorswitch.history import percent


def cells(comparison: Comparison) -> list[list[str]]:
    """The table: method, depth, one-pass error, best error, epoch, time against SS, remarks."""
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
    """Table, curves and filters in one file."""
    best = min((r.best for _, r in comparison.results if not math.isnan(r.best)), default=math.nan)
    rows = []
    for row, (_, result) in zip(cells(comparison), comparison.results, strict=True):
        tags = ['<td class="best">' if i == 3 and result.best == best else "<td>" for i in range(len(row))]
        rows.append("<tr>" + "".join(f"{tag}{html.escape(cell)}</td>" for tag, cell in zip(tags, row, strict=True)) + "</tr>")
    parts = [f'<div class="table"><table id="results"><tr>{"".join(f"<th>{h}</th>" for h in HEADER)}</tr>{"".join(rows)}</table></div>']
    settings = comparison.settings
    parts.append(
        '<p class="small">Test errors in percent. <em>Best</em> is taken at the epoch of least validation error. <em>Time</em> is that of an epoch, '
        "or of the whole fit where there are no epochs, against an epoch of the SS network.</p>"
    )
    for title, caption, figure in _figures(comparison):
        parts.append(figure_part(title, figure, caption))
    machine = f"{today()}, {describe()}"
    what = ", ".join(f"{name} {value}" for name, value in vars(settings).items())
    parts.append(f'<h2>How it was made</h2><p class="small"><code>{html.escape(command)}</code><br>{html.escape(what)}<br>{html.escape(machine)}</p>')
    write_page(path, f"SS and TS on {comparison.data}", parts)


def _figures(comparison: Comparison) -> list[tuple[str, str, str]]:
    if not can_draw():
        return [("Figures", MISSING.capitalize(), "")]
    figures = []
    curves = [(method, r) for method, r in comparison.results if r.epochs]
    with look():
        if curves:
            figures.append(("Learning", "Test error against epochs and against seconds of training.", _curves(curves)))
        for method, r in curves:
            if (images := as_images(r.filters, r.filter_shape) if r.filter_shape else None) is not None:
                caption = "Weights of the first hidden units, in pixels; where there is one channel, red is positive and blue negative."
                figures.append((f"What the units of {METHODS[method]} look for", caption, _filters(images)))
    return figures


def _curves(results: list[tuple[str, Result]]) -> str:
    from matplotlib.figure import Figure
    from matplotlib.ticker import LogLocator, NullFormatter

    figure = Figure(figsize=(9, 3.8), layout="constrained")
    by_epoch, by_time = figure.subplots(1, 2, sharey=True)
    for method, r in results:
        errors = [100 * e["test_error"] for e in r.epochs]
        seconds = [sum(e["seconds"] for e in r.epochs[: i + 1]) for i in range(len(r.epochs))]
        style: dict[str, Any] = {"color": COLOURS[method], "label": METHODS[method], "marker": "o", "markersize": 3, "linewidth": 1.5}
        by_epoch.plot(range(1, len(errors) + 1), errors, **style)
        by_time.plot(seconds, errors, **style)
    reached = all(e["test_error"] > 0 for _, r in results for e in r.epochs)
    by_epoch.set(xlabel="epoch", ylabel="test error, %", yscale="log" if reached else "linear")  # zero has no place on a logarithmic axis
    by_epoch.xaxis.get_major_locator().set_params(integer=True)
    by_time.set(xlabel="seconds", xscale="log")
    for axis in (by_epoch.yaxis, by_time.xaxis) if reached else (by_time.xaxis,):
        axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axis.set_major_formatter("{x:g}")
        axis.set_minor_formatter(NullFormatter())
    by_epoch.legend(frameon=False, fontsize=9)
    return embedded(figure, "test error against epochs and seconds")


def _filters(images: np.ndarray) -> str:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 0.75), layout="constrained")
    for axes, image in zip(figure.subplots(1, len(images), squeeze=False)[0], images, strict=True):
        show_filter(axes, image)
    return embedded(figure, "filters")
