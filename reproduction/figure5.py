"""Draw figure 5: filters learned by backpropagation and by inverted backpropagation.

Inverted backpropagation changes gates slowly, so much of their random initialisation remains. A
third panel, which the paper does not have, shows the filters without it:
``w − w₀ (w · w₀) / ‖w₀‖²`` for every unit.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from reproduction.experiment import Result
from reproduction.figures import NoResultsError, look
from reproduction.records import Record
from reproduction.running import FILTER_UNITS, untrained
from reproduction.table1 import TITLES

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

CAPTION = (
    "Weights of 16 hidden units on pixels, learned by backpropagation (left) and by inverted "
    "backpropagation (middle). The right panel shows the latter without the remainder of their "
    "random initialisation. For images of one channel, red is positive and blue negative."
)
UNITS, ACROSS, CLASSES = FILTER_UNITS, 8, 10
PANELS = (
    ("ss", "backpropagation", False),
    ("ts-ibp", "inverted backpropagation", False),
    ("ts-ibp", "learned part", True),
)


def draw(records: Iterable[Record]) -> Figure:
    """Draw a row of panels for every data set, with test errors."""
    from matplotlib.figure import Figure

    found: dict[tuple[str, str], Record] = {}
    for record in sorted(records, key=lambda r: r.experiment.epochs):  # the longest run wins
        e = record.experiment
        if (
            record.result is not None
            and e.method in ("ss", "ts-ibp")
            and e.width == UNITS
            and e.depth == 1
            and e.components is None
        ):
            found[e.data, e.method] = record
    data = [d for d in TITLES if any(d == name for name, _ in found)]
    if not data:
        raise NoResultsError(
            "the results contain no networks of 16 units on pixels; "
            "run `python -m reproduction figure5` first"
        )
    with look():
        figure = Figure(figsize=(13, 1.5 * len(data)))
        rows = figure.subfigures(len(data), len(PANELS), squeeze=False)
        for row, name in zip(rows, data, strict=True):
            for panel, (method, title, learned) in zip(row, PANELS, strict=True):
                if (name, method) in found:
                    _panel(panel, found[name, method], f"{TITLES[name]}, {title}", learned)
    return figure


def _last_error(result: Result) -> float:
    """Return the test error of the last epoch, which is that of the filters."""
    return float(result.epochs[-1]["test_error"]) if result.epochs else result.best


def _panel(panel: Figure, record: Record, title: str, learned: bool) -> None:
    """Draw the filters of one network."""
    result = record.result
    if result is None or result.filters is None or result.filter_shape is None:
        return
    weights = np.array(result.filters)
    if learned:
        start = untrained(record.experiment, weights.shape[1], CLASSES)[: len(weights)]
        left = (weights * start).sum(1) / (start * start).sum(1)
        weights -= start * left[:, None]
        title += f" ({100 * left.mean():.0f} % of the start remains)"
    else:
        title += f": error {100 * _last_error(result):.1f} %"
    panel.suptitle(title, fontsize=9, y=0.99)
    # Fixed positions, because matplotlib's layout engine differs in the last digits between runs,
    # and equal figures should give equal files.
    places: Any = {"left": 0.02, "right": 0.98, "bottom": 0.05, "top": 0.82}
    grid = panel.subplots(
        UNITS // ACROSS, ACROSS, gridspec_kw={**places, "wspace": 0.06, "hspace": 0.06}
    )
    images = weights.reshape(-1, *result.filter_shape).transpose(0, 2, 3, 1)
    for axes, image in zip(grid.flat, images, strict=True):
        _show(axes, image)


def _show(axes: Axes, image: np.ndarray) -> None:
    """Draw a filter: red and blue for signs of one channel, colours around grey for three."""
    bound = abs(image).max() or 1
    # Without interpolation, SVG files hold the pixels of the filter and not those of the screen.
    if image.shape[2] == 1:
        signs: Any = {"cmap": "RdBu_r", "vmin": -bound, "vmax": bound}
        axes.imshow(image[..., 0], interpolation="none", **signs)
    else:
        axes.imshow(0.5 + 0.5 * image / bound, interpolation="none")
    axes.set_axis_off()
