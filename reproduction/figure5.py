"""Draw figure 5: filters learned by backpropagation and by inverted backpropagation.

The units are filters of the size of the image, which start small (``image_filters``). A third
panel, which the paper does not have, shows what was learned without what remains of the start:
``w − w₀ (w · w₀) / ‖w₀‖²`` for every unit.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np

from reproduction.experiment import Result
from reproduction.figures import DPI, NoResultsError, look
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
LEVELS = 32  # of each colour
WIDTH, HEIGHT, MARGIN = 600, 186, 20  # of a panel with its title, in pixels
PANEL = (540, 132)  # twice the pixels of a mosaic of 16 images of 32 x 32
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
        figure = Figure(figsize=(WIDTH * len(PANELS) / DPI, HEIGHT * len(data) / DPI))
        for row, name in enumerate(reversed(data)):
            for column, (method, title, learned) in enumerate(PANELS):
                if (name, method) in found:
                    # In whole pixels, so that every weight is a square of them.
                    left, bottom = column * WIDTH + MARGIN, row * HEIGHT + MARGIN
                    place = left / WIDTH / len(PANELS), bottom / HEIGHT / len(data)
                    size = PANEL[0] / WIDTH / len(PANELS), PANEL[1] / HEIGHT / len(data)
                    axes = figure.add_axes((*place, *size))
                    _panel(axes, found[name, method], f"{TITLES[name]}, {title}", learned)
    return figure


def _last_error(result: Result) -> float:
    """Return the test error of the last epoch, which is that of the filters."""
    return float(result.epochs[-1]["test_error"]) if result.epochs else result.best


def _panel(axes: Axes, record: Record, title: str, learned: bool) -> None:
    """Draw the filters of one network."""
    axes.set_axis_off()
    result = record.result
    if result is None or result.filters is None or result.filter_shape is None:
        return
    weights = np.array(result.filters)
    if learned:
        start = untrained(
            record.experiment, weights.shape[1], CLASSES, math.prod(result.filter_shape[1:])
        )
        left = (weights * start).sum(1) / (start * start).sum(1)
        weights -= start * left[:, None]
        title += f" ({100 * left.mean():.0f} % of the start remains)"
    else:
        title += f": error {100 * _last_error(result):.1f} %"
    axes.set_title(title, fontsize=9)
    colours = [coloured(w.reshape(result.filter_shape)) for w in weights]
    # Without interpolation, SVG files hold the pixels of the filters and not those of the screen.
    axes.imshow(mosaic(colours), interpolation="none")


def coloured(weight: np.ndarray) -> np.ndarray:
    """Return a filter of shape (channels, height, width) as colours of shape (height, width, 3).

    One channel is red where it is positive and blue where it is negative, three are colours around
    grey. Their 32 levels look like 256 and take half the space in files.
    """
    from matplotlib import colormaps

    value = 0.5 + 0.5 * weight / (abs(weight).max() or 1)
    if len(weight) == 1:
        colours = colormaps["RdBu_r"](value[0])[..., :3]
    else:
        colours = value.transpose(1, 2, 0)
    return np.round((LEVELS - 1) * colours) / (LEVELS - 1)


def mosaic(images: list[np.ndarray]) -> np.ndarray:
    """Return images beside and below each other, with white gaps, as one."""
    height, width, channels = images[0].shape
    gap = max(1, width // 16)
    rows, columns = len(images) // ACROSS, ACROSS
    shape = rows * (height + gap) - gap, columns * (width + gap) - gap, channels
    found = np.ones(shape)
    for number, image in enumerate(images):
        top, left = number // ACROSS * (height + gap), number % ACROSS * (width + gap)
        found[top : top + height, left : left + width] = image
    return found
