"""Which solver: the fastest by a rough count of the work, among those that fit into memory."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from tensorswitch._memory import available_memory
from tensorswitch.ridge._cholesky import PANEL
from tensorswitch.ridge._gram import packed_shape
from tensorswitch.ridge.dual import KERNEL_ROWS, solve_dual
from tensorswitch.ridge.matrix_free import solve_matrix_free
from tensorswitch.ridge.problem import Alpha, Solution, check_gate_weights, check_rows, log
from tensorswitch.ridge.readout import BLOCK_BYTES
from tensorswitch.ridge.statistics import RidgeStatistics

SOLVERS = ("streaming", "matrix-free", "dual")
ITERATIONS = 60  # of conjugate gradients, typically
LITTLE = 1e9  # multiply-adds below which work does not matter, and streaming is preferred because it can go on


class Choice(NamedTuple):
    """A solver, and what it takes: bytes of memory, and multiply-adds."""

    solver: str
    memory: float
    work: float


def requirements(rows: int, in_features: int, gates: Sequence[int], out_features: int, dtype: torch.dtype = torch.float32) -> list[Choice]:
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
            held * 8 / size + _factor_bytes(rows, 8) + 2 * 8 * rows * min(rows, KERNEL_ROWS) + 2 * weights + 2 * BLOCK_BYTES,
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
        raise ValueError(f"solver must be 'auto', {', '.join(map(repr, SOLVERS[:-1]))} or {SOLVERS[-1]!r}, got {solver!r}")
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
        tried = ", ".join(f"{o.solver} {o.memory / 2**30:.2f} GB and {o.work:.1e} operations" for o in options)
        log.info("solver %r: least work within %.2f GB of memory (%s)", chosen.solver, budget / 2**30, tried)
    return chosen


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
) -> Solution:
    """Ridge regression with data at hand, by the solver named or by the one that :func:`choose_solver` picks."""
    gate_weights = check_gate_weights(gate_weights)
    check_rows(x, targets, sample_weight, gate_weights)
    gates, out = [len(w) for w in gate_weights], targets.shape[-1]
    name = choose_solver(len(x), x.shape[-1], gates, out, solver=solver, memory_gb=memory_gb, dtype=x.dtype).solver
    if name == "dual":
        return solve_dual(x, targets, gate_weights, alpha, sample_weight=sample_weight)
    if name == "streaming":
        return RidgeStatistics(gate_weights, out, dtype=x.dtype).update(x, targets, sample_weight).solve(alpha)
    return solve_matrix_free(x, targets, gate_weights, alpha, sample_weight=sample_weight, tol=tol, max_iter=max_iter, progress=progress)
