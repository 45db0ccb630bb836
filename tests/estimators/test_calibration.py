"""Probabilities of ridge classifiers are calibrated on a sample of the rows they have."""

import numpy as np
import torch

from tensorswitch.estimators import TSRidgeClassifier
from tensorswitch.estimators._calibration_sample import CALIBRATED_ROWS, CalibrationSample
from tensorswitch.estimators._front import NewRows


def sample_of(hashes, places, weight=None):
    weight = np.ones(len(places)) if weight is None else np.asarray(weight, float)
    x = torch.arange(len(places), dtype=torch.float64)[:, None]
    hashes = torch.as_tensor(hashes, dtype=torch.int64)
    return CalibrationSample(hashes, x, np.asarray(places, dtype=np.int64), weight)


def binary(rows, flipped=False, seed=0):
    """Return rows of few different kinds, whose class is the first column or the opposite."""
    X = np.random.default_rng(seed).integers(0, 2, (rows, 4)).astype(float)
    return X, (X[:, 0] > 0).astype(int) ^ flipped


def test_the_sample_has_the_lowest_hashes_whatever_the_order():
    hashes = np.random.default_rng(0).permutation(5 * CALIBRATED_ROWS)
    chunks = [sample_of(part, part % 2) for part in np.split(hashes, 10)]
    forwards, backwards = chunks[0], chunks[-1]
    for chunk in chunks[1:]:
        forwards = forwards.concat(chunk)
    for chunk in chunks[-2::-1]:
        backwards = backwards.concat(chunk)
    assert len(forwards) == CALIBRATED_ROWS
    assert forwards.bound == CALIBRATED_ROWS - 1
    assert torch.equal(forwards.hashes.sort().values, backwards.hashes.sort().values)


def test_repeated_rows_are_held_once_with_their_weights():
    sample = sample_of([5, 3], [0, 1]).concat(sample_of([3, 5, 5], [1, 0, 1], [1, 2, 4]))
    assert sample.hashes.tolist() == [3, 5, 5]
    assert sample.places.tolist() == [1, 0, 1]
    assert sample.weight.tolist() == [2, 3, 4]
    weight = torch.tensor([1.0, 2.0])
    hashes = torch.tensor([5, 3])
    rows = NewRows(np.empty((2, 1)), np.empty(2), weight, hashes, hashes, np.array([0, 1]))
    left = sample.remove(rows)
    assert left.hashes.tolist() == [5, 5]
    assert left.weight.tolist() == [2, 4]


def test_decayed_rows_are_dropped_within_their_class_only():
    sample = sample_of(range(4), [0, 0, 1, 1], [1, 1e-4, 1e-5, 1e-5]).decay(0.5)
    assert sample.hashes.tolist() == [0, 2, 3]
    assert sample.weight.tolist() == [0.5, 5e-6, 5e-6]


def test_rows_that_were_removed_do_not_calibrate():
    X, y = binary(400)
    other = binary(400, flipped=True, seed=1)
    start = TSRidgeClassifier(8, random_state=0).partial_fit(X, y, classes=[0, 1])
    never = start.without_rows().partial_fit(X, y)
    removed = start.without_rows().partial_fit(X, y).partial_fit(*other).remove(*other)
    np.testing.assert_allclose(removed.predict_proba(X), never.predict_proba(X), atol=1e-8)
    assert removed.cv_score_ == never.cv_score_


def test_probabilities_without_any_row_to_calibrate_with():
    X = np.random.default_rng(0).normal(size=(60, 2))
    y = (X[:, 0] > 0).astype(int)
    start = TSRidgeClassifier(2, alpha=1.0, random_state=0).partial_fit(X, y, classes=[0, 1])
    model = start.without_rows().partial_fit(X, y, sample_weight=np.full(60, 2.0))
    model.remove(X, y)  # with half of the weight they have, which empties the sample no more
    assert model.predict_proba(X[:5]).shape == (5, 2)
    twice = start.without_rows().partial_fit(X, y).partial_fit(X + 1, y)
    twice.remove(X, y)
    np.testing.assert_allclose(twice.predict_proba(X[:5]).sum(1), 1)


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


def test_chunks_are_calibrated_as_the_whole():
    X = np.random.default_rng(0).normal(size=(3 * CALIBRATED_ROWS, 2)).astype(np.float32)
    y = (X[:, 0] + np.random.default_rng(1).normal(size=len(X)) > 0).astype(int)
    scaling = {"standardize": (0.0, 1.0), "solver": "streaming", "random_state": 0}
    whole = TSRidgeClassifier(4, alpha=1.0, **scaling).fit(X, y)
    chunked = TSRidgeClassifier(4, alpha=1.0, **scaling)
    for rows in np.split(np.arange(len(X)), 20):
        chunked.partial_fit(X[rows], y[rows], classes=[0, 1])
    assert chunked.cv_score_ == whole.cv_score_
    np.testing.assert_allclose(chunked.predict_proba(X), whole.predict_proba(X), atol=1e-4)
