"""Rows that are tracked are removed only if they are there."""

import numpy as np
import pytest

from tensorswitch.estimators import (
    StreamingRidgeClassifier,
    StreamingRidgeRegressor,
    TSRidgeClassifier,
    TSRidgeRegressor,
    load_estimator,
    save_estimator,
)

RNG = np.random.default_rng(0)
X = RNG.normal(size=(120, 4))
NUMBERS, WORDS = X @ [1.0, 2, 3, 4], np.where(X[:, 0] > 0, "yes", "no")
MODELS = [
    (StreamingRidgeRegressor(track_rows=True), NUMBERS),
    (StreamingRidgeClassifier(track_rows=True), WORDS),
    (TSRidgeRegressor(4, track_rows=True, random_state=0), NUMBERS),
    (TSRidgeClassifier(4, track_rows=True, random_state=0), WORDS),
]


@pytest.mark.parametrize(("model", "y"), MODELS)
def test_rows_are_removed_once(model, y):
    model.fit(X[:60], y[:60]).partial_fit(X[60:100], y[60:100])
    before = model.predict(X)
    for rows in (slice(100, 120), slice(90, 110)):  # of which some are there
        with pytest.raises(ValueError, match=r"of 20 rows are not in the model .* nothing was rem"):
            model.remove(X[rows], y[rows])
    with pytest.raises(ValueError, match="3 of 3 rows are not in the model"):
        model.remove(X[:3], y[3:6] if y is NUMBERS else np.where(y[:3] == "yes", "no", "yes"))
    assert (model.predict(X) == before).all()
    model.remove(X[:10], y[:10])
    with pytest.raises(ValueError, match="10 of 10 rows are not in the model"):
        model.remove(X[:10], y[:10])
    assert model.n_samples_seen_ == pytest.approx(90)


@pytest.mark.parametrize(("model", "y"), MODELS)
def test_ledgers_are_merged_and_saved(model, y, tmp_path):
    model.fit(X[:50], y[:50])
    other = model.without_rows().partial_fit(X[50:80], y[50:80])
    model.merge(other)
    save_estimator(model, tmp_path / "model", sums=True)
    loaded = load_estimator(tmp_path / "model")
    loaded.remove(X[40:60], y[40:60])
    with pytest.raises(ValueError, match="1 of 1 rows are not in the model"):
        loaded.remove(X[80:81], y[80:81])
    untracked = type(model)(**{**model.get_params(), "track_rows": False}).fit(X[:50], y[:50])
    untracked.remove(X[100:101], y[100:101])  # which sums cannot tell


def test_weights_are_part_of_a_row():
    model = StreamingRidgeRegressor(track_rows=True)
    model.fit(X[:50], NUMBERS[:50], np.full(50, 2.0))
    model.remove(X[:5], NUMBERS[:5]).remove(X[:5], NUMBERS[:5])  # two rows of weight one
    with pytest.raises(ValueError, match="5 of 5 rows"):
        model.remove(X[:5], NUMBERS[:5])


def test_labels_of_later_chunks_do_not_change_what_is_known():
    model = StreamingRidgeClassifier(track_rows=True).fit(X[:50], WORDS[:50])
    model.partial_fit(X[50:60], np.array(["maybe"] * 10))
    assert model.remove(X[:20], WORDS[:20]).n_samples_seen_ == pytest.approx(40)
