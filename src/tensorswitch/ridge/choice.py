"""Which solver: the fastest by a rough count of the work, among those that fit into memory."""

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
from tensorswitch.ridge.matrix_free import matrix_free
from tensorswitch.ridge.readout import BLOCK_BYTES
from tensorswitch.ridge.statistics import RidgeStatistics
from tensorswitch.switches import Switch

SOLVERS = ("streaming", "matrix-free", "dual")
ITERATIONS = 60  # of conjugate gradients, typically
LITTLE = 1e9  # multiply-adds below which work does not matter, and streaming is preferred because it can go on


class Choice(NamedTuple):
    """A solver, and what it takes: bytes of memory, and multiply-adds."""

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
    """What each solver would take, in the order of :data:`SOLVERS`."""
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
    """By work. Where it does not matter, sums that can go on come first, and exact answers next."""
    return max(choice.work, LITTLE), ("streaming", "dual", "matrix-free").index(choice.solver)


def _factor_bytes(order: int, size: int) -> float:
    """Of a Cholesky factorisation: half the matrix, and a column of panels."""
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
    """The solver to use, or a MemoryError that says how much is needed and which other one fits.

    ``memory_gb`` is what may be used, by default seven tenths of what is available now; ``in_chunks`` says that rows come a few at a time, which only
    the streaming solver can do.

    >>> choose_solver(1_000, 64, [64, 64], 10, memory_gb=1).solver
    'dual'
    >>> choose_solver(50_000, 256, [256], 10, memory_gb=4).solver
    'matrix-free'
    >>> choose_solver(1_000_000, 64, [64], 10, memory_gb=4).solver
    'streaming'
    """
    if solver not in ("auto", *SOLVERS):
        raise ValueError(
            f"solver must be 'auto', {', '.join(map(repr, SOLVERS[:-1]))} or {SOLVERS[-1]!r}, got {solver!r}"
        )
    if memory_gb is not None and not memory_gb > 0:
        raise ValueError(f"memory_gb must be above 0, got {memory_gb!r}")
    budget = 0.7 * available_memory() if memory_gb is None else memory_gb * 2**30
    options = requirements(rows, in_features, gates, out_features, dtype)
    fitting = sorted((o for o in options if o.memory <= budget), key=_preference)
    wanted = options if solver == "auto" else [o for o in options if o.solver == solver]
    chosen = next((o for o in fitting if o in wanted), None)
    if chosen is None:
        least = min(wanted, key=lambda o: o.memory)
        others = " and ".join(f"{o.solver!r} would ({o.memory / 2**30:.2f} GB)" for o in fitting)
        if in_chunks:
            others = "raise it, use fewer gates or PCA, or fit rows that are at hand with fit(), whose other solvers need less"
        others = others or "nor would any other; raise it, or use fewer gates or PCA"
        features = math.prod(gates) * in_features
        raise MemoryError(
            f"the {least.solver!r} solver needs {least.memory / 2**30:.2f} GB for {rows:,} rows and {features:,} features, "
            f"which does not fit into {budget / 2**30:.2f} GB; {others}"
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
    """A solution, the solver that found it, and its sums if it keeps any."""

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
    progress: bool = False,
    switch: Switch | str = "relu",
) -> Solution:
    """Solve ridge regression for rows at hand.

    Parameters
    ----------
    x : Tensor of shape (rows, n_0)
        The inputs.
    targets : Tensor of shape (rows, out)
        The targets.
    gate_weights : sequence of Tensor
        For each layer (n_l, units below).
    alpha : float, "mean", or a list of these, default="mean"
        The penalty λ; of several, the one with the least generalised cross-validation error.
    solver : {"auto", "streaming", "matrix-free", "dual"}, default="auto"
        By default the one that :func:`choose_solver` picks.
    sample_weight : Tensor of shape (rows,), optional
        Weights of the rows.
    tol, max_iter : float and int
        Where conjugate gradients stop.
    memory_gb : float, optional
        What may be used, by default seven tenths of what is available.
    progress : bool, default=False
        Show a progress bar.
    switch : Switch or str, default="relu"
        What opens the gates.

    Returns
    -------
    Solution
    """
    problem = Problem.checked(x, targets, gate_weights, sample_weight, switch)
    options: dict[str, Any] = {"tol": tol, "max_iter": max_iter, "progress": progress}
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
    progress: bool = False,
) -> Solved:
    """Choose a solver and run it."""
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
    return Solved(matrix_free(problem, alpha, tol, max_iter, progress=progress), name, None)
