"""Describe an experiment (a method, its settings and a data set) and its result."""

from __future__ import annotations

import hashlib
import json
import math
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from tensorswitch._checks import check_above_zero, check_number, check_positive, check_seed

__all__ = ["METHODS", "SGD", "Experiment", "Result"]

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
    "kernel-ridge": "TS kernel ridge",
    "conv-rr": "CONV TS RR",
}
_ALWAYS = ("data", "method", "extra", "fingerprint")
_OPTIONAL = ("target", "precision")  # not in names if None, so that other names stay the same
SGD = ("lr", "momentum", "weight_decay", "batch_size", "seed", "precision")
_TRAINED = ("depth", "width", "epochs", *SGD)
_SETTINGS = {
    "svm": ("components", "depths", "Cs", "trial_rows"),
    "rr": ("components", "width", "alphas", "tol", "seed"),
}
_SETTINGS |= {"kernel-ridge": ("components", "seed"), "conv-rr": ("seed",)}
_SETTINGS |= {"mlp": ("components", *_TRAINED), "cnn": ("convolutions", "channels", *_TRAINED)}


def _family(method: str) -> str:
    if method in _SETTINGS:
        return method
    first = method.split("-")[0]
    return first if first in ("svm", "rr", "cnn") else "mlp"


def settings_of(method: Any) -> tuple[str, ...]:
    """Return the names of the settings that a method uses.

    Parameters
    ----------
    method : str
        Name of the method.

    Returns
    -------
    tuple of str
        Names of settings, empty for an unknown method.
    """
    if not isinstance(method, str) or method not in METHODS:
        return ()
    return (*_ALWAYS, "target", *_SETTINGS[_family(method)])


_WHOLE = (
    *("components", "depth", "width", "epochs", "batch_size", "convolutions", "channels"),
    *("depths", "trial_rows", "seed"),
)
_REAL = ("lr", "momentum", "weight_decay", "Cs", "alphas", "tol")


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """A method, its settings and the data set to run it on.

    Defaults are the settings of the paper. Settings that the method does not use are ignored.

    Parameters
    ----------
    data : str
        Name or path of a data set.
    method : str
        One of :data:`METHODS`.
    components : int or None, default=None
        Number of principal components of the inputs; None keeps the pixels.
    depth : int, default=1
        Number of hidden layers; for a CNN, the number of layers above the first dense layer.
    width : int, default=256
        Number of units per hidden layer.
    epochs : int, default=1
        Number of passes over the training data.
    lr : float, default=1e-3
        Learning rate of stochastic gradient descent.
    momentum : float, default=0.9
        Momentum of stochastic gradient descent.
    weight_decay : float, default=1e-3
        L2 penalty on the trained weights.
    batch_size : int, default=128
        Number of rows per step.
    convolutions : tuple of int, default=(1, 1, 1)
        Number of convolutions in each block of a CNN.
    channels : tuple of int, default=(32, 64, 128)
        Number of channels in each block of a CNN.
    depths : tuple of int, default=(1,)
        Kernel depths of an SVM; the best by validation error is used.
    Cs : tuple of float, default=(10.0,)
        Penalties of an SVM; the best by validation error is used.
    trial_rows : int or None, default=None
        Number of training rows on which ``depths`` and ``Cs`` are tried; None uses all of them.
    alphas : tuple of float, default=(1.0,)
        Penalties of ridge regression as fractions of the mean of the Gram matrix's diagonal; the
        best is chosen by generalised cross-validation.
    tol : float, default=5e-3
        Relative residual at which conjugate gradients stop.
    seed : int, default=0
        Seed of the weights and of the order of the rows.
    precision : {None, "bf16"}, default=None
        ``"bf16"`` trains a network with products in bfloat16.
    extra : bool, default=False
        Whether to train on the extra images of SVHN, too.
    target : str or None, default=None
        Column of a table to predict; None is ``label``, ``class``, ``target``, ``y`` or the last.
    fingerprint : str or None, default=None
        Fingerprint of the data. It keeps results on different data of the same name apart.

    Raises
    ------
    ValueError
        If a setting is invalid.
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
    extra: bool = False
    target: str | None = None
    fingerprint: str | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.data, str):
            raise ValueError(f"data must be a name or a path, got {self.data!r}")
        if not isinstance(self.extra, bool):
            raise ValueError(f"extra must be true or false, got {self.extra!r}")
        if self.method not in METHODS:
            raise ValueError(
                f"unknown method {self.method!r}; expected one of {', '.join(METHODS)}"
            )
        for name in ("convolutions", "channels", "depths", "Cs", "alphas"):
            value = getattr(self, name)
            values = tuple(value) if isinstance(value, list | tuple | range) else (value,)
            if not values:
                raise ValueError(f"{name} must not be empty")
            object.__setattr__(self, name, values)
        check_positive(
            depth=self.depth, width=self.width, epochs=self.epochs, batch_size=self.batch_size
        )
        for name in ("convolutions", "channels", "depths"):
            check_positive(**{f"{name}[{i}]": n for i, n in enumerate(getattr(self, name))})
        for name in ("components", "trial_rows"):
            if getattr(self, name) is not None:
                check_positive(**{name: getattr(self, name)})
        check_above_zero(
            lr=self.lr,
            tol=self.tol,
            **{
                f"{name}[{i}]": v
                for name in ("Cs", "alphas")
                for i, v in enumerate(getattr(self, name))
            },
        )
        if self.target is not None and not isinstance(self.target, str):
            raise ValueError(f"target must be the name of a column as text, got {self.target!r}")
        check_number(momentum=self.momentum, weight_decay=self.weight_decay)
        check_seed(self.seed)
        for kind, names in ((int, _WHOLE), (float, _REAL)):  # 1 and 1.0 must hash alike
            for name in names:
                value = getattr(self, name)
                if isinstance(value, tuple):
                    object.__setattr__(self, name, tuple(map(kind, value)))
                elif value is not None:
                    object.__setattr__(self, name, kind(value))
        if self.precision not in (None, "bf16"):
            raise ValueError(f"precision must be None or 'bf16', got {self.precision!r}")
        if self.family == "cnn" and len(self.convolutions) != len(self.channels):
            raise ValueError(
                "convolutions and channels must have one number per block, "
                f"got {self.convolutions} and {self.channels}"
            )

    @classmethod
    def from_settings(cls, settings: dict[str, Any]) -> Experiment:
        """Create an experiment from a mapping, rejecting settings that its method does not use.

        Parameters
        ----------
        settings : dict
            Values by parameter name.

        Returns
        -------
        Experiment
            The experiment.

        Raises
        ------
        ValueError
            If a setting is missing, unknown, invalid or not used by the method.
        """
        if missing := [name for name in ("data", "method") if name not in settings]:
            raise ValueError(f"an experiment needs the settings {' and '.join(missing)}")
        known = {f.name for f in fields(cls)}
        if unknown := [name for name in settings if name not in known]:
            raise ValueError(
                f"unknown settings {', '.join(unknown)}; "
                f"expected some of {', '.join(sorted(known))}"
            )
        try:
            experiment = cls(**settings)
        except TypeError as error:
            raise ValueError(str(error)) from None
        used = settings_of(experiment.method)
        if idle := [name for name in settings if name not in used]:
            names = ", ".join(n for n in used if n != "fingerprint")
            raise ValueError(
                f"method {experiment.method} does not use {', '.join(idle)}; it takes {names}"
            )
        return experiment

    @property
    def family(self) -> str:
        """The family of the method: a key of its settings, such as "svm", "rr" or "mlp"."""
        return _family(self.method)

    @property
    def kind(self) -> str:
        """The kind of kernel or network, such as "ss", "ts" or "ts-lrc"."""
        return self.method.removeprefix("svm-").removeprefix("cnn-")

    @property
    def settings_names(self) -> tuple[str, ...]:
        """Names of the settings that the method uses."""
        used = settings_of(self.method)
        return tuple(n for n in used if n not in _OPTIONAL or getattr(self, n) is not None)

    @property
    def settings(self) -> dict[str, Any]:
        """Values of the settings that the method uses, by name."""
        return {name: getattr(self, name) for name in self.settings_names}

    @property
    def name(self) -> str:
        """Short name with a hash of the settings; the folder of fingerprinted data is left out."""
        settings = {
            **self.settings,
            "data": Path(self.data).name if self.fingerprint else self.data,
        }
        digest = hashlib.blake2b(
            json.dumps(settings, sort_keys=True).encode(), digest_size=6
        ).hexdigest()
        return f"{Path(self.data).stem}-{self.method}-{digest}"

    @property
    def title(self) -> str:
        """Data, method and the main settings in words."""
        words = [self.data, METHODS[self.method]]
        if self.family in ("mlp", "cnn"):
            blocks = "·".join(map(str, self.convolutions)) + " + " if self.family == "cnn" else ""
            words.append(f"depth {blocks}{self.depth}")
        if self.family == "rr":
            words.append(f"{self.width} gates")
        if self.family not in ("cnn", "conv-rr"):
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
    one_pass : float, default=nan
        Test error after the first epoch.
    one_pass_validation : float, default=nan
        Validation error after the first epoch.
    best : float, default=nan
        Test error at the epoch of lowest validation error.
    best_validation : float, default=nan
        Lowest validation error.
    best_epoch : int or None, default=None
        Number of the epoch of lowest validation error.
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
