import csv

import numpy as np
import pytest

from tensorswitch.data import load, load_problem
from tensorswitch.experiments import predict_network, train_method, train_network
from tensorswitch.persistence import load_with_notes, save

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


def test_a_network_and_another_model_do_not_replace_each_other(tmp_path):
    problem = load_problem("digits")
    train_method(problem, tmp_path / "ridge", "rr")
    train_network("digits", tmp_path / "net", **QUICK)
    before = [(tmp_path / name / "model.safetensors").read_bytes() for name in ("ridge", "net")]
    with pytest.raises(
        ValueError, match=r"ridge has a model of another method, model\.safetensors"
    ):
        train_network("digits", tmp_path / "ridge", **QUICK)
    with pytest.raises(ValueError, match="net has the checkpoints of a network"):
        train_method(problem, tmp_path / "net", "rr")
    train_method(problem, tmp_path / "ridge", "rr")  # the same again
    assert [
        (tmp_path / name / "model.safetensors").read_bytes() for name in ("ridge", "net")
    ] == before


def test_classes_written_as_numbers_are_known_again(tmp_path):
    random = np.random.default_rng(0)
    lines = [f"{str(x).replace('.', ',')};{1 + (x > 0)},0" for x in random.normal(size=80)]
    (tmp_path / "t.csv").write_text("\n".join(["x;kind", *lines]))
    problem = load_problem(tmp_path / "t.csv", target="kind")
    train_network(problem.dataset(), tmp_path / "a", **QUICK)
    found = predict_network(tmp_path / "a", tmp_path / "t.csv")
    assert found.unknown == []
    assert set(found.truth) == set(problem.class_names)


def test_sizes_may_be_numbers_of_numpy(tmp_path):
    quick = {**QUICK, "batch_size": np.int64(32)}
    for epochs in (1, 2):
        quick["epochs"] = np.int64(epochs)
        trained = train_network("digits", tmp_path / "a", seed=np.int64(1), **quick)
    assert len(trained.history.epochs) == 2


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda notes: notes.pop("flat"), "the description in .* is not valid .'flat'"),
        (lambda notes: notes["class_names"].pop(), "9 classes for 10 outputs"),
        (lambda notes: notes.update(table={}), "the description in .* is not valid"),
    ],
)
def test_a_description_that_does_not_suit_is_named(tmp_path, change, message):
    path = train_network("digits", tmp_path / "a", **QUICK).path
    network, notes = load_with_notes(path)
    change(notes)
    save(network, path, **notes)
    with pytest.raises(ValueError, match=message):
        predict_network(path, "digits")
