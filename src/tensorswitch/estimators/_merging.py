"""Models of different rows that are merged into one."""

from __future__ import annotations

from copy import copy
from typing import Any, Self

import numpy as np
import torch
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from tensorswitch._checks import from_numpy
from tensorswitch.estimators._held_rows import HeldRows
from tensorswitch.estimators._labels import check_classes
from tensorswitch.estimators._ridge_base import Fitted, TSRidgeBase
from tensorswitch.estimators._transaction import unchanged_on_error
from tensorswitch.ridge import RidgeStatistics


class Mergeable(TSRidgeBase):
    """``without_rows``, ``merge`` and ``all_reduce`` for models that keep sums of features."""

    _held: Any  # of classifiers
    _lazy: dict[str, Any]

    def without_rows(self, classes: Any = None) -> Self:
        """Return a model with the same features that has learned from no rows.

        Models of different rows can only be merged if they have the same features. Fit one to a
        sample, and let each machine start from what this method returns.

        Parameters
        ----------
        classes : array-like of shape (n_classes,), optional
            The classes of a new classifier, by default the same. Features do not depend on them, so
            that those learned on one data set can serve another.

        Returns
        -------
        self : object
            A new model. It predicts once it has rows.

        Raises
        ------
        ValueError
            If there are fewer than two classes, or classes are given to a regressor.
        """
        check_is_fitted(self, "solver_")
        model, fitted = copy(self), self._fitted
        unit = fitted.front.gate_weights[0]
        if hasattr(self, "classes_"):
            model.classes_ = self.classes_ if classes is None else check_classes(classes)
            outputs = 1 if len(model.classes_) == 2 else len(model.classes_)
            model._fitted = fitted = fitted._replace(shift=np.zeros(outputs))
            model._held = HeldRows.none(unit)
            model._lazy = {}
        elif classes is not None:
            raise ValueError("a regressor has no classes")
        x, t = torch.empty_like(unit[:1]), unit.new_empty(1, len(fitted.shift))
        model._statistics, model._solution = self._new_statistics(fitted, x, t), None
        model._problem, model.solver_ = None, "streaming"
        return model

    @unchanged_on_error
    def merge(self, other: Self) -> Self:
        """Add what another model has learned from other rows.

        The result is the model of all rows, up to rounding.

        Parameters
        ----------
        other : object
            A model with the same features; see :meth:`without_rows`. It is not modified.

        Returns
        -------
        self : object
            The fitted estimator.

        Raises
        ------
        ValueError
            If the features differ.
        """
        check_is_fitted(self, "solver_")
        check_is_fitted(other, "solver_")
        mine, theirs = _front_tensors(self._fitted.front), _front_tensors(other._fitted.front)
        same = type(self) is type(other) and len(mine) == len(theirs)
        if not same or not all(map(torch.equal, mine, theirs)):
            raise ValueError(
                "the models have different features and cannot be merged; "
                "start both from without_rows() of the same model"
            )
        other = copy(other)
        self._sums()  # which a model that was loaded does not have
        other._sums()
        if hasattr(self, "classes_"):
            self._grow(other.classes_)
            other._grow(self.classes_)
            self._held = self._held.joined(other._held)
            self._lazy = {}
        self._sums().merge(_in_units(other._sums(), other._fitted, self._fitted))
        self._solution = None
        return self

    def all_reduce(self) -> Self:
        """Sum what the ranks of ``torch.distributed`` have learned, each from its own rows.

        All ranks must have the same features and classes. Afterwards all have the same model.
        Probabilities are calibrated on rows of the own rank.

        Returns
        -------
        self : object
            The fitted estimator.
        """
        from torch import distributed

        mine = self._fitted
        units = torch.tensor([*mine.shift, mine.scale], dtype=torch.float64, device="cpu")
        distributed.broadcast(units, 0)
        first = mine._replace(shift=units[:-1].numpy(), scale=float(units[-1]))
        self._statistics = _in_units(self._sums(), mine, first).all_reduce()
        self._fitted, self._solution = first, None
        if hasattr(self, "classes_"):
            self._lazy = {}
        return self


def _in_units(statistics: RidgeStatistics, old: Fitted, new: Fitted) -> RidgeStatistics:
    """Return sums of targets ``(t − shift) / scale`` with another shift and scale."""
    factor, offset = old.scale / new.scale, (old.shift - new.shift) / new.scale
    if factor == 1 and not offset.any():
        return statistics
    result, outputs = statistics.copy(), len(old.shift)
    result.retarget(range(outputs), [factor] * outputs, offset.tolist())
    return result


def _front_tensors(front: Any) -> list[Tensor]:
    """Return everything in a front that the features depend on."""
    found: list[Tensor] = []
    for value in front:
        if isinstance(value, torch.nn.Module):
            found += value.state_dict().values()
        elif isinstance(value, tuple) and hasattr(value, "_fields"):  # the scaling
            found += _front_tensors(value)
        elif isinstance(value, Tensor):
            found.append(value)
        elif isinstance(value, np.ndarray):
            found.append(from_numpy(value))
        elif isinstance(value, list):
            found += value
        elif isinstance(value, int | tuple):
            found.append(torch.tensor(value, device="cpu"))
    return found
