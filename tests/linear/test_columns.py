import pytest
import torch

from tensorswitch.linear import Columns, Copies, Sums

FEATURES = 23


def rows(count=60, dtype=torch.float64, seed=0):
    generator = torch.Generator().manual_seed(seed)
    z = torch.randn(count, FEATURES, generator=generator, dtype=torch.float64)
    t = z[:, :2].abs() + 0.1 * torch.randn(count, 2, generator=generator, dtype=torch.float64) + 5
    s = torch.rand(count, generator=generator, dtype=torch.float64)
    return z.to(dtype), t.to(dtype), s.to(dtype)


def statistics(**options):
    return Sums(Columns(FEATURES), 2, dtype=torch.float64, **options)


def dense(z, t, s, alpha, fit_intercept=True):
    """Solve with centred rows."""
    s = (torch.ones_like(z[:, 0]) if s is None else s)[:, None]
    zero = torch.zeros((), dtype=z.dtype)
    mean, level = ((s * v).sum(0) / s.sum() if fit_intercept else zero for v in (z, t))
    gram = (z - mean).T @ (s * (z - mean)) + alpha * torch.eye(z.shape[1], dtype=z.dtype)
    weight = torch.linalg.solve(gram, (z - mean).T @ (s * (t - level)))
    return weight, level - mean @ weight if fit_intercept else None


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("fit_intercept", [False, True])
def test_solution_is_that_of_the_dense_sums(weighted, fit_intercept):
    z, t, s = rows()
    s = s if weighted else None
    solution = statistics().update(z, t, s).solve(0.7, fit_intercept=fit_intercept)
    weight, intercept = dense(z, t, s, 0.7, fit_intercept)
    torch.testing.assert_close(solution.weight, weight)
    if fit_intercept:
        torch.testing.assert_close(solution.intercept, intercept)


def test_explicit_features_are_the_representation_of_a_unit_that_is_always_open():
    z, t, s = rows()
    unit = [torch.zeros(1, FEATURES, dtype=torch.float64)]
    structured = Sums(Copies(unit, "none"), 2, dtype=torch.float64, folds=5)
    expected = structured.update(z, t, s).solve("cv", fit_intercept=True)
    found = statistics(folds=5).update(z, t, s).solve("cv", fit_intercept=True)
    assert found.alpha == pytest.approx(expected.alpha)
    torch.testing.assert_close(found.weight, expected.weight[0])
    torch.testing.assert_close(torch.tensor(found.path), torch.tensor(expected.path))


def test_penalty_of_several_is_that_of_explicit_cross_validation():
    z, t, _ = rows()
    fold = torch.arange(60) % 5
    alphas = [30.0, 3.0, 0.3]
    found = statistics(folds=5).update(z, t, fold=fold).solve(alphas, fit_intercept=True)
    for alpha, error in found.path:
        total = 0.0
        for k in range(5):
            weight, intercept = dense(z[fold != k], t[fold != k], None, alpha)
            outputs = z[fold == k] @ weight + intercept
            total += float((outputs - t[fold == k]).square().sum())
        assert error == pytest.approx(total / 60)


@pytest.mark.parametrize("held_out", [False, True])
def test_chunks_merged_and_removed_rows_change_nothing(held_out):
    z, t, s = rows()
    options = {"folds": 5, "held_out": held_out}
    whole = statistics(**options).update(z, t, s).solve("cv", fit_intercept=True)
    left = statistics(**options)
    for part in range(0, 30, 7):
        left.update(*(x[part : min(part + 7, 30)] for x in (z, t, s)))
    right = statistics(**options).update(z[30:], t[30:], s[30:])
    extra = rows(11, seed=1)
    left.update(*extra).merge(right).remove(*extra)
    merged = left.solve("cv", fit_intercept=True)
    assert merged.alpha == pytest.approx(whole.alpha, rel=1e-9)
    torch.testing.assert_close(merged.weight, whole.weight, rtol=1e-9, atol=1e-9)


def test_rows_of_the_wrong_width_leave_the_sums_as_they_were():
    z, t, _ = rows()
    sums = statistics().update(z, t)
    before = sums.solve(1.0).weight
    with pytest.raises(ValueError, match="size 22 on axis 1"):
        sums.update(z[:, :-1], t)
    torch.testing.assert_close(sums.solve(1.0).weight, before)


def test_files_keep_the_sums(tmp_path):
    z, t, _ = rows()
    sums = statistics(folds=3).update(z, t)
    sums.save(tmp_path / "sums")
    again = Sums.load(tmp_path / "sums")
    assert isinstance(again.representation, Columns)
    torch.testing.assert_close(again.solve("cv").weight, sums.solve("cv").weight, rtol=0, atol=0)


def test_a_constant_feature_gets_no_weight_at_any_scale():
    z, t, _ = rows()
    z[:, 3] = 1.0
    for scale in (1.0, 1e-4, 1e-30):
        scaled = z.clone()
        scaled[:, torch.arange(FEATURES) != 3] *= scale
        sums = statistics(folds=3).update(scaled, t)
        solution = sums.solve("0.1 mean", fit_intercept=True)
        assert (solution.weight[3] == 0).all()
        outputs = scaled @ solution.weight + solution.intercept
        if scale == 1.0:
            expected = outputs
        torch.testing.assert_close(outputs, expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(("offset", "warns"), [(0.0, False), (10.0, False), (200.0, True)])
def test_features_far_from_zero_are_named(offset, warns, caplog):
    generator = torch.Generator().manual_seed(0)
    z = torch.randn(2000, 3, generator=generator) + offset
    z[:, 2] = 1  # constant features are no reason to warn
    statistics = Sums(Columns(3), 1).update(z, z[:, :1] - offset)
    statistics.solve(1e-2, fit_intercept=True)
    assert ("means of 2 features are so large" in caplog.text) == warns


def test_sums_in_several_panels():
    """Some builds of OpenBLAS crash on large matrices, so that sums are kept in panels."""
    z = torch.randn(300, 1100, dtype=torch.float64)
    sums = Sums(Columns(1100), 1, dtype=torch.float64).update(z, z[:, :1])
    whole = z.T @ z
    columns, eye = sums.representation, torch.eye(1100, dtype=torch.float64)
    torch.testing.assert_close(columns.packing.product(sums.gram, eye), whole)
    torch.testing.assert_close(columns.packing.diagonal(sums.gram), whole.diagonal())
    assert sums.gram.numel() < 0.97 * whole.numel()
    weight, _ = dense(z, z[:, :1], None, 0.3, fit_intercept=False)
    torch.testing.assert_close(sums.solve(0.3).weight, weight)


def test_values_that_share_a_factorisation_have_the_errors_of_refits():
    generator = torch.Generator().manual_seed(0)
    z = torch.randn(200, 520, generator=generator, dtype=torch.float64)
    t = z[:, :1] + torch.randn(200, 1, generator=generator, dtype=torch.float64)
    fold = torch.arange(200) % 2
    alphas = [10.0 ** (k / 2) for k in range(8, 0, -1)]
    found = Sums(Columns(520), 1, dtype=torch.float64, folds=2).update(z, t, fold=fold)
    for alpha, error in found.solve(alphas, fit_intercept=True).path:
        total = 0.0
        for k in range(2):
            weight, intercept = dense(z[fold != k], t[fold != k], None, alpha)
            total += float((z[fold == k] @ weight + intercept - t[fold == k]).square().sum())
        assert error == pytest.approx(total / 200, rel=1e-3)
