"""Images in one pass: ridge regression on the patch features of a convolutional TS layer."""

import math
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, replace
from numbers import Real
from typing import ClassVar

import numpy as np
import torch
from numpy.typing import ArrayLike
from sklearn.utils import Tags
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_consistent_length, check_is_fitted, column_or_1d

from tensorswitch._checks import from_numpy
from tensorswitch._memory import memory_budget
from tensorswitch.estimators import _image_settings as settings
from tensorswitch.estimators._base import (
    ABOVE_ZERO,
    AUTO,
    CLASS_WEIGHT,
    POSITIVE,
    ClassWeight,
    Constraints,
    RandomState,
    State,
)
from tensorswitch.estimators._front import NewRows
from tensorswitch.estimators._images import ImageFeatures, as_learned, flat_rows
from tensorswitch.estimators._readout import COLUMN_SOLVERS, RidgeSettings
from tensorswitch.estimators._ridge import RidgeClassifier
from tensorswitch.estimators._ts_ridge import ALPHA
from tensorswitch.estimators._validation import seed_of
from tensorswitch.features import (
    PatchBank2d,
    as_images,
    check_pixels,
    learn_patch_bank,
    pixel_range,
    reduced,
)
from tensorswitch.linear._penalty import Alpha
from tensorswitch.persistence import saved_as

ALPHAS = tuple(f"{m} mean" for m in (1, 0.3, 0.1, 0.03, 0.01, 0.003, 0.001, 0.0003, 0.0001))
OPTIONS = ("copies", "components", "open_fraction", "gates_from", "pool", "power")


@saved_as("conv-ridge-classifier")
@dataclass(eq=False, repr=False)
class TSConvRidgeClassifier(RidgeClassifier):
    """Classify images by ridge regression on the copies of a convolutional TS layer.

        W, c = argmin Σ ‖Wᵀ φ + c − t‖² + λ ‖W‖²,        φ = sign(f) |f|^power
        f_wj = mean_{u ∈ w} h_j(u) c_j(u)

    ``X`` of all methods contains images, of shape (n, height, width) or (n, height, width,
    channels), or rows of pixels with ``image_shape``; it cannot be sparse. Bytes (uint8) are
    divided by 255, and other types are taken as they are. Whitened patches are copied by gates,
    which are open for a fixed share of them, to the windows of a grid, and averaged there.
    Whitening, gates and thresholds are learned without labels from a sample of the images; patch
    sizes, windows and mirror images are chosen by left-out error. The readout is solved in closed
    form, so training is one pass over the images. As with :class:`StreamingRidgeClassifier`, only
    sums are kept: images can be added in chunks, new classes may appear later, and images can be
    removed again. For the readout, a weight of two is a repeated image; the sample of patches is
    drawn without weights.

    Parameters
    ----------
    features : "auto" or int, default="auto"
        Number of features to aim at. "auto" is 8,192, or less if there is little memory, time or
        data. Time and memory grow with their square: 16,384 take about 3 GB.
    sizes : sequence of int, optional
        Heights and widths of patches. By default an eighth, a fifth and a third of the image, or a
        quarter, two fifths and half of it, by the error on images left out of a sample. Images of
        more than 48 pixels along an axis are reduced first.
    grid : "auto" or int, default="auto"
        There are ``grid × grid`` windows. "auto" is 2 or 3, by the error on images left out of a
        sample.
    flips : "auto" or bool, default="auto"
        Whether mirror images count as further rows. "auto" decides by the error on images left out
        of a sample: they help with photographs and not with digits.
    copies, components, open_fraction, gates_from, pool, power : optional
        As in :class:`tensorswitch.features.PatchFeatures`, with the same defaults.
    alpha : float, str or a sequence of these, default="cv"
        The ridge penalty λ, as in :class:`StreamingRidgeClassifier`. "cv" chooses among multiples
        of the mean from 1 to 0.0001 by their error on a fold that is left out.
    solver : {"auto", "streaming", "matrix-free"}, default="auto"
        How the readout is found, as in :class:`StreamingRidgeClassifier`.
    dtype : {"float32", "float64"}, default="float32"
        Type of features and sums. With float64, removing images equals refitting without them to
        1e-9.
    image_shape : tuple of int, optional
        (height, width) or (height, width, channels) of images that are given as flat rows.
    memory_gb, time_budget : float, optional
        Memory budget in GiB, by default 70 % of the memory that is available, and seconds that
        ``fit`` should take at most; the number of features is chosen by the measured speed of this
        machine.
    class_weight : dict or "balanced", optional
        Weights of the classes. "balanced" needs all images at once.
    random_state, verbose : int, RandomState instance or None, default=0, and bool, default=False
        Seed of the patches and gates that are drawn, and whether to show a progress bar.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        The class labels, sorted.
    bank_ : PatchBank2d
        The torch module that computes the features.
    grid_, sizes_, flips_ : int, tuple of int, bool
        What was chosen.
    coef_, intercept_ : ndarray of shape (n_patch_features, n_outputs) and (n_outputs,)
        The readout of the scaled features.
    alpha_, solution_ : float and Solution
        The penalty λ that was used, and the readout with the errors of all λ that were tried.
    image_shape_ : tuple of (int, int, int)
        Height, width and channels of the images.

    See Also
    --------
    tensorswitch.features.PatchFeatures : The features alone.

    References
    ----------
    Tsai, Saxe and Cox, Tensor Switching Networks, NIPS 2016, arXiv:1610.10087.
    Coates, Lee and Ng, An Analysis of Single-Layer Networks in Unsupervised Feature Learning,
    AISTATS 2011.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from tensorswitch.estimators import TSConvRidgeClassifier
    >>> digits = load_digits()
    >>> model = TSConvRidgeClassifier(1024).fit(digits.images[:1000], digits.target[:1000])
    >>> bool(model.score(digits.images[1000:], digits.target[1000:]) > 0.97)
    True
    """

    features: int | str = "auto"
    _: KW_ONLY
    sizes: Sequence[int] | None = None
    grid: int | str = "auto"
    flips: bool | str = "auto"
    copies: int | str = "score"
    components: int = 48
    open_fraction: float = 0.3
    gates_from: str = "clusters"
    pool: str = "mean"
    power: float = 0.5
    alpha: Alpha = "cv"
    solver: str = "auto"
    dtype: str = "float32"
    image_shape: tuple[int, ...] | None = None
    memory_gb: float | None = None
    time_budget: float | None = None
    class_weight: ClassWeight = None
    random_state: RandomState = 0
    verbose: bool = False

    _parameter_constraints: ClassVar[Constraints] = {
        **ALPHA,
        **CLASS_WEIGHT,
        "features": [AUTO, POSITIVE],
        "sizes": ["array-like", range, None],
        "grid": [AUTO, POSITIVE],
        "flips": [AUTO, "boolean"],
        "copies": [StrOptions({"score"}), POSITIVE],
        "components": [POSITIVE],
        "open_fraction": [Interval(Real, 0, 1, closed="right")],
        "gates_from": [StrOptions({"clusters", "patches", "random"})],
        "pool": [StrOptions({"mean", "max"})],
        "power": [ABOVE_ZERO],
        "solver": [StrOptions(set(COLUMN_SOLVERS))],
        "dtype": [StrOptions({"float32", "float64"})],
        "image_shape": ["array-like", None],
        **{name: [ABOVE_ZERO, None] for name in ("memory_gb", "time_budget")},
        "random_state": ["random_state"],
        "verbose": ["verbose"],
    }

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.three_d_array = True
        tags.input_tags.two_d_array = self.image_shape is not None
        tags.input_tags.sparse = False
        return tags

    @property
    def bank_(self) -> PatchBank2d:
        """The torch module that computes the features."""
        return self._images().bank

    @property
    def grid_(self) -> int:
        """There are ``grid × grid`` windows."""
        return self._images().grid

    @property
    def sizes_(self) -> tuple[int, ...]:
        """Heights and widths of the patches."""
        return self._images().sizes

    @property
    def flips_(self) -> bool:
        """Whether mirror images count as further rows."""
        return self._images().flips

    def _images(self) -> ImageFeatures:
        check_is_fitted(self)
        front = self._readout.front
        assert isinstance(front, ImageFeatures)
        return front

    def _settings(self) -> RidgeSettings:
        chosen = isinstance(self.alpha, str) and self.alpha == "cv"
        return replace(super()._settings(), alpha=ALPHAS) if chosen else super()._settings()

    def _new_front(self, rows: NewRows, whole: bool) -> ImageFeatures:
        """Learn patch features and their scaling from a sample of the images."""
        seed = seed_of(self.random_state)
        order = rows.hashes.argsort(stable=True).numpy()
        if rows.weight is not None:
            order = order[rows.weight.numpy()[order] > 0]
        order = np.sort(order[: settings.CONSTANTS.learned])
        order = np.random.default_rng(seed).permutation(order)
        images = as_images(rows.X[order], self.image_shape_)
        t = from_numpy(np.ascontiguousarray(rows.targets[order], dtype=np.float32))
        options = {name: getattr(self, name) for name in OPTIONS}
        sample = slice(settings.CONSTANTS.sample)
        wanted = self.grid, self.sizes, "auto" if self.flips == "auto" else bool(self.flips)
        found = settings.choose_settings(reduced(images[sample]), t[sample], *wanted, options, seed)
        generator = torch.Generator().manual_seed(seed)
        options |= {"grid": found.grid, "sizes": found.sizes, "generator": generator}
        count = self._feature_count(len(rows) if whole else None, images, found.flips, options)
        bank = learn_patch_bank(images, features=count, **options)
        dtype = torch.float64 if self.dtype == "float64" else torch.float32
        return ImageFeatures.fit(bank, images, dtype, self.image_shape_, found, pixel_range(rows.X))

    def _feature_count(
        self, rows: int | None, images: torch.Tensor, flips: bool, options: State
    ) -> int:
        """Return how many features to learn for so many rows, if their number is known."""
        if self.features != "auto":
            return int(self.features)
        memory = memory_budget(self.memory_gb) / (2 if self.dtype == "float64" else 1)
        variants = None if rows is None else rows * (2 if flips else 1)
        probe = learn_patch_bank(images[:200], features=1024, **options)
        return settings.choose_features(variants, probe, images, memory, self.time_budget)

    def _checked_rows(self, X: ArrayLike, accept_sparse: str | bool = False) -> np.ndarray:
        """Return validated images as flat rows, of the shape and range of those learned."""
        found, _ = flat_rows(X, self.image_shape, self.image_shape_)
        check_pixels(*pixel_range(found), *self._images().pixels)
        return found

    def _checked_chunk(
        self, X: ArrayLike, y: ArrayLike, first: bool
    ) -> tuple[np.ndarray, np.ndarray]:
        if y is None:
            raise ValueError("y is missing: a classifier needs a label for each image")
        labels = column_or_1d(y)
        if first:
            found, self.image_shape_ = flat_rows(X, self.image_shape, None)
            self.n_features_in_ = math.prod(self.image_shape_)
        else:
            found = as_learned(self._checked_rows(X), self._images().pixels[0])
        check_consistent_length(found, labels)
        check_classification_targets(labels)
        return found, labels

    def _restore(self, fitted: State) -> None:
        super()._restore(fitted)
        self.image_shape_ = self._images().image_shape
