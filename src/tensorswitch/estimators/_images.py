"""What comes before the readout of images: rows of pixels, patch features, scaling."""

from collections.abc import Iterator
from copy import deepcopy
from dataclasses import dataclass
from typing import Self

import numpy as np
import torch
from numpy.typing import ArrayLike
from scipy import sparse
from torch import Tensor, nn

from tensorswitch.estimators._front import Front
from tensorswitch.estimators._image_settings import Settings
from tensorswitch.estimators._modules import linear_module
from tensorswitch.explain import Explanation
from tensorswitch.features import PatchBank2d, as_images, channels_first, pixel_shares
from tensorswitch.linear import Columns, Solution
from tensorswitch.persistence import saved_as

SCALED_IMAGES = 2_000  # from which means and deviations of features are taken
RARE = 0.01  # features whose deviation is a smaller part of the typical one are not amplified
BYTE = 0.01  # of a level, by which fractions of 255 may differ from one


@saved_as("image-features")
@dataclass(frozen=True, eq=False)
class ImageFeatures(Front):
    """Patch features of images given as flat rows, ``z = (φ(x) − centre) · factor``.

    ``pixels`` are what pixels were divided by, and the largest of them.
    """

    bank: PatchBank2d
    centre: Tensor
    factor: Tensor
    image_shape: tuple[int, int, int]  # height, width, channels
    pixels: tuple[float, float]
    grid: int
    sizes: tuple[int, ...]
    flips: bool

    @classmethod
    def fit(
        cls,
        bank: PatchBank2d,
        images: Tensor,
        dtype: torch.dtype,
        image_shape: tuple[int, int, int],
        found: Settings,
        pixels: tuple[float, float],
    ) -> Self:
        """Scale the features of a bank by their moments on some images."""
        with torch.no_grad():
            z = bank.to(dtype)(images[:SCALED_IMAGES].to(dtype))
        square = z.var(0, correction=0)
        factor = torch.where(square > 0, (square + RARE**2 * float(square.mean())).rsqrt(), 0)
        return cls(bank, z.mean(0), factor, image_shape, pixels, *found)

    @property
    def representation(self) -> Columns:  # type: ignore[override]
        """The features as columns."""
        return Columns(self.bank.out_features)

    @property
    def dtype(self) -> torch.dtype:  # type: ignore[override]
        """The type of features and sums."""
        return self.centre.dtype

    @property
    def count(self) -> int:  # type: ignore[override]
        """How many rows stand for an image."""
        return 2 if self.flips else 1

    @property
    def input_shape(self) -> tuple[int, ...]:
        """Channels, height and width."""
        height, width, channels = self.image_shape
        return channels, height, width

    def __call__(self, X: np.ndarray) -> Tensor:
        """Return the features of flat rows."""
        return self._features(self._images(X))

    def variants(self, X: np.ndarray) -> Iterator[Tensor]:
        """Yield the features of images and of their mirror images."""
        images = self._images(X)
        yield self._features(images)
        if self.flips:
            yield self._features(images.flip(3))

    def ignored(self, X: np.ndarray) -> np.ndarray:  # constant pixels do not matter to patches
        return np.empty(0, dtype=np.int64)

    def explain(self, X: np.ndarray, solution: Solution) -> Explanation:
        """Return the share of each pixel: that of a patch is divided evenly among its pixels."""
        weight, constant = self._unscaled(solution)
        shares = pixel_shares(self.bank, self._images(X), weight)
        return Explanation(shares.numpy(), constant.numpy()[None].repeat(len(X), axis=0))

    def module(self, solution: Solution) -> nn.Sequential:
        """Return patch features, which are fixed, and a linear layer that includes the scaling."""
        return nn.Sequential(deepcopy(self.bank), linear_module(*self._unscaled(solution)))

    def _unscaled(self, solution: Solution) -> tuple[Tensor, Tensor]:
        """Return the readout of features that are not scaled, and its constant."""
        weight = solution.weight * self.factor[:, None]
        assert solution.intercept is not None
        return weight, solution.intercept - self.centre.double() @ weight.double()

    def _images(self, X: np.ndarray) -> Tensor:
        """Return flat rows as images with the channels first."""
        return as_images(X, self.image_shape).to(self.dtype)

    def _features(self, images: Tensor) -> Tensor:
        """Return the scaled features of images."""
        with torch.no_grad():
            z: Tensor = self.bank(images)
        return z.sub_(self.centre).mul_(self.factor)


def flat_rows(
    X: ArrayLike, shape: tuple[int, ...] | None, expected: tuple[int, int, int] | None
) -> tuple[np.ndarray, tuple[int, int, int]]:
    """Return images as flat rows and their shape; raise if it is not the expected one."""
    if sparse.issparse(X):
        raise TypeError("images cannot be sparse; convert them with .toarray()")
    array = np.asarray(X)
    if not len(array):
        raise ValueError("X contains no images")
    as_images(array[:1], shape)  # raises if these are not images
    if array.ndim == 2 and shape is not None:
        array = array.reshape(len(array), *shape)
    if channels_first(array.shape):
        array = array.transpose(0, 2, 3, 1)
    found = (array.shape[1], array.shape[2], array.shape[3] if array.ndim == 4 else 1)
    if expected is not None and found != expected:
        what = f"(height, width, channels), but the model was fitted to images of {expected}"
        raise ValueError(f"images have shape {found} {what}")
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        raise ValueError("images contain NaN or infinity")
    if array.dtype not in (np.uint8, np.bool_):
        array = array.astype(np.float32, copy=False)
    return array.reshape(len(array), -1), found


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
