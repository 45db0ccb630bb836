import numpy as np
import torch

from tensorswitch.estimators import TSRidgeClassifier
from tensorswitch.estimators._held_rows import CALIBRATED_ROWS
from tensorswitch.estimators._ridge_base import row_hashes_of


def test_late_chunks_are_only_looked_at_where_they_matter(monkeypatch):
    X = np.random.default_rng(0).normal(size=(20_000, 2)).astype(np.float32)
    y = (X[:, 0] > 0).astype(int)
    taken = []
    sample = TSRidgeClassifier._sample

    def counting(self, *args):
        held = sample(self, *args)
        taken.append(len(held.hashes))
        return held

    monkeypatch.setattr(TSRidgeClassifier, "_sample", counting)
    whole, chunked = (TSRidgeClassifier(4, alpha=1.0, random_state=0) for _ in range(2))
    whole.partial_fit(X, y, classes=[0, 1])
    taken.clear()
    for rows in np.split(np.arange(len(X)), 20):
        chunked.partial_fit(X[rows], y[rows], classes=[0, 1])
    assert taken[:2] == [1000, 1000]
    assert 0 < taken[-1] < 300  # about 2,000 of 20,000 in each thousand
    assert len(chunked._held.hashes) == CALIBRATED_ROWS
    found, expected = (model._held.hashes.sort().values for model in (chunked, whole))
    assert torch.equal(found, expected)


def test_a_chunk_without_rows_that_matter_changes_nothing_but_the_sums():
    X = np.random.default_rng(0).normal(size=(CALIBRATED_ROWS + 1, 2)).astype(np.float32)
    y = (X[:, 0] > 0).astype(int)
    last = int(row_hashes_of(X).argmax())
    rest = np.delete(np.arange(len(X)), last)
    model = TSRidgeClassifier(4, alpha=1.0, random_state=0)
    model.partial_fit(X[rest], y[rest], classes=[0, 1])
    before = model._held.hashes
    model.partial_fit(X[[last]], y[[last]])
    assert torch.equal(model._held.hashes, before)
    assert model.predict_proba(X[:3]).shape == (3, 2)


def binary(rows, flipped=False, seed=0):
    """Return rows of few different kinds, whose class is the first column or the opposite."""
    X = np.random.default_rng(seed).integers(0, 2, (rows, 4)).astype(float)
    return X, (X[:, 0] > 0).astype(int) ^ flipped


def test_repeated_rows_are_held_once_with_their_weights():
    X, y = binary(5000)
    model = TSRidgeClassifier(4, alpha=1.0, random_state=0).partial_fit(X, y, classes=[0, 1])
    assert len(model._held.hashes) == 16  # and not 2,000 of a few of them
    assert model._held.weight.sum() == 5000
    model.partial_fit(X[:7], y[:7], sample_weight=np.full(7, 2.0))
    assert model._held.weight.sum() == 5014


def test_rows_that_were_removed_do_not_calibrate():
    X, y = binary(400)
    other = binary(400, flipped=True, seed=1)
    start = TSRidgeClassifier(8, random_state=0).partial_fit(X, y, classes=[0, 1])
    never = start.without_rows().partial_fit(X, y)
    removed = start.without_rows().partial_fit(X, y).partial_fit(*other).remove(*other)
    np.testing.assert_allclose(removed.predict_proba(X), never.predict_proba(X), atol=1e-8)
    assert removed.cv_score_ == never.cv_score_


def test_probabilities_without_any_row_to_calibrate_with():
    X = np.random.default_rng(0).normal(size=(CALIBRATED_ROWS + 1, 2))
    y = (X[:, 0] > 0).astype(int)
    last = [int(row_hashes_of(X).argmax())]
    rest = np.delete(np.arange(len(X)), last)
    model = TSRidgeClassifier(2, alpha=1.0, random_state=0)
    model.partial_fit(X[rest], y[rest], classes=[0, 1]).partial_fit(X[last], y[last])
    model.remove(X[rest], y[rest])
    assert len(model._held.hashes) == 0
    np.testing.assert_allclose(model.predict_proba(X[:5]).sum(1), 1)
    assert np.isnan(model.cv_score_)


def test_what_is_forgotten_does_not_calibrate():
    def chunk(flipped, seed, rows=300):
        X = np.random.default_rng(seed).normal(size=(rows, 4))
        return X, (X[:, 0] > 0).astype(int) ^ flipped

    model = TSRidgeClassifier(8, random_state=0, forgetting=0.1)
    for seed in range(10):
        model.partial_fit(*chunk(False, seed), classes=[0, 1])
    for seed in range(10, 15):
        model.partial_fit(*chunk(True, seed))
    X, y = chunk(True, 20, 1000)
    assert model.score(X, y) > 0.9
    assert model.cv_score_ > 0.9
    assert model.predict_proba(X)[np.arange(len(y)), y].mean() > 0.8
    assert len(model._held.hashes) == 1500  # of 4,500; the others no longer matter


def test_light_classes_are_not_taken_for_old_ones():
    X, y = binary(200)
    X = X + np.random.default_rng(0).normal(size=X.shape)
    model = TSRidgeClassifier(4, forgetting=0.999, class_weight={0: 1, 1: 2000}, random_state=0)
    model.partial_fit(X[:190], y[:190], classes=[0, 1]).partial_fit(X[190:], y[190:])
    assert len(model._held.hashes) == 200
