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
    X = np.random.default_rng(0).normal(size=(CALIBRATED_ROWS, 2)).astype(np.float32)
    y = (X[:, 0] > 0).astype(int)
    model = TSRidgeClassifier(4, alpha=1.0, random_state=0).partial_fit(X, y, classes=[0, 1])
    last = int(row_hashes_of(X).argmax())  # not below itself
    before = model._held.hashes
    model.partial_fit(X[[last]], y[[last]])
    assert torch.equal(model._held.hashes, before)
    assert model.predict_proba(X[:3]).shape == (3, 2)
