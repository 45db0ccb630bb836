"""Maps of columns, as the search uses them."""

import numpy as np
import pytest

from tensorswitch.preprocessing import ColumnMap

RNG = np.random.default_rng(0)
KINDS = ("standard", "common", "robust", "ramps")


@pytest.mark.parametrize("kind", KINDS)
def test_units_of_columns_do_not_matter_where_each_is_scaled(kind):
    x = RNG.normal(size=(50, 3))
    x[:, 2] = 7  # constant
    columns = ColumnMap.fit(kind, x)
    z = columns(x)
    np.testing.assert_allclose(z[:, columns.sources == 2], 0)
    factor = np.array([1e6, 1e6, 1e6]) if kind == "common" else np.array([1e6, 1e-3, 10])
    np.testing.assert_allclose(ColumnMap.fit(kind, x * factor + 5)(x * factor + 5), z, atol=1e-8)
    count = {"robust": 6, "ramps": 24 + 24 + 1}.get(kind, 3)
    assert columns(x, 3.0).shape == (50, count + 1)
    np.testing.assert_allclose(columns(x, 3.0)[:, -1], 3.0)


def test_the_robust_map_joins_ranks_and_bends_outliers():
    x = np.append(RNG.normal(size=99), 1e6)[:, None]
    standard, robust = (ColumnMap.fit(kind, x)(x) for kind in ("standard", "robust"))
    assert standard[:-1, 0].std() < 1e-3
    assert robust[:-1, 0].std() > 0.3
    np.testing.assert_array_equal(np.argsort(robust[:, 1]), np.argsort(x[:, 0]))


def test_ramps_of_a_feature_have_the_same_weight():
    x = np.column_stack([RNG.normal(size=100), RNG.integers(0, 2, 100), RNG.normal(size=100)])
    columns = ColumnMap.fit("ramps", x)
    assert np.bincount(columns.sources).tolist() == [24, 1, 24]
    g = columns.shared(np.arange(49.0))
    assert [len(np.unique(g[columns.sources == j])) for j in range(3)] == [1, 1, 1]
    weighted = ColumnMap.fit("ramps", x, g / g.max(), 1.0)
    expected = [np.sqrt(np.square(np.arange(49.0)[columns.sources == j]).mean()) for j in range(3)]
    np.testing.assert_allclose(weighted.feature_weights, np.array(expected) / max(expected))
