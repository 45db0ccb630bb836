"""Kernel ridge regression with the equivalent kernels, chosen by exact leave-one-out error.

    f(x) = Σ_i α_i k(z(x), z_i) + b        min Σ_i w_i ‖y_i − f(x_i)‖² + λ ‖f‖²

``z`` scales the columns, weighs them and adds a constant; ``k`` is an SS, TS or tangent kernel. The
intercept b is not penalised. Scaling, column weights, kernel, depth, constant and λ are those of
least leave-one-out error, which one eigendecomposition gives for a whole path of λ. The front for
scikit-learn is :mod:`tensorswitch.estimators`.
"""

from tensorswitch.kernel_ridge._calibration import Calibration, smoothed_targets, weights_of_rows
from tensorswitch.kernel_ridge._candidates import Candidate
from tensorswitch.kernel_ridge._loo import LeaveOneOut, loo_at, loo_path
from tensorswitch.kernel_ridge._model import KernelModel
from tensorswitch.kernel_ridge._rows import DistinctRows
from tensorswitch.kernel_ridge._scaling import SCALINGS, Scaling
from tensorswitch.kernel_ridge._search import (
    BIASES,
    DEPTHS,
    KINDS,
    PENALTIES,
    Search,
)
from tensorswitch.kernel_ridge._sensitivity import kappa

__all__ = [
    "BIASES",
    "DEPTHS",
    "KINDS",
    "PENALTIES",
    "SCALINGS",
    "Calibration",
    "Candidate",
    "DistinctRows",
    "KernelModel",
    "LeaveOneOut",
    "Scaling",
    "Search",
    "kappa",
    "loo_at",
    "loo_path",
    "smoothed_targets",
    "weights_of_rows",
]
