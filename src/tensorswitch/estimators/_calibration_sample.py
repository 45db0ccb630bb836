"""The rows that probabilities are calibrated with, and the calibration made from them."""

from collections import defaultdict
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple, Self

import numpy as np
import torch
from torch import Tensor

from tensorswitch.estimators._base import State
from tensorswitch.estimators._front import Front, NewRows
from tensorswitch.estimators._readout import Readout
from tensorswitch.linear._calibration import Calibration
from tensorswitch.persistence import SavedPart, saved_as

CALIBRATED_ROWS = 2_000
FADED = 1e-3  # of the largest weight in its class, below which a row is forgotten


@saved_as("calibration-sample")
@dataclass(frozen=True, eq=False)
class CalibrationSample(SavedPart):
    """The rows with the lowest hashes, which order, chunks and merging do not change.

    A row that is repeated with the same class is held once, with the sum of its weights, so that
    tables with few different rows are sampled as a whole. ``outputs`` are those of readouts that
    have not seen the row, or None as long as they are left to the sums of the folds.
    """

    hashes: Tensor
    x: Tensor
    places: np.ndarray
    weight: np.ndarray
    outputs: np.ndarray | None = None
    fold_hashes: Tensor | None = None  # hashes by which the rows belong to folds

    def __len__(self) -> int:
        return len(self.places)

    @classmethod
    def empty(cls, front: Front) -> Self:
        """Return the sample of no rows."""
        x = torch.empty(0, front.representation.in_features, dtype=front.dtype, device="cpu")
        none = np.empty(0, dtype=np.int64)
        none_yet = torch.from_numpy(none)
        return cls(none_yet, x, none, np.empty(0), fold_hashes=none_yet)

    @classmethod
    def of(
        cls,
        readout: Readout,
        rows: NewRows,
        outputs: np.ndarray | None = None,
        bound: int | None = None,
    ) -> Self:
        """Sample rows of some classes; ``bound`` is the largest hash that matters."""
        assert rows.places is not None
        weight = np.ones(len(rows)) if rows.weight is None else rows.weight.double().numpy()
        used = weight > 0
        if outputs is not None:
            used &= np.isfinite(outputs).all(1)
        if bound is not None:  # without features of rows that would be dropped again
            used &= rows.hashes.numpy() <= bound
        chosen = np.flatnonzero(used)
        first, total = _lowest(rows.hashes.numpy()[chosen], rows.places[chosen], weight[chosen])
        chosen = chosen[first]
        if not len(chosen):
            return cls.empty(readout.front)
        known = None if outputs is None else outputs[chosen]
        index, x = torch.from_numpy(chosen), readout.front(rows.X[chosen])
        about = rows.places[chosen], total, known, rows.fold_hashes[index]
        return cls(rows.hashes[index], x, *about)

    @property
    def bound(self) -> int | None:
        """Largest hash of a row that is taken, or None as long as all are taken."""
        return int(self.hashes.max()) if len(self) >= CALIBRATED_ROWS else None

    def take(self, rows: np.ndarray) -> Self:
        """Return some of the rows."""
        outputs = None if self.outputs is None else self.outputs[rows]
        index = torch.from_numpy(rows)
        return replace(
            self,
            hashes=self.hashes[index],
            fold_hashes=None if self.fold_hashes is None else self.fold_hashes[index],
            x=self.x[index],
            places=self.places[rows],
            weight=self.weight[rows],
            outputs=outputs,
        )

    def concat(self, other: Self) -> Self:
        """Return the sample of the rows of both."""
        mine, theirs = self.fold_hashes, other.fold_hashes
        both = replace(
            self,
            hashes=torch.cat([self.hashes, other.hashes]),
            fold_hashes=None if mine is None or theirs is None else torch.cat([mine, theirs]),
            x=torch.cat([self.x, other.x]),
            places=np.concatenate([self.places, other.places]),
            weight=np.concatenate([self.weight, other.weight]),
            outputs=None,
        )
        rows, weight = _lowest(both.hashes.numpy(), both.places, both.weight)
        return replace(both.take(rows), weight=weight)

    def remove(self, rows: NewRows) -> Self:
        """Subtract the weights of rows, and drop those that have none left."""
        assert rows.places is not None
        removed: dict[tuple[int, int], float] = defaultdict(float)
        each = [1.0] * len(rows) if rows.weight is None else rows.weight.tolist()
        gone = zip(rows.hashes.tolist(), rows.places.tolist(), strict=True)
        for key, less in zip(gone, each, strict=True):
            removed[key] += less
        keys = zip(self.hashes.tolist(), self.places.tolist(), strict=True)
        left = self.weight - np.array([removed.get(key, 0.0) for key in keys])
        kept = np.flatnonzero(left > 1e-9 * self.weight)  # less is what rounding leaves
        # The readout is another one now.
        return replace(self.take(kept), weight=left[kept], outputs=None)

    def decay(self, factor: float) -> Self:
        """Multiply the weights, and drop rows whose weight no longer matters."""
        if factor == 1:
            return self
        # By class, so that a class that is rare in the stream keeps its rows.
        largest = np.zeros(self.places.max(initial=0) + 1)
        np.maximum.at(largest, self.places, self.weight)
        kept = np.flatnonzero(self.weight > FADED * largest[self.places])
        return replace(self.take(kept), weight=factor * self.weight[kept], outputs=None)

    def relabel(self, places: np.ndarray) -> Self:
        """Return the sample with other numbers of the classes."""
        return replace(self, places=places[self.places], outputs=None)


class Calibrated(NamedTuple):
    """A calibration, and the accuracy on the rows it was made with."""

    calibration: Calibration
    score: float


class Calibrator:
    """Calibration on outputs for rows that their readout has not seen, when it is first needed."""

    def __init__(self, sample: CalibrationSample | None, readout: Readout) -> None:
        self.sample, self._readout = sample, readout

    @cached_property
    def found(self) -> Calibrated:
        """The calibration and its score."""
        sample, score = self.sample, float("nan")
        assert sample is not None
        unseen = sample.outputs
        if unseen is None:
            hashes = sample.hashes if sample.fold_hashes is None else sample.fold_hashes
            unseen = self._readout.left_out(sample.x, hashes)
        outputs = self._readout.of_inputs(sample.x) if unseen is None else unseen
        known = np.isfinite(outputs).all(1)
        places, weight = sample.places[known], sample.weight[known]
        if unseen is not None and known.any():
            score = float(np.average(places_of(outputs[known]) == places, weights=weight))
        rows = outputs[known], places, weight
        if not known.any():  # as if there were one row of the second class
            several = outputs.shape[1] > 1
            row = 2 * np.eye(outputs.shape[1])[[1]] - 1 if several else np.ones((1, 1))
            rows = row, np.ones(1, int), np.ones(1)
        return Calibrated(Calibration.fit(*rows, affine=False), score)

    def state(self, sums: bool = False) -> State:
        """Return the calibration, and on request the sample instead."""
        if sums and self.sample is not None:
            return {"sample": self.sample}  # the calibration follows from it
        return {"calibration": self.found.calibration, "score": self.found.score}

    @classmethod
    def from_state(cls, state: State, readout: Readout) -> Self:
        """Return the calibrator of a state."""
        made = cls(state.get("sample"), readout)
        if "calibration" in state:
            made.found = Calibrated(state["calibration"], state["score"])
        return made


def places_of(outputs: np.ndarray) -> np.ndarray:
    """Return the index of the class with the largest output."""
    single = outputs.shape[1] == 1
    return (outputs[:, 0] > 0).astype(int) if single else outputs.argmax(1)


def _lowest(
    hashes: np.ndarray, places: np.ndarray, weight: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return the places of rows of the lowest hashes, each class once, and the sums of weights."""
    order = np.lexsort((places, hashes))
    rows, classes = hashes[order], places[order]
    new = np.ones(len(order), dtype=bool)
    new[1:] = (rows[1:] != rows[:-1]) | (classes[1:] != classes[:-1])
    starts = np.flatnonzero(new)
    total = np.add.reduceat(weight[order], starts) if len(starts) else np.empty(0)
    return order[starts[:CALIBRATED_ROWS]], total[:CALIBRATED_ROWS]
