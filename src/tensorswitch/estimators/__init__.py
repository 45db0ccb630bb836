"""scikit-learn estimators."""

from tensorswitch.estimators.equivalent_kernel import EquivalentKernel
from tensorswitch.estimators.kernel_svc import TSKernelSVC, kernel_svc_grid

__all__ = ["EquivalentKernel", "TSKernelSVC", "kernel_svc_grid"]
