"""Scaling, principal components and maps of columns: exact where numbers are large or constant."""

import numpy as np
import pytest
from scipy import sparse
from sklearn.decomposition import PCA
from sklearn.preprocessing import StandardScaler

from tensorswitch.persistence import load, save
from tensorswitch.preprocessing import ColumnMap, PrincipalComponents, Scaling, column_moments

KINDS = ("standard", "common", "robust", "ramps")


@pytest.fixture
def x():
    rng = np.random.default_rng(0)
    return rng.normal(size=(60, 5)) * [1, 2, 300, 0.1, 1] + [0, 5, 0, 9, -2]


def test_scaling_equals_scikit_learn_with_weights(x):
    weight = np.random.default_rng(1).integers(0, 4, len(x))
    expected = StandardScaler().fit(x, sample_weight=weight).transform(x)
    np.testing.assert_allclose(Scaling.fit(x, weight)(x), expected, atol=1e-12)
    repeated = Scaling.fit(np.repeat(x, weight, axis=0))
    np.testing.assert_allclose(Scaling.fit(x, weight)(x), repeated(x), atol=1e-12)


def test_sparse_rows_have_the_same_scaling(x):
    x = np.where(np.abs(x) < 2, 0, x)
    np.testing.assert_allclose(Scaling.fit(sparse.csr_matrix(x))(x), Scaling.fit(x)(x), atol=1e-12)


@pytest.mark.parametrize("value", [0.0, 0.1, 1.7e18, 1e25, -1e25, 1e150])
@pytest.mark.parametrize("rows", [1, 7, 1000])
def test_constant_columns_become_exactly_zero(value, rows):
    x = np.full((rows, 1), value)
    scaling = Scaling.fit(x)
    assert (scaling(x) == 0).all()
    assert (scaling.inverse(scaling(x)) == value).all()


def test_small_differences_of_large_numbers_keep_their_digits():
    times = 1.7e18 + np.linspace(-1e12, 1e12, 1001)[:, None]
    mean, deviation, _ = column_moments(times)
    np.testing.assert_allclose(deviation, np.std(times - 1.7e18), rtol=1e-9)
    np.testing.assert_allclose(Scaling.fit(times)(times).std(), 1, rtol=1e-6)
    assert mean == pytest.approx(1.7e18)


def test_inverse_returns_to_the_units(x):
    scaling = Scaling.fit(x)
    np.testing.assert_allclose(scaling.inverse(scaling(x)), x)


def test_numbers_too_large_to_be_squared_are_refused():
    with pytest.raises(ValueError, match="beyond 1e150"):
        Scaling.fit(np.array([[1e200], [0.0]]))


@pytest.mark.parametrize("given", ["all", (1.0,), (np.ones(3), np.ones(2)), ([0.0], [np.nan])])
def test_given_moments_are_checked(given):
    with pytest.raises(ValueError, match="standard deviations"):
        Scaling.given(given, 2)


def test_columns_that_vary_later_are_named(x):
    first = x.copy()
    first[:, [1, 3]] = 4.0
    assert Scaling.fit(first).ignored(x).tolist() == [1, 3]
    assert Scaling.fit(x).ignored(x).tolist() == []


@pytest.mark.parametrize("rows", [60, 4])
def test_components_equal_scikit_learn(x, rows):
    x = x[:rows]
    expected = PCA(3).fit_transform(x)
    np.testing.assert_allclose(
        np.abs(PrincipalComponents.fit(x, 3)(x)), np.abs(expected), atol=1e-9
    )


@pytest.mark.parametrize("rows", [60, 4])
def test_components_weigh_rows_as_repetitions(x, rows):
    x = x[:rows]
    weight = np.arange(rows) % 3 + 1.0
    repeated = np.repeat(x, weight.astype(int), axis=0)
    found = PrincipalComponents.fit(x, 2, weight)(x)
    np.testing.assert_allclose(np.abs(found), np.abs(PrincipalComponents.fit(repeated, 2)(x)))


def test_components_of_unit_size_have_a_mean_square_of_one(x):
    found = PrincipalComponents.fit(x, 3, scaling=Scaling.fit(x), unit=True)
    assert np.square(found(Scaling.fit(x)(x))).mean() == pytest.approx(1)


@pytest.mark.parametrize("rank", [5, 12])
def test_few_rows_of_many_features(rank):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(13, rank)) @ rng.normal(size=(rank, 40))
    basis = PrincipalComponents.fit(x, 8).basis
    np.testing.assert_allclose(basis.T @ basis, np.eye(8), atol=1e-8)
    centred = x - x.mean(0)
    _, vectors = np.linalg.eigh(centred.T @ centred)
    known = min(rank, 8)
    overlap = np.abs(np.sum(basis[:, :known] * vectors[:, ::-1][:, :known], axis=0))
    np.testing.assert_allclose(overlap, 1, atol=1e-8)


def test_too_many_components_are_refused(x):
    with pytest.raises(ValueError, match="at most 5 for 60 rows of 5 features, got 6"):
        PrincipalComponents.fit(x, 6)


@pytest.mark.parametrize("kind", KINDS)
def test_rows_of_column_maps_have_a_mean_squared_length_of_one(kind, x):
    x[:, 2] = 7.0
    found = ColumnMap.fit(kind, x)
    z = found(x)
    assert np.square(z).sum(1).mean() == pytest.approx(1)
    assert (z[:, found.sources == 2] == 0).all()
    assert (found(x, 3.0)[:, -1] == 3).all()


def test_ramps_are_unchanged_by_increasing_maps_of_a_column(x):
    x = x[:20]
    np.testing.assert_allclose(
        ColumnMap.fit("ramps", x)(x), ColumnMap.fit("ramps", np.exp(x / 300))(np.exp(x / 300))
    )


@pytest.mark.parametrize("kind", KINDS)
def test_column_maps_are_saved(kind, x, tmp_path):
    found = ColumnMap.fit(kind, x, power=0.5)
    save(found, tmp_path / "map")
    np.testing.assert_array_equal(load(tmp_path / "map")(x, 1.0), found(x, 1.0))


def test_weights_of_features_come_from_their_columns(x):
    weights = np.arange(1.0, 11.0)
    found = ColumnMap.fit("robust", x, weights).feature_weights
    expected = np.sqrt(weights[:5] ** 2 + weights[5:] ** 2)
    np.testing.assert_allclose(found, expected / expected.max())
