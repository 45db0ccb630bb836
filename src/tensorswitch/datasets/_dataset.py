"""Data sets and the paper's preprocessing."""

import hashlib
import math
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, Self

import numpy as np

from tensorswitch.datasets._files import DataError
from tensorswitch.persistence import SavedPart, saved_as
from tensorswitch.preprocessing import PrincipalComponents

VALIDATION = 5000


@saved_as("preparation")
@dataclass(frozen=True)
class Preparation(SavedPart):
    """Preprocess images to inputs of float32, ``(pixels − mean) / scale · basis``.

    Pixels are scaled to [0, 1], and images of 28 × 28 are zero-padded to 32 × 32.

    Parameters
    ----------
    mean : ndarray of shape (channels, height, width) or (features,)
        Mean of the training images.
    basis : ndarray of shape (features, components) or None
        Principal components to project on.
    flat : bool
        Whether to flatten images to rows.
    scale : ndarray of shape (features,) or None, default=None
        Deviations of the features of a table; pixels are not divided.
    """

    mean: np.ndarray
    basis: np.ndarray | None
    flat: bool
    scale: np.ndarray | None = None

    @classmethod
    def fit(
        cls,
        images: np.ndarray,
        components: int | None = None,
        *,
        flat: bool = True,
        scaled: bool = True,
    ) -> Self:
        """Learn the preprocessing of images or, ``scaled`` by their deviations, of features."""
        x = _pixels(images)
        mean, scale, basis = x.mean(0), None, None
        x -= mean
        if scaled and images.ndim == 2:
            deviation: np.ndarray = x.std(0)
            varies = deviation > 1e-6 * np.maximum(np.abs(x).max(0, initial=0), 1e-30)
            scale = np.where(varies, deviation, 1).astype(x.dtype)
            x /= scale
        if components is not None:
            rows = x.astype(np.float32, copy=False).reshape(len(x), -1)
            basis = PrincipalComponents.fit(rows, components).basis
        return cls(mean, basis, flat, scale)

    def __call__(self, images: np.ndarray) -> np.ndarray:
        """Return the inputs of images or features: rows if they are flat or have a basis."""
        x = _pixels(images)
        if x.shape[1:] != self.mean.shape:
            what = f"the shape of the training images after preprocessing, {self.mean.shape}"
            raise DataError(
                f"images have shape {images.shape[1:]} each, which does not match {what}"
            )
        x -= self.mean
        if self.scale is not None:
            x /= self.scale
        x = x.astype(np.float32, copy=False)
        if self.flat or self.basis is not None:
            x = x.reshape(len(x), math.prod(x.shape[1:]))
        return x if self.basis is None else x @ self.basis


class Split(NamedTuple):
    """Hold inputs and labels for training, validation and test.

    Parameters
    ----------
    train, validation, test : ndarray of shape (rows, …)
        Inputs.
    train_labels, validation_labels, test_labels : ndarray of shape (rows,)
        Labels.
    preparation : Preparation
        The preprocessing, for further images.
    """

    train: np.ndarray
    train_labels: np.ndarray
    validation: np.ndarray
    validation_labels: np.ndarray
    test: np.ndarray
    test_labels: np.ndarray
    preparation: Preparation


@dataclass(frozen=True)
class Dataset:
    """Hold a data set of images or of rows of a table.

    Parameters
    ----------
    name : str
        Name of the data set.
    train_images, test_images : ndarray of shape (rows, channels, height, width) or (rows, features)
        Images, with pixels of type uint8, or rows of a table, of a floating-point type.
    train_labels, test_labels : ndarray of shape (rows,)
        Labels, indices into ``class_names``.
    class_names : tuple of str
        Names of the classes.
    encoder : object or None, default=None
        How the columns of a table became features, which are not scaled again.
    target_name, id_name, target_written : str, default=""
        The column of the labels in a table, the one that identifies rows, and how labels that are
        numbers are written.

    Examples
    --------
    >>> from tensorswitch.datasets import load
    >>> load("digits")
    Dataset('digits', 1257 + 540 rows of (1, 8, 8), 10 classes)
    """

    name: str
    train_images: np.ndarray
    train_labels: np.ndarray
    test_images: np.ndarray
    test_labels: np.ndarray
    class_names: tuple[str, ...]
    encoder: object | None = None
    target_name: str = ""
    id_name: str = ""
    target_written: str = ""

    def __post_init__(self) -> None:
        for part in ("train", "test"):
            images, labels = getattr(self, f"{part}_images"), getattr(self, f"{part}_labels")
            shape = self.train_images.shape[1:]
            if len(images) != len(labels):
                wrong = f"{len(images)} {part} images but {len(labels)} labels"
            elif not len(images):
                wrong = f"there are no {part} images"
            elif not np.isfinite(images).all():
                wrong = f"the {part} rows contain NaN or infinity"
            elif labels.min() < 0 or labels.max() >= len(self.class_names):
                wrong = f"{part} labels range from {labels.min()} to {labels.max()}, "
                wrong += f"but there are {len(self.class_names)} classes"
            elif images.shape[1:] != shape:
                wrong = f"training images have shape {shape}, but test images {images.shape[1:]}"
            else:
                continue
            raise DataError(f"{self.name}: {wrong}")

    def __repr__(self) -> str:
        rows = f"{len(self.train_images)} + {len(self.test_images)}"
        shape, classes = self.train_images.shape[1:], len(self.class_names)
        return f"Dataset({self.name!r}, {rows} rows of {shape}, {classes} classes)"

    @cached_property
    def fingerprint(self) -> str:
        """A short hash of the content."""
        form = self.class_names, self.train_images.shape, self.train_images.dtype
        digest = hashlib.blake2b(repr(form).encode(), digest_size=8)
        for array in (self.train_images, self.train_labels, self.test_images, self.test_labels):
            digest.update(np.ascontiguousarray(array).view(np.uint8).data)
        return digest.hexdigest()

    def protocol(
        self,
        components: int | None = None,
        *,
        validation: int | None = None,
        flat: bool = True,
        seed: int | None = 0,
    ) -> Split:
        """Split and preprocess the data set as in the paper, arXiv:1610.10087.

        Training images are shuffled, the last of them are held out for validation, the mean of the
        remaining ones is subtracted, and optionally all images are projected on their principal
        components. Features of tables are divided by their standard deviations.

        Parameters
        ----------
        components : int, optional
            Number of principal components, without whitening. By default the pixels are kept.
        validation : int, optional
            Number of rows to hold out. By default 5,000, or a fifth if there are less than 25,000.
        flat : bool, default=True
            Whether to flatten images to rows, as ``components`` need it.
        seed : int, default=0
            Seed of the shuffle; None keeps the order, as in the paper.

        Examples
        --------
        >>> from tensorswitch.datasets import load
        >>> split = load("digits").protocol(components=16, validation=200)
        >>> split.train.shape, split.validation.shape, split.test.shape
        ((1057, 16), (200, 16), (540, 16))
        """
        rows = len(self.train_images)
        if validation is None:
            validation = VALIDATION if rows >= 5 * VALIDATION else rows // 5
        if not 0 <= validation < rows:
            what = f"less than the number of training images, {rows}; got {validation}"
            raise ValueError(f"validation must be non-negative and {what}")
        order = np.arange(rows) if seed is None else np.random.default_rng(seed).permutation(rows)
        train, held = order[: rows - validation], order[rows - validation :]
        if components is not None and not flat:
            what = "images projected on principal components are rows of numbers"
            raise ValueError(f"components and flat=False exclude each other: {what}")
        scaled = self.encoder is None and self.train_images.dtype != np.uint8
        images, y = self.train_images, self.train_labels
        preparation = Preparation.fit(images[train], components, flat=flat, scaled=scaled)
        x, held_x, test = map(preparation, (images[train], images[held], self.test_images))
        return Split(x, y[train], held_x, y[held], test, self.test_labels, preparation)


def _pixels(images: np.ndarray) -> np.ndarray:
    """Return a copy in float32: bytes scaled to [0, 1], images of 28 × 28 padded to 32 × 32."""
    # Features in float64 stay so until their mean is subtracted.
    wide = images.ndim == 2 and images.dtype == np.float64
    x: np.ndarray = images.astype(np.float64 if wide else np.float32)
    if images.dtype == np.uint8:
        x /= 255
    if images.ndim == 4 and images.shape[2:] == (28, 28):
        x = np.pad(x, ((0, 0), (0, 0), (2, 2), (2, 2)))
    return x
