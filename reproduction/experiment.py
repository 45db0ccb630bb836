"""One experiment of the paper (a method, its settings and a data set) and its result."""

from __future__ import annotations

import hashlib
import json
import math
from dataclasses import dataclass, field, fields
from numbers import Integral, Real
from typing import Any

from tensorswitch.datasets import NAMES

METHODS = {
    "svm-ss": "SVM SS",
    "svm-ts": "SVM TS",
    "ss": "MLP SS",
    "rr": "MLP TS RR",
    "ts-lrc": "MLP TS LRC",
    "ts-ibp-lrc": "MLP TS IBP-LRC",
    "ts-ibp": "MLP TS IBP",
    "ss+ts": "MLP SS + TS",
    "cnn-ss": "CNN SS",
    "cnn-ts-lrc": "CNN TS LRC",
    "cnn-ts-ibp-lrc": "CNN TS IBP-LRC",
}
SGD = ("lr", "momentum", "weight_decay", "batch_size", "seed", "precision")
_TRAINED = ("depth", "width", "epochs", *SGD)
_SETTINGS = {
    "svm": ("components", "depths", "Cs", "trial_rows"),
    "rr": ("components", "width", "alphas", "tol", "seed"),
    "mlp": ("components", *_TRAINED, "image_filters"),
    "cnn": ("convolutions", "channels", *_TRAINED),
}
_OPTIONAL = ("precision", "shuffle", "image_filters")  # not in names of experiments without
_TUPLES = ("convolutions", "channels", "depths", "Cs", "alphas")
_WHOLE = ("depth", "width", "epochs", "batch_size", "convolutions", "channels", "depths")
_WHOLE_OR_NONE = ("components", "trial_rows")
_POSITIVE, _NOT_NEGATIVE = ("lr", "tol", "Cs", "alphas"), ("momentum", "weight_decay")


def family_of(method: str) -> str:
    """Return the family of a method, which decides on its settings: svm, rr, mlp or cnn."""
    first = method.split("-")[0]
    return first if first in ("svm", "rr", "cnn") else "mlp"


def settings_of(method: Any) -> tuple[str, ...]:
    """Return the names of the settings that a method uses, none for an unknown method."""
    if not isinstance(method, str) or method not in METHODS:
        return ()
    return ("data", "method", "extra", "shuffle", "fingerprint", *_SETTINGS[family_of(method)])


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """A method, its settings and the data set to run it on.

    Defaults are the settings of the paper. Settings that the method does not use are ignored.

    Parameters
    ----------
    data : {"digits", "mnist", "fashion-mnist", "cifar10", "svhn"}
        Name of a data set.
    method : str
        One of ``METHODS``.
    components : int or None, default=None
        Number of principal components of the inputs; None keeps the pixels.
    depth : int, default=1
        Number of hidden layers; for a CNN, the number of layers above the first dense layer.
    width : int, default=256
        Number of units per hidden layer.
    epochs : int, default=1
        Number of passes over the training data.
    lr, momentum, weight_decay : float
        Learning rate, momentum and L2 penalty of stochastic gradient descent.
    batch_size : int, default=128
        Number of rows per step.
    convolutions, channels : tuple of int
        Number of convolutions and of channels in each block of a CNN.
    depths, Cs : tuple of int, tuple of float
        Kernel depths and penalties of an SVM; the best by validation error are used.
    trial_rows : int or None, default=None
        Number of training rows on which ``depths`` and ``Cs`` are tried; None uses all of them.
    alphas : tuple of float, default=(1.0,)
        Penalties of ridge regression as fractions of the mean of the Gram matrix's diagonal; the
        best is chosen by cross-validation.
    tol : float, default=5e-3
        Relative residual at which conjugate gradients stop.
    seed : int, default=0
        Seed of the weights and of the order of the rows.
    precision : {None, "bf16"}, default=None
        ``"bf16"`` trains a network with products in bfloat16.
    image_filters : bool, default=False
        Whether the hidden units of an MLP on pixels start as filters of the size of the image, as
        in figure 5: Glorot's limit then counts the pixels in the number of outputs, too.
    extra : bool, default=False
        Whether to train on the extra images of SVHN, too.
    shuffle : bool, default=False
        Whether training images are shuffled before the last of them are held out for validation.
    fingerprint : str or None, default=None
        Fingerprint of the data. It keeps results on different data of the same name apart.
    """

    data: str
    method: str
    components: int | None = None
    depth: int = 1
    width: int = 256
    epochs: int = 1
    lr: float = 1e-3
    momentum: float = 0.9
    weight_decay: float = 1e-3
    batch_size: int = 128
    convolutions: tuple[int, ...] = (1, 1, 1)
    channels: tuple[int, ...] = (32, 64, 128)
    depths: tuple[int, ...] = (1,)
    Cs: tuple[float, ...] = (10.0,)
    trial_rows: int | None = None
    alphas: tuple[float, ...] = (1.0,)
    tol: float = 5e-3
    seed: int = 0
    precision: str | None = None
    image_filters: bool = False
    extra: bool = False
    shuffle: bool = False
    fingerprint: str | None = None

    def __post_init__(self) -> None:
        for what, value, known in [("data", self.data, NAMES), ("method", self.method, [*METHODS])]:
            if value not in known:
                raise ValueError(f"unknown {what} {value!r}; expected one of {', '.join(known)}")
        for name in ("extra", "shuffle", "image_filters"):
            if not isinstance(getattr(self, name), bool):
                raise ValueError(f"{name} must be true or false, got {getattr(self, name)!r}")
        if self.precision not in (None, "bf16"):
            raise ValueError(f"precision must be None or 'bf16', got {self.precision!r}")
        for name in _TUPLES:
            value = getattr(self, name)
            several = tuple(value) if isinstance(value, list | tuple | range) else (value,)
            if not several:
                raise ValueError(f"{name} must not be empty")
            object.__setattr__(self, name, several)
        # 1, 1.0 and numbers of NumPy must have the same hash.
        for name in (*_WHOLE, *_WHOLE_OR_NONE):
            if name not in _WHOLE_OR_NONE or getattr(self, name) is not None:
                self._convert(name, int, 1)
        self._convert("seed", int, 0)
        for name in _POSITIVE:
            self._convert(name, float, None)
        for name in _NOT_NEGATIVE:
            self._convert(name, float, 0)
        if self.family == "cnn" and len(self.convolutions) != len(self.channels):
            raise ValueError(
                "convolutions and channels must have one number per block, "
                f"got {self.convolutions} and {self.channels}"
            )

    def _convert(self, name: str, kind: type[int] | type[float], least: int | None) -> None:
        """Make a setting a number of Python or a tuple of them; ``least`` None is above zero."""
        value = getattr(self, name)
        for number in value if isinstance(value, tuple) else (value,):
            right = isinstance(number, Integral if kind is int else Real)
            if (
                not right
                or isinstance(number, bool)
                or not math.isfinite(number)
                or (number <= 0 if least is None else number < least)
            ):
                what = "an integer" if kind is int else "a finite number"
                bound = "above 0" if least is None else f"of at least {least}"
                raise ValueError(f"{name} must be {what} {bound}, got {number!r}")
        converted = tuple(map(kind, value)) if isinstance(value, tuple) else kind(value)
        object.__setattr__(self, name, converted)

    @classmethod
    def from_settings(cls, settings: dict[str, Any]) -> Experiment:
        """Create an experiment, refusing settings that its method does not use."""
        if missing := [name for name in ("data", "method") if name not in settings]:
            raise ValueError(f"an experiment needs the settings {' and '.join(missing)}")
        known = {f.name for f in fields(cls)}
        if unknown := [name for name in settings if name not in known]:
            raise ValueError(
                f"unknown settings {', '.join(unknown)}; "
                f"expected some of {', '.join(sorted(known))}"
            )
        experiment = cls(**settings)
        used = settings_of(experiment.method)
        if idle := [name for name in settings if name not in used]:
            names = ", ".join(n for n in used if n != "fingerprint")
            raise ValueError(
                f"method {experiment.method} does not use {', '.join(idle)}; it takes {names}"
            )
        return experiment

    @property
    def family(self) -> str:
        """The family of the method: svm, rr, mlp or cnn."""
        return family_of(self.method)

    @property
    def kind(self) -> str:
        """The kind of kernel or network, such as "ss", "ts" or "ts-lrc"."""
        return self.method.removeprefix("svm-").removeprefix("cnn-")

    @property
    def settings(self) -> dict[str, Any]:
        """Values of the settings that the method uses, by name."""
        used = {name: getattr(self, name) for name in settings_of(self.method)}
        return {k: v for k, v in used.items() if v or k not in _OPTIONAL}

    @property
    def name(self) -> str:
        """Short name with a hash of the settings."""
        settings = json.dumps(self.settings, sort_keys=True).encode()
        digest = hashlib.blake2b(settings, digest_size=6).hexdigest()
        return f"{self.data}-{self.method}-{digest}"

    @property
    def title(self) -> str:
        """Data, method and the main settings in words."""
        words = [self.data, METHODS[self.method]]
        if self.family in ("mlp", "cnn"):
            blocks = "·".join(map(str, self.convolutions)) + " + " if self.family == "cnn" else ""
            words.append(f"depth {blocks}{self.depth}")
        if self.family == "rr":
            words.append(f"{self.width} gates")
        if self.family != "cnn":
            words.append(f"PCA {self.components}" if self.components else "pixels")
        if self.family != "svm":
            words.append(f"seed {self.seed}")
        if self.precision is not None and self.family in ("mlp", "cnn"):
            words.append(self.precision)
        return ", ".join(words)


@dataclass
class Result:
    """Result of an experiment. Errors are fractions, and NaN where they do not apply.

    Parameters
    ----------
    depth : int
        Depth of the fitted model.
    seconds : float
        Time of the fastest epoch, or of the whole fit for methods without epochs.
    one_pass, one_pass_validation : float, default=nan
        Test and validation error after the first epoch.
    best, best_validation : float, default=nan
        Test and validation error at the epoch of lowest validation error.
    best_epoch : int or None, default=None
        Number of that epoch.
    epochs : list of dict, default=[]
        Fields of :class:`tensorswitch.training.Epoch` for every epoch.
    filters : list of list of float, default=None
        Weights of the first hidden units, in pixels, of shape (units, pixels).
    filter_shape : list of int, default=None
        Number of channels, height and width of the images.
    note : str, default=""
        Remark on the result, such as a chosen penalty.
    """

    depth: int
    seconds: float
    one_pass: float = math.nan
    one_pass_validation: float = math.nan
    best: float = math.nan
    best_validation: float = math.nan
    best_epoch: int | None = None
    epochs: list[dict[str, Any]] = field(default_factory=list)
    filters: list[list[float]] | None = None
    filter_shape: list[int] | None = None
    note: str = ""


def percent(error: float) -> str:
    """Format an error as a percentage, or as a dash if it is NaN."""
    return "–" if math.isnan(error) else f"{100 * error:.2f}"
