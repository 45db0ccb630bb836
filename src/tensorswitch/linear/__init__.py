"""One linear readout over a representation: representation × sums × solver.

    W, c = argmin Σ_b s_b ‖Wᵀ z_b + c − t_b‖² + λ ‖W‖²,        z = φ(x)

A *representation* is never formed as a whole and offers four products: :class:`Copies`, ``z = h_L ⊗
… ⊗ h_1 ⊗ x``, computes them by the switched linear map, :class:`Columns`, ``z = x``, by plain ones.
Three solvers, which compute the same solution, need some of them each:

- :class:`Sums` (*streaming*) accumulates ``C = Σ s z zᵀ`` and ``S = Σ s z tᵀ`` in a single pass
  over the data, and factorises ``C + λI``. Sums of different rows can be merged, and rows removed.
- :func:`solve_matrix_free` runs conjugate gradients on ``φ(X) W`` and ``φ(X)ᵀ R``, without a Gram
  matrix. :class:`StoredRows` does the same with features kept on disk.
- :func:`solve_dual` is for problems with few rows. It uses the kernel ``K = φ(X) φ(X)ᵀ``, whose
  cost hardly depends on the depth, and leaves rows out exactly.

:func:`choose_solver` picks the solver with the lowest estimated cost among those that fit into
memory, and :func:`solve` runs it. With ``alpha="mean"`` λ is the mean of the diagonal of ``C``, as
in the paper. Given several values, the dual solver selects the one with the lowest exact
leave-one-out error, the others the one with the lowest exact cross-validation error. The intercept
c is not penalised.
"""

from tensorswitch.linear._cholesky import SingularError
from tensorswitch.linear._columns import Columns
from tensorswitch.linear._copies import Copies
from tensorswitch.linear._dask import sum_on_dask
from tensorswitch.linear._dual import solve_dual
from tensorswitch.linear._matrix_free import solve_matrix_free
from tensorswitch.linear._problem import Solution
from tensorswitch.linear._representation import Representation
from tensorswitch.linear._row_store import StoredRows
from tensorswitch.linear._rows import fold_of_rows
from tensorswitch.linear._solve import Choice, choose_solver, solve
from tensorswitch.linear._sums import Sums
from tensorswitch.switches import draw_gates

__all__ = [
    "Choice",
    "Columns",
    "Copies",
    "Representation",
    "SingularError",
    "Solution",
    "StoredRows",
    "Sums",
    "choose_solver",
    "draw_gates",
    "fold_of_rows",
    "solve",
    "solve_dual",
    "solve_matrix_free",
    "sum_on_dask",
]
