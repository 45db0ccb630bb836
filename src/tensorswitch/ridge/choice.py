"""Choice of the solver: the least estimated work among the solvers that fit into memory."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from tensorswitch._memory import available_memory
from tensorswitch.ridge._cholesky import PANEL
from tensorswitch.ridge._gram import packed_shape
from tensorswitch.ridge._penalty import Alpha, log
from tensorswitch.ridge._solution import Solution
from tensorswitch.ridge._validation import Problem
from tensorswitch.ridge.dual import KERNEL_ROWS, dual
from tensorswitch.ridge.matrix_free import Watch, matrix_free
from tensorswitch.ridge.readout import BLOCK_BYTES
from tensorswitch.ridge.statistics import RidgeStatistics
from tensorswitch.switches import Switch

SOLVERS = ("streaming", "matrix-free", "dual")
ITERATIONS = 60  # of conjugate gradients, typically
LITTLE = 1e9  # multiply-adds: below this the work hardly matters, and streaming can be continued


class Choice(NamedTuple):
    """Hold a solver and its estimated requirements.

    Parameters
    ----------
    solver : {"streaming", "matrix-free", "dual"}
        Name of the solver.
    memory : float
        Peak memory in bytes.
    work : float
        Number of multiply-adds.
    """

    solver: str
    memory: float
    work: float


def requirements(
    rows: int,
    in_features: int,
    gates: Sequence[int],
    out_features: int,
    dtype: torch.dtype = torch.float32,
) -> list[Choice]:
    """Estimate the requirements of each solver.

    Parameters
    ----------
    rows : int
        Number of rows.
    in_features : int
        Number of inputs n_0.
    gates : sequence of int
        Number of gates of each layer, (n_1, …, n_L).
    out_features : int
        Number of outputs.
    dtype : torch.dtype, default=torch.float32
        Data type of the rows.

    Returns
    -------
    list of Choice
        In the order "streaming", "matrix-free", "dual".
    """
    units = math.prod(gates)
    features, size = units * in_features, dtype.itemsize
    held = rows * (in_features * size + sum(gates))
    weights = features * out_features * size
    blocks = max(1.0, units * (units - 1) / 56)
    packed = math.prod(packed_shape(units, in_features)) * size
    return [
        Choice(
            "streaming",
            packed + _factor_bytes(features, size) + 3 * weights + 2 * BLOCK_BYTES,
            blocks * rows * in_features**2 + features**3 / 6,
        ),
        Choice(
            "matrix-free",
            held + 7 * weights + 2 * BLOCK_BYTES,
            ITERATIONS * 2 * rows * features * out_features,
        ),
        Choice(
            "dual",
            held * 8 / size
            + _factor_bytes(rows, 8)
            + 2 * 8 * rows * min(rows, KERNEL_ROWS)
            + 2 * weights
            + 2 * BLOCK_BYTES,
            rows**2 * (in_features + sum(gates)) + rows**3 / 3,
        ),
    ]


def _preference(choice: Choice) -> tuple[float, int]:
    """Sort by work; if it is small, prefer statistics that can be updated, then direct solvers."""
    return max(choice.work, LITTLE), ("streaming", "dual", "matrix-free").index(choice.solver)


def _factor_bytes(order: int, size: int) -> float:
    """Return the bytes of a Cholesky factorisation: half the matrix and a column of panels."""
    return order * (order / 2 + 2 * min(order, PANEL)) * size


def choose_solver(
    rows: int,
    in_features: int,
    gates: Sequence[int],
    out_features: int,
    *,
    solver: str = "auto",
    memory_gb: float | None = None,
    dtype: torch.dtype = torch.float32,
    in_chunks: bool = False,
) -> Choice:
    """Choose the solver with the least estimated work that fits into memory.

    Parameters
    ----------
    rows : int
        Number of rows.
    in_features : int
        Number of inputs n_0.
    gates : sequence of int
        Number of gates of each layer, (n_1, …, n_L).
    out_features : int
        Number of outputs.
    solver : {"auto", "streaming", "matrix-free", "dual"}, default="auto"
        Restrict the choice to one solver, to check that it fits.
    memory_gb : float, optional
        Memory budget in GiB. By default 70 % of the memory that is available now.
    dtype : torch.dtype, default=torch.float32
        Data type of the rows.
    in_chunks : bool, default=False
        Whether the rows arrive in chunks, which only the streaming solver supports. It only affects
        the advice in the error message.

    Returns
    -------
    Choice
        The solver with its estimated memory and work.

    Raises
    ------
    MemoryError
        If no permitted solver fits into the budget. The message says how much memory is needed and
        which other solvers would fit.

    Examples
    --------
    >>> from tensorswitch.ridge import choose_solver
    >>> choose_solver(1_000, 64, [64, 64], 10, memory_gb=1).solver
    'dual'
    >>> choose_solver(50_000, 256, [256], 10, memory_gb=4).solver
    'matrix-free'
    >>> choose_solver(1_000_000, 64, [64], 10, memory_gb=4).solver
    'streaming'
    """
    if solver not in ("auto", *SOLVERS):
        known = ", ".join(map(repr, ("auto", *SOLVERS[:-1])))
        raise ValueError(f"solver must be {known} or {SOLVERS[-1]!r}, got {solver!r}")
    if memory_gb is not None and not memory_gb > 0:
        raise ValueError(f"memory_gb must be above 0, got {memory_gb!r}")
    budget = 0.7 * available_memory() if memory_gb is None else memory_gb * 2**30
    options = requirements(rows, in_features, gates, out_features, dtype)
    fitting = sorted((o for o in options if o.memory <= budget), key=_preference)
    wanted = options if solver == "auto" else [o for o in options if o.solver == solver]
    chosen = next((o for o in fitting if o in wanted), None)
    if chosen is None:
        least = min(wanted, key=lambda o: o.memory)
        others = " and ".join(f"{o.solver!r} fits ({o.memory / 2**30:.2f} GB)" for o in fitting)
        if in_chunks:
            others = (
                "raise memory_gb, use fewer gates or PCA, or pass all rows to fit(), whose other "
                "solvers need less memory"
            )
        others = others or "no other solver fits; raise memory_gb, or use fewer gates or PCA"
        features = math.prod(gates) * in_features
        raise MemoryError(
            f"the {least.solver!r} solver needs {least.memory / 2**30:.2f} GB for {rows:,} rows "
            f"and {features:,} features, but the budget is {budget / 2**30:.2f} GB; {others}"
        )
    if solver == "auto":
        tried = ", ".join(
            f"{o.solver} {o.memory / 2**30:.2f} GB and {o.work:.1e} operations" for o in options
        )
        log.info(
            "solver %r: least work within %.2f GB of memory (%s)",
            chosen.solver,
            budget / 2**30,
            tried,
        )
    return chosen


class Solved(NamedTuple):
    """A solution, its solver, and the statistics if the solver keeps any."""

    solution: Solution
    solver: str
    statistics: RidgeStatistics | None


def solve(
    x: Tensor,
    targets: Tensor,
    gate_weights: Sequence[Tensor],
    alpha: Alpha = "mean",
    *,
    solver: str = "auto",
    sample_weight: Tensor | None = None,
    tol: float = 1e-3,
    max_iter: int = 500,
    memory_gb: float | None = None,
    watch: Watch | None = None,
    switch: Switch | str = "relu",
) -> Solution:
    """Solve ``(Zᵀ diag(s) Z + λI) W = Zᵀ diag(s) T`` for rows in memory.

    Parameters
    ----------
    x : Tensor of shape (rows, n_0)
        The inputs.
    targets : Tensor of shape (rows, out)
        The targets.
    gate_weights : sequence of Tensor
        The fixed gate weights of each layer, of shape (n_l, units below).
    alpha : float, "mean" or a sequence of these, default="mean"
        The penalty λ; "mean" is the mean of the diagonal of ``Zᵀ diag(s) Z``. Of several values,
        the one with the lowest generalised cross-validation error is used.
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
        The switch that opens the gates.

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
    options: dict[str, Any] = {"tol": tol, "max_iter": max_iter, "watch": watch}
    return solve_checked(problem, alpha, solver, memory_gb, **options).solution


def solve_checked(
    problem: Problem,
    alpha: Alpha,
    solver: str = "auto",
    memory_gb: float | None = None,
    *,
    tol: float = 1e-3,
    max_iter: int = 500,
    forgetting: float = 1.0,
    watch: Watch | None = None,
) -> Solved:
    """Choose a solver for a validated problem and run it; see :func:`solve`.

    ``forgetting`` is the forgetting factor of the statistics that the streaming solver returns.
    """
    x, targets, gate_weights, sample_weight, switch = problem
    gates, out = [len(w) for w in gate_weights], targets.shape[-1]
    sizes = (len(x), x.shape[-1], gates, out)
    name = choose_solver(*sizes, solver=solver, memory_gb=memory_gb, dtype=x.dtype).solver
    if name == "streaming":
        options: dict[str, Any] = {"dtype": x.dtype, "forgetting": forgetting, "switch": switch}
        statistics = RidgeStatistics(gate_weights, out, **options)
        statistics.add(x, targets, sample_weight)
        return Solved(statistics.solve(alpha), name, statistics)
    if name == "dual":
        return Solved(dual(problem, alpha), name, None)
    return Solved(matrix_free(problem, alpha, tol, max_iter, watch=watch), name, None)
