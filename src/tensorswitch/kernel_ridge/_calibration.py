"""Probabilities from outputs: softmax of an affine map that stays close to a temperature."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.optimize import minimize, minimize_scalar
from scipy.special import log_softmax, softmax

from tensorswitch.linear._penalty import effective_rows

CLOSENESS = 10.0  # of the map to a multiple of the identity, in units of rows


@dataclass(frozen=True)
class Calibration:
    """``p = softmax(T F W + b)``.

    Targets are smoothed as if each class had one more row that is right and one that is wrong,
    since classes without errors would otherwise call for certainty. The temperature T is fitted
    first; W and b then minimise the log-loss plus ``CLOSENESS (‖W − I‖² + ‖b‖²) / 2``, so that a
    rare class is not fitted to noise.

    Parameters
    ----------
    temperature : float
        T.
    matrix : ndarray of shape (classes, classes)
        W.
    offset : ndarray of shape (classes,)
        b.
    """

    temperature: float
    matrix: np.ndarray
    offset: np.ndarray

    @classmethod
    def fit(cls, outputs: np.ndarray, labels: np.ndarray, weight: np.ndarray) -> Calibration:
        """Fit the map to outputs for rows that were left out.

        Parameters
        ----------
        outputs : ndarray of shape (rows, classes), or (rows, 1) for two classes
            Leave-one-out outputs.
        labels : ndarray of shape (rows,)
            The class of each row, from 0.
        weight : ndarray of shape (rows,)
            Sample weights.

        Returns
        -------
        Calibration
        """
        f = _both(outputs)
        rows, classes = f.shape
        weight = weights_of_rows(weight)
        hot = smoothed_targets(labels, weight, classes)

        def loss_at(log_temperature: float) -> float:
            logs = log_softmax(np.exp(log_temperature) * f, axis=1)
            return -float(np.average((logs * hot).sum(1), weights=weight))

        found = minimize_scalar(loss_at, bounds=(-3.0, 5.5), method="bounded")
        temperature = float(np.exp(found.x))
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
        """Return ``T F W + b``.

        Parameters
        ----------
        outputs : ndarray of shape (rows, classes), or (rows, 1) for two classes
            F.

        Returns
        -------
        ndarray of shape (rows, classes)
        """
        result: np.ndarray = self.temperature * _both(outputs) @ self.matrix + self.offset
        return result

    def probabilities(self, outputs: np.ndarray) -> np.ndarray:
        """Return the probabilities.

        Parameters
        ----------
        outputs : ndarray of shape (rows, classes), or (rows, 1) for two classes
            F.

        Returns
        -------
        ndarray of shape (rows, classes)
        """
        result: np.ndarray = softmax(self.logits(outputs), axis=1)
        return result


def weights_of_rows(weight: np.ndarray) -> np.ndarray:
    """Return weights that add up to the number of rows they are worth.

    Whole weights are repetitions, and of small ones only the proportions matter; see
    :func:`effective_rows`.

    Parameters
    ----------
    weight : ndarray of shape (rows,)
        Sample weights.

    Returns
    -------
    ndarray of shape (rows,)
        Weights in the same proportions.
    """
    total = weight.sum()
    result: np.ndarray = weight * (effective_rows(total, np.square(weight).sum()) / total)
    return result


def smoothed_targets(labels: np.ndarray, weight: np.ndarray, classes: int) -> np.ndarray:
    """Return target probabilities, ``(n_k + 1) / (n_k + 2)`` for the class of a row.

    Parameters
    ----------
    labels : ndarray of shape (rows,)
        The class of each row, from 0.
    weight : ndarray of shape (rows,)
        Weights of :func:`weights_of_rows`.
    classes : int
        Number of classes.

    Returns
    -------
    ndarray of shape (rows, classes)
        Probabilities.
    """
    counts = np.bincount(labels, weight, classes)
    wrong = 1 / (counts + 2)
    hot: np.ndarray = np.repeat((wrong / (classes - 1))[labels, None], classes, axis=1)
    hot[np.arange(len(labels)), labels] = 1 - wrong[labels]
    return hot


def _both(outputs: np.ndarray) -> np.ndarray:
    """Return a column for each class, where two classes have one."""
    return np.hstack([-outputs, outputs]) if outputs.shape[1] == 1 else outputs
