"""Ridge regression without a Gram matrix: conjugate gradients on the switched linear map."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from tensorswitch._checks import check_dtype_device, check_shape
from tensorswitch.ridge._free_system import JUDGE_TOL, OUTPUT_TOL, FreeSystem
from tensorswitch.ridge._free_system import Options as Options
from tensorswitch.ridge._free_system import Watch as Watch
from tensorswitch.ridge._processes import AllRanks, Total
from tensorswitch.ridge._solution import Solution
from tensorswitch.ridge.penalty import Alpha
from tensorswitch.ridge.problem import Problem
from tensorswitch.ridge.readout import ReadoutMap
from tensorswitch.switches import Routes, Switch


@torch.no_grad()
def solve_matrix_free(
    x: Tensor,
    targets: Tensor,
    gate_weights: Sequence[Tensor] | Tensor | Routes,
    alpha: Alpha = "mean",
    *,
    sample_weight: Tensor | None = None,
    tol: float = 1e-3,
    max_iter: int = 500,
    start: Tensor | None = None,
    distributed: bool = False,
    watch: Watch | None = None,
    switch: Switch | str = "relu",
    fit_intercept: bool = False,
    selection: str = "cv",
    preconditioner: str = "auto",
) -> Solution:
    """Solve ``(ZᵀZ + λI) W = Zᵀ T`` by preconditioned conjugate gradients, all outputs at once.

    Parameters
    ----------
    x : Tensor of shape (rows, n_0)
        The inputs.
    targets : Tensor of shape (rows, out)
        The targets.
    gate_weights : sequence of Tensor, bool Tensor of shape (rows, gates) or Routes
        The fixed gate weights of each layer, of shape (n_l, units below), or the gates themselves:
        a boolean tensor, or routes that copy one input row to each row of the targets.
    alpha : float, str or a sequence of these, default="mean"
        The penalty λ: a number; "mean", the mean of the diagonal of ``ZᵀZ``, or a multiple of it
        such as "0.1 mean"; several of these; or "cv" or "gcv" for a range of multiples. Each of
        several values starts from the solution of the next larger one.
    sample_weight : Tensor of shape (rows,), optional
        Weights of the rows, 1 by default.
    tol : float, default=1e-3
        Stop when the norm of the residual relative to ``Zᵀ T`` is at most ``tol`` for every output.
    max_iter : int, default=500
        Maximum number of iterations. A warning is logged if they do not reach ``tol``.
    start : Tensor of shape (n_L, …, n_1, n_0, out), optional
        Weights to start from, such as the solution for a similar λ. By default zero.
    distributed : bool, default=False
        Whether each rank of ``torch.distributed`` holds its own rows. All ranks return the same
        solution.
    watch : callable, optional
        Called with a note on the residual after each iteration.
    switch : Switch or str, default="relu"
        The switch that opens the gates, if they follow from weights.
    fit_intercept : bool, default=False
        Whether to add an intercept that is not penalised.
    selection : {"cv", "gcv"}, default="cv"
        How one of several λ is chosen: by cross-validation with the folds of
        :func:`tensorswitch.ridge.rows.fold_of_rows`, of which only the first is left out if there
        are more than 20,000 rows, or by generalised cross-validation.
    preconditioner : {"auto", "kronecker", "sampled"}, default="auto"
        See the notes. "auto" takes sampled rows where their effective number is large enough.

    Returns
    -------
    Solution
        The readout, with λ, the number of iterations and the residual.

    Raises
    ------
    ValueError
        If the arguments are inconsistent, or the iteration breaks down.

    Notes
    -----
    One preconditioner treats inputs and gates as independent, which makes the Gram matrix a
    Kronecker product of small matrices. Its inverse is cheap and handles the directions that all
    units share. The other is the Gram matrix of a sample of rows, as in [2]_, and needs far fewer
    iterations if the sample is larger than the effective number of features at this λ. If λ = 0
    leaves the solution undetermined, conjugate gradients return one of the solutions, whereas the
    direct solvers raise an error.

    Degrees of freedom for generalised cross-validation are estimated with random signs as
    additional targets [1]_.

    References
    ----------
    .. [1] M. F. Hutchinson, "A Stochastic Estimator of the Trace of the Influence Matrix for
       Laplacian Smoothing Splines", Communications in Statistics 19(2), 1990.
    .. [2] A. Rudi, L. Carratino and L. Rosasco, "FALKON: An Optimal Large Scale Kernel Method",
       NeurIPS 2017.

    Examples
    --------
    >>> import torch
    >>> from tensorswitch.ridge import draw_gates, solve_dual, solve_matrix_free
    >>> generator = torch.Generator().manual_seed(0)
    >>> x = torch.randn(200, 4, generator=generator)
    >>> gate_weights = draw_gates(4, [16], generator)
    >>> solution = solve_matrix_free(x, x.abs(), gate_weights, tol=1e-5)
    >>> direct = solve_dual(x, x.abs(), gate_weights)
    >>> torch.allclose(solution.weight, direct.weight, atol=1e-4)
    True
    """
    problem = Problem.checked(x, targets, gate_weights, sample_weight, switch)
    if start is not None:
        shape = (*reversed(problem.sizes), problem.x.shape[1], problem.targets.shape[1])
        check_shape("start", start, shape, "(n_L, …, n_1, n_0, out)")
        check_dtype_device("start", start, "x", problem.x)
    options = Options(tol, max_iter, fit_intercept, selection, preconditioner, watch)
    total = AllRanks() if distributed else Total()
    return matrix_free(problem, alpha, options, start, total)[0]


def matrix_free(
    problem: Problem,
    alpha: Alpha,
    options: Options,
    start: Tensor | None = None,
    total: Total | None = None,
    left_out: bool = False,
) -> tuple[Solution, Tensor | None]:
    """Solve a validated problem; ``total`` sums a tensor over all processes.

    With ``left_out``, also return the outputs for rows of readouts that have not seen them, of
    shape (rows, out), with NaN where they are not known.
    """
    if not options.tol > 0:
        raise ValueError(f"tol must be above 0, got {options.tol}")
    with torch.autocast(problem.x.device.type, enabled=False):
        z = ReadoutMap(problem.x, problem.gates(), problem.sample_weight)
        system = FreeSystem(z, problem.targets, problem.hashes, alpha, options, total or Total())
        return solve_system(system, start, left_out)


def solve_system(
    system: FreeSystem, start: Tensor | None = None, left_out: bool = False
) -> tuple[Solution, Tensor | None]:
    """Choose λ and solve; see :func:`matrix_free`."""
    options, values, outputs = system.options, system.values, None
    path: tuple[tuple[float, float], ...] = ()
    best, found = values[0], None if start is None else system.scaled(start)
    if len(values) > 1 and system.selection == "gcv":
        best, path, found = system.by_gcv(values, found)
        if left_out:
            outputs = system.by_folds([best], OUTPUT_TOL)[3]
    elif len(values) > 1 or left_out:
        judge_tol = OUTPUT_TOL if len(values) == 1 else min(JUDGE_TOL, 10 * options.tol)
        best, path, guess, outputs = system.by_folds(values, judge_tol)
        found = guess if found is None else found
    whole = system.columns()
    found, iterations, residual = system.run(whole, best, found, options.tol)
    weight, intercept = system.unscaled(whole, found)
    solution = Solution(weight, best, iterations, residual, path, intercept)
    return solution, outputs
