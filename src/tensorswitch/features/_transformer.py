"""Patch features as a scikit-learn transformer."""

import math
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, Self

import numpy as np
import torch
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from tensorswitch.features._bank import PatchBank2d, learn_patch_bank
from tensorswitch.features._images import as_images, check_pixels, pixel_range
from tensorswitch.features._module import Copies

IMAGES = 512  # converted at a time


@dataclass(eq=False, repr=False)
class PatchFeatures(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Turn images into patch features: copies of patches, averaged over windows.

        f_wj = mean_{u ∈ w} h_j(u) c_j(u),        φ = sign(f) |f|^power

    Parameters
    ----------
    features : int, default=8192
        Number of features to aim at; the number of gates follows from it.
    sizes : sequence of int, optional
        Heights and widths of patches. By default an eighth, a fifth and a third of the image.
        Images of more than 48 pixels along an axis are reduced first.
    stride, components : int, default=1 and 48
        Distance between patches, and number of their principal components that are kept.
    open_fraction : float, default=0.3
        Share of the patches for which each gate is open.
    floor : float, default=0.3
        Deviation that is added to that of each patch when it is normalised, in units of the root
        mean square deviation, so that flat patches stay flat.
    shrinkage : float, default=0.05
        Added to the variances of the components when they are whitened, in units of their mean.
    gates_from : {"clusters", "patches", "random"}, default="clusters"
        Gate weights are the directions of clusters of whitened patches (spherical k-means), single
        patches, or drawn from a normal distribution. They have unit length.
    grid : int, default=2
        There are ``grid × grid`` windows.
    copies : "score" or int, default="score"
        What is copied. "score" is the copy projected on the direction of its gate,
        ``w_j · p − θ_j``, and a constant. A number d stands for the first d components of p and a
        constant.
    pool, power : {"mean", "max"} and float, default="mean" and 0.5
        Average of the copies in a window, or the copy with the highest score, and the exponent.
    image_shape : tuple of int, optional
        (height, width) or (height, width, channels) of images that are given as flat rows.
    random_state : int, RandomState instance or None, default=0
        Seed of the patches and gates that are drawn.

    Attributes
    ----------
    module_ : PatchBank2d
        The torch module that computes the features.
    n_features_in_, n_features_out_ : int
        Number of pixels of an image, of all channels, and of features.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from tensorswitch.features import PatchFeatures
    >>> images = load_digits().images  # (1797, 8, 8)
    >>> PatchFeatures(256).fit(images).transform(images[:10]).shape
    (10, 256)
    """

    features: int = 8192
    _: KW_ONLY
    sizes: Sequence[int] | None = None
    stride: int = 1
    components: int = 48
    open_fraction: float = 0.3
    floor: float = 0.3
    shrinkage: float = 0.05
    gates_from: str = "clusters"
    grid: int = 2
    copies: Copies = "score"
    pool: str = "mean"
    power: float = 0.5
    image_shape: tuple[int, ...] | None = None
    random_state: Any = 0

    module_: PatchBank2d = field(init=False)

    def fit(self, X: Any, y: Any = None) -> Self:
        """Learn whitening, gates and thresholds from images.

        Parameters
        ----------
        X, y : array-like and None
            Images as of :func:`as_images`; there are no labels.
        """
        settings = self.get_params(deep=False)
        image_shape, random_state = settings.pop("image_shape"), settings.pop("random_state")
        seed = int(check_random_state(random_state).randint(2**31))
        settings["generator"] = torch.Generator().manual_seed(seed)
        images = as_images(X, image_shape)
        self.module_ = learn_patch_bank(images, **settings)
        self.n_features_in_ = math.prod(images.shape[1:])
        self._pixels = pixel_range(np.asarray(X))
        return self

    @property
    def n_features_out_(self) -> int:
        """The number of features."""
        return self.module_.out_features

    _n_features_out = n_features_out_  # for the names of the features

    def transform(self, X: Any) -> np.ndarray:
        """Return the features of images as in :meth:`fit`, ``(n, n_features_out_)`` in float32."""
        check_is_fitted(self, "module_")
        check_pixels(*pixel_range(np.asarray(X)), *self._pixels)
        result = np.empty((len(X), self.n_features_out_), dtype=np.float32)
        with torch.no_grad():
            for start in range(0, len(X), IMAGES):
                images = as_images(X[start : start + IMAGES], self.image_shape)
                result[start : start + IMAGES] = self.module_(images).numpy()
        return result
