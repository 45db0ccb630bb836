"""Kernel ridge regression with the equivalent kernels, chosen by exact leave-one-out error.

    f(x) = Σ_i α_i k(z(x), z_i) + b        min Σ_i w_i ‖y_i − f(x_i)‖² + λ ‖f‖²

``z`` scales the columns, weighs them and adds a constant; ``k`` is an SS, TS or tangent kernel. The
intercept b is not penalised. Scaling, column weights, kernel, depth, constant and λ are those of
least leave-one-out error. This is the dual solver of :mod:`tensorswitch.linear` with another Gram
matrix. The front for scikit-learn is :mod:`tensorswitch.estimators`.
"""

from tensorswitch.kernel_ridge._model import KernelModel
from tensorswitch.kernel_ridge._search import Search, SearchResult

__all__ = ["KernelModel", "Search", "SearchResult"]
