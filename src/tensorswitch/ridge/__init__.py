"""One-pass ridge regression: the exact readout of a TS network of any depth with fixed gates.

    W = argmin Σ_b s_b ‖Wᵀ z_b − t_b‖² + λ ‖W‖²,        z = h_L ⊗ … ⊗ h_1 ⊗ x

There are three solvers, which compute the same solution:

- :class:`RidgeStatistics` (*streaming*) accumulates ``C = Σ s z zᵀ`` and ``S = Σ s z tᵀ`` in a
  single pass over the data. Statistics of different rows can be merged.
- :func:`solve_matrix_free` runs conjugate gradients on data in memory. An iteration applies two
  switched linear maps, and no Gram matrix is formed.
- :func:`solve_dual` is for problems with few rows. It uses the kernel
  ``K = (X Xᵀ) ∘ Π_l (H_l H_lᵀ)``, whose cost hardly depends on the depth.

:func:`choose_solver` picks the solver with the lowest estimated cost among those that fit into
memory, and :func:`solve` runs it. With ``alpha="mean"`` λ is the mean of the diagonal of ``C``, as
in the paper [1]_. Given several values, the dual solver selects the one with the lowest exact
leave-one-out error, the others the one with the lowest exact cross-validation error; generalised
cross-validation (GCV) [2]_ is used on request, and by :class:`RidgeStatistics` without folds. With
``fit_intercept=True`` there is an intercept that is not penalised.

In place of gate weights, all solvers accept the gates themselves, as a boolean tensor or as
:class:`~tensorswitch.Routes` that copy one input row to each row of the targets. The streaming
solver for such rows is :class:`RouteStatistics`. Where several input rows add up, as with max
pooling, ``z`` does not have the form above; use ``Routes.expand`` and :class:`FeatureStatistics`.

References
----------
.. [1] C.-Y. Tsai, A. Saxe and D. Cox, "Tensor Switching Networks", NIPS 2016, arXiv:1610.10087.
.. [2] G. H. Golub, M. Heath and G. Wahba, "Generalized Cross-Validation as a Method for Choosing a
   Good Ridge Parameter", Technometrics 21(2), 1979.
"""

from tensorswitch.ridge._cholesky import SingularError
from tensorswitch.ridge._solution import Solution, mean_diagonal
from tensorswitch.ridge.choice import Choice, choose_solver
from tensorswitch.ridge.dispatch import solve
from tensorswitch.ridge.dual import solve_dual
from tensorswitch.ridge.feature_rows import FeatureRows
from tensorswitch.ridge.feature_statistics import FeatureStatistics, gram_bytes
from tensorswitch.ridge.matrix_free import solve_matrix_free
from tensorswitch.ridge.moments import Moments
from tensorswitch.ridge.penalty import effective_rows
from tensorswitch.ridge.readout import apply_readout
from tensorswitch.ridge.route_statistics import RouteStatistics
from tensorswitch.ridge.rows import fold_of_rows
from tensorswitch.ridge.solving import solve_moments
from tensorswitch.ridge.statistics import RidgeStatistics
from tensorswitch.switches import deep_gates, draw_gates

__all__ = [
    "Choice",
    "FeatureRows",
    "FeatureStatistics",
    "Moments",
    "RidgeStatistics",
    "RouteStatistics",
    "SingularError",
    "Solution",
    "apply_readout",
    "choose_solver",
    "deep_gates",
    "draw_gates",
    "effective_rows",
    "fold_of_rows",
    "gram_bytes",
    "mean_diagonal",
    "solve",
    "solve_dual",
    "solve_matrix_free",
    "solve_moments",
]
