"""Scikit-learn estimators: ridge regression, kernel machines and networks.

    model = scaling → representation → readout → calibration

Each has these parts, and is saved by them (:func:`save_estimator`).
"""

from tensorswitch.estimators._conv_ridge import TSConvRidgeClassifier
from tensorswitch.estimators._equivalent_kernel import EquivalentKernel
from tensorswitch.estimators._kernel_ridge import TSKernelRidgeClassifier, TSKernelRidgeRegressor
from tensorswitch.estimators._kernel_svc import TSKernelSVC
from tensorswitch.estimators._mlp import TSMLPClassifier, TSMLPRegressor
from tensorswitch.estimators._on_dask import fit_on_dask
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
    "fit_on_dask",
    "kernel_svc_grid",
    "load_estimator",
    "load_estimator_with_notes",
    "save_estimator",
]
