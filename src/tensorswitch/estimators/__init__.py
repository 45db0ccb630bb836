"""Scikit-learn estimators: ridge regression, kernel machines and networks.

    model = scaling → representation → readout → calibration

Each has these parts, and is saved by them (:func:`save_estimator`).
"""

from tensorswitch.estimators._conv_ridge import TSConvRidgeClassifier
from tensorswitch.estimators._saving import (
    load_estimator,
    load_estimator_with_notes,
    save_estimator,
)
from tensorswitch.estimators._streaming_ridge import (
    StreamingRidgeClassifier,
    StreamingRidgeRegressor,
)
from tensorswitch.estimators._svc_grid import kernel_svc_grid
from tensorswitch.estimators._ts_ridge import TSRidgeClassifier, TSRidgeRegressor
from tensorswitch.estimators.equivalent_kernel import EquivalentKernel
from tensorswitch.estimators.kernel_ridge import TSKernelRidgeClassifier, TSKernelRidgeRegressor
from tensorswitch.estimators.kernel_svc import TSKernelSVC
from tensorswitch.estimators.mlp import TSMLPClassifier, TSMLPRegressor

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
