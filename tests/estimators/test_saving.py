import os

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_diabetes, load_digits, load_iris
from sklearn.exceptions import NotFittedError
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler

from tensorswitch.estimators import (
    StreamingRidgeClassifier,
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
from tests.headers import rewritten

DIGITS = load_digits()
IMAGES, LABELS = DIGITS.images[:200], DIGITS.target[:200]
ROWS, NUMBERS = (part[:150] for part in load_diabetes(return_X_y=True))


@pytest.mark.parametrize(
    ("model", "rows"),
    [
        (TSRidgeClassifier(random_state=0), IMAGES.reshape(200, -1)),
        (TSRidgeClassifier(solver="streaming", gates=16, random_state=0), IMAGES.reshape(200, -1)),
        (TSKernelRidgeClassifier(), IMAGES.reshape(200, -1)),
        (TSKernelSVC(), IMAGES.reshape(200, -1)),
        (TSMLPClassifier((8,), max_iter=2, random_state=0), IMAGES.reshape(200, -1)),
        (StreamingRidgeClassifier(), IMAGES.reshape(200, -1)),
        (TSConvRidgeClassifier(256, grid=2, flips=False), IMAGES),
        (TSRidgeRegressor(random_state=0), ROWS),
        (TSKernelRidgeRegressor(), ROWS),
        (TSMLPRegressor((8,), max_iter=2, random_state=0), ROWS),
    ],
)
def test_a_loaded_estimator_predicts_the_same(model, rows, tmp_path):
    model.fit(rows, NUMBERS if len(rows) == 150 else LABELS)
    save_estimator(model, tmp_path / "model")
    loaded = load_estimator(tmp_path / "model")
    assert loaded.get_params() == model.get_params()
    np.testing.assert_allclose(loaded.predict(rows), model.predict(rows), rtol=1e-6)
    if len(rows) == 200 and hasattr(model, "predict_proba"):
        np.testing.assert_allclose(loaded.predict_proba(rows), model.predict_proba(rows), rtol=1e-5)


def test_a_loaded_image_model_cannot_be_continued(tmp_path):
    model = TSConvRidgeClassifier(256, grid=2, flips=False).fit(IMAGES, LABELS)
    save_estimator(model, tmp_path / "model")
    loaded = load_estimator(tmp_path / "model")
    with pytest.raises(ValueError, match="cannot be updated"):
        loaded.partial_fit(IMAGES, LABELS)


def test_a_range_is_saved_as_a_list(tmp_path):
    model = TSConvRidgeClassifier(64, grid=2, sizes=range(2, 4), flips=False).fit(IMAGES, LABELS)
    save_estimator(model, tmp_path / "model")
    loaded = load_estimator(tmp_path / "model")
    assert loaded.sizes == [2, 3]
    np.testing.assert_array_equal(loaded.predict(IMAGES), model.predict(IMAGES))


def test_weights_of_classes_may_have_numpy_keys(tmp_path):
    X, y = load_iris(return_X_y=True)
    model = TSRidgeClassifier(
        gates=4, class_weight=dict(zip(np.unique(y), [1.0, 2.0, 3.0], strict=True))
    )
    save_estimator(model.fit(X, y), tmp_path / "model")
    assert load_estimator(tmp_path / "model").class_weight == {0: 1.0, 1: 2.0, 2: 3.0}


def test_models_must_be_fitted(tmp_path):
    with pytest.raises(NotFittedError, match="not fitted yet"):
        save_estimator(TSRidgeClassifier(), tmp_path / "model")
    assert not list(tmp_path.iterdir())


def claim_long_words(part):
    if isinstance(part, dict):
        if "words" in part:
            part["type"] = "<U100000000"
        part = part.values()
    if not isinstance(part, str | int | float | None):
        for inner in part:
            claim_long_words(inner)


def test_words_take_no_more_room_than_they_need(tmp_path):
    X, y = load_iris(return_X_y=True)
    model = StreamingRidgeClassifier().fit(X, np.array(["a", "bb", "c"])[y])
    save_estimator(model, tmp_path / "a.safetensors")
    rewritten(tmp_path / "a.safetensors", claim_long_words)
    loaded = load_estimator(tmp_path / "a.safetensors")
    assert loaded.classes_.dtype == model.classes_.dtype


def test_pipelines_with_steps_of_other_libraries_are_saved(tmp_path):
    X, y = ROWS.copy(), NUMBERS
    X[::7, 2] = np.nan
    model = make_pipeline(SimpleImputer(), StandardScaler(), "passthrough", TSRidgeRegressor())
    save_estimator(model.fit(X, y), tmp_path / "model", sums=True)
    loaded = load_estimator(tmp_path / "model")
    np.testing.assert_array_equal(loaded.predict(X), model.predict(X))
    assert [name for name, _ in loaded.steps] == [name for name, _ in model.steps]
    loaded[-1].partial_fit(loaded[:-1].transform(X[:20]), y[:20])  # its sums were kept


def test_pipelines_of_tables_are_saved(tmp_path):
    skrub = pytest.importorskip("skrub")
    frame = pd.DataFrame({"a": ["x", "y", "z"] * 20, "b": np.arange(60.0)})
    frame["day"] = pd.date_range("2020-01-01", periods=60)
    model = make_pipeline(skrub.TableVectorizer(), TSKernelRidgeRegressor())
    save_estimator(model.fit(frame, frame["b"].abs()), tmp_path / "model")
    loaded = load_estimator(tmp_path / "model")
    np.testing.assert_array_equal(loaded.predict(frame), model.predict(frame))


def test_steps_that_are_not_trusted_are_refused(tmp_path):
    model = make_pipeline(FunctionTransformer(os.path.normpath), TSRidgeRegressor(gates=4))
    model[-1].fit(ROWS, NUMBERS)
    save_estimator(model, tmp_path / "model")
    with pytest.raises(ValueError, match=r"has the classes \w+\.normpath, which are not trusted"):
        load_estimator(tmp_path / "model")


def test_what_does_not_end_with_an_estimator_of_this_package_is_refused(tmp_path):
    with pytest.raises(TypeError, match="or pipelines of them, can be saved; got a Pipeline"):
        save_estimator(make_pipeline(StandardScaler()).fit(ROWS), tmp_path / "model")
    with pytest.raises(NotFittedError):
        save_estimator(make_pipeline(StandardScaler(), TSRidgeRegressor()), tmp_path / "model")
