import numpy as np
import pytest
import torch
from torch.testing import assert_close

from tensorswitch.kernel_ridge import DistinctRows, loo_at, loo_path
from tensorswitch.kernel_ridge._loo import Centred, best, loo_error
from tensorswitch.kernels import ts_kernel


def problem(rows=30, outputs=2):
    x = torch.randn(rows, 4, dtype=torch.float64)
    weight = torch.rand(rows, dtype=torch.float64) + 0.2
    targets = torch.randn(rows, outputs, dtype=torch.float64)
    return ts_kernel(x, depth=2), targets, weight / weight.mean()


def bordered(kernel, targets, weight, lam):
    """The textbook system: coefficients, and an intercept that costs nothing."""
    rows = len(kernel)
    system = torch.zeros(rows + 1, rows + 1, dtype=torch.float64)
    system[:rows, :rows] = kernel + lam * torch.diag(1 / weight)
    system[rows, :rows] = system[:rows, rows] = 1
    right = torch.cat([targets, torch.zeros(1, targets.shape[1], dtype=torch.float64)])
    answer = torch.linalg.solve(system, right)
    return answer[:rows], answer[rows]


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("penalty", [1e-3, 0.3])
def test_residuals_are_those_of_fits_without_the_row(weighted, penalty):
    kernel, targets, weight = problem()
    weight = weight if weighted else torch.ones_like(weight)
    result = loo_at(Centred.of(kernel.clone(), weight if weighted else None), targets, penalty)
    lam = penalty * result.scale
    coef, _ = bordered(kernel, targets, weight, lam)
    assert_close(result.coef, coef)
    for i in range(0, 30, 7):
        rest = [j for j in range(30) if j != i]
        coef, intercept = bordered(kernel[rest][:, rest], targets[rest], weight[rest], lam)
        assert_close(result.residuals[i], targets[i] - kernel[i, rest] @ coef - intercept)


@pytest.mark.parametrize("weighted", [False, True])
def test_the_path_is_its_points(weighted):
    kernel, targets, weight = problem()
    given = weight if weighted else None
    path = loo_path(kernel.clone(), targets, given, [1.0, 1e-2, 0.1])
    assert [r.penalty for r in path] == [1e-2, 0.1, 1.0]
    centred = Centred.of(kernel.clone(), given)
    for result in path:
        single = loo_at(centred, targets, result.penalty)
        for name in ("coef", "residuals", "precision"):
            assert_close(getattr(result, name), getattr(single, name))


def test_penalties_below_working_precision_are_left_out():
    kernel, targets, _ = problem()
    (only,) = loo_path(kernel.clone(), targets, None, [1e-30])
    assert only.penalty == 1e-30
    assert [r.penalty for r in loo_path(kernel, targets, None, [1e-30, 1.0])] == [1.0]


def test_of_equals_the_largest_penalty_is_best():
    kernel, _, weight = problem()
    path = loo_path(kernel, torch.zeros(30, 1, dtype=torch.float64), None, [0.1, 1.0])
    chosen, error = best(path, weight, torch.zeros(30, dtype=torch.float64))
    assert chosen.penalty == 1.0
    assert error == 0
    assert loo_error(chosen, weight, weight) == pytest.approx(1.0)


def test_a_constant_on_the_targets_changes_nothing_but_the_intercept():
    kernel, targets, weight = problem()
    (one,) = loo_path(kernel.clone(), targets, weight, [0.1])
    (other,) = loo_path(kernel.clone(), 3 * targets + 1e4, weight, [0.1])
    np.testing.assert_allclose(other.residuals, 3 * one.residuals, rtol=1e-6, atol=1e-9)


def test_identical_rows_are_left_out_together():
    generator = np.random.default_rng(0)
    x = np.repeat(generator.normal(size=(12, 3)), 2, axis=0)
    y = generator.normal(size=(24, 1))
    rows = DistinctRows.of(x, y, None, seed=0)
    merged = torch.from_numpy(rows.x)
    (found,) = loo_path(
        ts_kernel(merged), torch.from_numpy(rows.targets), torch.from_numpy(rows.weight), [0.1]
    )
    kernel = ts_kernel(torch.from_numpy(x))
    # Weights have a mean of 1, so that λ counts half as much for pairs of rows.
    lam = 2 * 0.1 * found.scale
    for i in (0, 7):
        rest = np.flatnonzero((x != x[i]).any(1))
        coef, intercept = bordered(
            kernel[rest][:, rest],
            torch.from_numpy(y[rest]),
            torch.ones(len(rest), dtype=torch.float64),
            lam,
        )
        place = rows.place[i]
        expected = torch.from_numpy(rows.targets[place]) - kernel[i, rest] @ coef - intercept
        assert_close(found.residuals[place], expected)
