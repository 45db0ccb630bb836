import copy

import numpy as np
import pytest
from sklearn.exceptions import NotFittedError

from tensorswitch.estimators import (
    TSKernelSVC,
    TSMLPClassifier,
    TSMLPRegressor,
    TSRidgeClassifier,
    TSRidgeRegressor,
)

MODELS = [
    TSRidgeClassifier(4, random_state=0),
    TSRidgeRegressor(4, random_state=0),
    TSKernelSVC(),
    TSMLPClassifier(4, max_iter=2, random_state=0),
    TSMLPRegressor(4, max_iter=2, random_state=0),
]
RNG = np.random.default_rng(0)
X, Y = RNG.normal(size=(40, 3)), np.arange(40) % 2
OTHER = RNG.normal(size=(40, 5))  # a different number of features
HOLES = np.where(OTHER > 1, np.nan, OTHER)
INVALID = {
    "NaN": (HOLES, Y),
    "too few labels": (OTHER, Y[:-1]),
    "no rows": (OTHER[:0], Y[:0]),
    "NaN among labels": (OTHER, np.where(Y > 0, np.nan, Y)),
    "too few weights": (OTHER, Y + 5, np.ones(39)),
    "a negative weight": (OTHER, Y + 5, -np.ones(40)),
}


def state(model):
    content = {k: v for k, v in vars(model).items() if k != "_learner"}
    return {k: v for k, v in content.items() if k.endswith("_") and not k.startswith("_")}


@pytest.fixture(params=MODELS, ids=lambda m: type(m).__name__)
def model(request):
    return copy.deepcopy(request.param)


@pytest.mark.parametrize("reason", INVALID)
def test_an_invalid_refit_changes_nothing(model, reason):
    arguments = INVALID[reason]
    if len(arguments) == 3 and "MLP" in type(model).__name__:
        pytest.skip("does not support sample weights")
    model.fit(X, Y)
    before, predictions = copy.deepcopy(state(model)), model.predict(X)
    with pytest.raises(ValueError):  # noqa: PT011
        model.fit(*arguments)
    after = state(model)
    assert before.keys() == after.keys()
    for name in before:
        np.testing.assert_equal(np.asarray(after[name], object), np.asarray(before[name], object))
    np.testing.assert_array_equal(model.predict(X), predictions)


@pytest.mark.parametrize("reason", INVALID)
def test_an_invalid_first_fit_leaves_the_model_unfitted(model, reason):
    arguments = INVALID[reason]
    if len(arguments) == 3 and "MLP" in type(model).__name__:
        pytest.skip("does not support sample weights")
    with pytest.raises(ValueError):  # noqa: PT011
        model.fit(*arguments)
    with pytest.raises(NotFittedError):
        model.predict(X)


def test_an_interrupted_refit_changes_nothing(model, monkeypatch):
    model.fit(X, Y)
    before = model.predict(X)
    names = [n for n in ("_fit", "_start") if hasattr(model, n)]
    from tensorswitch.estimators import _kernel_svc

    def interrupt(*_, **__):
        raise KeyboardInterrupt

    for name in names:
        monkeypatch.setattr(type(model), name, interrupt)
    monkeypatch.setattr(_kernel_svc.Pairs, "run", interrupt)
    with pytest.raises(KeyboardInterrupt):
        model.fit(OTHER, Y)
    monkeypatch.undo()
    np.testing.assert_array_equal(model.predict(X), before)
