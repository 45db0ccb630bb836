"""What files and pickles keep of an estimator: its parameters and its fitted parts."""

from __future__ import annotations

import json
from abc import abstractmethod
from typing import Any, Self

import numpy as np
import torch
from sklearn.base import BaseEstimator

from tensorswitch import persistence

SEEN = ("n_features_in_", "feature_names_in_")  # set by scikit-learn's validation


class SavedEstimator(BaseEstimator):  # type: ignore[misc]
    """An estimator that is saved by what it consists of, without attributes and module paths.

    Files (:func:`tensorswitch.estimators.save_estimator`) and pickles, of joblib or skops for
    example, hold the same state; pickles also what it takes to continue, such as sums over rows.
    """

    @abstractmethod
    def _fitted_state(self, sums: bool) -> dict[str, Any]:
        """Return the fitted parts, and on request what it takes to add rows."""

    @abstractmethod
    def _restore(self, fitted: dict[str, Any]) -> None:
        """Take over the fitted parts of a state."""

    @abstractmethod
    def __sklearn_is_fitted__(self) -> bool:
        """Return whether there are fitted parts."""

    def state(self, sums: bool = False) -> dict[str, Any]:
        """Return parameters and fitted parts.

        Parameters
        ----------
        sums : bool, default=False
            Whether to include what it takes to add, remove and merge rows.

        Returns
        -------
        dict
            Arrays, plain values and saveable objects.
        """
        seen = {name: vars(self)[name] for name in SEEN if name in vars(self)}
        return {
            "parameters": self.get_params(deep=False),
            "seen": seen,
            "fitted": self._fitted_state(sums),
        }

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> Self:
        """Return the estimator of a state.

        Parameters
        ----------
        state : dict
            What :meth:`state` returned.

        Returns
        -------
        estimator
            The fitted estimator.
        """
        model = cls(**state["parameters"])
        model.__dict__.update({name: state["seen"][name] for name in SEEN if name in state["seen"]})
        model._restore(state["fitted"])
        return model

    def __getstate__(self) -> dict[str, Any]:
        state: dict[str, Any] = {"parameters": self.get_params(deep=False)}
        if self.__sklearn_is_fitted__():
            content = {k: v for k, v in self.state(sums=True).items() if k != "parameters"}
            header, tensors = persistence.encode(content)
            state["header"] = json.dumps(header)
            state["arrays"] = {name: tensor.numpy() for name, tensor in tensors.items()}
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state["parameters"])
        if "header" in state:
            arrays = {k: torch.from_numpy(np.array(v)) for k, v in state["arrays"].items()}
            content = persistence.decode(json.loads(state["header"]), arrays)
            self.__dict__.update(content["seen"])
            self._restore(content["fitted"])
