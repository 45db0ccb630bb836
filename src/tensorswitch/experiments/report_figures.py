"""The figures of the report of a comparison."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tensorswitch.experiments.figures import BLUE, COLOURS, GREY, ORANGE, show_filter
from tensorswitch.experiments.method_records import MethodRecord
from tensorswitch.experiments.methods import COMPARED
from tensorswitch.experiments.metrics import number

if TYPE_CHECKING:
    from matplotlib.figure import Figure

BARS = 8  # features of an explanation that are shown
LONGEST = 28  # characters of a label


def times(records: list[MethodRecord], numbers: bool) -> Figure:
    """Draw the error of each method against the time of its fit.

    Parameters
    ----------
    records : list of MethodRecord
        Finished records.
    numbers : bool
        Whether it is a regression, whose error is 1 − R².

    Returns
    -------
    Figure
        The figure.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5.6, 5), layout="constrained")
    axes = figure.subplots()
    factor = 1.0 if numbers else 100.0
    for record in (r for r in records if np.isfinite(r.error)):
        colour = COLOURS.get(record.method, GREY)
        curve = record.results[0].curve
        if curve:
            line = [
                (max(p["seconds"], 1e-3), np.nan if p["error"] is None else factor * p["error"])
                for p in curve
            ]
            axes.plot(*zip(*line, strict=True), color=colour, linewidth=1, alpha=0.6)
        marker = "o" if COMPARED[record.method].own else "s"
        axes.plot(
            max(record.seconds, 1e-3),
            factor * record.error,
            marker,
            color=colour,
            markersize=8,
            label=record.label,
            linestyle="none",
        )
    if errors := [factor * r.error for r in records if np.isfinite(r.error)]:
        top = max(min(max(errors), 4 * float(np.median(errors)) + 1e-9), 1.2 * min(errors) + 1e-9)
        axes.set_ylim(-0.04 * top, 1.15 * top)  # a method without errors is visible, too
    axes.set(xscale="log", xlabel="seconds")
    axes.set_ylabel("1 − R²" if numbers else "test error, %")
    axes.xaxis.set_major_formatter("{x:g}")
    figure.legend(frameon=False, fontsize=9, loc="outside lower center", ncols=3)
    return figure


def confusion(counts: np.ndarray, names: tuple[str, ...]) -> Figure:
    """Draw a confusion matrix.

    Parameters
    ----------
    counts : ndarray of int of shape (classes, classes)
        Rows by right and predicted class.
    names : tuple of str
        Names of the classes.

    Returns
    -------
    Figure
        The figure.
    """
    from matplotlib.figure import Figure

    side = max(3.2, 0.42 * len(names) + 1.6)
    figure = Figure(figsize=(side, side), layout="constrained")
    axes = figure.subplots()
    share = counts / np.maximum(counts.sum(1, keepdims=True), 1)
    axes.imshow(share, cmap="Blues", vmin=0, vmax=1)
    axes.grid(visible=False)
    for (i, j), n in np.ndenumerate(counts):
        if n:
            colour = "white" if share[i, j] > 0.5 else "#222222"
            axes.text(j, i, f"{n}", ha="center", va="center", color=colour, fontsize=8)
    labels = [_label(name, 14) for name in names]
    places = range(len(names))
    axes.set_xticks(places, labels, rotation=45 if max(map(len, labels)) > 3 else 0, ha="right")
    axes.set_yticks(places, labels)
    axes.set(xlabel="predicted", ylabel="right")
    return figure


def reliability(bins: np.ndarray) -> Figure:
    """Draw the share of right rows against predicted probabilities.

    Parameters
    ----------
    bins : ndarray of shape (bins, 3)
        Rows, sum of their probabilities and number of right ones.

    Returns
    -------
    Figure
        The figure.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(4.2, 4), layout="constrained")
    axes = figure.subplots()
    known = bins[bins[:, 0] > 0]
    predicted, right = known[:, 1] / known[:, 0], known[:, 2] / known[:, 0]
    axes.plot([0, 1], [0, 1], color=GREY, linewidth=1)
    axes.plot(predicted, right, color=BLUE, linewidth=1)
    sizes = 20 + 180 * known[:, 0] / known[:, 0].max()
    axes.scatter(predicted, right, s=sizes, color=BLUE, zorder=3)
    axes.set(xlabel="predicted probability", ylabel="share of right rows", xlim=(0, 1.03))
    axes.set_ylim(0, 1.03)
    return figure


def importance_bars(importance: np.ndarray, names: list[str] | None) -> Figure:
    """Draw the mean absolute contribution of the most important features.

    Parameters
    ----------
    importance : ndarray of shape (features,)
        Mean absolute contributions.
    names : list of str or None
        Names of the features.

    Returns
    -------
    Figure
        The figure.
    """
    order = np.argsort(-importance)[: 2 * BARS]
    labels = [names[i] if names else f"feature {i}" for i in order]
    return _bars(labels, importance[order], "mean absolute contribution", 7)


def row_bars(values: list[str], shares: np.ndarray) -> Figure:
    """Draw the largest contributions of one row.

    Parameters
    ----------
    values : list of str
        Names and values of the features.
    shares : ndarray of shape (features,)
        Their contributions.

    Returns
    -------
    Figure
        The figure.
    """
    order = np.argsort(-np.abs(shares))[:BARS]
    return _bars([values[i] for i in order], shares[order], "contribution", 5)


def row_values(rows: Any, row: int, names: list[str] | None, count: int) -> list[str]:
    """Return the features of a row with their values.

    Parameters
    ----------
    rows : DataFrame or ndarray
        Raw rows.
    row : int
        Which one.
    names : list of str or None
        Columns of a table.
    count : int
        Number of features.

    Returns
    -------
    list of str
        Such as "age = 31".
    """
    if names is None:
        return [
            f"feature {i} = {number(v)}"
            for i, v in zip(range(count), rows[row].ravel(), strict=False)
        ]
    words = []
    for name in names:
        value = rows[name].iloc[row]
        text = f"{value:.10g}" if isinstance(value, float) else str(value)
        text = "?" if text in ("nan", "NaT", "None") else text
        words.append(f"{_short(name, 18)} = {_short(text, 14)}")
    return words


def _bars(labels: list[str], values: np.ndarray, xlabel: str, width: float) -> Figure:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, 0.3 * len(labels) + 0.9), layout="constrained")
    axes = figure.subplots()
    colours = [BLUE if v >= 0 else ORANGE for v in values]
    places = range(len(labels))
    axes.barh(places, values, color=colours)
    axes.set_yticks(places, [_label(label, LONGEST + 8) for label in labels], fontsize=9)
    axes.invert_yaxis()
    axes.axvline(0, color=GREY, linewidth=0.8)
    axes.grid(visible=False, axis="y")
    axes.set_xlabel(xlabel)
    return figure


def importance_map(importance: np.ndarray, shape: tuple[int, ...]) -> Figure:
    """Draw the mean absolute contribution of each pixel.

    Parameters
    ----------
    importance : ndarray of shape (channels, height, width) or (height, width, channels)
        Mean absolute contributions.
    shape : tuple of int
        Shape of an image: channels, height and width.

    Returns
    -------
    Figure
        The figure.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(3.2, 2.8), layout="constrained")
    axes = figure.subplots()
    shown = axes.imshow(_flat(importance, shape), cmap="viridis")
    axes.set_axis_off()
    figure.colorbar(shown, ax=axes, shrink=0.8)
    return figure


def heat_maps(image: np.ndarray, maps: list[tuple[str, np.ndarray]]) -> Figure:
    """Draw an image beside the contributions of its pixels.

    Parameters
    ----------
    image : ndarray of shape (channels, height, width)
        The image.
    maps : list of tuple of str and ndarray
        Titles and contributions; blue is evidence for a class and orange against it.

    Returns
    -------
    Figure
        The figure.
    """
    from matplotlib.colors import LinearSegmentedColormap
    from matplotlib.figure import Figure

    figure = Figure(figsize=(1.7 * (1 + len(maps)), 1.95), layout="constrained")
    first, *others = figure.subplots(1, 1 + len(maps))
    grey = image.shape[0] not in (3, 4)
    shown = image.mean(0) if grey else image.transpose(1, 2, 0)
    first.imshow(shown, cmap="gray" if grey else None)
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


def filters(images: np.ndarray) -> Figure:
    """Draw filters in two rows.

    Parameters
    ----------
    images : ndarray of shape (units, height, width, channels)
        The filters.

    Returns
    -------
    Figure
        The figure.
    """
    from matplotlib.figure import Figure

    across = (len(images) + 1) // 2
    figure = Figure(figsize=(7, 7 / across * 2), layout="constrained")
    places: Any = figure.subplots(2, across, squeeze=False).ravel()
    for axes in places:
        axes.set_axis_off()
    for axes, image in zip(places, images, strict=False):
        show_filter(axes, image)
    return figure


def _flat(shares: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """Add up channels, which are first as in an image of this shape, or last."""
    if shares.ndim == 2:
        return shares
    total: np.ndarray = shares.sum(0 if shares.shape == shape else -1)
    return total


def _short(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"


def _label(text: str, most: int) -> str:
    """Return the start of a text for a figure, in which dollars do not enclose formulas."""
    return _short(text, most).replace("$", r"\$")
