"""The range of pixels: bytes, which are divided by 255, or numbers that are taken as they are."""

from __future__ import annotations

import numpy as np

__all__ = ["check_pixels", "pixel_range"]

LARGEST_FRACTION = 1.5  # of pixels between 0 and 1, with some room for interpolation


def pixel_range(images: np.ndarray) -> tuple[float, float]:
    """Return what pixels are divided by, and the largest of them after that.

    Parameters
    ----------
    images : ndarray
        Images.

    Returns
    -------
    unit : float
        255 for bytes (uint8), otherwise 1.
    largest : float
        The largest absolute value; 1 for bytes.
    """
    if images.dtype == np.uint8:
        return 255.0, 1.0
    return 1.0, float(np.abs(images).max(initial=0))


def check_pixels(unit: float, largest: float, learned_unit: float, learned: float) -> None:
    """Raise if bytes and numbers that are no fractions of 255 were mixed.

    Parameters
    ----------
    unit, largest : float
        The range of images, from :func:`pixel_range`.
    learned_unit, learned : float
        The range of the images that the model was fitted to.

    Raises
    ------
    ValueError
        If the ranges differ.
    """
    if unit < learned_unit and largest > LARGEST_FRACTION:
        raise ValueError(
            f"images have values up to {largest:g}, but the model was fitted to bytes (uint8), "
            "which are divided by 255; pass bytes, or divide by 255"
        )
    if unit > learned_unit and learned > LARGEST_FRACTION:
        raise ValueError(
            f"images are bytes (uint8), which are divided by 255, but the model was fitted to "
            f"values up to {learned:g} of another type; convert them to that type"
        )
