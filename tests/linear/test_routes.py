"""Ridge regression on routes: the solution on the expanded tensor, without forming it."""

import pytest
import torch
from torch.testing import assert_close

from tensorswitch import Routes, switched_linear
from tensorswitch.linear import Columns, Copies, Sums, solve, solve_dual, solve_matrix_free
from tensorswitch.switches import Maxout, MaxPool2d, ReLU

ROWS, UNITS, INPUTS, OUTPUTS = 50, 6, 4, 2


def draw(*shape):
    return torch.randn(*shape, dtype=torch.float64)


def shuffled():
    """Return routes that copy row 2i to row i's place in a permutation; row 7 has no copy."""
    keep = torch.arange(ROWS) != 7
    source, target = 2 * torch.arange(ROWS)[keep], torch.randperm(ROWS)[keep]
    return Routes(draw(ROWS - 1, UNITS) > 0, source, target, ROWS), draw(2 * ROWS, INPUTS)


def same_rows(switch):
    return switch(draw(ROWS, UNITS)), draw(ROWS, INPUTS)


CASES = {
    "relu": lambda: same_rows(ReLU()),
    "maxout": lambda: same_rows(Maxout(3)),
    "shuffled": shuffled,
    # A single unit has a single winner in each window, so one row is copied.
    "pooled, one unit": lambda: (MaxPool2d(2)(draw(ROWS, 1, 2, 2)), draw(4 * ROWS, INPUTS)),
}


def dense(z, targets, weight, alpha, intercept=False):
    """Solve with the expanded tensor."""
    z, s = z.flatten(1), torch.ones(len(z), dtype=z.dtype) if weight is None else weight
    mean = (s @ z) / s.sum() if intercept else torch.zeros_like(z[0])
    middle = (s @ targets) / s.sum() if intercept else torch.zeros_like(targets[0])
    z, t = z - mean, targets - middle
    found = torch.linalg.solve(
        z.T @ (s[:, None] * z) + alpha * torch.eye(z.shape[1]), z.T @ (s[:, None] * t)
    )
    return found, middle - mean @ found


def streaming(x, targets, routes, alpha, *, sample_weight=None, fit_intercept=False):
    units = (routes.gates if isinstance(routes, Routes) else routes).shape[1]
    statistics = Sums(Copies.given(units, x.shape[1]), targets.shape[1], dtype=torch.float64)
    statistics.update(x, targets, sample_weight, routes=routes)
    statistics.update(-x, 2 * targets, sample_weight, routes=routes)  # and remove them again
    statistics.remove(-x, 2 * targets, sample_weight, routes=routes)
    return statistics.solve(alpha, fit_intercept=fit_intercept)


def matrix_free(*arguments, **options):
    return solve_matrix_free(*arguments, tol=1e-12, **options)


SOLVERS = [streaming, matrix_free, solve_dual, solve]


@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("case", CASES)
def test_the_solution_is_that_of_the_expanded_tensor(case, solver, weighted, intercept):
    routes, x = CASES[case]()
    targets = draw(ROWS, OUTPUTS)
    weight = torch.rand(ROWS, dtype=torch.float64) if weighted else None
    expected, constant = dense(routes.expand(x), targets, weight, 0.3, intercept)
    found = solver(x, targets, routes, 0.3, sample_weight=weight, fit_intercept=intercept)
    assert_close(found.weight.flatten(0, 1), expected)
    copies = Copies.given(UNITS if case != "pooled, one unit" else 1, INPUTS)
    outputs = found.outputs(copies, copies.rows(x, routes))
    assert_close(outputs, routes.expand(x).flatten(1) @ expected + intercept * constant)
    if intercept:
        assert_close(found.intercept, constant)


@pytest.mark.parametrize("solver", SOLVERS)
def test_boolean_gates_are_routes_from_each_row_to_itself(solver):
    routes, x = CASES["relu"]()
    targets = draw(ROWS, OUTPUTS)
    assert torch.equal(
        solver(x, targets, routes.gates, 0.3).weight, solver(x, targets, routes, 0.3).weight
    )


@pytest.mark.parametrize("solver", ["streaming", "matrix-free", "dual"])
def test_gates_of_weights_may_be_given_instead(solver):
    x, targets, weight = draw(ROWS, INPUTS), draw(ROWS, OUTPUTS), draw(UNITS, INPUTS)
    alphas = [0.1, 1.0, 10.0]
    given = solve(x, targets, Maxout(2)(x @ weight.T), alphas, solver=solver, tol=1e-12)
    computed = solve(x, targets, [weight], alphas, solver=solver, switch=Maxout(2), tol=1e-12)
    if solver == "dual":  # leaves out rows, the others leave out folds, which depend on the gates
        assert_close(given.path, computed.path)
    expected = solve_dual(x, targets, [weight], given.alpha, switch=Maxout(2))
    assert_close(given.weight, expected.weight)


def test_equal_rows_with_different_gates_are_different_rows():
    x = draw(1, INPUTS).repeat(ROWS, 1)
    routes, targets = Routes(draw(ROWS, UNITS) > 0), draw(ROWS, OUTPUTS)
    expected, _ = dense(routes.expand(x), targets, None, 0.3)
    assert_close(solve_dual(x, targets, routes, 0.3).weight.flatten(0, 1), expected)


def test_statistics_in_chunks_are_merged_saved_and_chosen_by_folds(tmp_path):
    routes, x = CASES["maxout"]()
    targets, options = draw(ROWS, OUTPUTS), {"dtype": torch.float64, "folds": 5}
    copies = Copies.given(UNITS, INPUTS)
    whole = Sums(copies, OUTPUTS, **options).update(x, targets, routes=routes)
    parts = [slice(0, 20), slice(20, ROWS)]
    first, second = (
        Sums(copies, OUTPUTS, **options).update(x[p], targets[p], routes=routes.gates[p])
        for p in parts
    )
    first.merge(second).save(tmp_path / "sums")
    loaded = Sums.load(tmp_path / "sums")
    found, expected = loaded.solve([0.1, 1, 10]), whole.solve([0.1, 1, 10])
    assert found.alpha == expected.alpha
    assert_close(found.weight, expected.weight)
    alone = solve(x, targets, routes, [0.1, 1, 10], solver="streaming")
    assert_close(alone.path, expected.path)
    plain = Sums(Copies([torch.zeros(UNITS, INPUTS, dtype=torch.float64)]), OUTPUTS, **options)
    with pytest.raises(ValueError, match="one has gate weights of its own, the other has not"):
        plain.merge(loaded)


@pytest.mark.parametrize("solver", SOLVERS)
def test_routes_that_add_up_rows_are_refused_with_a_remedy(solver):
    routes = MaxPool2d(2)(draw(3, UNITS, 4, 4))
    x, targets = draw(48, INPUTS), draw(12, OUTPUTS)
    with pytest.raises(ValueError, match=r"several input rows add to output row .*Routes.expand"):
        solver(x, targets, routes, 0.3)
    z = routes.expand(x)
    statistics = Sums(Columns(UNITS * INPUTS), OUTPUTS, dtype=torch.float64)
    weight = statistics.update(z.flatten(1), targets).solve(0.3).weight
    expected, _ = dense(z, targets, None, 0.3)
    assert_close(weight, expected)
    outputs = switched_linear(x, routes, weight.view(UNITS, INPUTS, OUTPUTS))
    assert_close(outputs, z.flatten(1) @ expected)


def test_what_is_wrong_is_named_and_changes_nothing():
    routes, x = CASES["relu"]()
    targets = draw(ROWS, OUTPUTS)
    statistics = Sums(Copies.given(UNITS, INPUTS), OUTPUTS, dtype=torch.float64)
    statistics.update(x, targets, routes=routes)
    before = statistics.copy()
    for arguments, error, message in [
        ({"routes": None}, TypeError, "routes are required"),
        ({"routes": draw(ROWS, UNITS)}, TypeError, "gates must be a boolean tensor"),
        ({"routes": routes.gates[:, :3]}, ValueError, "must have 6 units .* got 3"),
        ({"routes": routes.gates[:9]}, ValueError, "x has size 50 on axis 0"),
        ({"targets": targets[:9]}, ValueError, "targets"),
        ({"x": x.float()}, TypeError, "float32"),
        ({"x": x * torch.nan}, ValueError, "NaN"),
    ]:
        with pytest.raises(error, match=message):
            statistics.update(**{"x": x, "targets": targets, "routes": routes} | arguments)
    assert torch.equal(statistics.gram, before.gram)
    assert statistics.rows == before.rows
