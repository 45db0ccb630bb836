import json
from dataclasses import replace

import numpy as np
import pytest
import torch

from reproduction import METHODS, Experiment, run, with_fingerprints
from reproduction.running import untrained
from tensorswitch.datasets import load
from tensorswitch.estimators import TSKernelSVC
from tensorswitch.models import mlp
from tensorswitch.training import Learner, Rows

QUICK = {"data": "digits", "width": 16, "lr": 1e-2, "batch_size": 32}


def test_a_network_is_that_of_the_loop():
    """Weights and order of rows are the same as with a training loop written out."""
    experiment = Experiment(method="ts-lrc", depth=2, components=20, seed=3, **QUICK)
    split = load("digits").protocol(20, seed=None)
    torch.manual_seed(3)
    learner = Learner(mlp(20, 10, kind="ts-lrc", depth=2, width=16), lr=1e-2, batch_size=32, seed=3)
    learner.epoch(Rows.from_numpy(split.train, split.train_labels))
    _, error = learner.evaluate(Rows.from_numpy(split.test, split.test_labels))
    result = run(experiment)
    assert result.one_pass == result.best == error
    assert np.array(result.filters).shape == (16, 64)
    assert run(replace(experiment, width=17)).filters is None  # they make large files


@pytest.mark.parametrize("method", ["ss", "ts-ibp", "ts-lrc"])
def test_untrained_weights_are_those_that_training_begins_with(method):
    experiment = Experiment(method=method, seed=5, weight_decay=0, **{**QUICK, "lr": 1e-30})
    np.testing.assert_allclose(
        run(experiment).filters, untrained(experiment, 64, 10), rtol=6e-3, atol=1e-7
    )


def test_where_a_run_goes_on_it_says_first_how_far_it_was(tmp_path):
    told = []

    def stop(done, total, note):
        if done == 2:
            raise KeyboardInterrupt

    experiment = Experiment(method="ss", epochs=4, **QUICK)
    with pytest.raises(KeyboardInterrupt):
        run(experiment, tmp_path, stop)
    run(experiment, tmp_path, lambda done, total, note: told.append((done, total)))
    assert told == [(2, 4), (3, 4), (4, 4)]


def test_an_svm_chooses_by_validation():
    split = load("digits").protocol(seed=None)
    result = run(Experiment(data="digits", method="svm-ts", depths=[1, 4], Cs=[0.01, 10.0]))
    model = TSKernelSVC("ts", result.depth, 10, normalize=True, bias=False)
    model.fit(split.train, split.train_labels)
    assert np.abs(model.pair_coef_).max() < 10
    assert result.note.startswith("C = 10 or larger")
    assert result.best == pytest.approx(1 - model.score(split.test, split.test_labels))
    assert result.best_validation == pytest.approx(
        1 - model.score(split.validation, split.validation_labels)
    )


def test_a_penalty_that_bounds_coefficients_is_not_that_of_larger_ones():
    assert run(Experiment(data="digits", method="svm-ts", Cs=[0.01])).note == "C = 0.01"


@pytest.mark.parametrize("method", ["rr", "ss", "ts-ibp-lrc", "ts-ibp"])
def test_results_repeat_and_beat_chance(method):
    settings = {"data": "digits", "width": 16} if method == "rr" else {**QUICK, "epochs": 2}
    first, second = (run(Experiment(method=method, **settings)) for _ in range(2))
    assert first.best == second.best < 0.6


@pytest.mark.usefixtures("bfloat16")
def test_networks_take_a_precision():
    full, half = (
        run(Experiment(method="ss", precision=p, **{**QUICK, "epochs": 2})) for p in (None, "bf16")
    )
    first, second = (r.epochs[-1]["train_loss"] for r in (full, half))
    assert first != second
    assert first == pytest.approx(second, rel=0.02)


def test_a_cnn_takes_a_number_of_convolutions_for_each_block():
    shape = {"convolutions": [1, 2], "channels": [4, 8]}
    result = run(Experiment(method="cnn-ts-lrc", **shape, **QUICK))
    assert 0 < result.one_pass < 1
    assert result.filters is None  # its first layer is a convolution


def test_names_tell_different_settings_apart_and_no_others():
    base = Experiment(method="ss", **QUICK)
    assert base.name == Experiment(method="ss", **QUICK).name
    assert base.name == replace(base, Cs=(1.0,), tol=0.1).name  # which networks do not use
    others = [
        replace(base, seed=1),
        replace(base, lr=0.1),
        replace(base, fingerprint="x"),
        replace(base, epochs=2),
        replace(base, method="ts-lrc"),
        replace(base, precision="bf16"),
    ]
    assert len({base.name, *(e.name for e in others)}) == 1 + len(others)
    again = Experiment(**json.loads(json.dumps(base.settings)))
    assert again.name == base.name


def test_whole_numbers_and_fractions_of_the_same_value_are_one_setting():
    assert (
        Experiment(method="ss", **{**QUICK, "lr": 1}).name
        == Experiment(method="ss", **{**QUICK, "lr": 1.0}).name
    )


def test_fingerprints_bind_to_the_data():
    (bound,) = with_fingerprints([Experiment(method="ss", **QUICK)])
    assert bound.fingerprint == load("digits").fingerprint
    with pytest.raises(ValueError, match="the data digits have changed: their fingerprint is"):
        run(replace(bound, fingerprint="other"))


def test_every_method_has_a_family():
    assert {Experiment(data="digits", method=m).family for m in METHODS} == {
        "svm",
        "rr",
        "mlp",
        "cnn",
    }


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"method": "ss"}, "an experiment needs the settings data"),
        ({"data": "digits", "method": "magic"}, "unknown method 'magic'; expected one of svm-ss"),
        ({"data": "digits", "method": "ss", "C": 1}, "unknown settings C; expected some of Cs"),
        (
            {"data": "digits", "method": "ss", "Cs": 1},
            "method ss does not use Cs; it takes data, method",
        ),
        (
            {"data": "digits", "method": "ss", "depth": 0},
            "depth must be an integer of at least 1, got 0",
        ),
        (
            {"data": "digits", "method": "ss", "depth": "2"},
            "depth must be an integer of at least 1, got '2'",
        ),
        (
            {"data": "digits", "method": "ss", "lr": float("nan")},
            "lr must be a finite number above 0, got nan",
        ),
        (
            {"data": "digits", "method": "ss", "lr": "fast"},
            "lr must be a finite number above 0, got 'fast'",
        ),
        (
            {"data": "digits", "method": "ss", "momentum": float("inf")},
            "momentum must be a finite number of at least 0",
        ),
        ({"data": "digits", "method": "ss", "seed": -1}, "seed must be an integer"),
        (
            {"data": "digits", "method": "ss", "precision": "fp8"},
            "precision must be None or 'bf16', got 'fp8'",
        ),
        ({"data": "digits", "method": "rr", "precision": "bf16"}, "rr does not use precision"),
        ({"data": "t.csv", "method": "ss"}, "unknown data 't.csv'; expected one of digits"),
        (
            {"data": "digits", "method": "ss", "extra": "no"},
            "extra must be true or false, got 'no'",
        ),
        ({"data": "digits", "method": "svm-ts", "Cs": []}, "Cs must not be empty"),
        (
            {"data": "digits", "method": "svm-ts", "depths": [0]},
            "depths must be an integer of at least 1",
        ),
        (
            {"data": "digits", "method": "cnn-ss", "convolutions": [1], "channels": [4, 4]},
            "must have one number per block",
        ),
    ],
)
def test_bad_settings(settings, message):
    with pytest.raises(ValueError, match=message):
        Experiment.from_settings(settings)


def test_the_global_generator_is_left_as_it_was():
    before = torch.get_rng_state()
    experiment = Experiment(data="digits", method="ss", width=8)
    run(experiment)
    untrained(experiment, 64, 10)
    assert torch.equal(torch.get_rng_state(), before)


def test_numbers_of_numpy_name_the_same_experiment():
    plain = Experiment(data="digits", method="cnn-ss", width=8, convolutions=(1, 2, 1), seed=3)
    numpy = replace(plain, width=np.int64(8), convolutions=np.array([1, 2, 1]).tolist())
    numpy = replace(numpy, seed=np.int64(3), channels=tuple(np.array(plain.channels)))
    assert numpy.name == plain.name
