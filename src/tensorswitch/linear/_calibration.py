"""Probabilities from outputs: softmax of an affine map that stays close to a temperature.

p = softmax(T F W + b)
"""

from dataclasses import dataclass
from typing import Self

import numpy as np
from scipy.optimize import brentq, minimize
from scipy.special import log_softmax, softmax

from tensorswitch.linear._penalty import effective_rows
from tensorswitch.persistence import SavedPart, saved_as

CLOSENESS = 10.0  # of the map to a multiple of the identity, in units of rows
TEMPERATURES = 0.05, 250.0


@saved_as("calibration")
@dataclass(frozen=True)
class Calibration(SavedPart):
    """The temperature T, the matrix W and the offset b.

    Targets are smoothed as if each class had one more row that is right and one that is wrong,
    since classes without errors would otherwise call for certainty. The temperature T has the least
    log-loss; it keeps the order of the outputs. W and b then minimise the log-loss plus
    ``CLOSENESS (‖W − I‖² + ‖b‖²) / 2``, so that a rare class is not fitted to noise.
    """

    temperature: float
    matrix: np.ndarray
    offset: np.ndarray

    @classmethod
    def fit(
        cls, outputs: np.ndarray, labels: np.ndarray, weight: np.ndarray, affine: bool = True
    ) -> Self:
        """Fit the map to outputs for rows that were left out."""
        f = _both(outputs)
        rows, classes = f.shape
        # Whole weights are repetitions, and of small ones only the proportions matter.
        total = weight.sum()
        weight = weight * (effective_rows(total, np.square(weight).sum()) / total)
        # Target probabilities: (n_k + 1) / (n_k + 2) for the class of a row.
        wrong = 1 / (np.bincount(labels, weight, classes) + 2)
        hot: np.ndarray = np.repeat((wrong / (classes - 1))[labels, None], classes, axis=1)
        hot[np.arange(rows), labels] = 1 - wrong[labels]

        def slope(temperature: float) -> float:  # of the log-loss, which is convex in T
            return float(weight @ ((softmax(temperature * f, axis=1) - hot) * f).sum(1))

        temperature, high = TEMPERATURES
        if slope(high) <= 0:  # more certain than any temperature that is tried
            temperature = high
        elif slope(temperature) < 0:
            temperature = float(brentq(slope, temperature, high, xtol=1e-14, rtol=1e-14))
        if not affine:
            return cls(temperature, np.eye(classes), np.zeros(classes))
        f = temperature * f

        def loss(v: np.ndarray) -> tuple[float, np.ndarray]:
            matrix, offset = v[:-classes].reshape(classes, classes), v[-classes:]
            logits = f + f @ matrix + offset
            logs = log_softmax(logits, axis=1)
            error = (np.exp(logs) - hot) * weight[:, None]
            gradient = np.concatenate([(f.T @ error).ravel(), error.sum(0)]) + CLOSENESS * v
            value = -(weight * (logs * hot).sum(1)).sum() + CLOSENESS * (v @ v) / 2
            return value / rows, gradient / rows

        start = np.zeros(classes * classes + classes)
        v = minimize(loss, start, jac=True, method="L-BFGS-B", options={"maxiter": 200}).x
        matrix = np.eye(classes) + v[:-classes].reshape(classes, classes)
        return cls(temperature, matrix, v[-classes:])

    def logits(self, outputs: np.ndarray) -> np.ndarray:
        """Return ``T F W + b``."""
        return self.temperature * _both(outputs) @ self.matrix + self.offset

    def probabilities(self, outputs: np.ndarray) -> np.ndarray:
        """Return the probabilities."""
        return softmax(self.logits(outputs), axis=1)


def _both(outputs: np.ndarray) -> np.ndarray:
    """Return a column for each class, where two classes have one."""
    return np.hstack([-outputs, outputs]) if outputs.shape[1] == 1 else outputs
