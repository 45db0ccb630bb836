"""The methods of a comparison: this library's, and scikit-learn's with their defaults."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from tensorswitch import estimators
from tensorswitch.experiments.experiment import METHODS as PAPER

__all__ = ["COMPARED", "LEGEND", "Method", "Setting", "methods_for"]

SVM_ROWS = 10_000  # training rows of kernel machines that have no limit of their own
MOST_COPIES = 1024  # of its input that a network without compression makes
RATE, WIDE = 1e-3, 32  # learning rate, and the inputs beyond which TS layers take smaller steps

LEGEND = {
    "SS": "scalar switching: ordinary ReLU networks, and kernels of wide ones",
    "TS": "tensor switching: an active unit passes on a copy of its whole input",
    "RR": "one-pass ridge regression on the copies of random gates",
    "LRC": "linear rotation-compression: TS layers mix copies into a few numbers",
    "IBP": "inverted backpropagation: gates are learned, too",
}


@dataclass(frozen=True)
class Setting:
    """What a method may need to know to be built.

    Parameters
    ----------
    task : {"classification", "regression"}
        What is predicted.
    train : ndarray of shape (rows, features)
        Training inputs.
    depth, width : int
        Hidden layers of networks, and units of each; gates of ridge regression.
    epochs, batch_size : int
        Passes over the data, and rows per step.
    lr : float or None
        Learning rate of networks; None for one that suits the number of inputs.
    seed : int
        Seed of all random numbers.
    """

    task: str
    train: np.ndarray
    depth: int = 2
    width: int = 64
    epochs: int = 20
    batch_size: int = 32
    lr: float | None = None
    seed: int = 0


@dataclass(frozen=True)
class Method:
    """A way to learn.

    Parameters
    ----------
    label : str
        Name in tables.
    about : str
        A line of explanation.
    make : callable
        Takes a :class:`Setting` and returns an estimator.
    own : bool, default=True
        Whether it is a method of this library.
    tasks : tuple of str, default=("classification", "regression")
        What it can predict.
    epochs : bool, default=False
        Whether it is trained epoch by epoch.
    images : bool, default=False
        Whether it takes images instead of rows.
    constant : bool, default=False
        Whether it needs rows of unit mean squared length with a constant feature.
    most_rows : int or None, default=None
        How many rows it learns from at most.
    """

    label: str
    about: str
    make: Callable[[Setting], Any]
    own: bool = True
    tasks: tuple[str, ...] = ("classification", "regression")
    epochs: bool = False
    images: bool = False
    constant: bool = False
    most_rows: int | None = None


def _by_task(name: str, setting: Setting, **options: Any) -> Any:
    """Return the classifier or regressor of this library."""
    kind = "Classifier" if setting.task == "classification" else "Regressor"
    return getattr(estimators, name + kind)(**options)


def _network(kind: str) -> Callable[[Setting], Any]:
    def make(setting: Setting) -> Any:
        depth, width = setting.depth, setting.width
        if kind == "ts-ibp" and width**depth > MOST_COPIES:
            depth = 1  # the readout of an uncompressed network has width^depth · inputs weights
        return _by_task(
            "TSMLP",
            setting,
            hidden_layer_sizes=(width,) * depth,
            kind=kind,
            learning_rate_init=_rate(kind, setting),
            batch_size=setting.batch_size,
            standardize=False,  # the inputs have been prepared
            random_state=setting.seed,
        )

    return make


def _rate(kind: str, setting: Setting) -> float:
    """Return the learning rate: steps of a TS layer add up over its inputs and open gates.

    Those of an SS + TS layer do not, as it divides its copies.
    """
    if setting.lr is not None:
        return setting.lr
    return RATE if kind in ("ss", "ss+ts") else RATE * min(1.0, WIDE / setting.train.shape[1])


def _ridge(setting: Setting) -> Any:
    return _by_task("TSRidge", setting, gates=setting.width, random_state=setting.seed)


def _kernel_ridge(setting: Setting) -> Any:
    return _by_task("TSKernelRidge", setting, random_state=setting.seed)


def _kernel_svm(kind: str) -> Callable[[Setting], Any]:
    return lambda setting: estimators.TSKernelSVC(kind, depth=3, C=10.0, normalize=True)


def _convolution(setting: Setting) -> Any:
    return estimators.TSConvRidgeClassifier(random_state=setting.seed)


def _scikit(module: str, classifier: str, regressor: str, **options: Any) -> Callable[..., Any]:
    """Return a maker of an estimator of scikit-learn."""

    def make(setting: Setting) -> Any:
        from importlib import import_module

        name = classifier if setting.task == "classification" else regressor
        kind = getattr(import_module(f"sklearn.{module}"), name)
        known = inspect.signature(kind).parameters
        given = {k: v for k, v in options.items() if k in known}
        if "random_state" in known:
            given["random_state"] = setting.seed
        return kind(**given)

    return make


SKLEARN = "of scikit-learn, with its defaults"
COMPARED: dict[str, Method] = {
    "linear": Method(
        "linear model",
        "logistic regression, or ridge regression with a cross-validated penalty (scikit-learn)",
        _scikit(
            "linear_model",
            "LogisticRegression",
            "RidgeCV",
            max_iter=2000,
            alphas=np.logspace(-3, 4, 15),
        ),
        own=False,
    ),
    "forest": Method(
        "random forest",
        f"the random forest {SKLEARN}",
        _scikit("ensemble", "RandomForestClassifier", "RandomForestRegressor", n_jobs=-1),
        own=False,
    ),
    "boosting": Method(
        "boosting",
        f"histogram gradient boosting {SKLEARN}",
        _scikit("ensemble", "HistGradientBoostingClassifier", "HistGradientBoostingRegressor"),
        own=False,
    ),
    "svm": Method(
        "SVM RBF",
        f"the support vector machine {SKLEARN}",
        _scikit("svm", "SVC", "SVR"),
        own=False,
        most_rows=SVM_ROWS,
    ),
    "mlp": Method(
        "MLP sklearn",
        f"the multi-layer perceptron {SKLEARN}",
        _scikit("neural_network", "MLPClassifier", "MLPRegressor"),
        own=False,
    ),
    "ss": Method(PAPER["ss"], "a ReLU network", _network("ss"), epochs=True),
    "ts-lrc": Method(
        PAPER["ts-lrc"], "a TS network with fixed gates", _network("ts-lrc"), epochs=True
    ),
    "ts-ibp-lrc": Method(
        PAPER["ts-ibp-lrc"], "a TS network with learned gates", _network("ts-ibp-lrc"), epochs=True
    ),
    "ts-ibp": Method(
        PAPER["ts-ibp"], "a TS network without compression", _network("ts-ibp"), epochs=True
    ),
    "ss+ts": Method(
        PAPER["ss+ts"],
        "a network whose units pass on activations and copies",
        _network("ss+ts"),
        epochs=True,
    ),
    "rr": Method(PAPER["rr"], "ridge regression on the copies of random gates", _ridge),
    "kernel-ridge": Method(
        PAPER["kernel-ridge"],
        "kernel ridge regression with the kernels of wide networks, chosen by leave-one-out",
        _kernel_ridge,
    ),
    "svm-ss": Method(
        PAPER["svm-ss"],
        "a support vector machine with the kernel of wide ReLU networks",
        _kernel_svm("ss"),
        tasks=("classification",),
        constant=True,
        most_rows=SVM_ROWS,
    ),
    "svm-ts": Method(
        PAPER["svm-ts"],
        "a support vector machine with the kernel of wide TS networks",
        _kernel_svm("ts"),
        tasks=("classification",),
        constant=True,
        most_rows=SVM_ROWS,
    ),
    "conv-rr": Method(
        PAPER["conv-rr"],
        "one-pass ridge regression on gated patches of the images",
        _convolution,
        tasks=("classification",),
        images=True,
    ),
}


def methods_for(task: str, images: bool) -> list[str]:
    """Return the methods that suit a problem.

    Parameters
    ----------
    task : {"classification", "regression"}
        What is predicted.
    images : bool
        Whether the rows are images.

    Returns
    -------
    list of str
        Names of methods.
    """
    return [
        name
        for name, method in COMPARED.items()
        if task in method.tasks and (images or not method.images)
    ]
