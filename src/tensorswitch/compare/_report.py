"""A comparison as a table, a sentence and a self-contained page with figures."""

from __future__ import annotations

import base64
import datetime
import importlib.util
import io
import math
import shlex
import warnings
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from tensorswitch._files import write_text
from tensorswitch.compare._comparison import Comparison, Record, machine
from tensorswitch.compare._explain import Example, examples
from tensorswitch.compare._fitting import only_class
from tensorswitch.compare._learners import BASELINES, LEARNERS, LEGEND
from tensorswitch.compare._metrics import METRICS, NUMBERS, SHARES, Metric, number
from tensorswitch.compare._predictor import load_predictor
from tensorswitch.compare._problem import Problem

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MOST_CLASSES = 30  # of a confusion matrix
BARS = 8  # features of an explanation that are shown
# The first four are of a palette that is safe for common kinds of colour blindness (Okabe and Ito).
BLUE, ORANGE, PURPLE, GREY = "#0072b2", "#d55e00", "#cc79a7", "#666666"
# Of all learners that learn, in the order of the registry.
PALETTE = (
    f"#56b4e9 #e69f00 {PURPLE} #8a4fff #e41a1c #ff7f00 {GREY} {BLUE} {ORANGE} #009e73 #b0305f "
    "#a65628 #7d8fd6 #117733 #999999"
).split()
COLOURS = dict(zip([n for n in LEARNERS if n not in BASELINES], PALETTE, strict=True))
OTHERS = ("#1f9e89", "#c51b8a", "#636efa", "#a6761d")  # learners that are not in the registry


def table(comparison: Comparison) -> tuple[list[str], list[list[str]]]:
    """Return names of columns, and a row of text for each learner, the best first."""
    names, by = comparison.problem.class_names, comparison.records[0].by
    usual = list(NUMBERS if names is None else SHARES)[:3]
    metrics = [by, *(METRICS[name] for name in usual if METRICS[name] != by)]
    short = (m.label.replace("balanced accuracy", "balanced") for m in metrics)
    titles = [f"{name}, %" if m.percent else name for name, m in zip(short, metrics, strict=True)]
    header = ["learner", titles[0], "±", *titles[1:], "fit, s", "note"]
    return header, [_row(record, metrics, names) for record in comparison.ranked]


def _row(record: Record, metrics: Sequence[Metric], names: Sequence[str] | None) -> list[str]:
    time = seconds(record.seconds)
    if record.failure is not None or not record.results:
        state = "failed" if record.failure is not None else "not run"
        return [record.label, state, *["–"] * len(metrics), time, record.skipped]
    notes = [record.results[0].note, _always(record, names)]
    first, *others = (metric.text(record.mean(metric.measure)) for metric in metrics)
    spread = metrics[0].text(record.spread)
    end = [time, "; ".join(note for note in notes if note)]
    return [record.label, first, spread, *others, *end]


def _or_dash(value: float, digits: int) -> str:
    return "–" if math.isnan(value) else f"{value:.{digits}f}"


def _always(record: Record, names: Sequence[str] | None) -> str:
    """Say which class a learner always predicts; of a baseline that is no news."""
    return "" if record.baseline else only_class(record.results, names)


def remarks(comparison: Comparison) -> list[str]:
    """Say which learners failed, and which predict the same class for all rows."""
    names = comparison.problem.class_names
    said = ((record.label, _always(record, names)) for record in comparison.ranked)
    warned = (f"warning: {who} predicts {what}, whatever the row" for who, what in said if what)
    return [*map(reason, comparison.failed), *warned]


def seconds(value: float) -> str:
    """Return a time in seconds with two significant digits."""
    return _or_dash(value, 2 if value < 0.995 else 1 if value < 9.95 else 0)


def conclusion(comparison: Comparison) -> str:
    """Say which learner is best, how good it is and how long it took, and the best of the rest."""
    done = [r for r in comparison.ranked if r.complete and not math.isnan(r.error)]
    learned = [r for r in done if not r.baseline]
    if not learned:
        return "No learner has a result."
    best, baseline = learned[0], next((r for r in done if r.baseline), None)
    if baseline is not None and _tied(best, baseline):
        text = f"No learner is clearly better than predicting always the {baseline.label}, "
        return f"{text}{baseline.summary}; {best.label} has {best.summary}."
    text = f"{best.label} is best: {best.summary} in {seconds(best.seconds)} s"
    if rival := next((r for r in learned[1:] if r.own != best.own), None):
        whose = rival.label if best.own else f"{rival.label}, the best of this library,"
        text += f"; {whose} {rival.summary} in {seconds(rival.seconds)} s"
        if _tied(best, rival):
            text += " (the difference is within the uncertainty)"
    return text + "."


def _tied(best: Record, other: Record) -> bool:
    """Return whether metrics differ by no more than their standard error, if that is known."""
    spread = math.hypot(*np.nan_to_num([best.spread, other.spread]))  # unknown counts as 0
    measure = best.by.measure
    return abs(other.mean(measure) - best.mean(measure)) <= spread


def how_measured(comparison: Comparison) -> str:
    """Return how the errors were measured: number of rows and splits."""
    splits = comparison.splits
    rows = f"{len(splits[0][0]):,} training and {len(splits[0][1]):,} test rows"
    if len(splits) == 1:
        return f"{rows}, the same for all learners"
    return f"means of {comparison.how}; {rows} in the first"


def legend(comparison: Comparison) -> dict[str, str]:
    """Return explanations of the abbreviations that the table uses."""
    used = {w for r in comparison.records for w in r.label.replace("-", " ").split()}
    return {name: text for name, text in LEGEND.items() if name in used}


def reason(record: Record) -> str:
    """Return why a learner failed, in one line."""
    return f"{record.label} failed: {' '.join(str(record.failure).split())}"


def write_report(comparison: Comparison, path: str | Path, command: str = "") -> None:
    """Write conclusion, table, figures and explanations to one self-contained page.

    Parameters
    ----------
    comparison : Comparison
        The comparison.
    path : str or Path
        The file to write.
    command : str, default=""
        Command line to show in the report.

    Examples
    --------
    >>> import tempfile
    >>> from tensorswitch.compare import compare, write_report
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_report(compare("digits", ["linear"], folder), f"{folder}/report.html")
    """
    rules: Any = {"trim_blocks": True, "lstrip_blocks": True, "undefined": StrictUndefined}
    files = PackageLoader("tensorswitch.compare")
    environment = Environment(loader=files, autoescape=True, **rules)
    says = {"conclusion": conclusion, "how_measured": how_measured, "legend": legend}
    environment.globals.update(says, table=table, reason=reason)
    environment.globals["steps"] = next_steps(comparison, command)
    draws = importlib.util.find_spec("matplotlib") is not None
    page = environment.get_template("comparison.html").render(
        comparison=comparison,
        figures=_figures(comparison) if draws else {},
        explained=_explained(comparison) if draws else None,
        draws=draws,
        command=command,
        date=datetime.date.today().isoformat(),
        machine=machine(),
    )
    write_text(path, page)


def _figures(comparison: Comparison) -> dict[str, Any]:
    """Draw error against time, the confusion matrix and the reliability curve."""
    done = [r for r in comparison.ranked if r.complete]
    figures: dict[str, Any] = {}
    if not done:
        return figures
    names = comparison.problem.class_names
    figures["times"] = for_both_schemes("error against seconds", draw_times, done, names is None)
    if names is not None and len(names) <= MOST_CLASSES:
        figures["confusion"] = [
            (r.label, for_both_schemes("confusion matrix", draw_confusion, _summed(r), names))
            for r in shown(done)
        ]
    sure = [r for r in done if all("reliability" in f.metrics for f in r.results)]
    if names is not None and sure:
        figures["reliability"] = [
            (
                r.label,
                for_both_schemes("reliability curve", draw_reliability, _summed(r, "reliability")),
            )
            for r in shown(sure)
        ]
    return figures


def shown(done: list[Record]) -> list[Record]:
    """Return the two best learners, and the best of this library."""
    learned = [r for r in done if not r.baseline]
    own = next((r for r in learned if r.own), None)
    first = (learned or done)[:2]
    return first if own is None or own in first else [*first, own]


def _summed(record: Record, measure: str = "confusion") -> np.ndarray:
    """Return a measure added up over the folds."""
    return np.sum([r.metrics[measure] for r in record.results], axis=0)


def next_steps(comparison: Comparison, command: str) -> list[str]:
    """Return commands that go on from a comparison with the best learner of this library."""
    own = next((r for r in comparison.ranked if comparison.model_path(r).exists()), None)
    words = shlex.split(command)
    if own is None or words[:2] != ["tensorswitch", "compare"] or "--data" not in words:
        return []
    kept = ("--data", "--target", "--id", "--ignore", "--task", "--split", "--metric", "--test")
    same = [w for pair in pairwise(words) if pair[0] in kept for w in pair]
    train = ["tensorswitch", "train", *same, "--method", own.learner, "--out", "run"]
    return [
        shlex.join(train),
        "tensorswitch evaluate run MORE_ROWS",
        "tensorswitch predict run NEW_ROWS --out predictions.csv",
    ]


def _explained(comparison: Comparison) -> dict[str, Any] | None:
    """Explain test rows with the best model of this library that can be explained exactly."""
    problem = comparison.problem
    for record in comparison.ranked:
        path = comparison.model_path(record)
        if not record.complete or not path.exists():
            continue
        predictor = load_predictor(path)
        if not hasattr(predictor.model, "explain"):
            continue
        chosen, importance = examples(predictor, problem, comparison.splits[0][1])
        names = [f"feature {i}" for i in range(importance.size)]
        if problem.is_table:
            names = predictor.encoder.columns
        alt, title = "mean contribution of each feature", "mean absolute contribution"
        if problem.is_image:
            image = for_both_schemes(alt, draw_importance_map, importance, problem.rows.shape[1:])
        else:
            image = for_both_schemes(alt, draw_bars, names, importance, title, 2 * BARS, 7)
        pictures = [(problem.row_name(e.row), e, _picture(problem, e, names)) for e in chosen]
        return {"label": record.label, "importance": image, "examples": pictures}
    return None


def _picture(problem: Problem, example: Example, names: list[str]) -> Markup:
    """Draw what the columns or the pixels of a row contribute to its prediction."""
    row: Any = problem.take(np.array([example.row]))
    if problem.is_image:
        maps = [(f"for {example.predicted}", example.shares)]
        if example.against is not None:
            maps.append((f"for {example.target}", example.against))
        return for_both_schemes("image and contributions", draw_heat_maps, row[0], maps)
    if problem.is_table:
        values = [_cell(row[name].iloc[0]) for name in names]
    else:
        values = [number(v) for v in row.ravel()]
    labels = [f"{_short(n, 18)} = {_short(v, 14)}" for n, v in zip(names, values, strict=True)]
    shares, title = example.shares, "contribution"
    return for_both_schemes("contributions", draw_bars, labels, shares, title, BARS, 5)


def _cell(value: Any) -> str:
    text = f"{value:.10g}" if isinstance(value, float) else str(value).removesuffix(" 00:00:00")
    return "?" if text in ("nan", "NaT", "None", "<NA>") else text


def for_both_schemes(alt: str, draw: Callable[..., Figure], *given: Any) -> Markup:
    """Return a figure as an HTML picture, in a light and a dark version."""
    import matplotlib as mpl

    light: Any = {"axes.spines.top": False, "axes.spines.right": False}
    light |= {"axes.grid": True, "grid.alpha": 0.3, "font.size": 10}
    lines = ("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color")
    dark = {**light, **dict.fromkeys(lines, "#dddddd"), "grid.color": "#888888"}
    dark |= {"figure.facecolor": "#1b1b1b", "axes.facecolor": "#1b1b1b"}
    sources = []
    for settings in (light, dark):
        buffer = io.BytesIO()
        with mpl.rc_context(settings), warnings.catch_warnings():
            # Words in other scripts may have no glyphs.
            warnings.filterwarnings("ignore", message="Glyph .* missing from font")
            draw(*given).savefig(buffer, format="png", dpi=130)
        sources.append(f"data:image/png;base64,{base64.b64encode(buffer.getvalue()).decode()}")
    template = (
        '<picture><source media="(prefers-color-scheme: dark)" srcset="{}">'
        '<img alt="{}" src="{}"></picture>'
    )
    return Markup(template).format(sources[1], alt, sources[0])


def _axes(width: float, height: float, across: int = 1) -> tuple[Figure, Any]:
    """Return a new figure and its axes."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    return figure, figure.subplots(1, across)


def draw_times(records: list[Record], numbers: bool) -> Figure:
    """Draw the error of each learner against the time of its fit."""
    from matplotlib.ticker import LogLocator

    figure, axes = _axes(5.6, 5)
    factor, others = 1.0 if numbers else 100.0, iter(OTHERS * len(records))
    shown = [r for r in records if np.isfinite(r.error) and not r.baseline]
    errors = [factor * record.error for record in shown]
    if errors:
        # A bad learner does not squeeze the others: it is an arrow at the top.
        top = max(min(max(errors), 4 * float(np.median(errors)) + 1e-9), 1.2 * min(errors) + 1e-9)
        axes.set_ylim(-0.04 * top, 1.15 * top)  # a learner without errors is visible, too
    for record, y in zip(shown, errors, strict=True):
        marker = "^" if y > 1.15 * top else "o" if record.own else "s"
        label = f"{record.label} (above)" if marker == "^" else record.label
        colour = COLOURS.get(record.learner) or next(others)
        place = max(record.seconds, 1e-3), min(y, 1.1 * top)
        axes.plot(*place, marker, color=colour, markersize=8, label=label, linestyle="none")
    axes.set(xscale="log", xlabel="seconds", ylabel="1 − R²" if numbers else "test error, %")
    axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.xaxis.set_major_formatter("{x:g}")
    axes.xaxis.set_minor_formatter("")
    figure.legend(frameon=False, fontsize=9, loc="outside lower center", ncols=3)
    return figure


def draw_confusion(counts: np.ndarray, names: Sequence[str]) -> Figure:
    """Draw rows by right and predicted class."""
    side = max(3.2, 0.42 * len(names) + 1.6)
    figure, axes = _axes(side, side)
    share = counts / np.maximum(counts.sum(1, keepdims=True), 1)
    axes.imshow(share, cmap="Blues", vmin=0, vmax=1)
    axes.grid(visible=False)
    for i, j in np.argwhere(counts):  # zeros stay empty
        colour = "white" if share[i, j] > 0.5 else "#222222"
        axes.text(j, i, f"{counts[i, j]}", ha="center", va="center", color=colour, fontsize=8)
    labels = [_label(name, 14) for name in names]
    places = range(len(names))
    axes.set_xticks(places, labels, rotation=45 if max(map(len, labels)) > 3 else 0, ha="right")
    axes.set_yticks(places, labels)
    axes.set(xlabel="predicted", ylabel="right")
    return figure


def draw_reliability(bins: np.ndarray) -> Figure:
    """Draw the share of right rows against predicted probabilities."""
    figure, axes = _axes(4.2, 4)
    known = bins[bins[:, 0] > 0]
    predicted, right = known[:, 1] / known[:, 0], known[:, 2] / known[:, 0]
    axes.plot([0, 1], [0, 1], color=GREY, linewidth=1)
    axes.plot(predicted, right, color=BLUE, linewidth=1)
    sizes = 20 + 180 * known[:, 0] / known[:, 0].max()
    axes.scatter(predicted, right, s=sizes, color=BLUE, zorder=3)
    axes.set(xlabel="predicted probability", ylabel="share of right rows", xlim=(0, 1.03))
    axes.set_ylim(0, 1.03)
    return figure


def draw_bars(labels: list[str], values: np.ndarray, title: str, most: int, width: float) -> Figure:
    """Draw the values that are largest in size."""
    values = values.ravel()
    order = np.argsort(-np.abs(values))[:most]
    figure, axes = _axes(width, 0.3 * len(order) + 0.9)
    places = range(len(order))
    axes.barh(places, values[order], color=[BLUE if v >= 0 else ORANGE for v in values[order]])
    axes.set_yticks(places, [_label(labels[i], 36) for i in order], fontsize=9)
    axes.invert_yaxis()
    axes.axvline(0, color=GREY, linewidth=0.8)
    axes.grid(visible=False, axis="y")
    axes.set_xlabel(title)
    return figure


def draw_importance_map(importance: np.ndarray, shape: tuple[int, ...]) -> Figure:
    """Draw the mean absolute contribution of each pixel."""
    figure, axes = _axes(3.2, 2.8)
    shown = axes.imshow(_flat(importance, shape), cmap="viridis")
    axes.set_axis_off()
    figure.colorbar(shown, ax=axes, shrink=0.8)
    return figure


def draw_heat_maps(image: np.ndarray, maps: list[tuple[str, np.ndarray]]) -> Figure:
    """Draw an image beside contributions of its pixels: blue for a class, orange against it."""
    from matplotlib.colors import LinearSegmentedColormap

    figure, (first, *others) = _axes(1.7 * (1 + len(maps)), 1.95, 1 + len(maps))
    grey = image.shape[0] not in (3, 4)
    first.imshow(image.mean(0) if grey else image.transpose(1, 2, 0), cmap="gray" if grey else None)
    first.set_title("image", fontsize=9)
    flat = [_flat(shares, image.shape) for _, shares in maps]
    bound = max(float(np.abs(shares).max()) for shares in flat) or 1.0
    colours = LinearSegmentedColormap.from_list("shares", [ORANGE, "white", BLUE])
    for axes, (title, _), shares in zip(others, maps, flat, strict=True):
        axes.imshow(shares, cmap=colours, vmin=-bound, vmax=bound)
        axes.set_title(_label(title, 18), fontsize=9)
    for axes in (first, *others):
        axes.set_axis_off()
    return figure


def _flat(shares: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """Add up channels, which are first as in an image of this shape, or last."""
    axis = 0 if shares.shape == tuple(shape) else -1
    return shares if shares.ndim == 2 else shares.sum(axis)


def _short(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"


def _label(text: str, most: int) -> str:
    """Return the start of a text for a figure, in which dollars do not enclose formulas."""
    return _short(text, most).replace("$", r"\$")
