"""Filters of 16 hidden units, learned by backpropagation and by inverted backpropagation: the paper's figure 5."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from tensorswitch._figures import as_images, look, show_filter
from tensorswitch.paper import NoResultsError
from tensorswitch.paper.table1 import NAMES
from tensorswitch.records import Record

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["CAPTION", "UNITS", "draw"]

CAPTION = "Weights of the 16 hidden units of one layer on pixels. With one channel red is positive and blue negative."

UNITS, ACROSS = 16, 8
TITLES = {"ss": "Backpropagation (SS)", "ts-ibp": "Inverted backpropagation (TS IBP)"}


def draw(records: Iterable[Record]) -> Figure:
    """A row of panels for each data set: SS at the left, TS IBP at the right, each with its test error."""
    from matplotlib.figure import Figure

    found = {}
    for record in sorted(records, key=lambda r: r.experiment.epochs):  # the longest run is the one that stays
        e = record.experiment
        if record.result is not None and e.method in TITLES and e.width == UNITS and e.depth == 1 and e.components is None:
            found[e.data, e.method] = record.result
    data = list(dict.fromkeys(d for d, _ in found))
    if not data:
        raise NoResultsError("there are no networks of 16 units on pixels among the results; run `tensorswitch paper figure5` first")
    with look():
        figure = Figure(figsize=(9.5, 1.5 * len(data)), layout="constrained")
        figure.get_layout_engine().set(h_pad=0.02, hspace=0.02)  # type: ignore[union-attr, call-arg]
        panels = figure.subfigures(len(data), len(TITLES), squeeze=False, wspace=0.04)
        for row, name in zip(panels, data, strict=True):
            for panel, (method, title) in zip(row, TITLES.items(), strict=True):
                result = found.get((name, method))
                images = None if result is None else as_images(result.filters, result.filter_shape)
                if result is None or images is None:
                    continue
                panel.suptitle(f"{NAMES.get(name, name)}, {title}: error {100 * result.best:.1f} %", fontsize=9)
                for axes, image in zip(panel.subplots(UNITS // ACROSS, ACROSS).flat, images, strict=True):
                    show_filter(axes, image)
    return figure
