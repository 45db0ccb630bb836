import math

import pytest
import torch

from tensorswitch.ridge import RidgeStatistics, draw_gates
from tensorswitch.ridge._quadrature import Quadrature, pieces
from tensorswitch.ridge.gcv import _Judge, gcv_score
from tensorswitch.ridge.moments import System


def positive(order, dtype=torch.float64):
    torch.manual_seed(0)
    basis = torch.linalg.qr(torch.randn(order, order, dtype=torch.float64))[0]
    return (basis * torch.logspace(-3, 0, order, dtype=torch.float64) @ basis.T).to(dtype)


@pytest.mark.parametrize("shift", [-0.9, 0.0, 1.0, 100.0])
def test_quadrature_is_the_function_of_the_matrix(shift):
    """f(a) = a / (1 + δa), compared with an eigendecomposition."""
    matrix, starts = positive(60), torch.randn(60, 4, dtype=torch.float64)
    nodes, vectors = torch.linalg.eigh(matrix)
    f = vectors * (nodes / (1 + shift * nodes)) @ vectors.T
    first, second = Quadrature(lambda v: matrix @ v, starts, steps=60).sums(shift)
    torch.testing.assert_close(first, (starts * (f @ starts)).sum(0), rtol=1e-6, atol=0)
    torch.testing.assert_close(second, (f @ starts).square().sum(0), rtol=1e-6, atol=0)


def test_an_exhausted_krylov_space():
    """An eigenvector needs one step, and a column of zeros none."""
    matrix = positive(20)
    starts = torch.stack(
        [torch.linalg.eigh(matrix)[1][:, 3], torch.zeros(20, dtype=torch.float64)], dim=1
    )
    first, second = Quadrature(lambda v: matrix @ v, starts).sums(2.0)
    a = torch.linalg.eigvalsh(matrix)[3]
    torch.testing.assert_close(first, torch.stack([a / (1 + 2 * a), torch.zeros(())]).double())
    assert second.isfinite().all()


@pytest.fixture(scope="module")
def sums():
    torch.manual_seed(1)
    x = torch.randn(4000, 8) * torch.logspace(0, -2, 8)
    targets = torch.tanh(2 * x @ torch.randn(8, 2) + x[:, :1].abs()) + 0.5 * torch.randn(4000, 2)
    return RidgeStatistics(draw_gates(8, [16], torch.Generator().manual_seed(0)), 2).update(
        x, targets
    )


@pytest.mark.parametrize("fit_intercept", [False, True])
@pytest.mark.parametrize("span", [1e1, 1e3, 1e6])
def test_quadrature_agrees_with_a_factorisation_per_alpha(sums, span, fit_intercept):
    values = [
        float(sums.mean_diagonal() * v)
        for v in torch.logspace(math.log10(span) / 2, -math.log10(span) / 2, 8)
    ]
    judge = _Judge(System(sums.moments()[0], fit_intercept), values)
    for value in values:
        (error, freedom), (exact_error, exact_freedom) = judge(value), judge.alone(value)
        assert error == pytest.approx(exact_error, rel=1e-3)
        # GCV depends on rows − freedom.
        assert freedom == pytest.approx(exact_freedom, abs=1e-3 * sums.rows)


def exact_path(statistics, values):
    """Compute GCV errors with a factorisation per λ."""
    judge = _Judge(System(statistics.moments()[0], False), values)
    return [(v, gcv_score(*judge.alone(v), statistics.rows)) for v in values]


@pytest.mark.parametrize("shift", [-0.05, 0.0, 1.0])
def test_vectors_are_the_function_of_the_matrix(shift):
    matrix, starts = positive(60), torch.randn(60, 4, dtype=torch.float64)
    nodes, vectors = torch.linalg.eigh(matrix)
    f = vectors * (nodes / (1 + shift * nodes)) @ vectors.T
    found = Quadrature(lambda v: matrix @ v, starts, 25, keep_basis=True).product(shift)
    torch.testing.assert_close(found, f @ starts, rtol=1e-6, atol=1e-8)


def test_a_path_is_cut_where_it_is_too_long():
    assert pieces([1e4, 1e3, 1e2, 1.0, 0.0]) == [[1e4, 1e3, 1e2], [1.0], [0.0]]
    assert pieces([1000.0, 1.0]) == [[1000.0, 1.0]]


def test_a_weak_signal_is_not_overlooked():
    """The targets depend on an input with a ten-millionth of the energy; only a tiny λ fits it."""
    torch.manual_seed(0)
    x = torch.randn(3000, 12, dtype=torch.float64) * torch.logspace(0, -4, 12, dtype=torch.float64)
    targets = x[:, 9:10] / x[:, 9].std() + 0.3 * torch.randn(3000, 1, dtype=torch.float64)
    statistics = RidgeStatistics(
        [torch.randn(12, 12, dtype=torch.float64)], 1, dtype=torch.float64
    ).update(x, targets)
    for values in ([1e-8, 1e4, 1e6], [10.0**k for k in range(-8, 7)]):
        chosen = statistics.solve(values, selection="gcv")
        exact = exact_path(statistics, sorted(values, reverse=True))
        assert chosen.alpha == min(exact, key=lambda pair: pair[1])[0] < 1e-3
        for (_, quick), (_, slow) in zip(chosen.path, exact, strict=True):
            assert quick == pytest.approx(slow, rel=1e-2)


def test_the_chosen_solution_is_that_of_the_exact_path(sums):
    values = [float(sums.mean_diagonal() * 10.0**k) for k in range(-5, 4)]
    chosen = sums.solve(values, selection="gcv")
    exact = exact_path(sums, values[::-1])
    assert chosen.alpha == min(exact, key=lambda pair: pair[1])[0]
    assert torch.equal(chosen.weight, sums.solve(chosen.alpha).weight)
    assert [v for v, _ in chosen.path] == [v for v, _ in exact]
    for (_, quick), (_, slow) in zip(chosen.path, exact, strict=True):
        assert quick == pytest.approx(slow, rel=1e-2)


def test_alphas_too_small_for_the_precision_are_skipped():
    torch.manual_seed(0)
    x = torch.randn(2000, 6)
    x[:, 3:] = x[:, :3]  # the Gram matrix is singular
    statistics = RidgeStatistics(draw_gates(6, [8], torch.Generator().manual_seed(0)), 1).update(
        x, x[:, :1]
    )
    mean = statistics.mean_diagonal()
    solution = statistics.solve([mean, 1e-2 * mean, 1e-12 * mean, 1e-13 * mean])
    assert solution.alpha >= 1e-2 * mean
    assert solution.weight.isfinite().all()
