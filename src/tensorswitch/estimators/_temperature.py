"""Probabilities that keep the order of the outputs: softmax of the outputs times a number."""

from __future__ import annotations

import numpy as np
from scipy.optimize import brentq
from scipy.special import softmax

from tensorswitch.kernel_ridge import Calibration, smoothed_targets, weights_of_rows

RANGE = 0.05, 250.0


def fit_temperature(outputs: np.ndarray, places: np.ndarray, weight: np.ndarray) -> Calibration:
    """Return ``p = softmax(T f)`` with the T of least log-loss.

    The loss is convex in T, and its derivative ``Σ s (p − y)·f`` has one zero. The targets y are
    smoothed as in :class:`tensorswitch.kernel_ridge.Calibration`, so that a few rows without errors
    do not ask for certainty.

    Parameters
    ----------
    outputs : ndarray of shape (rows, classes), or (rows, 1) for two classes
        Outputs f for rows that were left out.
    places : ndarray of shape (rows,)
        The class of each row, from 0.
    weight : ndarray of shape (rows,)
        Sample weights.

    Returns
    -------
    Calibration
    """
    f = np.hstack([-outputs, outputs]) if outputs.shape[1] == 1 else outputs
    classes = f.shape[1]
    hot = smoothed_targets(places, weights_of_rows(weight), classes)

    def slope(temperature: float) -> float:
        return float(weight @ ((softmax(temperature * f, axis=1) - hot) * f).sum(1))

    low, high = RANGE
    if slope(low) >= 0:
        found = low
    elif slope(high) <= 0:
        found = high
    else:
        found = brentq(slope, low, high, xtol=1e-14, rtol=1e-14)
    return Calibration(float(found), np.eye(classes), np.zeros(classes))
