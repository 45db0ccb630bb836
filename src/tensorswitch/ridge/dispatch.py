"""Run the solver that was chosen for rows in memory."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor

from tensorswitch.ridge._solution import Solution
from tensorswitch.ridge.choice import choose_solver
from tensorswitch.ridge.dual import dual
from tensorswitch.ridge.folds import FOLDS
from tensorswitch.ridge.matrix_free import Options, Watch, matrix_free
from tensorswitch.ridge.penalty import Alpha, penalties
from tensorswitch.ridge.problem import Problem
from tensorswitch.ridge.route_statistics import RouteStatistics
from tensorswitch.ridge.rows import fold_of_hashes
from tensorswitch.ridge.statistics import RidgeStatistics
from tensorswitch.switches import Routes, Switch

__all__ = ["Solved", "fold_options", "solve", "solve_problem", "statistics_of"]


class Solved(NamedTuple):
    """Hold a solution and how it was found.

    Parameters
    ----------
    solution : Solution
        The readout.
    solver : str
        The solver.
    statistics : RidgeStatistics or None
        The sums, if the solver keeps any.
    left_out : Tensor of shape (rows, out) or None
        Outputs for rows of readouts that have not seen them, NaN where they are not known. The
        streaming solver leaves them to its statistics.
    """

    solution: Solution
    solver: str
    statistics: RidgeStatistics | None
    left_out: Tensor | None


def solve(
    x: Tensor,
    targets: Tensor,
    gate_weights: Sequence[Tensor] | Tensor | Routes,
    alpha: Alpha = "mean",
    *,
    solver: str = "auto",
    sample_weight: Tensor | None = None,
    tol: float = 1e-3,
    max_iter: int = 500,
    memory_gb: float | None = None,
    watch: Watch | None = None,
    switch: Switch | str = "relu",
    fit_intercept: bool = False,
    selection: str = "cv",
) -> Solution:
    """Solve ``(Zᵀ diag(s) Z + λI) W = Zᵀ diag(s) T`` for rows in memory.

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
        The penalty λ: a number; "mean", the mean of the diagonal of ``Zᵀ diag(s) Z``, or a multiple
        of it such as "0.1 mean"; several of these; or "cv" or "gcv" for a range of multiples.
    solver : {"auto", "streaming", "matrix-free", "dual"}, default="auto"
        The solver. "auto" is the one that :func:`choose_solver` picks.
    sample_weight : Tensor of shape (rows,), optional
        Weights s of the rows, 1 by default.
    tol : float, default=1e-3
        Relative residual at which conjugate gradients stop.
    max_iter : int, default=500
        Maximum number of iterations of conjugate gradients.
    memory_gb : float, optional
        Memory budget in GiB. By default 70 % of the memory that is available now.
    watch : callable, optional
        Called with a note on progress, where a solver iterates.
    switch : Switch or str, default="relu"
        The switch that opens the gates, if they follow from weights.
    fit_intercept : bool, default=False
        Whether to add an intercept that is not penalised.
    selection : {"cv", "gcv"}, default="cv"
        How one of several λ is chosen: by cross-validation, or by generalised cross-validation.
        The dual solver leaves out one row at a time, the others a fold.

    Returns
    -------
    Solution
        The readout, with the λ that was used.

    Raises
    ------
    MemoryError
        If no permitted solver fits into the budget.
    ValueError
        If the arguments are inconsistent, or the system is singular to working precision.

    Examples
    --------
    >>> import torch
    >>> from tensorswitch.ridge import apply_readout, draw_gates, solve
    >>> generator = torch.Generator().manual_seed(0)
    >>> x = torch.randn(500, 4, generator=generator)
    >>> gate_weights = draw_gates(4, [16], generator)
    >>> solution = solve(x, x.abs(), gate_weights, alpha=0.1)
    >>> error = apply_readout(x, gate_weights, solution.weight) - x.abs()
    >>> bool(error.square().mean() < 0.05)
    True
    """
    problem = Problem.checked(x, targets, gate_weights, sample_weight, switch)
    options = Options(tol, max_iter, fit_intercept, selection, watch=watch)
    run = partial(solve_problem, alpha=alpha, options=options, solver=solver, memory_gb=memory_gb)
    if not fit_intercept:
        return run(problem).solution
    # Sums of targets far from zero would lose the digits of their differences.
    shift = _mean_target(problem)
    centred = (problem.targets - shift).to(problem.targets.dtype)
    solution = run(problem._replace(targets=centred)).solution
    assert solution.intercept is not None
    return solution._replace(intercept=solution.intercept + shift)


def _mean_target(problem: Problem) -> Tensor:
    """Return the weighted mean of the targets in float64; zero without rows."""
    t, weight = problem.targets.double(), problem.sample_weight
    s = t.new_ones(len(t)) if weight is None else weight.double()
    total = s.sum()
    return s @ t / torch.where(total > 0, total, 1)


@torch.no_grad()
def solve_problem(
    problem: Problem,
    alpha: Alpha,
    options: Options,
    *,
    solver: str = "auto",
    memory_gb: float | None = None,
    forgetting: float = 1.0,
    left_out: bool = False,
) -> Solved:
    """Choose a solver for a validated problem and run it; see :func:`solve`.

    Parameters
    ----------
    problem : Problem
        Rows, targets, gates and weights.
    alpha : float, str or a sequence of these
        The penalty λ.
    options : Options
        What the solvers have in common.
    solver : str, default="auto"
        The solver.
    memory_gb : float, optional
        Memory budget in GiB.
    forgetting : float, default=1.0
        Forgetting factor of the statistics that the streaming solver returns.
    left_out : bool, default=False
        Whether outputs for rows left out are wanted.

    Returns
    -------
    Solved
    """
    x, targets, sample_weight, hashes = (
        problem.x,
        problem.targets,
        problem.sample_weight,
        problem.hashes,
    )
    # Repeated rows and weights must lead to the same solver.
    used = hashes if sample_weight is None else hashes[sample_weight > 0]
    rows = len(torch.unique(used))
    sizes = (rows, x.shape[-1], problem.sizes, targets.shape[-1])
    alphas, selection = penalties(alpha, 1.0, options.selection)
    cv = selection == "cv"
    several = len(alphas) if cv else 1
    name, folds = fold_options(
        *sizes,
        solver=solver,
        memory_gb=memory_gb,
        dtype=x.dtype,
        alphas=several,
        wanted=left_out or several > 1,
    )
    if name == "streaming":
        statistics = statistics_of(problem, forgetting=forgetting, **folds)
        choices: dict[str, Any] = {"selection": selection, "fit_intercept": options.fit_intercept}
        return Solved(statistics.solve(alpha, **choices), name, statistics, None)
    if name == "dual":
        solution, outputs = dual(problem, alpha, options.fit_intercept, selection, left_out)
        return Solved(solution, name, None, outputs)
    if memory_gb is not None:
        options = options._replace(sample_bytes=memory_gb * 2**30 / 4)
    solution, outputs = matrix_free(problem, alpha, options, left_out=left_out)
    return Solved(solution, name, None, outputs)


def statistics_of(problem: Problem, **options: Any) -> RidgeStatistics:
    """Return the sums of a validated problem.

    Parameters
    ----------
    problem : Problem
        Rows, targets, gates and weights.
    **options
        Of :class:`RidgeStatistics`: forgetting and folds.

    Returns
    -------
    RidgeStatistics
        Of the class :class:`RouteStatistics` if the gates are given.
    """
    x, out, options = problem.x, problem.targets.shape[1], {"dtype": problem.x.dtype, **options}
    if problem.given is None:
        statistics = RidgeStatistics(problem.gate_weights, out, switch=problem.switch, **options)
    else:
        units, inputs = problem.gate_weights[0].shape
        statistics = RouteStatistics(units, inputs, out, device=x.device, **options)
    fold = fold_of_hashes(problem.hashes, statistics.folds) if statistics.folds > 1 else None
    return statistics.add(x, problem.targets, problem.sample_weight, fold, problem.given)


def fold_options(
    *sizes: Any, alphas: int = 1, wanted: bool = True, **options: Any
) -> tuple[str, dict[str, Any]]:
    """Choose the solver, and how many sums the streaming one keeps.

    Sums of all folds are kept if they fit into memory, otherwise those of the first fold and of all
    others, which needs two. If no outputs for rows left out are needed, one sum will do.

    Parameters
    ----------
    *sizes : int, int, sequence of int, int
        Rows, inputs, gates and outputs; see :func:`choose_solver`.
    alphas : int, default=1
        Number of values of λ to choose from.
    wanted : bool, default=True
        Whether folds are wanted at all.
    **options
        Of :func:`choose_solver`.

    Returns
    -------
    solver : str
        Its name.
    folds : dict
        ``folds`` and ``held_out`` for :class:`RidgeStatistics`.
    """
    ways: list[tuple[int, dict[str, Any]]] = [(1, {"folds": 1})]
    if wanted:
        ways = [(FOLDS, {"folds": FOLDS}), (2, {"folds": FOLDS, "held_out": True})]
        ways += [(1, {"folds": 1})] if alphas == 1 else []
    for sums, folds in ways:
        try:
            choice = choose_solver(*sizes, alphas=alphas, sums=sums, **options)
        except MemoryError:
            if sums == ways[-1][0]:
                raise
            continue
        return choice.solver, folds
    raise AssertionError("one of the ways is chosen or raises")
