"""Draw ``docs/method.png`` and ``docs/method.svg``: ReLU units and tensor switching units.

python -m docs.draw_method
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch, Rectangle

from reproduction.figures import BLUE, GREEN, GREY, ORANGE, PURPLE, save_figure

INPUT = (BLUE, ORANGE, GREEN, PURPLE)  # one colour per input
OPEN = (True, False, True)
CELL = 0.34


def cells(
    axes: Axes, x: float, middle: float, colours: tuple[str, ...] | None, count: int = 1
) -> None:
    """Draw a column of numbers, or of zeros if there are no colours."""
    for i in range(len(colours) if colours else count):
        bottom = middle + CELL * ((len(colours) if colours else count) / 2 - 1 - i)
        style: dict[str, Any] = {"facecolor": colours[i]} if colours else {"facecolor": "#f2f2f2"}
        axes.add_patch(
            Rectangle(
                (x, bottom),
                CELL,
                CELL,
                edgecolor="white" if colours else "#cccccc",
                linewidth=1.2,
                **style,
            )
        )
        if not colours:
            axes.text(
                x + CELL / 2,
                bottom + CELL / 2,
                "0",
                ha="center",
                va="center",
                color="#aaaaaa",
                fontsize=8,
            )


def arrow(
    axes: Axes, start: tuple[float, float], end: tuple[float, float], on: bool = True
) -> None:
    style: dict[str, Any] = {
        "color": "#444444" if on else "#cccccc",
        "linestyle": "-" if on else (0, (3, 3)),
    }
    axes.add_patch(
        FancyArrowPatch(start, end, arrowstyle="-|>", mutation_scale=9, linewidth=1.2, **style)
    )


def panel(axes: Axes, copies: bool) -> None:
    axes.set_xlim(-0.3, 7.1)
    axes.set_ylim(-2.9, 3.1)
    axes.set_aspect("equal")
    axes.set_axis_off()
    cells(axes, 0, 0, INPUT)
    axes.text(CELL / 2, 0.95, "x", ha="center", style="italic", fontsize=12)
    for middle, on in zip((1.6, 0.0, -1.6), OPEN, strict=True):
        arrow(axes, (CELL + 0.1, 0), (1.75, middle))
        axes.add_patch(
            Rectangle(
                (1.8, middle - 0.42),
                1.3,
                0.84,
                facecolor="white",
                edgecolor="#444444",
                linewidth=1.2,
            )
        )
        axes.text(
            2.45,
            middle,
            "w·x > 0" if on else "w·x ≤ 0",
            ha="center",
            va="center",
            fontsize=9,
            color="#222222" if on else "#999999",
        )
        arrow(axes, (3.15, middle), (3.85, middle), on)
        if copies:
            cells(axes, 3.95, middle, INPUT if on else None, len(INPUT))
        else:
            cells(axes, 3.95, middle, (GREY,) if on else None)
        arrow(axes, (4.4, middle), (5.55, 0.25 * middle), on)
    axes.text(6.25, 0, "linear\nreadout", ha="center", va="center", fontsize=10)
    axes.add_patch(
        Rectangle((5.65, -0.5), 1.2, 1.0, facecolor="none", edgecolor="#444444", linewidth=1.2)
    )
    axes.text(
        3.4, 2.75, "Tensor switching" if copies else "ReLU", ha="center", fontsize=13, weight="bold"
    )
    words = (
        "an open unit passes on a copy of its whole input"
        if copies
        else "an open unit passes on one number, w·x"
    )
    axes.text(3.4, -2.75, words, ha="center", fontsize=10)


def draw() -> Figure:
    figure = Figure(figsize=(10.5, 4.4), layout="constrained")
    for axes, copies in zip(figure.subplots(1, 2), (False, True), strict=True):
        panel(axes, copies)
    return figure


if __name__ == "__main__":
    for path in save_figure(draw(), Path(__file__).parent, "method"):
        print(path)
