"""Intercepts, folds, leave-one-out and removal, each compared with explicit refits."""

import itertools

import pytest
import torch
from torch.testing import assert_close

from tensorswitch import algebra
from tensorswitch.linear import (
    Columns,
    Copies,
    Sums,
    fold_of_rows,
    solve,
    solve_dual,
    solve_matrix_free,
)

FOLDS = 5
SOLVERS = ["streaming", "matrix-free", "dual"]
DOUBLE = {"dtype": torch.float64}


def problem(gates=(5,), rows=60, n_in=4, out=2):
    torch.manual_seed(0)
    x = torch.randn(rows, n_in, **DOUBLE)
    sizes = itertools.pairwise((n_in, *gates))
    gate_weights = [torch.randn(n, below, **DOUBLE) for below, n in sizes]
    targets = x[:, :out].relu() + 0.3 * torch.randn(rows, out, **DOUBLE) + 5
    return x, targets, gate_weights, torch.rand(rows, **DOUBLE)


def dense(x, targets, gate_weights, weight, alpha):
    """Fit W and c with the full representation."""
    z = algebra.tensor_switching(x, gate_weights)[-1].flatten(1)
    s = (torch.ones(len(x), **DOUBLE) if weight is None else weight)[:, None]
    mean, level = (s * z).sum(0) / s.sum(), (s * targets).sum(0) / s.sum()
    gram = (z - mean).T @ (s * (z - mean))
    weights = torch.linalg.solve(
        gram + alpha * torch.eye(len(gram), **DOUBLE), (z - mean).T @ (s * (targets - level))
    )
    return weights, level - mean @ weights, float(gram.diagonal().mean())


def outputs(x, gate_weights, weights, intercept):
    return algebra.tensor_switching(x, gate_weights)[-1].flatten(1) @ weights + intercept


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("gates", [(5,), (4, 3), (3, 2, 2)])
@pytest.mark.parametrize("solver", SOLVERS)
def test_the_intercept_is_not_penalised(solver, gates, weighted):
    x, targets, gate_weights, weight = problem(gates)
    weight = weight if weighted else None
    options = {"solver": solver, "sample_weight": weight, "fit_intercept": True, "tol": 1e-12}
    found = solve(x, targets, gate_weights, 0.3, **options)
    weights, intercept, mean = dense(x, targets, gate_weights, weight, 0.3)
    assert_close(found.weight.flatten(0, -2), weights)
    assert_close(found.intercept, intercept)
    moved = solve(x, -3 * targets + 100, gate_weights, 0.3, **options)
    copies = Copies(gate_weights)
    old, new = (s.outputs(copies, copies.rows(x)) for s in (found, moved))
    assert_close(new, -3 * old + 100)
    multiple = solve(x, targets, gate_weights, "0.1 × mean", **options)
    assert multiple.alpha == pytest.approx(0.1 * mean)


ALPHAS = [100.0, 10.0, 1.0, 0.1, 0.01]


def explicit(x, targets, gate_weights, weight, folds, alpha):
    """Refit without each fold, and sum the errors on it."""
    s = torch.ones(len(x), **DOUBLE) if weight is None else weight
    error = 0.0
    for k in folds.unique():
        out = folds == k
        w, c, _ = dense(x[~out], targets[~out], gate_weights, s[~out], alpha)
        residual = targets[out] - outputs(x[out], gate_weights, w, c)
        error += float((s[out, None] * residual.square()).sum())
    return error / float(s.sum())


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("solver", SOLVERS)
def test_errors_are_those_of_explicit_refits(solver, weighted):
    x, targets, gate_weights, weight = problem((4, 3))
    weight = weight if weighted else None
    options = {"solver": solver, "sample_weight": weight, "fit_intercept": True, "tol": 1e-10}
    found = solve(x, targets, gate_weights, ALPHAS, **options)
    folds = torch.arange(len(x)) if solver == "dual" else fold_of_rows(x, FOLDS)
    expected = [explicit(x, targets, gate_weights, weight, folds, a) for a in ALPHAS]
    tolerance = 1e-2 if solver == "matrix-free" else 1e-6
    for (alpha, error), right in zip(found.path, expected, strict=False):
        assert error == pytest.approx(right, rel=tolerance), alpha
    assert found.alpha == ALPHAS[expected.index(min(expected))]


@pytest.mark.parametrize("solver", SOLVERS)
def test_repeated_rows_are_rows_of_weight_two(solver):
    x, targets, gate_weights, _ = problem((5,), rows=80)
    options = {"solver": solver, "fit_intercept": True, "tol": 1e-10}
    twice = solve(x.repeat(2, 1), targets.repeat(2, 1), gate_weights, ALPHAS, **options)
    weight = torch.full((len(x),), 2.0, **DOUBLE)
    once = solve(x, targets, gate_weights, ALPHAS, sample_weight=weight, **options)
    assert twice.alpha == once.alpha
    assert_close(twice.weight, once.weight, rtol=1e-4, atol=1e-6)
    single = solve(x, targets, gate_weights, [a / 2 for a in ALPHAS], **options)
    assert twice.alpha == 2 * single.alpha


def test_folds_depend_on_content_alone():
    x = torch.randn(500, 7)
    folds = fold_of_rows(x, 5)
    order = torch.randperm(500)
    assert torch.equal(fold_of_rows(x[order], 5), folds[order])
    assert torch.equal(torch.cat([fold_of_rows(part, 5) for part in x.split(37)]), folds)
    assert torch.equal(fold_of_rows(x.double(), 5), folds)
    assert torch.equal(fold_of_rows(-torch.zeros(1, 3), 5), fold_of_rows(torch.zeros(1, 3), 5))
    assert torch.bincount(folds, minlength=5).min() > 60
    whole = torch.cartesian_prod(torch.arange(16.0), torch.arange(16.0))
    columns = Columns(2)
    assert len(columns.hashes(columns.rows(whole)).unique()) == 256
    assert torch.bincount(fold_of_rows(whole, 5), minlength=5).min() > 30


@pytest.mark.parametrize("fit_intercept", [False, True])
def test_the_error_of_rows_with_the_same_inputs_is_that_of_refits(fit_intercept):
    x = torch.tensor([[1.0], [2.0], [1.0], [3.0], [1.0], [4.0]], **DOUBLE)
    t = torch.tensor([[1.0], [5.0], [4.0], [9.0], [1.0], [3.0]], **DOUBLE)
    s = torch.tensor([1.0, 1, 2, 0, 2, 1], **DOUBLE)
    found = solve_dual(x, t, Columns(1), ALPHAS, sample_weight=s, fit_intercept=fit_intercept)
    for alpha, error in found.path:
        total = 0.0
        for out in ([0, 4], [1], [2], [5]):  # copies together
            rest = [i for i in range(6) if i not in out]
            weight = {"sample_weight": s[rest], "fit_intercept": fit_intercept}
            refit = solve_dual(x[rest], t[rest], Columns(1), alpha, **weight)
            predicted = refit.outputs(Columns(1), Columns(1).rows(x[out]))
            total += float(s[out] @ (t[out] - predicted).square())
        assert error == pytest.approx(total / 7)


def statistics(gate_weights, out=2, **options):
    return Sums(Copies(gate_weights), out, dtype=torch.float64, **options)


def test_chunks_and_merging_choose_the_same_penalty():
    x, targets, gate_weights, weight = problem((4, 3))
    whole = statistics(gate_weights, folds=5).update(x, targets, weight)
    expected = whole.solve(ALPHAS, fit_intercept=True)
    parts = [
        statistics(gate_weights, folds=5).update(x[rows], targets[rows], weight[rows])
        for rows in torch.randperm(60).split(17)
    ]
    found = parts[2].merge(parts[0]).merge(parts[3].merge(parts[1]))
    found = found.solve(ALPHAS, fit_intercept=True)
    assert found.alpha == expected.alpha
    assert_close(torch.tensor(found.path), torch.tensor(expected.path))
    assert_close(found.weight, expected.weight)


@pytest.mark.parametrize("options", [{}, {"folds": 5}, {"folds": 5, "held_out": True}])
def test_removing_rows_is_fitting_without_them(options):
    x, targets, gate_weights, weight = problem((4, 3))
    rest = statistics(gate_weights, **options).update(x[20:], targets[20:], weight[20:])
    found = statistics(gate_weights, **options).update(x, targets, weight)
    found.remove(x[:20], targets[:20], weight[:20])
    assert found.rows == pytest.approx(rest.rows)
    one, other = (s.solve("mean", fit_intercept=True) for s in (found, rest))
    assert_close(one.weight, other.weight, rtol=1e-9, atol=1e-9)
    assert_close(one.intercept, other.intercept, rtol=1e-9, atol=1e-9)
    before = found.gram.clone()
    with pytest.raises(ValueError, match="cannot be removed"):
        found.remove(x, targets, weight)
    assert torch.equal(found.gram, before)
    with pytest.raises(ValueError, match="forgetting"):
        statistics(gate_weights, forgetting=0.5).remove(x, targets)


def test_new_targets_are_those_of_the_rows():
    x, targets, gate_weights, weight = problem()
    found = statistics(gate_weights, folds=5).update(x, targets, weight)
    found = found.retarget([1, 0, 0], [1.0, -2.0, 0.0], [0.0, 3.0, -1.0])
    new = torch.stack([targets[:, 1], 3 - 2 * targets[:, 0], -torch.ones(len(x))], dim=1)
    expected = statistics(gate_weights, 3, folds=5).update(x, new, weight)
    for one, other in zip(found.moments(), expected.moments(), strict=True):
        for name in ("gram", "cross", "target_sum", "target_energy"):
            assert_close(getattr(one, name), getattr(other, name))


def test_copies_are_columns_that_are_not_formed():
    x, targets, gate_weights, weight = problem((4, 3))
    z = algebra.tensor_switching(x, gate_weights)[-1].flatten(1)
    formed = Sums(Columns(z.shape[1]), 2, dtype=torch.float64, folds=5)
    formed.update(z, targets, weight, fold_of_rows(x, 5))
    packed = statistics(gate_weights, folds=5).update(x, targets, weight)
    one = formed.solve(ALPHAS, fit_intercept=True)
    other = packed.solve(ALPHAS, fit_intercept=True)
    assert one.alpha == other.alpha
    assert_close(one.weight, other.weight.flatten(0, -2))
    assert_close(torch.tensor(one.path), torch.tensor(other.path))


def test_several_penalties_need_folds():
    x, targets, gate_weights, _ = problem()
    with pytest.raises(ValueError, match="needs the sums of folds; make them with folds=5"):
        statistics(gate_weights).update(x, targets).solve(ALPHAS)


@pytest.mark.parametrize("fit_intercept", [False, True])
@pytest.mark.parametrize("gates", [(16,), (6, 5)])
def test_preconditioners_lead_to_the_same_solution(gates, fit_intercept):
    x, targets, gate_weights, weight = problem(gates, rows=1500, n_in=6)
    options = {"fit_intercept": fit_intercept, "sample_weight": weight, "tol": 1e-10}
    one, other = (
        solve_matrix_free(x, targets, gate_weights, "0.1 mean", preconditioner=kind, **options)
        for kind in ("kronecker", "sampled")
    )
    assert_close(one.weight, other.weight, rtol=1e-6, atol=1e-8)
    assert other.iterations < one.iterations
    with pytest.raises(ValueError, match="preconditioner must be one of"):
        solve_matrix_free(x, targets, gate_weights, preconditioner="none")


@pytest.mark.parametrize(
    ("alpha", "expected"),
    [
        (2, [2.0]),
        ("mean", [50.0]),
        ("0.1 mean", [5.0]),
        ("1e-2 × mean", [0.5]),
        (["mean", "2*mean", 1.0], [100.0, 50.0, 1.0]),
    ],
)
def test_multiples_of_the_mean(alpha, expected):
    z = torch.full((50, 1), 1.0, **DOUBLE)  # the mean of the diagonal is 50
    z[::2] = -1
    found = Sums(Columns(1), 1, dtype=torch.float64, folds=2).update(z, z).solve(alpha)
    tried = [value for value, _ in found.path] or [found.alpha]
    assert tried == pytest.approx(expected)


@pytest.mark.parametrize(
    "alpha", ["means", "mean 2", "-1 mean", "nan mean", True, "best", [], None]
)
def test_wrong_penalties_are_named(alpha):
    with pytest.raises(ValueError, match="alpha"):
        solve_dual(torch.eye(2), torch.eye(2), Columns(2), alpha)


def test_leave_one_out_is_accurate_for_tiny_penalties():
    """Where nearly nothing is left of ``1 − h``, an intercept must not add rounding errors."""
    x, targets, gate_weights, _ = problem((40,), rows=15, n_in=8)
    found = solve(x, targets, gate_weights, [*ALPHAS, 1e-4], solver="dual", fit_intercept=True)
    folds = torch.arange(len(x))
    for alpha, error in found.path:
        right = explicit(x, targets, gate_weights, None, folds, alpha)
        assert error == pytest.approx(right, rel=1e-7)


def test_an_offset_of_the_targets_does_not_change_the_penalty():
    generator = torch.Generator().manual_seed(0)
    z = torch.randn(300, 6, generator=generator)
    t = 10 * z[:, :1] + torch.randn(300, 1, generator=generator)
    found = [
        Sums(Columns(6), 1, folds=5).update(z, t + offset).solve("cv", fit_intercept=True)
        for offset in (0, 20_000)
    ]
    assert found[1].alpha == pytest.approx(found[0].alpha, rel=1e-3)
    torch.testing.assert_close(found[1].weight, found[0].weight, atol=1e-2, rtol=0)
