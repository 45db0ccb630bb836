"""The kernel expansion: exact shares of columns, and saving."""

import numpy as np
import pytest
import torch

from tensorswitch.kernel_ridge import Search
from tensorswitch.persistence import load, save


def model_of(kind, depth, rows=40):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(rows, 3))
    y = np.stack([np.abs(x[:, 0]), x[:, 1] * x[:, 2]], 1)
    options = {"kinds": (kind,), "depths": (depth,), "penalties": (0.1,), "biases": (1.0,)}
    return Search(**options, column_weights=False).fit(x, y).model, rng.normal(size=(7, 3))


@pytest.mark.parametrize("kind", ["ss", "ts", "ntk"])
@pytest.mark.parametrize("depth", [1, 2, 4])
def test_contributions_are_gradients_that_add_up(kind, depth):
    model, x = model_of(kind, depth)
    z = model.scaled(x)
    found = model.contributions(z)
    torch.testing.assert_close(found.sum(2), model.kernel(z) @ model.coef)
    for j in range(z.shape[1]):
        step = torch.zeros_like(z)
        step[:, j] = 1e-6
        slope = (model.kernel(z + step) - model.kernel(z - step)) @ model.coef / 2e-6
        torch.testing.assert_close(found[:, :, j], slope * z[:, j : j + 1], rtol=1e-4, atol=1e-6)


def test_a_model_is_saved(tmp_path):
    model, x = model_of("ts", 2)
    save(model, tmp_path / "model.safetensors")
    loaded = load(tmp_path / "model.safetensors")
    np.testing.assert_array_equal(loaded(x), model(x))
    np.testing.assert_array_equal(loaded.variance(x), model.variance(x))
