"""Estimators survive joblib, pickle and skops, alone and in pipelines of scikit-learn."""

import copy
import pickle

import joblib
import numpy as np
import pytest
from sklearn.datasets import load_iris
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from tensorswitch import estimators

X, Y = load_iris(return_X_y=True)
X, Y = X[::2], Y[::2]
MODELS = [
    estimators.TSRidgeClassifier(4, random_state=0),
    estimators.TSRidgeClassifier(4, solver="streaming", random_state=0),
    estimators.StreamingRidgeClassifier(),
    estimators.TSKernelRidgeClassifier(random_state=0),
    estimators.TSMLPClassifier((4,), max_iter=3, random_state=0),
    estimators.TSKernelSVC(),
    estimators.TSRidgeRegressor(4, random_state=0),
    estimators.StreamingRidgeRegressor(),
    estimators.TSKernelRidgeRegressor(random_state=0),
    estimators.TSMLPRegressor((4,), max_iter=3, random_state=0),
]


@pytest.fixture(params=MODELS, ids=lambda m: type(m).__name__)
def pipeline(request):
    return make_pipeline(StandardScaler(), copy.deepcopy(request.param)).fit(X, Y)


def test_joblib_and_pickle(pipeline, tmp_path):
    joblib.dump(pipeline, tmp_path / "model.joblib")
    for again in (joblib.load(tmp_path / "model.joblib"), pickle.loads(pickle.dumps(pipeline))):
        np.testing.assert_allclose(again.predict(X), pipeline.predict(X), rtol=1e-6)


def test_skops(pipeline, tmp_path):
    io = pytest.importorskip("skops.io")
    io.dump(pipeline, tmp_path / "model.skops")
    unknown = io.get_untrusted_types(file=tmp_path / "model.skops")
    assert {name.split(".")[0] for name in unknown} <= {"tensorswitch"}
    again = io.load(tmp_path / "model.skops", trusted=unknown)
    np.testing.assert_allclose(again.predict(X), pipeline.predict(X), rtol=1e-6)


@pytest.mark.parametrize(
    "model", [m for m in MODELS if hasattr(m, "remove")], ids=lambda m: type(m).__name__
)
@pytest.mark.parametrize("how", ["pickle", "file"])
def test_ridge_models_go_on_where_they_were(model, how, tmp_path):
    model = copy.deepcopy(model).fit(X[:40], Y[:40] if "Reg" in str(model) else Y[::-1][:40])
    if how == "pickle":
        again = pickle.loads(pickle.dumps(model))
    else:
        estimators.save_estimator(model, tmp_path / "model.safetensors", sums=True)
        again = estimators.load_estimator(tmp_path / "model.safetensors")
    for one in (model, again):
        one.partial_fit(X[40:], Y[40:]).remove(X[60:], Y[60:])
    # Products of arrays whose axes are stored in another order are rounded differently.
    np.testing.assert_allclose(again.predict(X), model.predict(X), rtol=1e-12)
    if hasattr(model, "predict_proba"):
        np.testing.assert_allclose(again.predict_proba(X), model.predict_proba(X), rtol=1e-12)
