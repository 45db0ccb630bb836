"""Scikit-learn estimators: ridge regression, networks and kernel machines."""

from tensorswitch.estimators._saving import (
    load_estimator,
    load_estimator_with_notes,
    save_estimator,
)
from tensorswitch.estimators._svc_grid import kernel_svc_grid
from tensorswitch.estimators.conv_ridge import TSConvRidgeClassifier
from tensorswitch.estimators.equivalent_kernel import EquivalentKernel
from tensorswitch.estimators.kernel_ridge import TSKernelRidgeClassifier, TSKernelRidgeRegressor
from tensorswitch.estimators.kernel_svc import TSKernelSVC
from tensorswitch.estimators.mlp import TSMLPClassifier, TSMLPRegressor
from tensorswitch.estimators.ridge_classifier import TSRidgeClassifier
from tensorswitch.estimators.ridge_regressor import TSRidgeRegressor
from tensorswitch.estimators.streaming_ridge import (
    StreamingRidgeClassifier,
    StreamingRidgeRegressor,
)

__all__ = [
    "EquivalentKernel",
    "StreamingRidgeClassifier",
    "StreamingRidgeRegressor",
    "TSConvRidgeClassifier",
    "TSKernelRidgeClassifier",
    "TSKernelRidgeRegressor",
    "TSKernelSVC",
    "TSMLPClassifier",
    "TSMLPRegressor",
    "TSRidgeClassifier",
    "TSRidgeRegressor",
    "kernel_svc_grid",
    "load_estimator",
    "load_estimator_with_notes",
    "save_estimator",
]
