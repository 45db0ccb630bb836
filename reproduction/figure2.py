"""Draw figure 2: the equivalent kernels against the angle between unit vectors.

A second panel, which the paper does not have, shows their limits at great depth.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from reproduction.figures import BLUE, GREY, ORANGE
from tensorswitch.kernels import equivalent_kernels

if TYPE_CHECKING:
    from matplotlib.figure import Figure

CAPTION = (
    "Equivalent kernels of infinitely wide networks against the angle between two vectors: "
    "as published, and at great depth."
)

PUBLISHED, DEEP = (1, 2, 3), (1, 3, 10, 100)
SS, TS, LINEAR = BLUE, ORANGE, GREY  # line styles or labels show the depth
STYLES = {1: "-", 2: "--", 3: ":"}


def curves(depths: tuple[int, ...], angles: np.ndarray) -> dict[tuple[str, int], np.ndarray]:
    """Return ``k(x, y)`` for unit vectors at the given angles, by kind and depth."""
    y = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    return {
        key: K[0] for key, K in equivalent_kernels(np.array([[1.0, 0.0]]), y, depths=depths).items()
    }


def draw() -> Figure:
    """Draw both panels."""
    from matplotlib.figure import Figure

    angles = np.linspace(0, np.pi, 1001)
    figure = Figure(figsize=(9.5, 4), layout="constrained")
    left, right = figure.subplots(1, 2)
    left.plot(angles, np.cos(angles), color=LINEAR, linewidth=1.2, label="linear")
    for (kind, depth), k in curves(PUBLISHED, angles).items():
        colour = SS if kind == "ss" else TS
        left.plot(
            angles,
            k,
            color=colour,
            linestyle=STYLES[depth],
            linewidth=2,
            label=f"{kind.upper()}, L = {depth}",
        )
    left.legend(frameon=False, ncols=1, loc="lower left", fontsize=9)
    left.set_title("As in the paper", fontsize=11)

    for number, depth in enumerate(DEEP):
        deep = curves((depth,), angles)
        shade = 0.4 + 0.6 * number / (len(DEEP) - 1)
        right.plot(angles, deep["ss", depth], color=SS, alpha=shade, linewidth=2)
        right.plot(angles, deep["ts", depth], color=TS, alpha=shade, linewidth=2)
        right.annotate(
            f"{depth}",
            (np.pi, deep["ss", depth][-1]),
            xytext=(4, 0),
            textcoords="offset points",
            color=SS,
            va="center",
            fontsize=9,
        )
        at = angles[np.argmin(abs(deep["ts", depth] - 0.3))]  # puts the label next to the curve
        right.annotate(
            f"{depth}",
            (at, 0.3),
            xytext=(4, 0),
            textcoords="offset points",
            color=TS,
            va="bottom",
            fontsize=9,
        )
    right.text(2.3, 0.72, "SS tends to 1 everywhere", color=SS, ha="center", fontsize=9)
    right.text(2.3, -0.26, "TS tends to 0 except at θ = 0", color=TS, ha="center", fontsize=9)
    right.set_ylim(-0.32, 1.08)
    right.set_title("Great depth (labels show L)", fontsize=11)
    for axes in (left, right):
        _angle_axis(axes)
    left.set_ylabel("k(x, y) for unit vectors")
    return figure


def _angle_axis(axes: Any) -> None:
    """Label the axis of angles."""
    axes.set_xticks(
        [0, np.pi / 4, np.pi / 2, 3 * np.pi / 4, np.pi], ["0", "π/4", "π/2", "3π/4", "π"]
    )
    axes.set_xlim(0, np.pi)
    axes.set_xlabel("angle θ between x and y")
    axes.axhline(0, color="#bbbbbb", linewidth=0.8, zorder=0)
    axes.spines[["top", "right"]].set_visible(False)
