"""The scikit-learn front."""

from tensorswitch.estimators.equivalent_kernel import EquivalentKernel
from tensorswitch.estimators.kernel_svc import TSKernelSVC, kernel_svc_grid
from tensorswitch.estimators.mlp import TSMLPClassifier, TSMLPRegressor
from tensorswitch.estimators.ridge import TSRidgeClassifier, TSRidgeRegressor

__all__ = [
    "EquivalentKernel",
    "TSKernelSVC",
    "TSMLPClassifier",
    "TSMLPRegressor",
    "TSRidgeClassifier",
    "TSRidgeRegressor",
    "kernel_svc_grid",
]
