"""Leave-one-out predictions are those of fits without the row."""

import numpy as np
import pytest

from tensorswitch.kernel_ridge import Search

FIXED = {"kinds": ("ts",), "depths": (2,), "scalings": ("common",), "biases": (1.0,)}


def problem(rows=30, seed=0):
    rng = np.random.default_rng(seed)
    weight = rng.uniform(0.2, 1.2, rows)
    return rng.normal(size=(rows, 4)), rng.normal(size=(rows, 2)), weight


def fitted(x, y, weight=None, penalty=0.1):
    return Search(**FIXED, penalties=(penalty,), column_weights=False).fit(x, y, weight)


def bordered(kernel, targets, weight, lam):
    """The textbook system: coefficients, and an intercept that costs nothing."""
    rows = len(kernel)
    system = np.zeros((rows + 1, rows + 1))
    system[:rows, :rows] = kernel + lam * np.diag(1 / weight)
    system[rows, :rows] = system[:rows, rows] = 1
    answer = np.linalg.solve(system, np.vstack([targets, np.zeros(targets.shape[1])]))
    return answer[:rows], answer[rows]


def gram(model, x):
    """The kernel of rows in their own order."""
    z = model.scaled(x)
    place = (z[:, None] - model.support[None]).square().sum(2).argmin(1)
    return model.kernel(z)[:, place].numpy()


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("penalty", [1e-3, 0.3])
def test_predictions_are_those_of_fits_without_the_row(weighted, penalty):
    x, y, weight = problem()
    weight = weight / weight.mean() if weighted else np.ones(30)
    found = fitted(x, y, weight if weighted else None, penalty)
    kernel, lam = gram(found.model, x), found.model.noise
    coef, intercept = bordered(kernel, y, weight, lam)
    np.testing.assert_allclose(found.model(x), kernel @ coef + intercept, rtol=1e-7)
    for i in range(0, 30, 7):
        rest = np.delete(np.arange(30), i)
        coef, intercept = bordered(kernel[np.ix_(rest, rest)], y[rest], weight[rest], lam)
        expected = kernel[i, rest] @ coef + intercept
        np.testing.assert_allclose(found.left_out[i], expected, rtol=1e-7)


@pytest.mark.parametrize("copied", [False, True])
def test_copies_are_left_out_together_and_other_targets_of_a_row_are_not(copied):
    x, y, _ = problem(24)
    x = np.repeat(x[::2], 2, axis=0)
    if copied:
        y = np.repeat(y[::2], 2, axis=0)
    found = fitted(x, y)
    # Weights have a mean of 1, so that λ counts half as much for pairs of rows.
    kernel, lam = gram(found.model, x), 2 * found.model.noise
    for i in (0, 7):
        rest = np.flatnonzero((x != x[i]).any(1)) if copied else np.delete(np.arange(24), i)
        coef, intercept = bordered(kernel[np.ix_(rest, rest)], y[rest], np.ones(len(rest)), lam)
        expected = kernel[i, rest] @ coef + intercept
        np.testing.assert_allclose(found.left_out[i], expected, rtol=1e-7)


def test_many_rows_for_each_that_differs_are_left_out_one_by_one():
    x = np.repeat([[-1.0], [0.0], [2.0]], 12, axis=0)
    y, rest = np.abs(x), np.arange(1, 36)
    found = fitted(x, y)
    kernel, lam = gram(found.model, x), 12 * found.model.noise
    coef, intercept = bordered(kernel[np.ix_(rest, rest)], y[rest], np.ones(35), lam)
    np.testing.assert_allclose(found.left_out[:12], (kernel[0, rest] @ coef + intercept)[0])


def test_weights_are_repetitions_and_order_does_not_matter():
    rng = np.random.default_rng(0)
    x, y = rng.integers(0, 3, (40, 3)).astype(float), rng.normal(size=(40, 2))
    weight = rng.integers(1, 4, 40)
    order = rng.permutation(np.repeat(np.arange(40), weight))
    once, other = fitted(x, y, weight.astype(float)), fitted(x[order], y[order])
    np.testing.assert_allclose(once.model(x), other.model(x), rtol=1e-9)
    np.testing.assert_allclose(once.left_out[order], other.left_out, rtol=1e-9)
    np.testing.assert_allclose(once.variance, other.variance)


def test_a_constant_on_the_targets_changes_nothing_but_the_intercept():
    x, y, weight = problem()
    one, other = fitted(x, y, weight), fitted(x, 3 * y + 1e4, weight)
    np.testing.assert_allclose(other.left_out, 3 * one.left_out + 1e4, rtol=1e-9)
    np.testing.assert_allclose(other.model.coef, 3 * one.model.coef, rtol=1e-6, atol=1e-9)


def test_of_equals_the_largest_penalty_is_best():
    x, y, _ = problem()
    assert Search(**FIXED).fit(x, 0 * y).alpha >= 10


def test_a_penalty_below_working_precision_has_a_solution():
    x, y, _ = problem()
    found = fitted(x, y, penalty=1e-14)
    np.testing.assert_allclose(found.model(x), y, atol=1e-4)
