import numpy as np
import pytest
from sklearn.datasets import load_diabetes, load_digits, load_iris
from sklearn.exceptions import NotFittedError

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
