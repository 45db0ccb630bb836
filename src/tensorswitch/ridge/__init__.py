"""One-pass ridge regression: the readout of a TS network with fixed gates, solved exactly, at any depth.

    W = argmin Σ_b s_b ‖Wᵀ z_b − t_b‖² + λ ‖W‖²,        z = h_L ⊗ … ⊗ h_1 ⊗ x

Three solvers, one answer:

- :class:`RidgeStatistics` (*streaming*) sums ``C = Σ s z zᵀ`` and ``S = Σ s z tᵀ`` over data that streams past once; two of them can be merged.
- :func:`solve_matrix_free` runs conjugate gradients on data at hand: two switched maps an iteration, no Gram matrix.
- :func:`solve_dual` is for few rows: ``K = (X Xᵀ) ∘ Π_l (H_l H_lᵀ)``, so that depth costs nothing.

:func:`choose_solver` picks the one that should be fastest among those that fit into memory, and :func:`solve` runs it.
``alpha="mean"`` takes the paper's λ, the mean of the diagonal of ``C``. Given several, each solver tries them all and takes the one of least
generalised cross-validation error.
"""

from tensorswitch.ridge._solution import Solution, mean_diagonal
from tensorswitch.ridge.choice import Choice, choose_solver, solve
from tensorswitch.ridge.dual import solve_dual
from tensorswitch.ridge.matrix_free import solve_matrix_free
from tensorswitch.ridge.readout import apply_readout
from tensorswitch.ridge.statistics import RidgeStatistics
from tensorswitch.switches import deep_gates, draw_gates

__all__ = [
    "Choice",
    "RidgeStatistics",
    "Solution",
    "apply_readout",
    "choose_solver",
    "deep_gates",
    "draw_gates",
    "mean_diagonal",
    "solve",
    "solve_dual",
    "solve_matrix_free",
]
