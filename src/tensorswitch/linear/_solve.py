"""Choose a solver for rows in memory, and run it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TypedDict

import torch
from torch import Tensor

from tensorswitch.linear._choice import choose_solver
from tensorswitch.linear._dual import dual
from tensorswitch.linear._matrix_free import Options, Watch, matrix_free
from tensorswitch.linear._penalty import Alpha, penalties
from tensorswitch.linear._problem import Gates, Problem
from tensorswitch.linear._representation import Representation
from tensorswitch.linear._rows import fold_of_hashes
from tensorswitch.linear._solution import Solution
from tensorswitch.linear._streaming import FOLDS
from tensorswitch.linear._sums import Sums
from tensorswitch.switches import Switch


class Folds(TypedDict, total=False):
    """How many sums are kept."""

    folds: int
    held_out: bool


@dataclass(frozen=True)
class Solved:
    """A solution and how it was found.

    ``sums`` are those of the streaming solver; ``left_out`` are outputs for rows of readouts that
    have not seen them, (rows, out), NaN where they are not known. The streaming solver leaves them
    to its sums.
    """

    solution: Solution
    solver: str
    sums: Sums | None = None
    left_out: Tensor | None = None


def solve(
    x: Tensor,
    targets: Tensor,
    gate_weights: Gates,
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
) -> Solution:
    """Solve ``(Zᵀ diag(s) Z + λI) W = Zᵀ diag(s) T`` for rows in memory.

    Parameters
    ----------
    x : Tensor of shape (rows, n_0)
        The inputs.
    targets : Tensor of shape (rows, out)
        The targets.
    gate_weights : Representation, sequence of Tensor, bool Tensor or Routes
        A representation; the fixed gate weights of each layer of :class:`Copies`, of shape
        (n_l, units below); or the gates themselves: a boolean tensor of shape (rows, gates), or
        routes that copy one input row to each row of the targets.
    alpha : float, str or a sequence of these, default="mean"
        The penalty λ: a number; "mean", the mean of the diagonal of ``Zᵀ diag(s) Z``, or a multiple
        of it such as "0.1 mean"; several of these; or "cv" for a range of multiples. One of several
        is chosen by cross-validation; the dual solver leaves out one row at a time, the others a
        fold.
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
    >>> from tensorswitch.linear import Copies, draw_gates, solve
    >>> generator = torch.Generator().manual_seed(0)
    >>> x = torch.randn(500, 4, generator=generator)
    >>> copies = Copies(draw_gates(4, [16], generator))
    >>> solution = solve(x, x.abs(), copies, alpha=0.1)
    >>> error = solution.outputs(copies, copies.rows(x)) - x.abs()
    >>> bool(error.square().mean() < 0.05)
    True
    """
    problem = Problem.checked(x, targets, gate_weights, sample_weight, switch)
    options = Options(tol, max_iter, fit_intercept, watch=watch)
    if not fit_intercept:
        return solve_problem(problem, alpha, options, solver=solver, memory_gb=memory_gb).solution
    # Sums of targets far from zero would lose the digits of their differences.
    shift = _mean_target(problem)
    centred = replace(problem, targets=(problem.targets - shift).to(problem.targets.dtype))
    found = solve_problem(centred, alpha, options, solver=solver, memory_gb=memory_gb).solution
    assert found.intercept is not None
    return found._replace(intercept=found.intercept + shift)


def _mean_target(problem: Problem) -> Tensor:
    """Return the weighted mean of the targets in float64; zero without rows."""
    s = problem.weights().double()
    total = s.sum()
    return s @ problem.targets.double() / torch.where(total > 0, total, 1)


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
    """Choose a solver for a validated problem and run it; ``forgetting`` is for the sums."""
    # Repeated rows and weights must lead to the same solver.
    weight, hashes = problem.sample_weight, problem.hashes
    rows = len(torch.unique(hashes if weight is None else hashes[weight > 0]))
    several = len(penalties(alpha, 1.0))
    name, folds = choose_folds(
        problem.representation,
        rows,
        problem.targets.shape[1],
        solver=solver,
        memory_gb=memory_gb,
        dtype=problem.targets.dtype,
        alphas=several,
        wanted=left_out or several > 1,
    )
    if name == "streaming":
        sums = sums_of(problem, forgetting, folds)
        solution = sums.solve(alpha, fit_intercept=options.fit_intercept)
        return Solved(solution, name, sums)
    if name == "dual":
        solution, outputs = dual(problem, alpha, options.fit_intercept, left_out)
        return Solved(solution, name, left_out=outputs)
    if memory_gb is not None:
        options = replace(options, sample_bytes=memory_gb * 2**30 / 4)
    solution, outputs = matrix_free(problem, alpha, options, left_out=left_out)
    return Solved(solution, name, left_out=outputs)


def sums_of(problem: Problem, forgetting: float, folds: Folds) -> Sums:
    """Return the sums of a validated problem."""
    sums = Sums(
        problem.representation,
        problem.targets.shape[1],
        dtype=problem.targets.dtype,
        device=problem.targets.device,
        forgetting=forgetting,
        **folds,
    )
    fold = fold_of_hashes(problem.hashes, sums.folds) if sums.folds > 1 else None
    return sums.add(problem, fold)


def choose_folds(
    representation: Representation,
    rows: int,
    out_features: int,
    *,
    solver: str = "auto",
    memory_gb: float | None = None,
    dtype: torch.dtype = torch.float32,
    in_chunks: bool = False,
    alphas: int = 1,
    wanted: bool = True,
) -> tuple[str, Folds]:
    """Choose the solver, and how many sums the streaming one keeps.

    Sums of all folds are kept if they fit into memory, otherwise those of the first fold and of all
    others, which needs two. If no outputs for rows left out are needed, one sum will do.
    """
    ways: list[tuple[int, Folds]] = [(1, {"folds": 1})]
    if wanted:
        ways = [(FOLDS, {"folds": FOLDS}), (2, {"folds": FOLDS, "held_out": True})]
        ways += [(1, {"folds": 1})] if alphas == 1 else []
    *gates, in_features = representation.shape
    for count, folds in ways:
        try:
            choice = choose_solver(
                rows,
                in_features,
                gates[::-1],
                out_features,
                solver=solver,
                memory_gb=memory_gb,
                dtype=dtype,
                in_chunks=in_chunks,
                alphas=alphas,
                sums=count,
            )
        except MemoryError:
            if count == ways[-1][0]:
                raise
            continue
        return choice.solver, folds
    raise AssertionError("one of the ways is chosen or raises")
