"""Principal components are the same from the smaller of the two matrices."""

import numpy as np
import pytest

from tensorswitch._pca import principal_components


@pytest.mark.parametrize("rank", [5, 12])
def test_few_rows_of_many_features(rank):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(12, rank)) @ rng.normal(size=(rank, 40))
    x -= x.mean(0)
    found = principal_components(x, 8)
    np.testing.assert_allclose(found.T @ found, np.eye(8), atol=1e-8)
    known = min(rank, 8)
    _, vectors = np.linalg.eigh(x.T @ x)
    overlap = np.abs(np.sum(found[:, :known] * vectors[:, ::-1][:, :known], axis=0))
    np.testing.assert_allclose(overlap, 1, atol=1e-8)
