"""Classes that appear after the first rows, and disappear with their last one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import numpy as np
from sklearn.utils.validation import check_is_fitted

from tensorswitch.estimators._held_rows import HeldRows
from tensorswitch.estimators._labels import check_classes, class_places
from tensorswitch.estimators._ridge_base import TSRidgeBase


class ChangingClasses(TSRidgeBase):
    """New targets for the sums of ridge regression when the classes change."""

    classes_: np.ndarray
    _held: HeldRows
    _lazy: dict[str, Any]

    def drop_empty_classes(self) -> Self:
        """Forget classes whose rows have all been removed, as if they had never appeared.

        Returns
        -------
        self : object
            The fitted estimator.

        Raises
        ------
        ValueError
            If rows of fewer than two classes are left.
        """
        check_is_fitted(self, "solver_")
        statistics = self._sums()
        rows = statistics.rows
        counts = (rows + statistics.target_sum.numpy()) / 2  # of targets that are ±1
        if len(self.classes_) == 2:
            counts = np.array([rows - counts[0], counts[0]])
        kept = np.flatnonzero(counts > 1e-9 * max(1.0, rows))
        labels = check_classes(self.classes_[kept])
        self._change_classes(labels, kept.tolist())
        return self

    def _grow(self, y: np.ndarray) -> None:
        """Add classes that appear for the first time; so far, no row belonged to them."""
        labels = check_classes(np.concatenate([np.unique(y), self.classes_]))
        kinds = {array.dtype.kind in "OUS" for array in (y, self.classes_)}
        if len(kinds) > 1:
            class_places(y, self.classes_)  # raises
        old: list[int | None] = [None] * len(labels)
        for before, after in enumerate(class_places(self.classes_, labels)):
            old[after] = before
        self._change_classes(labels, old)

    def _change_classes(self, labels: np.ndarray, old: Sequence[int | None]) -> None:
        """Replace the classes; ``old`` are the indices they have had, None for new ones."""
        if len(labels) == len(self.classes_):
            return
        statistics, single = self._sums().copy(), len(self.classes_) == 2
        columns, signs, offsets = [], [], []
        for before in old[1:] if len(labels) == 2 else old:
            columns.append(0 if single or before is None else before)
            signs.append(0.0 if before is None else -1.0 if single and before == 0 else 1.0)
            offsets.append(-1.0 if before is None else 0.0)
        statistics.retarget(columns, signs, offsets)
        places = np.zeros(len(self.classes_), dtype=np.int64)
        for after, before in enumerate(old):
            if before is not None:
                places[before] = after
        self._statistics, self._solution = statistics, None
        self.classes_ = labels
        self._held = self._held._replace(places=places[self._held.places], outputs=None)
        self._fitted = self._fitted._replace(shift=np.zeros(len(columns)))
        self._lazy = {}
