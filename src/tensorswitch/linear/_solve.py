"""Choose a solver for rows in memory by the least estimated work, and run it."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, TypedDict

import torch
from torch import Tensor

from tensorswitch._memory import memory_budget
from tensorswitch.linear._cholesky import PANEL
from tensorswitch.linear._dual import SETTINGS as DUAL
from tensorswitch.linear._dual import dual
from tensorswitch.linear._matrix_free import Options, Watch, matrix_free
from tensorswitch.linear._packed import SETTINGS as PAIRS
from tensorswitch.linear._packed import PackedPairs
from tensorswitch.linear._penalty import Alpha, log, penalties
from tensorswitch.linear._problem import Gates, Problem, Solution
from tensorswitch.linear._representation import BLOCK_BYTES, CHUNK_BYTES, Representation
from tensorswitch.linear._streaming import FOLDS, judged_folds
from tensorswitch.linear._streaming import SETTINGS as PATH
from tensorswitch.linear._sums import Sums
from tensorswitch.switches import Switch

SOLVERS = ("streaming", "matrix-free", "dual")


class Folds(TypedDict, total=False):
    """How many sums are kept."""

    folds: int
    held_out: bool


@dataclass(frozen=True)
class Solved:
    """A solution and how it was found."""

    solution: Solution
    solver: str
    sums: Sums | None = None  # of the streaming solver
    # Outputs for rows of readouts that have not seen them, (rows, out), NaN where they are not
    # known. The streaming solver leaves them to its sums.
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
    x, targets : Tensor of shape (rows, n_0) and (rows, out)
        Inputs and targets.
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
    tol, max_iter : float, default=1e-3, and int, default=500
        When conjugate gradients stop: relative residual, and number of iterations.
    memory_gb : float, optional
        Memory budget in GiB. By default 70 % of the memory that is available now.
    watch : callable, optional
        Called with a note on progress, where a solver iterates.
    switch : Switch or str, default="relu"
        The switch that opens the gates, if they follow from weights.
    fit_intercept : bool, default=False
        Whether to add an intercept that is not penalised.

    Raises
    ------
    MemoryError
        If no permitted solver fits into the budget.
    SingularError
        If the system is singular to working precision.

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
    s = problem.weights().double()
    total = s.sum()
    shift = s @ problem.targets.double() / torch.where(total > 0, total, 1)
    centred = replace(problem, targets=(problem.targets - shift).to(problem.targets.dtype))
    found = solve_problem(centred, alpha, options, solver=solver, memory_gb=memory_gb).solution
    assert found.intercept is not None
    return found._replace(intercept=found.intercept + shift)


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
    representation, like, out = problem.representation, problem.targets, problem.targets.shape[1]
    choice: dict[str, Any] = {"solver": solver, "memory_gb": memory_gb, "dtype": like.dtype}
    choice |= {"alphas": several, "wanted": left_out or several > 1}
    name, folds = choose_folds(representation, rows, out, **choice)
    if name == "streaming":
        kind: dict[str, Any] = {"dtype": like.dtype, "device": like.device}
        sums = Sums(representation, out, forgetting=forgetting, **kind, **folds).add(problem)
        return Solved(sums.solve(alpha, fit_intercept=options.fit_intercept), name, sums)
    if name == "dual":
        solution, outputs = dual(problem, alpha, options.fit_intercept, left_out)
        return Solved(solution, name, left_out=outputs)
    if memory_gb is not None:
        options = replace(options, sample_bytes=memory_gb * 2**30 / 4)
    solution, outputs = matrix_free(problem, alpha, options, left_out=left_out)
    return Solved(solution, name, left_out=outputs)


def choose_folds(
    representation: Representation,
    rows: int,
    out_features: int,
    *,
    alphas: int = 1,
    wanted: bool = True,
    **options: Any,
) -> tuple[str, Folds]:
    """Choose the solver by the options of :func:`choose_solver`, and how many sums are kept.

    Sums of all folds are kept if they fit into memory, otherwise those of the first fold and of all
    others, which needs two. If no outputs for rows left out are needed, one sum will do.
    """
    *gates, in_features = representation.shape
    ways: list[tuple[int, Folds]] = [(1, {"folds": 1})]
    if wanted:
        ways = [] if alphas > 1 else ways
        ways.insert(0, (2, {"folds": FOLDS, "held_out": True}))
        # Each fold is a factorisation more, which takes longer than the sums of many given columns.
        if gates or in_features <= COSTS.folded:
            ways.insert(0, (FOLDS, {"folds": FOLDS}))
    sizes = rows, in_features, gates[::-1], out_features
    for count, folds in ways:
        try:
            choice = choose_solver(*sizes, alphas=alphas, sums=count, **options)
        except MemoryError:
            if count == ways[-1][0]:
                raise
        else:
            return choice.solver, folds
    raise AssertionError("one of the ways is chosen or raises")


@dataclass(frozen=True)
class Costs:
    """What the estimates of work assume, measured by ``benchmarks.ridge speed``.

    Conjugate gradients typically take ``iterations``. A kernel matrix is factorised in large
    products, which take a tenth of the time of as many multiply-adds in small ones, and the number
    of iterations of the others may be larger than usual: both make it ``faster``. Below ``little``
    multiply-adds the work hardly matters, and streaming can be continued. Of up to ``folded`` given
    columns each fold is left out in turn, beyond only the first (``benchmarks.many_features``).
    """

    iterations: int = 30
    faster: float = 12
    little: float = 1e8
    folded: int = 2048


COSTS = Costs()


class Choice(NamedTuple):
    """Hold a solver and its estimated requirements.

    Parameters
    ----------
    solver : {"streaming", "matrix-free", "dual"}
        Name of the solver.
    memory, work : float
        Peak memory in bytes, and number of multiply-adds of the usual speed.
    """

    solver: str
    memory: float
    work: float


def _requirements(
    sizes: tuple[int, int, Sequence[int], int], dtype: torch.dtype, alphas: int, sums: int
) -> list[Choice]:
    """Estimate the requirements of each solver."""
    rows, in_features, gates, out_features = sizes
    units, call = math.prod(gates), PAIRS.call
    features, size = units * in_features, dtype.itemsize
    held = rows * (in_features * size + sum(gates))
    weights = features * out_features * size
    blocks = max(1.0, units * (units - 1) / 56)
    packed = math.prod(PackedPairs(units, in_features).shape) * size
    judged = len(judged_folds(FOLDS, rows)) if alphas > 1 else 0
    # Values of λ within two decades share a factorisation.
    factorised = 1 + judged * (alphas if features <= PATH.direct else math.ceil(alphas / 4))
    iterations = COSTS.iterations * (1 + judged * alphas / 2)
    columns, spectral = 1 + judged, rows <= DUAL.eigen_rows
    added = 2 if sums > 2 else sums - 1  # the sums of all rows, and of all folds but one
    held_at_once = 2 * BLOCK_BYTES if gates else 3 * CHUNK_BYTES
    factorisations = 1.0 if alphas == 1 else 1.0 + (15.0 if spectral else 4.0 * alphas)
    return [
        Choice(
            "streaming",
            (sums + added) * packed + _factor_bytes(features, size) + 3 * weights + held_at_once,
            blocks * rows * in_features**2
            + sums * min(blocks * 12, units * 4) * call
            + factorised * (features**3 / 6 + features**2 * in_features / 8 + 10 * call),
        ),
        Choice(
            "matrix-free",
            held * (1 + (columns > 1)) + 7 * columns * weights + 2 * BLOCK_BYTES,
            iterations * (2 * rows * features * out_features + 20 * call),
        ),
        Choice(
            "dual",
            held * 8 / size
            + _factor_bytes(rows, 8)
            + (3 * 8 * rows**2 if alphas > 1 and spectral else 0)
            + 2 * 8 * rows * min(rows, DUAL.kernel_rows)
            + 2 * weights
            + 2 * BLOCK_BYTES,
            2 * rows**2 * (in_features + sum(gates))  # twice as long, in float64
            + (2 * rows**3 / 3 / COSTS.faster + 20 * call) * factorisations,
        ),
    ]


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
    rows, in_features, out_features : int
        Number of rows, of inputs n_0 and of outputs.
    gates : sequence of int
        Number of gates of each layer, (n_1, …, n_L).
    solver, memory_gb : as for :func:`solve`
        A solver restricts the choice to it, to check that it fits into the budget.
    dtype, in_chunks : torch.dtype, default=torch.float32, and bool, default=False
        Data type of the rows, and whether they arrive in chunks, which only affects the advice in
        the error message.
    alphas, sums : int, default=1
        Number of values of λ to choose from, and of sums that the streaming solver keeps, of one
        fold each.

    Raises
    ------
    MemoryError
        If no permitted solver fits. The message says which others would.

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
    options = _requirements((rows, in_features, gates, out_features), dtype, alphas, sums)
    order = ("streaming", "dual", "matrix-free")  # of equal work, first sums
    fitting = sorted(
        (o for o in options if o.memory <= budget),
        key=lambda o: (max(o.work, COSTS.little), order.index(o.solver)),
    )
    wanted = options if solver == "auto" else [o for o in options if o.solver == solver]
    chosen = next((o for o in fitting if o in wanted), None)
    if chosen is None:
        least = min(wanted, key=lambda o: o.memory)
        others = " and ".join(f"{o.solver!r} fits ({o.memory / 2**30:.2f} GB)" for o in fitting)
        if in_chunks:
            others = "raise memory_gb, use fewer gates or features, or fit all rows at once with "
            others += "solver='matrix-free' or 'auto', which need less memory"
        others = others or "no other solver fits; raise memory_gb, or use fewer gates or PCA"
        features = math.prod(gates) * in_features
        raise MemoryError(
            f"the {least.solver!r} solver needs {least.memory / 2**30:.2f} GB for {rows:,} rows "
            f"and {features:,} features, but the budget is {budget / 2**30:.2f} GB; {others}"
        )
    if solver == "auto":
        sizes = [(o.solver, o.memory / 2**30, o.work) for o in options]
        tried = ", ".join(f"{name} {size:.2f} GB and {n:.1e} operations" for name, size, n in sizes)
        found = chosen.solver, budget / 2**30, tried
        log.info("solver %r: least work within %.2f GB of memory (%s)", *found)
    return chosen
