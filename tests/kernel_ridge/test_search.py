"""The search weighs columns until those that do not matter are told apart."""

import numpy as np

from tensorswitch.estimators import TSKernelRidgeRegressor


def test_columns_without_effect_are_weighed_down_as_long_as_it_helps():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(2400, 60))
    y = X[:, 0] * X[:, 1] + np.sin(3 * X[:, 2]) + 0.3 * rng.normal(size=2400)
    model = TSKernelRidgeRegressor(random_state=1).fit(X[:1200], y[:1200])
    assert model.score(X[1200:], y[1200:]) > 0.65  # 0.46 after two rounds
    weights = model.column_weights_
    assert set(np.argsort(weights)[-3:]) == {0, 1, 2}
    assert np.sort(weights)[-4] < 0.5 * weights.max()
