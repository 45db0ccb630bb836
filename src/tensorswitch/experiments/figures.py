"""Shared helpers for figures: style, filters as images, saving and embedding."""

from __future__ import annotations

import base64
import importlib.util
import io
import math
import warnings
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from markupsafe import Markup

from tensorswitch._files import make_folder, replacing

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# A palette that is safe for common kinds of colour blindness (Okabe and Ito).
BLUE, ORANGE, GREEN, PURPLE, GREY = "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#666666"
SKY, YELLOW = "#56b4e9", "#e69f00"
COLOURS = {
    "ss": GREY,
    "ss+ts": "#b0305f",
    "ts-lrc": BLUE,
    "ts-ibp-lrc": ORANGE,
    "ts-ibp": GREEN,
    "linear": SKY,
    "forest": YELLOW,
    "boosting": PURPLE,
    "svm": "#a65628",
    "mlp": "#999999",
    "rr": "#e41a1c",
    "kernel-ridge": "#8a4fff",
    "svm-ss": "#7d8fd6",
    "svm-ts": "#117733",
    "conv-rr": "#ff7f00",
    "cnn-ss": GREY,
    "cnn-ts-lrc": BLUE,
    "cnn-ts-ibp-lrc": ORANGE,
}


def can_draw() -> bool:
    """Return whether matplotlib is installed.

    Returns
    -------
    bool
        True if figures can be drawn.
    """
    return importlib.util.find_spec("matplotlib") is not None


MISSING = "drawing figures needs matplotlib; install it with: pip install 'tensorswitch[plots]'"


def look(dark: bool = False) -> AbstractContextManager[None]:
    """Apply the matplotlib settings of all figures.

    Parameters
    ----------
    dark : bool, default=False
        Whether they are for a dark page.

    Returns
    -------
    context manager
        The settings hold until it is left.
    """
    import matplotlib as mpl

    plain: Any = {
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.grid": True,
        "grid.alpha": 0.3,
    }
    if dark:
        light = ("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color")
        plain.update({**dict.fromkeys(light, "#dddddd"), "grid.color": "#888888"})
        plain.update({"figure.facecolor": "#1b1b1b", "axes.facecolor": "#1b1b1b"})
    return mpl.rc_context({"font.size": 10, "svg.hashsalt": "tensorswitch", **plain})


def for_both_schemes(draw: Callable[[], Figure], alt: str) -> Markup:
    """Return a figure as an HTML picture, in a light and a dark version.

    Parameters
    ----------
    draw : callable
        Returns the figure; it is called once for each version.
    alt : str
        Alternative text.

    Returns
    -------
    Markup
        A ``picture`` element.
    """
    sources = []
    for dark in (False, True):
        with look(dark):
            sources.append(_png(draw()))
    template = (
        '<picture><source media="(prefers-color-scheme: dark)" srcset="{}">'
        '<img alt="{}" src="{}"></picture>'
    )
    return Markup(template).format(sources[1], alt, sources[0])


def _png(figure: Figure, dpi: int = 130) -> str:
    """Return a figure as the address of inline data."""
    buffer = io.BytesIO()
    with warnings.catch_warnings():  # words in other scripts may have no glyphs
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        figure.savefig(buffer, format="png", dpi=dpi)
    return f"data:image/png;base64,{base64.b64encode(buffer.getvalue()).decode()}"


def save_figure(figure: Figure, folder: Path, name: str) -> list[Path]:
    """Write a figure as PNG and SVG.

    Parameters
    ----------
    figure : matplotlib.figure.Figure
        The figure.
    folder : Path
        Output folder; it is created if needed.
    name : str
        File name without suffix.

    Returns
    -------
    list of Path
        The two files.
    """
    make_folder(folder)
    paths = [folder / f"{name}.{kind}" for kind in ("png", "svg")]
    for path in paths:
        kind = path.suffix[1:]
        # No date and fixed element names, so that equal figures give equal files.
        metadata = {"Date": None} if kind == "svg" else None
        with replacing(path) as partial, look():
            figure.savefig(partial, format=kind, dpi=150, metadata=metadata)
    return paths


def embedded(figure: Figure, alt: str) -> Markup:
    """Return a figure as an HTML image with inline data.

    Parameters
    ----------
    figure : matplotlib.figure.Figure
        The figure.
    alt : str
        Alternative text.

    Returns
    -------
    Markup
        An ``img`` element.
    """
    return Markup('<img alt="{}" src="{}">').format(alt, _png(figure, 150))


def as_images(
    filters: list[list[float]] | None, shape: Sequence[int] | None = None
) -> np.ndarray | None:
    """Reshape weights to images of one or three channels.

    Parameters
    ----------
    filters : list of list of float, or None
        Weights of shape (units, pixels).
    shape : sequence of int, default=None
        Number of channels, height and width. If None, images are assumed to be square.

    Returns
    -------
    ndarray of shape (units, height, width, channels), or None
        The images; None if the weights do not have the size of an image.
    """
    if not filters:
        return None
    weights = np.array(filters)
    if shape is None:
        sides = {channels: math.isqrt(weights.shape[1] // channels) for channels in (1, 3)}
        shape = next(
            (
                [c, side, side]
                for c, side in sides.items()
                if c * side * side == weights.shape[1] and side > 1
            ),
            None,
        )
    if shape is None or shape[0] not in (1, 3) or math.prod(shape) != weights.shape[1]:
        return None
    return weights.reshape(-1, *shape).transpose(0, 2, 3, 1)


def show_filter(axes: Any, image: np.ndarray) -> None:
    """Draw a filter: red and blue for signs of one channel, colours around grey for three.

    Parameters
    ----------
    axes : matplotlib.axes.Axes
        Where to draw.
    image : ndarray of shape (height, width, channels)
        The filter.
    """
    bound = abs(image).max() or 1
    if image.shape[2] == 1:
        axes.imshow(image[..., 0], cmap="RdBu_r", vmin=-bound, vmax=bound, interpolation="nearest")
    else:
        axes.imshow(0.5 + 0.5 * image / bound, interpolation="nearest")
    axes.set_axis_off()
