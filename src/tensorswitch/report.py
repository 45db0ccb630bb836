"""``report.html``: a comparison as one self-contained page."""

from __future__ import annotations

import base64
import html
import io
import math
from pathlib import Path
from typing import Any

from tensorswitch._files import write_text
from tensorswitch._machine import describe, today
from tensorswitch.compare import Comparison
from tensorswitch.experiments import METHODS, Result

COLOURS = {"ss": "#666666", "ts-lrc": "#0072b2", "ts-ibp-lrc": "#d55e00", "ts-ibp": "#009e73"}
STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; color: #222; }
h1, h2 { font-weight: 600; line-height: 1.2; } h2 { margin-top: 2.5rem; }
.table { overflow-x: auto; } table { border-collapse: collapse; width: 100%; }
th, td { padding: .4rem .7rem; text-align: right; border-bottom: 1px solid #ddd; white-space: nowrap; }
th:first-child, td:first-child { text-align: left; } td.best { font-weight: 700; }
figure { margin: 1rem 0; } img { max-width: 100%; height: auto; } figcaption, .small { color: #666; font-size: .9rem; }
"""


def cells(comparison: Comparison) -> list[list[str]]:
    """The table: method, depth, one-pass error, best error, epoch, time against SS, remarks."""
    return [
        [
            METHODS[method],
            str(r.depth),
            _percent(r.one_pass),
            _percent(r.best),
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
        parts.append(f"<h2>{title}</h2><figure>{figure}<figcaption>{caption}</figcaption></figure>")
    machine = f"{today()}, {describe()}"
    what = ", ".join(f"{name} {value}" for name, value in vars(settings).items())
    parts.append(f'<h2>How it was made</h2><p class="small"><code>{html.escape(command)}</code><br>{html.escape(what)}<br>{html.escape(machine)}</p>')
    title = f"SS and TS on {html.escape(comparison.data)}"
    head = f'<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1"><title>{title}</title><style>{STYLE}</style>'
    write_text(path, f'<!doctype html><html lang="en"><head>{head}</head><body><h1>{title}</h1>{"".join(parts)}</body></html>')


def _figures(comparison: Comparison) -> list[tuple[str, str, str]]:
    try:
        import matplotlib as mpl
    except ImportError:
        return [("Figures", "They are drawn with matplotlib, which is not installed: pip install 'tensorswitch[plots]'", "")]
    figures = []
    curves = [(method, r) for method, r in comparison.results if r.epochs]
    with mpl.rc_context({"font.size": 10, "axes.spines.top": False, "axes.spines.right": False, "axes.grid": True, "grid.alpha": 0.3}):
        if curves:
            figures.append(("Learning", "Test error against epochs and against seconds of training.", _curves(curves)))
        for method, r in curves:
            if r.filters and _side(comparison, r):
                caption = "Weights of the first hidden units, in pixels; red is positive, blue negative."
                figures.append((f"What the units of {METHODS[method]} look for", caption, _filters(r, comparison)))
    return figures


def _curves(results: list[tuple[str, Result]]) -> str:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 3.8), layout="constrained")
    by_epoch, by_time = figure.subplots(1, 2, sharey=True)
    for method, r in results:
        errors = [100 * e["test_error"] for e in r.epochs]
        seconds = [sum(e["seconds"] for e in r.epochs[: i + 1]) for i in range(len(r.epochs))]
        style: dict[str, Any] = {"color": COLOURS[method], "label": METHODS[method], "marker": "o", "markersize": 3, "linewidth": 1.5}
        by_epoch.plot(range(1, len(errors) + 1), errors, **style)
        by_time.plot(seconds, errors, **style)
    by_epoch.set(xlabel="epoch", ylabel="test error, %", yscale="log")
    by_epoch.xaxis.get_major_locator().set_params(integer=True)
    by_time.set(xlabel="seconds", xscale="log")
    for axes in (by_epoch, by_time):
        axes.yaxis.set_major_formatter("{x:g}")
        axes.yaxis.set_minor_formatter("{x:g}")
    by_epoch.legend(frameon=False, fontsize=9)
    return _image(figure, "test error against epochs and seconds")


def _filters(result: Result, comparison: Comparison) -> str:
    import numpy as np
    from matplotlib.figure import Figure

    height, width, channels = _side(comparison, result) or (1, 1, 1)
    filters = np.array(result.filters).reshape(-1, channels, height, width).mean(1)
    figure = Figure(figsize=(9, 0.75), layout="constrained")
    for axes, image in zip(figure.subplots(1, len(filters), squeeze=False)[0], filters, strict=True):
        bound = abs(image).max() or 1
        axes.imshow(image, cmap="RdBu_r", vmin=-bound, vmax=bound, interpolation="nearest")
        axes.set_axis_off()
    return _image(figure, "filters")


def _side(comparison: Comparison, result: Result) -> tuple[int, int, int] | None:
    """Height, width and channels if the weights are those of an image."""
    if len(comparison.shape) != 3 or not result.filters:
        return None
    channels, height, width = comparison.shape
    if (height, width) == (28, 28):
        height = width = 32
    return (height, width, channels) if len(result.filters[0]) == channels * height * width else None


def _image(figure: Any, alt: str) -> str:
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=150)
    return f'<img alt="{alt}" src="data:image/png;base64,{base64.b64encode(buffer.getvalue()).decode()}">'


def _percent(value: float) -> str:
    return "–" if math.isnan(value) else f"{100 * value:.2f}"
