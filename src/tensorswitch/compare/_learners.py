"""The registry of learners: estimators with a label, a line of explanation and good defaults."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import partial
from importlib import import_module
from inspect import signature
from typing import Any, NamedTuple

import numpy as np
from sklearn.base import clone
from sklearn.compose import TransformedTargetRegressor
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler
from torch import nn

from tensorswitch import estimators
from tensorswitch.compare._predictor import ConstantFeature
from tensorswitch.compare._problem import TASKS, Problem
from tensorswitch.training import Learner as NetworkLearner

SMALL = 10_000  # with fewer training rows, networks are narrower
STEPS = 2_000_000  # rows that a network of many rows is trained with, in all epochs
MOST_COPIES = 1024  # of its input that a network without compression makes
SVM_ROWS = 10_000  # training rows of kernel machines that have no limit of their own

LEGEND = {
    "SS": "scalar switching: ordinary ReLU networks, and kernels of wide ones",
    "TS": "tensor switching: an active unit passes on a copy of its whole input",
    "LRC": "linear rotation-compression: TS layers mix copies into a few numbers",
    "IBP": "inverted backpropagation: gates are learned, too",
}


class Setting(NamedTuple):
    """What the defaults of a learner depend on."""

    task: str
    rows: int
    is_image: bool
    seed: int


@dataclass(frozen=True)
class Learner:
    """A scikit-learn estimator with what a comparison says about it.

    Parameters
    ----------
    label, about : str
        Name in tables, and a line of explanation.
    make : callable
        Takes the task, the number of training rows, whether they are images, and a seed, as one
        named tuple, and returns an estimator or a pipeline with defaults that suit them.
    own, default, images : bool, default=False
        Whether it is of this library, whether it is compared if no learners are named, and whether
        it takes images of shape (rows, height, width, channels) instead of rows of numbers.
    tasks : tuple of str, default=("classification", "regression")
        What it can predict.
    most_rows : int or None, default=None
        How many rows it learns from at most.
    search : mapping of str to tuple, default={}
        Parameters that are chosen by validation, if none is given and there are at most 5,000 rows.

    Examples
    --------
    >>> from tensorswitch.compare import LEARNERS
    >>> LEARNERS["rr"].label
    'TS ridge'
    """

    label: str
    about: str
    make: Callable[[Setting], Any]
    own: bool = False
    tasks: tuple[str, ...] = TASKS
    default: bool = False
    images: bool = False
    most_rows: int | None = None
    search: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)

    @classmethod
    def of(cls, name: str, estimator: Any) -> Learner:
        """Return the learner of any scikit-learn estimator, which is cloned for each fit."""
        kind = type(innermost(estimator))
        own = kind.__module__.startswith("tensorswitch.")
        return cls(name, f"{kind.__name__}, as it was given", lambda _: clone(estimator), own)


def build(
    learner: Learner, problem: Problem, rows: int, given: Mapping[str, Any], seed: int
) -> Any:
    """Return an unfitted estimator for so many rows, with some parameters of its last step."""
    model = learner.make(Setting(problem.task, rows, problem.is_image, seed))
    known = [n for n in innermost(model).get_params() if "__" not in n]  # not of its parts
    for name in given:
        if name.split("__")[0] not in known:
            close = " or ".join(get_close_matches(name, known))
            hint = f"did you mean {close}?" if close else f"expected one of {', '.join(known)}"
            raise ValueError(f"{learner.label} has no parameter {name!r}; {hint}")
    innermost(model).set_params(**given)
    return model


def innermost(estimator: Any) -> Any:
    """Return the estimator that predicts, without the steps around it."""
    if isinstance(estimator, Pipeline):
        return innermost(estimator[-1])
    if isinstance(estimator, TransformedTargetRegressor):
        return innermost(estimator.regressor)
    return estimator


def _of_task(name: str, setting: Setting, **parameters: Any) -> Any:
    """Return the classifier or the regressor of this library."""
    kind = "Classifier" if setting.task == "classification" else "Regressor"
    return getattr(estimators, name + kind)(**parameters, random_state=setting.seed)


def _own(label: str, about: str, name: str, **options: Any) -> Learner:
    return Learner(label, about, partial(_of_task, name), own=True, default=True, **options)


def _network(label: str, kind: str, about: str) -> Learner:
    """Return a network, with fewer units and more epochs if there are few rows."""

    def make(setting: Setting) -> Any:
        NetworkLearner(nn.Linear(1, 1))  # imports torch's compiler, a second that is not learning
        width = 64 if setting.rows < SMALL else 256
        # The readout of an uncompressed network has width^depth · inputs weights.
        layers = (width,) * (1 if kind == "ts-ibp" and width**2 > MOST_COPIES else 2)
        epochs = int(np.clip(STEPS // setting.rows, 20, 200))
        given: Any = {"hidden_layer_sizes": layers, "kind": kind, "max_iter": epochs}
        # Rare pixels are not amplified.
        return _of_task("TSMLP", setting, **given, standardize=not setting.is_image)

    return Learner(label, about, make, own=True)


def _scikit(
    module: str, classifier: str, regressor: str | None = None, **options: Any
) -> Callable[[Setting], Any]:
    """Return a maker of an estimator of scikit-learn."""
    regressor = regressor or classifier.replace("Classifier", "Regressor")

    def make(setting: Setting) -> Any:
        name = classifier if setting.task == "classification" else regressor
        kind = getattr(import_module(f"sklearn.{module}"), name)
        given = {**options, "random_state": setting.seed}
        model = kind(**{k: v for k, v in given.items() if k in signature(kind).parameters})
        if name in ("SVR", "MLPRegressor"):  # their defaults are for targets of unit deviation
            return TransformedTargetRegressor(model, transformer=StandardScaler())
        return model

    return make


def _machine(label: str, kernel: str, of: str) -> Learner:
    """Return a kernel machine, of which depth and C are chosen by validation."""
    given: Any = {"depth": 3, "C": 10.0, "normalize": True, "bias": False}
    search = {"depth": (1, 3, 5), "C": (1.0, 10.0, 100.0)}
    about = f"a support vector machine with the kernel of wide {of} networks"

    def make(_: Setting) -> Any:
        return make_pipeline(ConstantFeature(), estimators.TSKernelSVC(kernel, **given))

    return Learner(label, about, make, own=True, tasks=TASKS[:1], most_rows=SVM_ROWS, search=search)


_penalised = {"max_iter": 2000, "alphas": np.logspace(-3, 4, 15)}
_linear = _scikit("linear_model", "LogisticRegression", "RidgeCV", **_penalised)
_dummy = _scikit("dummy", "DummyClassifier")
_forest = _scikit("ensemble", "RandomForestClassifier", n_jobs=-1)
_boosting = _scikit("ensemble", "HistGradientBoostingClassifier")
_svm = _scikit("svm", "SVC", "SVR")
_mlp = _scikit("neural_network", "MLPClassifier")
_shares = "no learning: the most frequent class, with the shares of all classes as probabilities"
_cv = "logistic regression, or ridge regression with a cross-validated penalty, of scikit-learn"
_kernels = "kernel ridge regression with the kernels of wide networks, chosen by leave-one-out"
_patches = "one-pass ridge regression on gated patches of the images"
_copies = "one-pass ridge regression on the copies of random gates"
_usual = "of scikit-learn, with its defaults"

BASELINES = ("majority", "mean")
LEARNERS: dict[str, Learner] = {
    "majority": Learner("most frequent class", _shares, _dummy, tasks=TASKS[:1]),
    "mean": Learner("mean of the target", "no learning", _dummy, tasks=TASKS[1:]),
    "linear": Learner("linear model", _cv, _linear, default=True),
    "forest": Learner("random forest", f"forest {_usual}", _forest, default=True),
    "boosting": Learner("boosting", f"gradient boosting {_usual}", _boosting, default=True),
    "kernel-ridge": _own("TS kernel ridge", _kernels, "TSKernelRidge"),
    "rr": _own("TS ridge", _copies, "TSRidge"),
    "conv-rr": _own("TS convolution", _patches, "TSConvRidge", images=True, tasks=TASKS[:1]),
    "ss": _network("MLP SS", "ss", "a ReLU network"),
    "ts-lrc": _network("MLP TS LRC", "ts-lrc", "a TS network with fixed gates"),
    "ts-ibp-lrc": _network("MLP TS IBP-LRC", "ts-ibp-lrc", "a TS network with learned gates"),
    "ts-ibp": _network("MLP TS IBP", "ts-ibp", "a TS network without compression"),
    "ss+ts": _network("MLP SS + TS", "ss+ts", "units pass on both activations and copies"),
    "svm": Learner("SVM RBF", f"support vectors {_usual}", _svm, most_rows=SVM_ROWS),
    "svm-ss": _machine("SVM SS", "ss", "ReLU"),
    "svm-ts": _machine("SVM TS", "ts", "TS"),
    "mlp": Learner("MLP sklearn", f"multi-layer perceptron {_usual}", _mlp),
}


# Seconds at 1,000 rows of 20 inputs, and exponents of rows and inputs: benchmarks.compare_times on
# two cores of an AMD EPYC, 20 November 2026.
COSTS = {
    "linear": (0.024, 0.0, 0.0),
    "forest": (0.25, 1.0, 0.4),
    "boosting": (0.34, 0.1, 0.4),
    "kernel-ridge": (0.96, 1.6, 1.2),
    "rr": (0.28, 1.2, 0.1),
    "conv-rr": (1.6, 0.7, 0.7),
    "ss": (0.27, 0.4, 0.0),
    "ts-lrc": (0.47, 0.8, 0.4),
    "ts-ibp-lrc": (0.43, 0.9, 0.6),
    "ts-ibp": (0.44, 0.6, 0.0),
    "ss+ts": (0.76, 0.8, 0.3),
    "svm": (0.014, 1.8, 0.2),
    "svm-ss": (0.031, 1.5, 0.2),
    "svm-ts": (0.042, 1.8, 0.1),
    "mlp": (0.42, 1.0, 2.7),
}


def estimated_seconds(name: str, rows: int, inputs: int) -> float:
    """Return about how long a fit takes; nothing is known of estimators that were given."""
    base, of_rows, of_inputs = COSTS.get(name, (0.0, 0.0, 0.0))
    if (most := LEARNERS[name].most_rows if name in LEARNERS else None) is not None:
        rows = min(rows, most)
    return float(base * (rows / 1_000) ** of_rows * (inputs / 20) ** of_inputs)


def learners_for(problem: Problem) -> list[str]:
    """Return the names of the learners that suit a problem, a baseline first."""
    known = {name: one for name, one in LEARNERS.items() if problem.task in one.tasks}
    return [name for name, one in known.items() if problem.is_image or not one.images]


def chosen_learners(
    wanted: str | Iterable[str] | Mapping[str, Any] | None, problem: Problem
) -> dict[str, Learner]:
    """Return learners by name, the baseline first; names are checked."""
    fitting = learners_for(problem)
    if wanted is None:
        wanted = [name for name in fitting if LEARNERS[name].default]
    elif isinstance(wanted, str):
        wanted = fitting if wanted == "all" else wanted.split(",")
    if not isinstance(wanted, Mapping):
        wanted = dict.fromkeys(name.strip() for name in wanted if name.strip())
    if not wanted:
        raise ValueError(f"no learners given; expected all, or some of {', '.join(fitting)}")
    wanted = {fitting[0]: None, **wanted}
    return {
        name: named(name, problem) if estimator is None else Learner.of(name, estimator)
        for name, estimator in wanted.items()
    }


def named(name: str, problem: Problem) -> Learner:
    """Return a learner of the registry, or raise if it does not suit the problem."""
    fitting = learners_for(problem)
    if name not in LEARNERS:
        raise ValueError(f"unknown method {name!r}; expected one of {', '.join(fitting)}")
    if name not in fitting:
        kind = "images" if problem.is_image else f"a {problem.task} of rows without images"
        raise ValueError(f"{name} cannot be used for {kind}; expected one of {', '.join(fitting)}")
    return LEARNERS[name]
