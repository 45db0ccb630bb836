"""Predictions for some rows, and how good they are."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tensorswitch._files import replacing
from tensorswitch.experiments.metrics import classification_metrics, regression_metrics

__all__ = ["Predictions"]

MANY = 50  # classes beyond which only the probability of the predicted one is written


@dataclass(frozen=True)
class Predictions:
    """Predictions of rows, in their order.

    Parameters
    ----------
    class_names : list of str or None
        The classes that the model knows; None for a regression.
    probabilities : ndarray of shape (rows, classes) or None, default=None
        The probability of each class, if the model has them.
    truth : ndarray of shape (rows,) or None, default=None
        The names of the right classes, or the right numbers, if they are known.
    codes : ndarray of int of shape (rows,) or None, default=None
        The predicted classes; by default the most probable ones.
    values : ndarray of shape (rows,) or None, default=None
        The predictions of a regression.
    low, high : ndarray of shape (rows,) or None, default=None
        Bounds between which nine tenths of the targets lie.
    """

    class_names: list[str] | None
    probabilities: np.ndarray | None = None
    truth: np.ndarray | None = None
    codes: np.ndarray | None = None
    values: np.ndarray | None = None
    low: np.ndarray | None = None
    high: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def places(self) -> np.ndarray:
        """Index of the predicted class of each row."""
        if self.codes is not None:
            return self.codes
        assert self.probabilities is not None
        places: np.ndarray = self.probabilities.argmax(1)
        return places

    @property
    def labels(self) -> np.ndarray:
        """The name of the predicted class of each row, or the predicted number."""
        if self.class_names is None:
            assert self.values is not None
            return self.values
        names: np.ndarray = np.array(self.class_names)[self.places]
        return names

    @property
    def error(self) -> float:
        """The share of rows with a wrong label, or 1 − R²; NaN if the truth is not known."""
        if self.truth is None:
            return float("nan")
        if self.class_names is None:
            return float(regression_metrics(self.truth, self.labels)["error"])
        return float(np.mean(self.labels != self.truth))

    @property
    def unknown(self) -> list[str]:
        """Classes of the rows that the model does not know."""
        if self.truth is None or self.class_names is None:
            return []
        return sorted({*self.truth} - {*self.class_names})

    def metrics(self) -> dict[str, Any]:
        """Measure the predictions against the truth.

        Returns
        -------
        dict
            See :func:`~tensorswitch.experiments.metrics.classification_metrics` and
            :func:`~tensorswitch.experiments.metrics.regression_metrics`. Rows of classes that the
            model does not know count as errors.

        Raises
        ------
        ValueError
            If the truth is not known.
        """
        if self.truth is None:
            raise ValueError("the true targets are not known, so no errors can be computed")
        if self.class_names is None:
            return regression_metrics(self.truth, self.labels)
        names = [*self.class_names, *self.unknown]
        place = {name: i for i, name in enumerate(names)}
        truth = np.array([place[name] for name in self.truth], dtype=int)
        probabilities = self.probabilities
        if probabilities is not None:
            more = np.zeros((len(truth), len(names) - probabilities.shape[1]))
            probabilities = np.concatenate([probabilities, more], axis=1)
        return classification_metrics(truth, self.places, probabilities, len(names))

    def save(
        self, path: str | Path, ids: Sequence[Any] | None = None, id_name: str = "row"
    ) -> None:
        """Write a line for each row, as CSV.

        Parameters
        ----------
        path : str or Path
            The file.
        ids : sequence, optional
            What identifies the rows, by default their numbers from 0.
        id_name : str, default="row"
            Name of that column.
        """
        with replacing(path) as partial, partial.open("w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file, lineterminator="\n")
            columns = self.columns()
            writer.writerow([id_name, *columns])
            rows = range(len(self)) if ids is None else ids
            writer.writerows(zip(rows, *columns.values(), strict=True))

    def columns(self) -> dict[str, Any]:
        """Return the columns of the predictions by name, as text.

        Returns
        -------
        dict of str to list
            Label, its probability and that of every class; or prediction and interval.
        """
        if self.class_names is None:
            found: dict[str, Any] = {"prediction": [repr(float(v)) for v in self.labels]}
            for name, bound in (("low", self.low), ("high", self.high)):
                if bound is not None:
                    found[name] = [repr(float(v)) for v in bound]
            return found
        found = {"label": self.labels}
        if self.probabilities is not None:
            best = self.probabilities[np.arange(len(self.places)), self.places]
            found["probability"] = [f"{p:.6f}" for p in best]
            if len(self.class_names) <= MANY:
                for name, column in zip(self.class_names, self.probabilities.T, strict=True):
                    found[f"probability of {name}"] = [f"{p:.6f}" for p in column]
        return found
