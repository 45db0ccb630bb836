"""The style of all figures, and saving them as files."""

from __future__ import annotations

import io
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reproduction.files import make_folder, write

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# A palette that is safe for common kinds of colour blindness (Okabe and Ito).
BLUE, ORANGE, GREEN, PURPLE, GREY = "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#666666"
KINDS = ("png", "svg")
DPI = 150


class NoResultsError(ValueError):
    """Raised if there are no results to draw."""


def look() -> AbstractContextManager[None]:
    """Apply the matplotlib settings of all figures."""
    import matplotlib as mpl

    settings: Any = {
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.grid": True,
        "grid.alpha": 0.3,
        "font.size": 10,
        "svg.hashsalt": "tensorswitch",  # equal figures give equal names of elements
    }
    return mpl.rc_context(settings)


def save_figure(figure: Figure, folder: Path, name: str) -> list[Path]:
    """Write a figure as PNG and SVG; equal figures give equal files."""
    make_folder(folder)
    paths = [folder / f"{name}.{kind}" for kind in KINDS]
    for path, kind in zip(paths, KINDS, strict=True):
        buffer = io.BytesIO()
        options: dict[str, Any] = {"metadata": {"Date": None}} if kind == "svg" else {}
        with look():
            figure.savefig(buffer, format=kind, dpi=DPI, **options)
        write(path, buffer.getvalue() if kind == "svg" else _small(buffer, figure))
    return paths


def _small(png: io.BytesIO, figure: Figure) -> bytes:
    """Return a PNG without transparency; of drawings, with a palette of 256 colours."""
    from PIL import Image

    image = Image.open(png).convert("RGB")
    if not any(axes.images for axes in figure.axes):
        image = image.quantize(256, dither=Image.Dither.NONE)
    buffer = io.BytesIO()
    image.save(buffer, "png", optimize=True)
    return buffer.getvalue()
