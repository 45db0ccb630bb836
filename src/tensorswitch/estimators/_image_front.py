"""The steps between images and the readout."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from tensorswitch.estimators._front import Scaling
from tensorswitch.features import PatchBank2d, as_images
from tensorswitch.switches import AllOpen, Switch

LARGEST_FRACTION = 1.5  # of pixels between 0 and 1, with some room for interpolation


class ImageFront(NamedTuple):
    """The steps before the readout: images from flat rows, patch features, scaling."""

    bank: PatchBank2d
    centre: Tensor
    factor: Tensor
    image_shape: tuple[int, int, int]  # height, width, channels
    flips: bool
    intercept: bool
    gate_weights: list[Tensor]
    scaling: Scaling
    switch: Switch = AllOpen()

    def images(self, X: np.ndarray) -> Tensor:
        """Return flat rows as images with the channels first."""
        return as_images(X, self.image_shape).to(self.centre.dtype)

    def features(self, images: Tensor) -> Tensor:
        """Return the scaled features of images."""
        with torch.no_grad():
            z: Tensor = self.bank(images)
        return z.sub_(self.centre).mul_(self.factor)

    def __call__(self, X: np.ndarray) -> Tensor:
        return self.features(self.images(X))


def check_pixels(unit: float, largest: float, learned_unit: float, learned: float) -> None:
    """Raise if bytes and numbers that are no fractions of 255 were mixed."""
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
