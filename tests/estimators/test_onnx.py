"""Fitted estimators as torch modules and in ONNX Runtime."""

import numpy as np
import pytest
import torch

from tensorswitch.estimators import (
    StreamingRidgeRegressor,
    TSConvRidgeClassifier,
    TSMLPClassifier,
    TSMLPRegressor,
    TSRidgeClassifier,
    TSRidgeRegressor,
)


def table(rows=120):
    random = np.random.RandomState(0)
    X = random.randn(rows, 5) * [1, 10, 0.1, 1, 1] + [0, 300, 0, 5, 0]
    return X, (X[:, 0] * X[:, 3] > 0).astype(int) + (X[:, 4] > 1)


MODELS = {
    "ridge": lambda X, y: TSRidgeClassifier((8,), random_state=0).fit(X, y),
    "ridge with maxout": lambda X, y: TSRidgeClassifier(
        (8, 4), switch="maxout", random_state=0
    ).fit(X, y),
    "ridge with components": lambda X, y: TSRidgeRegressor(
        (6, 4), components=3, random_state=0
    ).fit(X, np.column_stack([y, -y])),
    "features": lambda X, y: StreamingRidgeRegressor().fit(X, y),
    "mlp": lambda X, y: TSMLPClassifier((8,), max_iter=2, random_state=0).fit(X, y),
    "mlp regressor": lambda X, y: TSMLPRegressor((8,), max_iter=2, random_state=0).fit(X, y),
}


def outputs(model, X):
    for name in ("decision_function", "predict"):
        if hasattr(model, name) and not isinstance(model, TSMLPClassifier):
            found = getattr(model, name)(X)
            return found.reshape(len(X), -1)
    return model.predict_proba(X)


def probabilities(model, y):
    return torch.as_tensor(y).softmax(1).numpy() if isinstance(model, TSMLPClassifier) else y


@pytest.mark.parametrize("name", MODELS)
def test_the_module_shares_nothing_with_the_model(name):
    X, y = table()
    model = MODELS[name](X, y)
    before = outputs(model, X)
    with torch.no_grad():
        for tensor in model.to_torch().state_dict().values():
            tensor.zero_()
    np.testing.assert_array_equal(outputs(model, X), before)


@pytest.mark.parametrize("name", MODELS)
def test_the_module_computes_the_outputs(name):
    X, y = table()
    model = MODELS[name](X, y)
    module = model.to_torch()
    dtype = next(p.dtype for p in module.parameters())
    with torch.no_grad():
        found = module(torch.as_tensor(X, dtype=dtype)).numpy()
    np.testing.assert_allclose(probabilities(model, found), outputs(model, X), rtol=1e-4, atol=1e-5)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ["ridge", "ridge with maxout", "features", "mlp"])
def test_a_file_runs_in_onnx_runtime(name, tmp_path):
    runtime = pytest.importorskip("onnxruntime")
    X, y = table()
    X = X.astype(np.float32)
    model = MODELS[name](X, y)
    model.to_onnx(tmp_path / "model.onnx")
    session = runtime.InferenceSession(tmp_path / "model.onnx")
    found = session.run(None, {"x": X})[0]
    np.testing.assert_allclose(probabilities(model, found), outputs(model, X), rtol=1e-4, atol=1e-5)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("shape", [(12, 12, 3), (12, 12), (60, 50)])
def test_a_model_of_images_runs_in_onnx_runtime(shape, tmp_path):
    runtime = pytest.importorskip("onnxruntime")
    random = np.random.default_rng(0)
    X, y = random.random((80, *shape), dtype=np.float32), random.integers(0, 3, 80)
    model = TSConvRidgeClassifier(128, grid=2, flips=False).fit(X, y)
    model.to_onnx(tmp_path / "model.onnx")
    session = runtime.InferenceSession(tmp_path / "model.onnx")
    images = X.reshape(80, *shape[:2], -1).transpose(0, 3, 1, 2)
    found = session.run(None, {"x": np.ascontiguousarray(images[:7])})[0]
    np.testing.assert_allclose(found, model.decision_function(X[:7]), rtol=1e-4, atol=1e-5)


def test_an_unfitted_estimator_is_refused(tmp_path):
    with pytest.raises(Exception, match="not fitted yet"):
        TSRidgeClassifier().to_onnx(tmp_path / "model.onnx")


@pytest.mark.parametrize(
    "model", [TSRidgeRegressor((8,), random_state=0), TSMLPRegressor((8,), random_state=0)]
)
def test_the_module_keeps_the_digits_of_targets_far_from_zero(model):
    X = np.random.default_rng(0).normal(size=(200, 3)).astype(np.float32)
    y = np.abs(X).sum(1).astype(float)
    near = model.fit(X, y).to_torch()(torch.from_numpy(X))
    assert near.dtype == torch.float32
    model.fit(X, 1.7e9 + y)  # Unix times
    with torch.no_grad():
        far = model.to_torch()(torch.from_numpy(X))
    assert far.dtype == torch.float64
    np.testing.assert_allclose(far[:, 0] - 1.7e9, model.predict(X) - 1.7e9, atol=1e-4)
