"""Learners for :mod:`benchmarks.tables`: defaults, and lightly tuned ones."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import Any

import numpy as np
from scipy.stats import loguniform, randint, uniform
from sklearn.compose import TransformedTargetRegressor
from sklearn.ensemble import (
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
)
from sklearn.linear_model import LogisticRegression, RidgeCV
from sklearn.model_selection import RandomizedSearchCV
from sklearn.neural_network import MLPClassifier, MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC, SVR

from tensorswitch.estimators import (
    TSKernelRidgeClassifier,
    TSKernelRidgeRegressor,
    TSKernelSVC,
    TSMLPClassifier,
    TSMLPRegressor,
    TSRidgeClassifier,
    TSRidgeRegressor,
)

OURS = "TS kernel ridge"
DRAWS, FOLDS = 8, 3  # of a light search
# Parameters of one thread and no output, for packages that come on top.
PACKAGES: dict[str, tuple[str, dict[str, Any]]] = {
    "lightgbm": ("LGBM", {"verbose": -1, "n_jobs": 1}),
    "xgboost": ("XGB", {"n_jobs": 1}),
    "catboost": ("CatBoost", {"verbose": 0, "allow_writing_files": False, "thread_count": 1}),
}

Maker = Callable[[], Any]


def scaled(model: Any) -> Any:
    """The model on standardised columns."""
    return make_pipeline(StandardScaler(), model)


def scaled_both(model: Any) -> Any:
    """The model on standardised columns and targets."""
    return TransformedTargetRegressor(scaled(model), transformer=StandardScaler())


def defaults(classes: bool) -> dict[str, Maker]:
    """The learners of others with their defaults, and TS kernel ridge."""
    found: dict[str, Maker]
    if classes:
        found = {
            OURS: TSKernelRidgeClassifier,
            "linear": lambda: scaled(LogisticRegression(max_iter=2000)),
            "forest": lambda: RandomForestClassifier(random_state=0),
            "boosting": lambda: HistGradientBoostingClassifier(random_state=0),
            "MLP": lambda: scaled(MLPClassifier(random_state=0)),
            "SVM": lambda: scaled(SVC()),
        }
    else:
        found = {
            OURS: TSKernelRidgeRegressor,
            "linear": lambda: scaled(RidgeCV(np.logspace(-3, 4, 15))),
            "forest": lambda: RandomForestRegressor(random_state=0),
            "boosting": lambda: HistGradientBoostingRegressor(random_state=0),
            "MLP": lambda: scaled_both(MLPRegressor(random_state=0)),
            "SVM": lambda: scaled_both(SVR()),
        }
    kind = "Classifier" if classes else "Regressor"
    for module, (prefix, options) in PACKAGES.items():
        try:
            make = getattr(import_module(module), prefix + kind)
        except ImportError:
            continue
        found[module] = partial(make, random_state=0, **options)
    return found


def of_this_library(classes: bool) -> dict[str, Maker]:
    """The other estimators of this library with their defaults."""
    if classes:
        return {
            "TS ridge": TSRidgeClassifier,
            "TS MLP": lambda: TSMLPClassifier(random_state=0),
            "TS SVM": lambda: scaled(TSKernelSVC()),
        }
    return {"TS ridge": TSRidgeRegressor, "TS MLP": lambda: TSMLPRegressor(random_state=0)}


def tuned(classes: bool) -> dict[str, Maker]:
    """Randomised searches of a few draws, as people do who have a few minutes."""
    makers = defaults(classes)
    svm, mlp = ("svc__", "mlpclassifier__")
    if not classes:
        svm, mlp = ("regressor__svr__", "regressor__mlpregressor__")
    spaces: dict[str, dict[str, Any]] = {
        "forest": {"max_features": uniform(0.1, 0.9), "min_samples_leaf": randint(1, 8)},
        "SVM": {f"{svm}C": loguniform(0.1, 1000), f"{svm}gamma": loguniform(1e-4, 1)},
        "MLP": {
            f"{mlp}alpha": loguniform(1e-5, 10),
            f"{mlp}learning_rate_init": loguniform(3e-4, 1e-2),
        },
        "lightgbm": {
            "learning_rate": loguniform(0.02, 0.2),
            "num_leaves": randint(4, 40),
            "min_child_samples": randint(3, 40),
            "colsample_bytree": uniform(0.4, 0.6),
        },
    }
    if classes:
        spaces["linear"] = {"logisticregression__C": loguniform(1e-3, 1e3)}
    options: dict[str, Any] = {"n_iter": DRAWS, "cv": FOLDS, "random_state": 0}
    return {
        f"{name}, tuned": partial(_searched, makers[name], space, options)
        for name, space in spaces.items()
        if name in makers
    }


def _searched(make: Maker, space: dict[str, Any], options: dict[str, Any]) -> RandomizedSearchCV:
    return RandomizedSearchCV(make(), space, **options)


GROUPS: dict[str, Callable[[bool], dict[str, Maker]]] = {
    "defaults": defaults,
    "tuned": tuned,
    "library": of_this_library,
}
