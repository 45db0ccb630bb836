"""Estimators work with NumPy arrays, whatever torch's default device."""

import numpy as np
import pytest
import torch

from tensorswitch.estimators import (
    StreamingRidgeClassifier,
    StreamingRidgeRegressor,
    TSConvRidgeClassifier,
    TSKernelRidgeClassifier,
    TSKernelRidgeRegressor,
    TSKernelSVC,
    TSMLPClassifier,
    TSMLPRegressor,
    TSRidgeClassifier,
    TSRidgeRegressor,
    load_estimator,
    save_estimator,
)

X = np.random.default_rng(0).normal(size=(80, 4))
Y = (X[:, 0] * X[:, 1] > 0).astype(int)
IMAGES = np.random.default_rng(1).random((80, 8, 8))
MODELS = {
    "network": lambda: TSMLPClassifier((4,), max_iter=2, random_state=0),
    "network with learned gates": lambda: TSMLPClassifier((4,), "ts-ibp-lrc", max_iter=2),
    "uncompressed network": lambda: TSMLPRegressor((4,), "ts-ibp", max_iter=2),
    "ReLU network": lambda: TSMLPRegressor((4,), "ss", max_iter=2),
    "ridge": lambda: TSRidgeClassifier(8, switch="maxout"),
    "ridge, streaming": lambda: TSRidgeRegressor(8, solver="streaming"),
    "ridge, matrix-free": lambda: TSRidgeRegressor(8, solver="matrix-free"),
    "ridge, dual": lambda: TSRidgeRegressor(8, solver="dual"),
    "features": StreamingRidgeClassifier,
    "features, regression": StreamingRidgeRegressor,
    "images": lambda: TSConvRidgeClassifier(256, random_state=0),
    "kernel ridge": TSKernelRidgeClassifier,
    "kernel ridge, regression": TSKernelRidgeRegressor,
    "support vectors": TSKernelSVC,
}


@pytest.fixture
def meta():
    torch.set_default_device("meta")  # tensors without data: whoever reads one raises
    yield
    torch.set_default_device(None)


@pytest.mark.parametrize("name", MODELS)
def test_estimators_fit_predict_and_save(meta, name, tmp_path):
    rows = IMAGES if name == "images" else X
    model = MODELS[name]().fit(rows, Y)
    predicted = model.predict(rows)
    save_estimator(model, tmp_path / "model")
    np.testing.assert_array_equal(load_estimator(tmp_path / "model").predict(rows), predicted)
    if hasattr(model, "explain"):
        assert np.isfinite(model.explain(rows[:5]).contributions).all()
    if hasattr(model, "to_torch"):
        assert {p.device.type for p in model.to_torch().parameters()} == {"cpu"}
    if hasattr(model, "remove") and model.solver_ != "matrix-free":
        model.partial_fit(rows[:10], Y[:10]).remove(rows[:10], Y[:10])
        assert np.isfinite(model.predict(rows)).all()


def test_the_result_is_the_same(meta):
    elsewhere = [MODELS[name]().fit(X, Y).predict(X) for name in ("network", "features")]
    torch.set_default_device(None)
    here = [MODELS[name]().fit(X, Y).predict(X) for name in ("network", "features")]
    for a, b in zip(elsewhere, here, strict=True):
        np.testing.assert_array_equal(a, b)
