import itertools

import pytest
import torch
from torch.testing import assert_close

from benchmarks._measure import peak_extra_bytes
from tensorswitch.linear import Copies, Sums, choose_solver, solve, solve_dual, solve_matrix_free

SOLVERS = ["streaming", "matrix-free", "dual"]


def problem(gates=(4, 3), rows=60, n_in=4, out=2):
    gate_weights = [
        torch.randn(n, below, dtype=torch.float64)
        for below, n in itertools.pairwise((n_in, *gates))
    ]
    return (
        torch.randn(rows, n_in, dtype=torch.float64),
        torch.randn(rows, out, dtype=torch.float64),
        gate_weights,
    )


@pytest.mark.parametrize("solver", ["auto", *SOLVERS])
def test_the_named_solver_is_run(solver):
    x, targets, gate_weights = problem()
    assert_close(
        solve(x, targets, gate_weights, solver=solver, tol=1e-12).weight,
        solve_dual(x, targets, gate_weights).weight,
    )


def run(solver, rows, n_in, gates, out):
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(rows, n_in, generator=generator)
    gate_weights = [
        torch.randn(n, below, generator=generator)
        for below, n in itertools.pairwise((n_in, *gates))
    ]
    targets = torch.randn(rows, out, generator=generator)
    solve(x[:100], targets[:100], gate_weights, solver="dual")  # memory that libraries keep
    return lambda: solve(x, targets, gate_weights, solver=solver, tol=0.1)


@pytest.mark.parametrize(
    ("solver", "sizes"),
    [
        ("streaming", (2000, 64, (128,), 10)),
        ("matrix-free", (2000, 64, (64, 64), 10)),
        ("dual", (5000, 32, (16, 8), 10)),
    ],
)
def test_the_memory_estimate_holds(solver, sizes):
    foreseen = choose_solver(*sizes, solver=solver, memory_gb=100).memory
    assert 0.3 * foreseen < peak_extra_bytes(run, solver, *sizes) < 1.1 * foreseen


def test_the_memory_budget_is_respected():
    for budget in (0.2, 0.5, 2.0, 20.0):
        assert choose_solver(20_000, 64, (128,), 10, memory_gb=budget).memory <= budget * 2**30


def test_alphas_too_small_for_the_precision_are_skipped(caplog):
    x, targets, gate_weights = problem((6, 6), rows=20)
    sums = Sums(Copies(gate_weights), 2, dtype=torch.float64, folds=2).update(x, targets)
    with caplog.at_level("INFO", "tensorswitch.linear"):
        solution = sums.solve([1.0, 1e-30])
    assert solution.alpha == 1.0
    assert "1e-30 or more is too small" in caplog.text
    with pytest.raises(ValueError, match="singular"):
        sums.solve([1e-30, 1e-31])


def test_the_edge_of_the_range_is_pointed_out(caplog):
    x, targets, gate_weights = problem()
    with caplog.at_level("INFO", "tensorswitch.linear"):
        solve_matrix_free(x, targets, gate_weights, [1e4, 1e-1])
    assert "is the largest one tried" in caplog.text  # the targets are noise
