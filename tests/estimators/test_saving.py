"""Estimators are the same after they are written and read, and files cannot name other classes."""

import json

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.torch import save_file

from tensorswitch.estimators import (
    TSKernelRidgeClassifier,
    TSKernelRidgeRegressor,
    TSKernelSVC,
    TSMLPClassifier,
    TSMLPRegressor,
    TSRidgeClassifier,
    TSRidgeRegressor,
    load_estimator,
    load_estimator_with_notes,
    save_estimator,
)

CLASSIFIERS = [
    TSRidgeClassifier(gates=(8, 4), random_state=0),
    TSRidgeClassifier(gates=8, components=2, random_state=np.random.RandomState(0)),
    TSKernelRidgeClassifier(depth=1),
    TSKernelSVC(depth=2, normalize=True),
    TSMLPClassifier((8,), max_iter=3, random_state=0),
    TSMLPClassifier((8, 4), "ts-ibp", max_iter=3, random_state=0),
]
REGRESSORS = [
    TSRidgeRegressor(gates=8, random_state=0),
    TSKernelRidgeRegressor(depth=1),
    TSMLPRegressor((8,), "ss", max_iter=3, random_state=0),
]


def rows(seed=0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(80, 4))
    return x, x[:, 0] + np.abs(x[:, 1])


@pytest.mark.parametrize("model", CLASSIFIERS, ids=lambda m: type(m).__name__)
def test_a_classifier_predicts_as_before(model, tmp_path):
    x, y = rows()
    names = np.array(["low", "mid", "high"])[np.digitize(y, [0.3, 1.2])]
    model.fit(x, names)
    save_estimator(model, tmp_path / "m", about="a test")
    loaded, notes = load_estimator_with_notes(tmp_path / "m")
    assert notes == {"about": "a test"}
    other = rows(1)[0]
    assert (loaded.predict(other) == model.predict(other)).all()
    for method in ("predict_proba", "decision_function"):
        if hasattr(model, method):
            before, after = getattr(model, method)(other), getattr(loaded, method)(other)
            np.testing.assert_allclose(after, before, rtol=1e-9)
    assert loaded.get_params().keys() == model.get_params().keys()


@pytest.mark.parametrize("model", REGRESSORS, ids=lambda m: type(m).__name__)
def test_a_regressor_predicts_as_before(model, tmp_path):
    x, y = rows()
    model.fit(x, y)
    save_estimator(model, tmp_path / "m")
    loaded, other = load_estimator(tmp_path / "m"), rows(1)[0]
    np.testing.assert_allclose(loaded.predict(other), model.predict(other), rtol=1e-9)
    if isinstance(model, TSKernelRidgeRegressor):
        both = (m.predict(other, return_std=True) for m in (loaded, model))
        np.testing.assert_allclose(*both, rtol=1e-9)


def test_a_streamed_readout_is_solved_before_it_is_saved(tmp_path):
    x, y = rows()
    model = TSRidgeRegressor(gates=8, random_state=0).partial_fit(x, y)
    save_estimator(model, tmp_path / "m")
    np.testing.assert_allclose(load_estimator(tmp_path / "m").predict(x), model.predict(x))


def test_other_objects_are_refused(tmp_path):
    from sklearn.linear_model import LogisticRegression

    with pytest.raises(TypeError, match="only estimators of tensorswitch can be saved"):
        save_estimator(LogisticRegression(), tmp_path / "m")
    assert not (tmp_path / "m").exists()


@pytest.mark.parametrize(
    ("find", "put", "message"),
    [
        ("TSRidgeRegressor", "EquivalentKernels", "there is no estimator"),
        ("tensorswitch.ridge", "subprocess", "there is no class"),
        ("Solution", "exploit", "there is no class"),
        ("tensor", "tensors", "does not contain a whole estimator"),
    ],
)
def test_a_file_cannot_name_other_classes(tmp_path, find, put, message):
    x, y = rows()
    path = tmp_path / "m"
    save_estimator(TSRidgeRegressor(gates=8, random_state=0).fit(x, y), path)
    with safe_open(path, "pt") as file:
        header = json.loads(file.metadata()["tensorswitch"])
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    text = json.dumps({k: v for k, v in header.items() if k != "format"}).replace(find, put)
    changed = {"format": header["format"], **json.loads(text)}
    save_file(tensors, path, {"tensorswitch": json.dumps(changed)})
    with pytest.raises(ValueError, match=message):
        load_estimator(path)
