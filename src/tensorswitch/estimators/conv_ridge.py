"""Images in one pass: ridge regression on the patch features of a convolutional TS layer."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from copy import deepcopy
from functools import partial
from typing import Any

import numpy as np
import torch
from scipy import sparse
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_consistent_length, check_is_fitted, column_or_1d
from torch import Tensor, nn

from tensorswitch._checks import check_above_zero, check_positive, from_numpy
from tensorswitch._memory import available_memory
from tensorswitch.estimators import _image_settings as settings
from tensorswitch.estimators._feature_ridge import FeatureRidge
from tensorswitch.estimators._front import Scaling
from tensorswitch.estimators._image_front import ImageFront, as_learned
from tensorswitch.estimators._ridge_base import Fitted
from tensorswitch.estimators.ridge_classifier import TSRidgeClassifier
from tensorswitch.explain import Explanation
from tensorswitch.features import (
    PatchBank2d,
    as_images,
    channels_first,
    learn_patch_bank,
    pixel_shares,
    reduced,
)
from tensorswitch.features.pixels import check_pixels, pixel_range

__all__ = ["TSConvRidgeClassifier"]

ALPHAS = tuple(f"{m} mean" for m in (1, 0.3, 0.1, 0.03, 0.01, 0.003, 0.001, 0.0003, 0.0001))
SCALED_IMAGES = 2_000  # from which means and deviations of features are taken
RARE = 0.01  # features whose deviation is a smaller part of the typical one are not amplified


class TSConvRidgeClassifier(FeatureRidge, TSRidgeClassifier):
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
    copies : "score" or int, default="score"
        What is copied; see :class:`tensorswitch.features.PatchFeatures2d`.
    components : int, default=48
        Number of principal components of the patches.
    open_fraction : float, default=0.3
        Share of the patches for which each gate is open.
    gates_from : {"clusters", "patches", "random"}, default="clusters"
        Where gate weights come from.
    pool : {"mean", "max"}, default="mean"
        Average of the copies in a window, or the copy with the highest score.
    power : float, default=0.5
        Exponent of the signed power.
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
    memory_gb : float, optional
        Memory budget in GiB. By default 70 % of the memory that is available.
    time_budget : float, optional
        Seconds that ``fit`` should take at most; the number of features is chosen by the measured
        speed of this machine.
    class_weight : dict or "balanced", optional
        Weights of the classes. "balanced" needs all images at once.
    random_state : int, RandomState instance or None, default=0
        Seed of the patches and gates that are drawn.
    verbose : bool, default=False
        Show a progress bar with the time that is left.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        The class labels, sorted.
    bank_ : PatchBank2d
        The torch module that computes the features.
    grid_, sizes_, flips_ : int, tuple of int, bool
        What was chosen.
    coef_ : ndarray of shape (n_patch_features, n_outputs)
        The readout of the scaled features.
    intercept_ : ndarray of shape (n_outputs,)
        The intercept.
    alpha_ : float
        The penalty λ that was used.
    solution_ : Solution
        The readout with the errors of all λ that were tried.
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

    standardize = True
    fit_intercept = True
    selection = "cv"
    forgetting = 1.0
    _given_features = False
    n_features_in_: int
    image_shape_: tuple[int, int, int]

    def __init__(
        self,
        features: int | str = "auto",
        *,
        sizes: Sequence[int] | None = None,
        grid: int | str = "auto",
        flips: bool | str = "auto",
        copies: int | str = "score",
        components: int = 48,
        open_fraction: float = 0.3,
        gates_from: str = "clusters",
        pool: str = "mean",
        power: float = 0.5,
        alpha: float | str | Sequence[float | str] = "cv",
        solver: str = "auto",
        dtype: str = "float32",
        image_shape: tuple[int, ...] | None = None,
        memory_gb: float | None = None,
        time_budget: float | None = None,
        class_weight: Any = None,
        random_state: Any = 0,
        verbose: bool = False,
    ) -> None:
        self.features = features
        self.sizes = sizes
        self.grid = grid
        self.flips = flips
        self.copies = copies
        self.components = components
        self.open_fraction = open_fraction
        self.gates_from = gates_from
        self.pool = pool
        self.power = power
        self.alpha = alpha
        self.solver = solver
        self.dtype = dtype
        self.image_shape = image_shape
        self.memory_gb = memory_gb
        self.time_budget = time_budget
        self.class_weight = class_weight
        self.random_state = random_state
        self.verbose = verbose

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.three_d_array = True
        tags.input_tags.two_d_array = self.image_shape is not None
        tags.input_tags.sparse = False
        return tags

    def to_torch(self) -> nn.Sequential:
        """Return the fitted model as a torch network that can be trained further.

        Returns
        -------
        torch.nn.Sequential
            Patch features, whose parts are fixed, and a linear layer that includes the scaling. It
            takes images of shape (n, channels, height, width), bytes divided by 255, and returns
            the outputs of :meth:`decision_function`, always with a column per output.
        """
        front, solution = self._fitted.front, self.solution_
        weight = solution.weight * front.factor[:, None]
        options: Any = {"dtype": weight.dtype, "device": weight.device}
        layer = nn.Linear(len(weight), weight.shape[1], **options)
        with torch.no_grad():
            layer.weight.copy_(weight.t())
            layer.bias.copy_(solution.intercept - front.centre.double() @ weight.double())
        return nn.Sequential(deepcopy(front.bank), layer).eval()

    def _input_shape(self) -> tuple[int, ...]:
        height, width, channels = self.image_shape_
        return channels, height, width

    def explain(self, X: Any) -> Explanation:
        """Return what each pixel contributes, exactly.

        The share of a patch in a feature is divided evenly among its pixels; see
        :func:`tensorswitch.features.pixel_shares`.

        Parameters
        ----------
        X : array-like of shape (n, height, width), (n, height, width, channels) or (n, features)
            Images.

        Returns
        -------
        Explanation
            Contributions of shape (n, n_outputs, height, width) that add up with the constant to
            ``decision_function``. Two classes have one output.
        """
        solution, front = self.solution_, self._fitted.front
        images = front.images(self._rows(X, self.image_shape_))
        weight = solution.weight * front.factor[:, None]
        shares = pixel_shares(front.bank, images, weight)
        constant = solution.intercept - front.centre.double() @ weight.double()
        repeated = constant.numpy()[None].repeat(len(images), axis=0)
        return Explanation(shares.numpy(), repeated)

    def _new(self, X: Any, targets: np.ndarray, weight: Tensor | None, hashes: Tensor) -> Fitted:
        """Learn patch features and their scaling from a sample of the images."""
        seed = int(check_random_state(self.random_state).randint(2**31))
        order = hashes.argsort(stable=True).numpy()
        if weight is not None:
            order = order[weight.numpy()[order] > 0]
        order = np.sort(order[: settings.LEARNED])
        order = np.random.default_rng(seed).permutation(order)
        images = as_images(X[order], self.image_shape_)
        t = from_numpy(np.ascontiguousarray(targets[order], dtype=np.float32))
        names = ("copies", "components", "open_fraction", "gates_from", "pool", "power")
        options = {name: getattr(self, name) for name in names}
        sample = slice(settings.SAMPLE)
        wanted = self._grid(), self.sizes, self._flips()
        found = settings.choose_settings(reduced(images[sample]), t[sample], *wanted, options, seed)
        generator = torch.Generator().manual_seed(seed)
        options |= {"grid": found.grid, "sizes": found.sizes, "generator": generator}
        count = self._feature_count(X, images, found.flips, options)
        bank = learn_patch_bank(images, features=count, **options)
        self.bank_, (self.grid_, self.sizes_, self.flips_) = bank, found
        return Fitted(self._image_front(bank, images, found.flips), np.zeros(targets.shape[1]), 1.0)

    def _image_front(self, bank: PatchBank2d, images: Tensor, flips: bool) -> ImageFront:
        dtype = torch.float64 if self.dtype == "float64" else torch.float32
        with torch.no_grad():
            z = bank.to(dtype)(images[:SCALED_IMAGES].to(dtype))
        square = z.var(0, correction=0)
        typical = float(square.mean())
        factor = torch.where(square > 0, (square + RARE**2 * typical).rsqrt(), 0)
        unit = [torch.zeros(1, bank.out_features, dtype=dtype, device="cpu")]
        scaling = Scaling("columns", None, None)
        return ImageFront(bank, z.mean(0), factor, self.image_shape_, flips, True, unit, scaling)

    def _feature_count(self, X: Any, images: Tensor, flips: bool, options: dict[str, Any]) -> int:
        if self.features != "auto":
            check_positive(features=self.features)  # type: ignore[arg-type]
            return int(self.features)
        if self.time_budget is not None:
            check_above_zero(time_budget=self.time_budget)
        given = self.memory_gb
        memory = 0.7 * available_memory() if given is None else given * 2**30
        if self.dtype == "float64":
            memory /= 2
        rows = len(X) * (2 if flips else 1) if self._all_rows else None
        probe = learn_patch_bank(images[:200], features=1024, **options)
        return settings.choose_features(rows, probe, images, memory, self.time_budget)

    _all_rows = True

    def _partial_fit(self, X: Any, targets: Any, sample_weight: Any, first: bool) -> None:
        self._all_rows = False
        try:
            super()._partial_fit(X, targets, sample_weight, first)
        finally:
            del self._all_rows

    def _variants(self, X: Any, fitted: Fitted) -> Iterator[Tensor]:
        """Yield the features of the images and of their mirror images."""
        front = fitted.front
        images = front.images(X)
        yield front.features(images)
        if front.flips:
            yield front.features(images.flip(3))

    def _variant_count(self, fitted: Fitted) -> int:
        return 2 if fitted.front.flips else 1

    @property
    def solution_(self) -> Any:
        """The readout with its λ and the errors of those that were tried."""
        check_is_fitted(self, "solver_")
        if self._solution is None:
            self._solution = self._sums().solve(self._alphas(), fit_intercept=True)
        return self._solution

    def _alphas(self) -> Any:
        return ALPHAS if isinstance(self.alpha, str) and self.alpha == "cv" else self.alpha

    @staticmethod
    def _targets(places: np.ndarray, classes: int, dtype: Any) -> np.ndarray:
        return TSRidgeClassifier._targets(places, classes, np.float32)  # not the type of pixels

    def _grid(self) -> Any:
        if self.grid != "auto":
            check_positive(grid=self.grid)  # type: ignore[arg-type]
        return self.grid

    def _flips(self) -> Any:
        if isinstance(self.flips, str) and self.flips == "auto":
            return "auto"
        if not isinstance(self.flips, bool | np.bool_):
            raise ValueError(f"flips must be 'auto', True or False, got {self.flips!r}")
        return bool(self.flips)

    def _outputs(self, X: Any) -> np.ndarray:
        solution = self.solution_
        X = self._rows(X, self.image_shape_)
        front = self._fitted.front
        readout = partial(self._readout, weight=solution.weight, intercept=solution.intercept)
        chunks = self._chunks(X, self._fitted)
        return np.concatenate([readout(front(X[part])).numpy() for part in chunks])

    def _validated(self, X: Any, y: Any, first: bool, **options: Any) -> tuple[Any, np.ndarray]:
        if self.dtype not in ("float32", "float64"):
            raise ValueError(f"dtype must be 'float32' or 'float64', got {self.dtype!r}")
        if y is None:
            raise ValueError("y is missing: a classifier needs a label for each image")
        y = column_or_1d(y)
        X = self._rows(X, None if first else self.image_shape_)
        check_consistent_length(X, y)
        return X if first or not hasattr(self, "_pixels") else as_learned(X, self._pixels[0]), y

    def _rows(self, X: Any, expected: tuple[int, int, int] | None) -> np.ndarray:
        """Return images as flat rows of their own type; raise if they differ from those learned."""
        if sparse.issparse(X):
            raise TypeError("images cannot be sparse; convert them with .toarray()")
        array = np.asarray(X)
        shape = self.image_shape
        if not len(array):
            raise ValueError("X contains no images")
        as_images(array[:1], shape)  # raises if these are not images
        if array.ndim == 2 and shape is not None:
            array = array.reshape(len(array), *shape)
        if channels_first(array.shape):
            array = array.transpose(0, 2, 3, 1)
        found = (array.shape[1], array.shape[2], array.shape[3] if array.ndim == 4 else 1)
        if expected is not None and found != expected:
            raise ValueError(
                f"images have shape {found} (height, width, channels), but the model was fitted "
                f"to images of {expected}"
            )
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            raise ValueError("images contain NaN or infinity")
        if array.dtype not in (np.uint8, np.bool_):
            array = array.astype(np.float32, copy=False)
        pixels = pixel_range(array)
        if expected is None:
            self.image_shape_, self._pixels = found, pixels
            self.n_features_in_ = math.prod(found)
        else:
            check_pixels(*pixels, *getattr(self, "_pixels", pixels))
        return array.reshape(len(array), -1)
