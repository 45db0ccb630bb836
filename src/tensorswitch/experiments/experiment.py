"""One experiment: a method with its settings on one data set, and its result."""

from __future__ import annotations

import hashlib
import json
import math
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from tensorswitch._checks import check_above_zero, check_number, check_positive, check_seed

__all__ = ["METHODS", "Experiment", "Result"]

METHODS = {
    "svm-ss": "SVM SS",
    "svm-ts": "SVM TS",
    "ss": "MLP SS",
    "rr": "MLP TS RR",
    "ts-lrc": "MLP TS LRC",
    "ts-ibp-lrc": "MLP TS IBP-LRC",
    "ts-ibp": "MLP TS IBP",
    "cnn-ss": "CNN SS",
    "cnn-ts-lrc": "CNN TS LRC",
    "cnn-ts-ibp-lrc": "CNN TS IBP-LRC",
}
_ALWAYS = ("data", "method", "extra", "fingerprint")
_TRAINED = ("depth", "width", "epochs", "lr", "momentum", "weight_decay", "batch_size", "seed")
_SETTINGS = {
    "svm": ("components", "depths", "Cs", "trial_rows"),
    "rr": ("components", "width", "alphas", "tol", "seed"),
}
_SETTINGS |= {"mlp": ("components", *_TRAINED), "cnn": ("convolutions", "channels", *_TRAINED)}


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """A method with its settings, by default those of the paper.

    Parameters
    ----------
    data : a data set by name, or the path of one
    method : one of ``METHODS``
    components : principal components of the inputs; None leaves the pixels
    depth, width : hidden layers, and units of each; of a cnn, the layers above the SS layer
    epochs, lr, momentum, weight_decay, batch_size : of networks that learn by gradients
    convolutions, channels : of each block of a cnn
    depths, Cs : of an svm; the best by validation error is taken, tried on the first ``trial_rows`` rows (all, if None)
    alphas : λ of ridge regression, as parts of the mean of the diagonal; the best by generalised cross-validation is taken
    tol : residual at which its conjugate gradients stop
    seed : of weights and of the order of rows
    extra : take SVHN's extra images for training too
    fingerprint : of the data, so that results of other data under the same name are never mistaken for these
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
    extra: bool = False
    fingerprint: str | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.data, str):
            raise ValueError(f"data must be a name or a path, got {self.data!r}")
        if not isinstance(self.extra, bool):
            raise ValueError(f"extra must be true or false, got {self.extra!r}")
        if self.method not in METHODS:
            raise ValueError(f"unknown method {self.method!r}; known are {', '.join(METHODS)}")
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
        check_number(momentum=self.momentum, weight_decay=self.weight_decay)
        for name in ("lr", "tol", "momentum", "weight_decay"):  # 1 and 1.0 are the same setting
            object.__setattr__(self, name, float(getattr(self, name)))
        for name in ("Cs", "alphas"):
            object.__setattr__(self, name, tuple(map(float, getattr(self, name))))
        check_seed(self.seed)
        if self.family == "cnn" and len(self.convolutions) != len(self.channels):
            raise ValueError(
                f"convolutions {self.convolutions} and channels {self.channels} must have a number for each block"
            )

    @classmethod
    def from_settings(cls, settings: dict[str, Any]) -> Experiment:
        """From names and values, of which those that mean nothing to the method are refused."""
        if missing := [name for name in ("data", "method") if name not in settings]:
            raise ValueError(f"an experiment needs {' and '.join(missing)}")
        known = {f.name for f in fields(cls)}
        if unknown := [name for name in settings if name not in known]:
            raise ValueError(
                f"unknown settings {', '.join(unknown)}; known are {', '.join(sorted(known))}"
            )
        try:
            experiment = cls(**settings)
        except TypeError as error:
            raise ValueError(str(error)) from None
        if idle := [name for name in settings if name not in experiment.settings_names]:
            names = ", ".join(n for n in experiment.settings_names if n != "fingerprint")
            raise ValueError(
                f"{', '.join(idle)} means nothing to the method {experiment.method}; it takes {names}"
            )
        return experiment

    @property
    def family(self) -> str:
        """ "svm", "rr", "mlp" or "cnn"."""
        first = self.method.split("-")[0]
        return first if first in ("svm", "rr", "cnn") else "mlp"

    @property
    def kind(self) -> str:
        """The kernel or network: "ss", "ts", "ts-lrc", …"""
        return self.method.removeprefix("svm-").removeprefix("cnn-")

    @property
    def settings_names(self) -> tuple[str, ...]:
        return (*_ALWAYS, *_SETTINGS[self.family])

    @property
    def settings(self) -> dict[str, Any]:
        """All that the result depends on."""
        return {name: getattr(self, name) for name in self.settings_names}

    @property
    def name(self) -> str:
        """Short, and different for every different experiment; it does not matter where data with a fingerprint lie."""
        settings = {
            **self.settings,
            "data": Path(self.data).name if self.fingerprint else self.data,
        }
        digest = hashlib.blake2b(
            json.dumps(settings, sort_keys=True).encode(), digest_size=6
        ).hexdigest()
        return f"{Path(self.data).stem}-{self.method}-{digest}"


@dataclass
class Result:
    """Errors are fractions; nan where there is none, as for one pass of an SVM."""

    depth: int
    seconds: float  # of an epoch, or of the whole fit where there are no epochs
    one_pass: float = math.nan
    one_pass_validation: float = math.nan
    best: float = math.nan
    best_validation: float = math.nan
    best_epoch: int | None = None
    epochs: list[dict[str, Any]] = field(default_factory=list)
    filters: list[list[float]] | None = None  # of hidden units, in pixels
    filter_shape: list[int] | None = None  # channels, height, width
    note: str = ""
