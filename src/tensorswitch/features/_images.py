"""Images as tensors: layout, size, and the range of their pixels."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from tensorswitch._checks import check_floating, check_shape

CHANNELS = (1, 3, 4)  # numbers of channels by which layouts are told apart
MOST_PIXELS = 48  # along an axis; larger images are reduced
FEWEST_PIXELS = 12  # that squares must leave of the shorter side
LARGEST_FRACTION = 1.5  # of pixels between 0 and 1, with some room for interpolation


def as_images(array: Any, image_shape: tuple[int, ...] | None = None) -> Tensor:
    """Return images as a tensor of float32, of shape (n, channels, height, width).

    Parameters
    ----------
    array : array-like of shape (n, height, width), (n, height, width, channels) or (n, features)
        Bytes (uint8) are divided by 255; other values are taken as they are. Images of shape
        (n, channels, height, width) are recognised if there are 1, 3 or 4 channels.
    image_shape : tuple of int, optional
        (height, width) or (height, width, channels) of flat rows.
    """
    array = np.asarray(array)
    if array.dtype == object or array.dtype.kind not in "buif":
        what = f"got an array of {array.dtype}; are they all of one size, and not sparse?"
        raise ValueError(f"images must be numbers, {what}")
    if array.ndim == 2:
        if image_shape is None or len(image_shape) not in (2, 3):
            what = "image_shape=(height, width) or (height, width, channels)"
            raise ValueError(f"flat rows of shape {array.shape} need {what}, got {image_shape!r}")
        if math.prod(image_shape) != array.shape[1]:
            what = f"image_shape {tuple(image_shape)} has {math.prod(image_shape)}"
            raise ValueError(f"rows have {array.shape[1]} values, but {what}")
        array = array.reshape(len(array), *image_shape)
    if array.ndim == 3:
        array = array[..., None]
    if array.ndim != 4:
        what = "(n, height, width) or (n, height, width, channels)"
        raise ValueError(f"images must have the shape {what}, got {array.shape}")
    if not channels_first(array.shape):
        array = array.transpose(0, 3, 1, 2)
    images = torch.from_numpy(np.array(array, dtype=np.float32, order="C"))
    if array.dtype == np.uint8:
        images /= 255
    elif not bool(images.isfinite().all()):
        raise ValueError("images contain NaN or infinity")
    return images


def check_images(images: Tensor, image_shape: Sequence[int | None] = (None,) * 3) -> None:
    """Raise unless these are images as tensors, of a shape if it is known."""
    check_floating("images", images)
    check_shape("images", images, (None, *image_shape), "(images, channels, height, width)")


def channels_first(shape: tuple[int, ...]) -> bool:
    """Return whether the second axis has 1, 3 or 4 entries and the last one has not."""
    return len(shape) == 4 and shape[1] in CHANNELS and shape[3] not in CHANNELS


def reduced(images: Tensor) -> Tensor:
    """Average large images over squares, so that they have at most 48 pixels along an axis."""
    factors = reduction(*images.shape[2:])
    return images if max(factors) <= 1 else F.avg_pool2d(images, factors)


def reduction(height: int, width: int) -> tuple[int, int]:
    """Return how many pixels of each axis :func:`reduced` averages."""
    down, across = (max(1, -(-side // MOST_PIXELS)) for side in (height, width))
    both = max(down, across)
    # Squares would leave little of the shorter side of images that are very long.
    return (both, both) if min(height, width) // both >= FEWEST_PIXELS else (down, across)


def pixel_range(images: np.ndarray) -> tuple[float, float]:
    """Return what pixels are divided by, 255 for bytes, and the largest of them after that."""
    if images.dtype == np.uint8:
        return 255.0, 1.0
    return 1.0, float(np.abs(images).max(initial=0))


def check_pixels(unit: float, largest: float, learned_unit: float, learned: float) -> None:
    """Raise if bytes and numbers that are no fractions of 255 were mixed, in either order."""
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
