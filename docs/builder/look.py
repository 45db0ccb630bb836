"""Figures of the gallery that can be read on a light and on a dark page."""

from __future__ import annotations

from typing import Any

from matplotlib import rcParams

INK = "#7a7a7a"  # in the middle between white and furo's dark background


def reset(gallery: dict[str, Any], name: str) -> None:
    """Set the style before each example: no background, and grey text."""
    rcParams.update(
        {
            "text.color": INK,
            "axes.labelcolor": INK,
            "axes.edgecolor": INK,
            "axes.titlecolor": INK,
            "legend.labelcolor": INK,
            "xtick.color": INK,
            "ytick.color": INK,
            "savefig.transparent": True,
            "figure.facecolor": "none",
            "axes.facecolor": "none",
            "legend.framealpha": 0.0,
            "legend.edgecolor": "none",
            "axes.spines.top": False,
            "axes.spines.right": False,
            "grid.color": INK,
            "grid.alpha": 0.3,
            "font.size": 10,
            "figure.constrained_layout.use": True,
        }
    )
