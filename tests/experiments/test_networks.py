import csv

import numpy as np
import pytest

from tensorswitch.data import load
from tensorswitch.experiments import predict_network, train_network

QUICK = {"epochs": 2, "width": 8, "lr": 0.05, "batch_size": 32}


def test_a_trained_network_predicts_what_its_history_says(tmp_path):
    trained = train_network("digits", tmp_path / "run", **QUICK)
    assert trained.path == tmp_path / "run" / "model.safetensors"
    assert trained.validated
    for model in (trained.path, tmp_path / "run"):
        found = predict_network(model, "digits")
        assert found.error == pytest.approx(trained.history.best.test_error)
        assert found.unknown == []
    np.testing.assert_allclose(found.probabilities.sum(1), 1, rtol=1e-5)
    found.save(tmp_path / "p.csv")
    with (tmp_path / "p.csv").open() as file:
        assert [row["label"] for row in csv.DictReader(file)] == found.labels.tolist()


def test_data_may_be_loaded_already_and_are_announced(tmp_path):
    seen = []
    data = load("digits")
    first = train_network(data, tmp_path / "a", began=seen.append, **QUICK)
    assert seen == [data]
    again = train_network("digits", tmp_path / "b", **QUICK)
    assert [e.test_error for e in first.history.epochs] == [
        e.test_error for e in again.history.epochs
    ]


def test_rows_without_labels_have_no_error(tmp_path):
    train_network("digits", tmp_path / "a", **QUICK)
    np.save(tmp_path / "new.npy", np.zeros((3, 8, 8), np.uint8))
    found = predict_network(tmp_path / "a", tmp_path / "new.npy")
    assert len(found.labels) == 3
    assert np.isnan(found.error)
    assert found.truth is None
