"""The steps between images and the readout."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from tensorswitch.estimators._front import Scaling
from tensorswitch.features import PatchBank2d, as_images
from tensorswitch.switches import AllOpen, Switch

BYTE = 0.01  # of a level, by which fractions of 255 may differ from one


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


def as_learned(X: np.ndarray, learned_unit: float) -> np.ndarray:
    """Return images as bytes or fractions like those learned, so that equal ones hash alike."""
    result = X
    if X.dtype == np.uint8 and learned_unit == 1.0:
        result = np.divide(X, 255, dtype=np.float32)
    elif X.dtype != np.uint8 and learned_unit > 1:
        levels = np.rint(255 * X)
        if np.abs(levels - 255 * X).max() < BYTE and levels.min() >= 0 and levels.max() <= 255:
            result = levels.astype(np.uint8)
    return result
