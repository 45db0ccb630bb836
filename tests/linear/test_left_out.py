"""Outputs for rows left out are those of explicit refits without them."""

import pytest
import torch
from torch.testing import assert_close

from tensorswitch.linear import Columns, Copies, fold_of_rows, solve
from tensorswitch.linear._matrix_free import Options
from tensorswitch.linear._problem import Problem
from tensorswitch.linear._solve import solve_problem
from tests.linear.problems import problem


def refits(x, targets, representation, weight, folds, **options):
    found = torch.full_like(targets, torch.nan)
    for k in folds.unique():
        out = folds == k
        s = None if weight is None else weight[~out]
        readout = solve(x[~out], targets[~out], representation, 0.3, sample_weight=s, **options)
        found[out] = readout.outputs(representation, representation.rows(x[out]))
    return found


@pytest.mark.parametrize("kind", ["copies", "columns"])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("fit_intercept", [False, True])
@pytest.mark.parametrize("solver", ["dual", "matrix-free"])
def test_outputs_for_rows_left_out(solver, fit_intercept, weighted, kind):
    x, targets, gate_weights, weight = problem((4, 3))
    targets = x[:, :2].relu() + 0.1 * targets
    weight = weight + 0.1 if weighted else None
    representation = Copies(gate_weights) if kind == "copies" else Columns(4)
    given = Problem.checked(x, targets, representation, weight)
    options = Options(1e-10, 500, fit_intercept)
    # Outputs of matrix-free readouts are accurate if several penalties are compared.
    solved = solve_problem(given, [1e9, 0.3], options, solver=solver, left_out=True)
    assert solved.solution.alpha == 0.3
    folds = torch.arange(60) if solver == "dual" else fold_of_rows(x, 5)
    expected = refits(
        x, targets, representation, weight, folds, solver="dual", fit_intercept=fit_intercept
    )
    assert_close(solved.left_out, expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("copied", [False, True])
def test_copies_are_left_out_together_and_weightless_rows_are_not_known(copied):
    x, targets, _, _ = problem((4,), rows=20)
    x[1], weight = x[0], torch.ones(20).double()
    weight[2] = 0
    if copied:
        targets[1] = targets[0]
    given = Problem.checked(x, targets, Columns(4), weight)
    found = solve_problem(given, 0.3, Options(), solver="dual", left_out=True).left_out
    folds = torch.arange(20)
    folds[1] = 0 if copied else 1
    kept = folds != 2
    expected = refits(x[kept], targets[kept], Columns(4), None, folds[kept], solver="dual")
    assert found[2].isnan().all()
    assert_close(found[kept], expected)
