"""A data set as it comes, and as the paper prepares it."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from tensorswitch._pca import principal_components
from tensorswitch.data.readers import DataError

VALIDATION = 5000


class Preparation(NamedTuple):
    """From images to inputs: ``(pixels − mean) basis``, with pixels in [0, 1] and 28 × 28 images padded to 32 × 32."""

    mean: np.ndarray  # (channels, height, width), or (features,)
    basis: np.ndarray | None  # (features, components)
    flat: bool

    def __call__(self, images: np.ndarray) -> np.ndarray:
        x = _pixels(images)
        if x.shape[1:] != self.mean.shape:
            raise DataError(
                f"images have shape {images.shape[1:]} each, but those that were learned from came out as {self.mean.shape}"
            )
        x -= self.mean
        if self.basis is not None:
            projected: np.ndarray = x.reshape(len(x), -1) @ self.basis
            return projected
        return x.reshape(len(x), -1) if self.flat else x


class Split(NamedTuple):
    """Inputs and labels for training, validation and test, and how new images are prepared alike."""

    train: np.ndarray
    train_labels: np.ndarray
    validation: np.ndarray
    validation_labels: np.ndarray
    test: np.ndarray
    test_labels: np.ndarray
    preparation: Preparation


@dataclass(frozen=True)
class Dataset:
    """Images are uint8, (rows, channels, height, width); tables are floats, (rows, features). Labels count from 0 and index ``class_names``."""

    name: str
    train_images: np.ndarray
    train_labels: np.ndarray
    test_images: np.ndarray
    test_labels: np.ndarray
    class_names: tuple[str, ...]

    def __post_init__(self) -> None:
        for part in ("train", "test"):
            images, labels = getattr(self, f"{part}_images"), getattr(self, f"{part}_labels")
            if len(images) != len(labels):
                raise DataError(
                    f"{self.name}: {len(images)} {part} images but {len(labels)} labels"
                )
            if not len(images):
                raise DataError(f"{self.name}: there are no {part} images")
            if not np.isfinite(images).all():
                raise DataError(f"{self.name}: the {part} rows contain NaN or infinity")
            if labels.min() < 0 or labels.max() >= len(self.class_names):
                raise DataError(
                    f"{self.name}: {part} labels run from {labels.min()} to {labels.max()}, but there are {len(self.class_names)} classes"
                )
        if self.train_images.shape[1:] != self.test_images.shape[1:]:
            raise DataError(
                f"{self.name}: training images are {self.train_images.shape[1:]} but test images {self.test_images.shape[1:]}"
            )

    def __repr__(self) -> str:
        rows = f"{len(self.train_images)} + {len(self.test_images)}"
        return f"Dataset({self.name!r}, {rows} rows of {self.train_images.shape[1:]}, {len(self.class_names)} classes)"

    @cached_property
    def fingerprint(self) -> str:
        """A short name that changes with the data."""
        digest = hashlib.blake2b(
            repr((self.class_names, self.train_images.shape, self.train_images.dtype)).encode(),
            digest_size=8,
        )
        for array in (self.train_images, self.train_labels, self.test_images, self.test_labels):
            digest.update(np.ascontiguousarray(array).view(np.uint8).data)
        return digest.hexdigest()

    def protocol(
        self,
        components: int | None = None,
        *,
        validation: int | None = None,
        flat: bool = True,
        seed: int = 0,
    ) -> Split:
        """The paper's preparation: shuffle, keep the last training images for validation, subtract the training mean, project.

        Parameters
        ----------
        components : principal components to project on (no whitening), fitted on the training images; None leaves the pixels
        validation : rows kept for validation; by default 5,000, or a fifth of the training images where these are fewer than 25,000
        flat : rows of numbers, or else images with their axes (not with components)
        seed : of the shuffle
        """
        rows = len(self.train_images)
        if validation is None:
            validation = VALIDATION if rows >= 5 * VALIDATION else rows // 5
        if not 0 <= validation < rows:
            raise ValueError(
                f"validation must be at least 0 and below the number of training images, {rows}; got {validation}"
            )
        if components is not None and not flat:
            raise ValueError(
                "images projected on principal components are no longer images: give components or flat=False, not both"
            )
        order = np.random.default_rng(seed).permutation(rows)
        x, y, kept = _pixels(self.train_images[order]), self.train_labels[order], rows - validation
        mean = x[:kept].mean(0)
        x -= mean
        basis = (
            None
            if components is None
            else principal_components(x[:kept].reshape(kept, -1), components)
        )
        preparation = Preparation(mean, basis, flat)
        if basis is not None:
            x = x.reshape(rows, -1) @ basis
        elif flat:
            x = x.reshape(rows, -1)
        return Split(
            x[:kept],
            y[:kept],
            x[kept:],
            y[kept:],
            preparation(self.test_images),
            self.test_labels,
            preparation,
        )


def _pixels(images: np.ndarray) -> np.ndarray:
    """float32; bytes become numbers in [0, 1], and images of 28 × 28 are padded to 32 × 32 with zeros."""
    x = images.astype(np.float32)
    if images.dtype == np.uint8:
        x /= 255
    if images.ndim == 4 and images.shape[2:] == (28, 28):
        x = np.pad(x, ((0, 0), (0, 0), (2, 2), (2, 2)))
    return x
