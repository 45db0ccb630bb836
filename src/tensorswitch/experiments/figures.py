"""What the figures have in common: their look, filters as pictures, and how they are kept."""

from __future__ import annotations

import base64
import importlib.util
import io
import math
from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from markupsafe import Markup

from tensorswitch._files import make_folder, replacing

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Colours that stay apart in the common kinds of colour blindness (Okabe and Ito).
BLUE, ORANGE, GREEN, PURPLE, GREY = "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#666666"
COLOURS = {
    "ss": GREY,
    "ts-lrc": BLUE,
    "ts-ibp-lrc": ORANGE,
    "ts-ibp": GREEN,
    "cnn-ss": GREY,
    "cnn-ts-lrc": BLUE,
    "cnn-ts-ibp-lrc": ORANGE,
}


def can_draw() -> bool:
    """Whether matplotlib is installed."""
    return importlib.util.find_spec("matplotlib") is not None


MISSING = (
    "figures are drawn with matplotlib, which is not installed: pip install 'tensorswitch[plots]'"
)


def look() -> AbstractContextManager[None]:
    """The settings that figures are drawn and written with."""
    import matplotlib as mpl

    plain: Any = {
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.grid": True,
        "grid.alpha": 0.3,
    }
    return mpl.rc_context({"font.size": 10, "svg.hashsalt": "tensorswitch", **plain})


def save_figure(figure: Figure, folder: Path, name: str) -> list[Path]:
    """Write PNG and SVG."""
    make_folder(folder)
    paths = [folder / f"{name}.{kind}" for kind in ("png", "svg")]
    for path in paths:
        kind = path.suffix[1:]
        with (
            replacing(path) as partial,
            look(),
        ):  # without a date and with fixed names, the same figure is the same file
            figure.savefig(
                partial, format=kind, dpi=150, metadata={"Date": None} if kind == "svg" else None
            )
    return paths


def embedded(figure: Figure, alt: str) -> Markup:
    """Return the figure as an HTML image that needs no other file."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=150)
    content = base64.b64encode(buffer.getvalue()).decode()
    return Markup('<img alt="{}" src="data:image/png;base64,{}">').format(alt, content)


def as_images(
    filters: list[list[float]] | None, shape: Sequence[int] | None = None
) -> np.ndarray | None:
    """Weights as pictures (units, height, width, channels) of one or three channels, if that is what they are; without a shape, as square ones."""
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
    """Red positive and blue negative, or in colours around grey."""
    bound = abs(image).max() or 1
    if image.shape[2] == 1:
        axes.imshow(image[..., 0], cmap="RdBu_r", vmin=-bound, vmax=bound, interpolation="nearest")
    else:
        axes.imshow(0.5 + 0.5 * image / bound, interpolation="nearest")
    axes.set_axis_off()
