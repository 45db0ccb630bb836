"""Outputs become probabilities."""

import numpy as np
import pytest

from tensorswitch.linear._calibration import Calibration

RNG = np.random.default_rng(0)


def test_calibration_recovers_probabilities():
    outputs = RNG.normal(size=(4000, 3))
    logits = 2.5 * outputs
    p = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    labels = np.array([RNG.choice(3, p=row) for row in p])
    fitted = Calibration.fit(outputs, labels, np.ones(4000))
    assert np.abs(fitted.probabilities(outputs) - p).mean() < 0.02
    assert fitted.temperature == pytest.approx(2.5, rel=0.15)


def test_classes_without_errors_do_not_ask_for_certainty():
    labels = np.arange(60) % 3
    outputs = np.where(labels[:, None] == np.arange(3), 1.0, -1.0)
    p = Calibration.fit(outputs, labels, np.ones(60)).probabilities(outputs)
    assert (p.argmax(1) == labels).all()
    assert 0.9 < p.max(1).mean() < 0.97  # one more row that is wrong among 20


def test_two_classes_have_one_output():
    outputs = RNG.normal(size=(500, 1))
    labels = (outputs[:, 0] + 0.3 * RNG.normal(size=500) > 0).astype(int)
    fitted = Calibration.fit(outputs, labels, np.ones(500))
    p = fitted.probabilities(outputs)
    assert p.shape == (500, 2)
    np.testing.assert_allclose(p.sum(1), 1)
    assert ((p[:, 1] > 0.5) == (outputs[:, 0] > 0)).mean() > 0.9
