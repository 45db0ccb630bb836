"""Choice of the solver: the least estimated work among the solvers that fit into memory."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch

from tensorswitch._memory import memory_budget
from tensorswitch.linear._cholesky import PANEL
from tensorswitch.linear._dual import EIGEN_ROWS, KERNEL_ROWS
from tensorswitch.linear._packed import CALL, packed_shape
from tensorswitch.linear._penalty import log
from tensorswitch.linear._representation import BLOCK_BYTES
from tensorswitch.linear._streaming import DIRECT, FOLDS, judged_folds

SOLVERS = ("streaming", "matrix-free", "dual")
ITERATIONS = 30  # of conjugate gradients, typically
# A kernel matrix is factorised in large products, which take a tenth of the time of as many
# multiply-adds in small ones, and the number of iterations of the others may be larger than usual.
FASTER = 12
LITTLE = 1e8  # multiply-adds: below this the work hardly matters, and streaming can be continued


class Choice(NamedTuple):
    """Hold a solver and its estimated requirements.

    Parameters
    ----------
    solver : {"streaming", "matrix-free", "dual"}
        Name of the solver.
    memory : float
        Peak memory in bytes.
    work : float
        Number of multiply-adds of the usual speed.
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
    alphas: int = 1,
    sums: int = 1,
) -> list[Choice]:
    """Estimate the requirements of each solver."""
    units = math.prod(gates)
    features, size = units * in_features, dtype.itemsize
    held = rows * (in_features * size + sum(gates))
    weights = features * out_features * size
    blocks = max(1.0, units * (units - 1) / 56)
    packed = math.prod(packed_shape(units, in_features)) * size
    judged = len(judged_folds(FOLDS, rows)) if alphas > 1 else 0
    # Values of λ within two decades share a factorisation.
    factorised = 1 + judged * (alphas if features <= DIRECT else math.ceil(alphas / 4))
    iterations = ITERATIONS * (1 + judged * alphas / 2)
    columns = 1 + judged
    return [
        Choice(
            "streaming",
            (sums + 2 * (sums > 1)) * packed
            + _factor_bytes(features, size)
            + 3 * weights
            + 2 * BLOCK_BYTES,
            blocks * rows * in_features**2
            + sums * min(blocks * 12, units * 4) * CALL
            + factorised * (features**3 / 6 + features**2 * in_features / 8 + 10 * CALL),
        ),
        Choice(
            "matrix-free",
            held * (1 + (columns > 1)) + 7 * columns * weights + 2 * BLOCK_BYTES,
            iterations * (2 * rows * features * out_features + 20 * CALL),
        ),
        Choice(
            "dual",
            held * 8 / size
            + _factor_bytes(rows, 8)
            + (3 * 8 * rows**2 if alphas > 1 and rows <= EIGEN_ROWS else 0)
            + 2 * 8 * rows * min(rows, KERNEL_ROWS)
            + 2 * weights
            + 2 * BLOCK_BYTES,
            2 * rows**2 * (in_features + sum(gates))  # twice as long, in float64
            + (2 * rows**3 / 3 / FASTER + 20 * CALL) * _factorisations(rows, alphas),
        ),
    ]


def _factorisations(rows: int, alphas: int) -> float:
    """Return the work of the dual solver for some values of λ, in factorisations."""
    if alphas == 1:
        return 1.0
    return 1.0 + (15.0 if rows <= EIGEN_ROWS else 4.0 * alphas)


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
    alphas: int = 1,
    sums: int = 1,
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
    alphas : int, default=1
        Number of values of λ to choose from.
    sums : int, default=1
        Number of sums that the streaming solver keeps, of one fold each.

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
    >>> from tensorswitch.linear import choose_solver
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
    budget = memory_budget(memory_gb)
    options = requirements(rows, in_features, gates, out_features, dtype, alphas, sums)
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
