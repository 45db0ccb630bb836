import errno
import os

import pytest
import torch

from tensorswitch.linear import Columns, StoredRows, Sums

ROWS, FEATURES = 400, 150
ALPHAS = ["1 mean", "0.1 mean", "0.01 mean"]


def problem(seed=0, rows=ROWS):
    generator = torch.Generator().manual_seed(seed)
    z = torch.randn(rows, 40, generator=generator) @ torch.randn(40, FEATURES, generator=generator)
    z = (z / 6 + 0.5 + 0.3 * torch.randn(rows, FEATURES, generator=generator)).half().float()
    t = z[:, :3].sign() + 0.5 * torch.randn(rows, 3, generator=generator)
    return z, t, torch.rand(rows, generator=generator) + 0.2


def hashes_of(z):
    columns = Columns(z.shape[1])
    return columns.hashes(columns.rows(z))


def filled(z, t, s=None, **options):
    rows = StoredRows(len(z), z.shape[1], t.shape[1], **options)
    for part in torch.arange(len(z)).split(90):
        rows.append(z[part], t[part], None if s is None else s[part], hashes_of(z[part]))
    return rows


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("fit_intercept", [False, True])
@pytest.mark.parametrize("alpha", ["0.1 mean", 3.0, ALPHAS])
def test_solution_is_that_of_the_sums(weighted, fit_intercept, alpha):
    z, t, s = problem()
    s = s if weighted else None
    found, left_out = filled(z, t, s).solve(alpha, fit_intercept=fit_intercept, tol=1e-6)
    sums = Sums(Columns(FEATURES), 3, folds=5)
    expected = sums.update(z, t, s).solve(alpha, fit_intercept=fit_intercept)
    assert found.alpha == pytest.approx(expected.alpha, rel=1e-4)
    torch.testing.assert_close(found.weight, expected.weight, rtol=1e-3, atol=1e-4)
    if fit_intercept:
        torch.testing.assert_close(found.intercept, expected.intercept, rtol=1e-3, atol=1e-4)
    errors = [torch.tensor(solution.path) for solution in (found, expected)]
    torch.testing.assert_close(*errors, rtol=1e-3, atol=1e-4)
    assert (left_out is None) == (alpha is not ALPHAS)


def test_little_memory_for_the_preconditioner_changes_the_iterations_only():
    z, t, _ = problem()
    free, tight = (filled(z, t, memory=memory).solve(5.0, tol=1e-6)[0] for memory in (1e9, 4e4))
    assert tight.iterations > free.iterations
    torch.testing.assert_close(free.weight, tight.weight, rtol=1e-3, atol=1e-4)


def test_a_file_gives_the_same_as_memory(tmp_path):
    z, t, _ = problem()
    kept, on_disk = filled(z, t), filled(z, t, memory=0, folder=tmp_path)
    assert kept.in_memory
    assert not on_disk.in_memory
    assert not list(tmp_path.iterdir())  # nothing is left behind if the process dies
    a, b = (rows.solve("0.1 mean", tol=1e-6)[0] for rows in (kept, on_disk))
    assert a.alpha == b.alpha
    torch.testing.assert_close(a.weight, b.weight, rtol=1e-3, atol=1e-4)


def test_rows_of_equal_hashes_are_left_out_together():
    z, t, _ = problem(rows=100)
    twice, once = filled(torch.cat([z, z]), torch.cat([t, t])), filled(z, t)
    path = [dict(rows.solve([200.0, 20.0], fit_intercept=True)[0].path) for rows in (once, twice)]
    doubled = dict(twice.solve([400.0, 40.0], fit_intercept=True, tol=1e-6)[0].path)
    assert doubled[40.0] == pytest.approx(path[0][20.0], rel=1e-3)
    assert path[1][20.0] > path[0][20.0]  # half the penalty for each row


def test_outputs_for_rows_left_out_are_those_of_a_readout_that_has_not_seen_them():
    z, t, _ = problem()
    solution, outputs = filled(z, t).solve(5.0, fit_intercept=True, left_out=True)
    assert outputs.isfinite().all()
    seen = (z @ solution.weight + solution.intercept.float() - t).square().mean()
    assert (outputs - t).square().mean() > 1.2 * seen


def test_more_rows_than_announced_are_refused():
    z, t, _ = problem()
    rows = StoredRows(500, FEATURES, 3).append(z, t)
    with pytest.raises(ValueError, match="room for 500 rows, but 800"):
        rows.append(z, t)
    assert len(rows) == ROWS


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 1e39])
def test_numbers_that_are_not_finite_in_single_precision_are_refused(value):
    z, t, _ = problem()
    z = z.double()
    z[3, 4] = value
    rows = StoredRows(ROWS, FEATURES, 3)
    with pytest.raises(ValueError, match="z contains NaN or infinity"):
        rows.append(z, t)
    assert not len(rows)


def test_a_full_disk_is_named(tmp_path, monkeypatch):
    with pytest.raises(OSError, match=r"take .* GB in .*free; use fewer features, or set TMPDIR"):
        StoredRows(10**9, 10**6, 1, memory=0, folder=tmp_path)

    def full(*arguments):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "posix_fallocate", full, raising=False)
    with pytest.raises(OSError, match="No space left"):
        StoredRows(10, 10, 1, memory=0, folder=tmp_path)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"sample_weight": -torch.ones(4)}, "must not be negative"),
        ({"sample_weight": torch.full((4,), torch.nan)}, "sample_weight contains NaN"),
        ({"sample_weight": torch.full((4,), torch.inf)}, "sample_weight contains NaN or infinity"),
        ({"targets": torch.full((4, 1), 1e39, dtype=torch.float64)}, "targets contains NaN or inf"),
    ],
)
def test_wrong_targets_and_weights_are_refused(change, message):
    rows = StoredRows(4, 3, 1)
    with pytest.raises(ValueError, match=message):
        rows.append(torch.randn(4, 3), **{"targets": torch.ones(4, 1), **change})
    assert len(rows) == 0


@pytest.mark.parametrize("scale", [1e-12, 1e-9, 1e-7, 1e6, 1e12])
def test_the_scale_of_features_does_not_matter(scale):
    z, t, _ = problem()
    plain, scaled = (filled(c * z, t).solve("0.1 mean", tol=1e-6)[0] for c in (1.0, scale))
    assert scaled.alpha == pytest.approx(plain.alpha * scale**2, rel=1e-3)
    torch.testing.assert_close(scaled.weight * scale, plain.weight, rtol=1e-3, atol=5e-4)


@pytest.mark.parametrize("scale", [1e-9, 1.0, 1e6])
def test_rows_may_be_larger_than_the_first(scale):
    z, t, _ = problem()
    z[:, ::3] *= torch.linspace(1e-4, 1, ROWS)[:, None]
    z[:90, 7] = 0  # nothing is known of its scale when the first rows come
    found, _ = filled(scale * z, t).solve("0.1 mean", fit_intercept=True, tol=1e-6)
    exact = Sums(Columns(FEATURES), 3, dtype=torch.float64).update(z.double(), t.double())
    expected = exact.solve("0.1 mean", fit_intercept=True)
    torch.testing.assert_close(scale * found.weight.double(), expected.weight, rtol=0, atol=1e-3)


def test_rows_without_hashes_belong_to_folds():
    z, t, _ = problem()
    rows = StoredRows(ROWS, FEATURES, 3).append(z, t)
    solution, left_out = rows.solve(ALPHAS, fit_intercept=True)
    expected, _ = filled(z, t).solve(ALPHAS, fit_intercept=True)
    assert len(solution.path) == len(ALPHAS)
    assert solution.alpha == expected.alpha
    assert left_out.isfinite().all()
