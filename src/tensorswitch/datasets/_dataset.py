"""Data sets and the paper's preprocessing."""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from tensorswitch.datasets._files import DataError
from tensorswitch.persistence import saved_as
from tensorswitch.preprocessing import principal_components

VALIDATION = 5000


@saved_as("preparation")
class Preparation(NamedTuple):
    """Preprocess images to inputs, ``(pixels − mean) / scale · basis``.

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
    ) -> Preparation:
        """Learn the preprocessing of training rows.

        Parameters
        ----------
        images : ndarray of shape (rows, channels, height, width) or (rows, features)
            Images or rows of features.
        components : int, optional
            Number of principal components to project on.
        flat : bool, default=True
            Whether to flatten images to rows.
        scaled : bool, default=True
            Whether to divide features by their deviations.
        """
        x = _pixels(images)
        mean, scale, basis = x.mean(0), None, None
        x -= mean
        if scaled and images.ndim == 2:
            scale = _scale(x)
            x /= scale
        if components is not None:
            rows = x.astype(np.float32, copy=False).reshape(len(x), -1)
            basis = principal_components(rows, components)
        return cls(mean, basis, flat, scale)

    def __call__(self, images: np.ndarray) -> np.ndarray:
        """Return the inputs of images of shape (rows, channels, height, width).

        Parameters
        ----------
        images : ndarray of shape (rows, channels, height, width) or (rows, features)
            Images or rows of a table.

        Returns
        -------
        ndarray of float32
            The inputs, of shape (rows, components) with a basis, (rows, features) if ``flat``, and
            the shape of the padded images otherwise.

        Raises
        ------
        DataError
            If the images do not have the shape of the training images.
        """
        x = _pixels(images)
        if x.shape[1:] != self.mean.shape:
            raise DataError(
                f"images have shape {images.shape[1:]} each, which does not match the shape of the "
                f"training images after preprocessing, {self.mean.shape}"
            )
        x -= self.mean
        if self.scale is not None:
            x /= self.scale
        x = x.astype(np.float32, copy=False)
        if self.flat or self.basis is not None:
            x = x.reshape(len(x), math.prod(x.shape[1:]))
        return x if self.basis is None else x @ self.basis

    def state(self) -> dict[str, Any]:
        """Return mean, basis and scale."""
        return self._asdict()

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> Preparation:
        """Make the preparation again."""
        return cls(**state)


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
    train_images : ndarray of shape (n_train, channels, height, width) or (n_train, features)
        Training images, with pixels of type uint8, or rows of a table, of a floating-point type.
    train_labels : ndarray of shape (n_train,)
        Training labels, indices into ``class_names``.
    test_images : ndarray of shape (n_test, channels, height, width) or (n_test, features)
        Test images or rows.
    test_labels : ndarray of shape (n_test,)
        Test labels, indices into ``class_names``.
    class_names : tuple of str
        Names of the classes.
    encoder : object or None, default=None
        How the columns of a table became features, which are not scaled again.
    target_name, id_name, target_written : str, default=""
        The column of the labels in a table, the one that identifies rows, and how labels that are
        numbers are written.

    Raises
    ------
    DataError
        If images and labels are inconsistent or images contain NaN or infinity.

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
                    f"{self.name}: {part} labels range from {labels.min()} to {labels.max()}, "
                    f"but there are {len(self.class_names)} classes"
                )
        train, test = self.train_images.shape[1:], self.test_images.shape[1:]
        if train != test:
            raise DataError(
                f"{self.name}: training images have shape {train}, but test images have {test}"
            )

    def __repr__(self) -> str:
        rows = f"{len(self.train_images)} + {len(self.test_images)}"
        shape, classes = self.train_images.shape[1:], len(self.class_names)
        return f"Dataset({self.name!r}, {rows} rows of {shape}, {classes} classes)"

    @cached_property
    def fingerprint(self) -> str:
        """A short hash of the content."""
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
        """Split and preprocess the data set as in the paper [1]_.

        Training images are shuffled, the last of them are held out for validation, the mean of the
        remaining ones is subtracted, and optionally all images are projected on their principal
        components. Features of tables are divided by their standard deviations.

        Parameters
        ----------
        components : int, optional
            Number of principal components to project on, without whitening. By default the pixels
            are kept.
        validation : int, optional
            Number of rows to hold out for validation. By default 5,000, or a fifth of the training
            images if there are fewer than 25,000.
        flat : bool, default=True
            Whether to flatten images to rows. It must be True with ``components``.
        seed : int, default=0
            Seed of the shuffle.

        Returns
        -------
        Split
            Inputs and labels for training, validation and test.

        References
        ----------
        .. [1] C.-Y. Tsai, A. Saxe and D. Cox, "Tensor Switching Networks", NIPS 2016,
           arXiv:1610.10087.

        Examples
        --------
        >>> from tensorswitch.datasets import load
        >>> split = load("digits").protocol(components=16, validation=200)
        >>> split.train.shape, split.validation.shape, split.test.shape
        ((1057, 16), (200, 16), (540, 16))
        """
        train, held = validation_split(len(self.train_images), validation, seed)
        if components is not None and not flat:
            raise ValueError(
                "components and flat=False exclude each other: images projected on principal "
                "components are rows of numbers"
            )
        scaled = self.encoder is None and self.train_images.dtype != np.uint8
        preparation = Preparation.fit(
            self.train_images[train], components, flat=flat, scaled=scaled
        )
        parts = self.train_images[train], self.train_images[held], self.test_images
        x, held_x, test = (preparation(images) for images in parts)
        y = self.train_labels
        return Split(x, y[train], held_x, y[held], test, self.test_labels, preparation)


def validation_split(
    rows: int, validation: int | None = None, seed: int = 0
) -> tuple[np.ndarray, np.ndarray]:
    """Return shuffled numbers of the rows to train with, and of those held out for validation."""
    if validation is None:
        validation = VALIDATION if rows >= 5 * VALIDATION else rows // 5
    if not 0 <= validation < rows:
        raise ValueError(
            "validation must be non-negative and less than the number of training images, "
            f"{rows}; got {validation}"
        )
    order = np.random.default_rng(seed).permutation(rows)
    return order[: rows - validation], order[rows - validation :]


def _pixels(images: np.ndarray) -> np.ndarray:
    """Scale bytes to [0, 1], and zero-pad images of 28 × 28 to 32 × 32.

    The result is a copy in float32. Features in float64 stay so until their mean is subtracted.
    """
    wide = images.ndim == 2 and images.dtype == np.float64
    x: np.ndarray = images.astype(np.float64 if wide else np.float32)
    if images.dtype == np.uint8:
        x /= 255
    if images.ndim == 4 and images.shape[2:] == (28, 28):
        x = np.pad(x, ((0, 0), (0, 0), (2, 2), (2, 2)))
    return x


def _scale(x: np.ndarray) -> np.ndarray:
    """Return the standard deviations of features, 1 where they are constant."""
    deviation: np.ndarray = x.std(0)
    varies = deviation > 1e-6 * np.maximum(np.abs(x).max(0, initial=0), 1e-30)
    return np.where(varies, deviation, 1).astype(x.dtype)
