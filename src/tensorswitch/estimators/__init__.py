"""Scikit-learn estimators: ridge regression, networks and kernel machines."""

from tensorswitch.estimators.equivalent_kernel import EquivalentKernel
from tensorswitch.estimators.kernel_ridge import TSKernelRidgeClassifier, TSKernelRidgeRegressor
from tensorswitch.estimators.kernel_svc import TSKernelSVC, kernel_svc_grid
from tensorswitch.estimators.mlp import TSMLPClassifier, TSMLPRegressor
from tensorswitch.estimators.ridge_classifier import TSRidgeClassifier
from tensorswitch.estimators.ridge_regressor import TSRidgeRegressor

__all__ = [
    "EquivalentKernel",
    "TSKernelRidgeClassifier",
    "TSKernelRidgeRegressor",
    "TSKernelSVC",
    "TSMLPClassifier",
    "TSMLPRegressor",
    "TSRidgeClassifier",
    "TSRidgeRegressor",
    "kernel_svc_grid",
]
