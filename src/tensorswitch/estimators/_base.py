"""What all estimators are made of: parameters, fitted parts, and a state for files and pickles."""

import json
import re
from abc import abstractmethod
from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import wraps
from inspect import cleandoc
from numbers import Integral, Real
from typing import Any, Concatenate, ParamSpec, Self, TypeAlias, TypeVar

import numpy as np
import torch
from numpy.typing import ArrayLike
from scipy import sparse
from sklearn.base import BaseEstimator
from sklearn.utils._param_validation import Interval, StrOptions

from tensorswitch import persistence
from tensorswitch.switches import Switch, switch_name

State: TypeAlias = dict[str, Any]  # arrays, plain values and saveable objects
Constraints: TypeAlias = dict[str, list[Any] | str]  # in the language of scikit-learn
MatrixLike: TypeAlias = ArrayLike | sparse.spmatrix  # what users pass
Matrix: TypeAlias = np.ndarray | sparse.csr_matrix  # validated
ClassWeight: TypeAlias = Mapping[Hashable, float] | str | None
Weights: TypeAlias = np.ndarray | None  # of rows, 1 by default
RandomState: TypeAlias = int | np.random.RandomState | None

# What parameters of several estimators may be.
ABOVE_ZERO = Interval(Real, 0, None, closed="neither")
AT_LEAST_ZERO = Interval(Real, 0, None, closed="left")
POSITIVE = Interval(Integral, 1, None, closed="left")
AUTO = StrOptions({"auto"})
CLASS_WEIGHT: Constraints = {"class_weight": [dict, StrOptions({"balanced"}), None]}

SEEN = ("n_features_in_", "feature_names_in_")  # set by scikit-learn's validation


class SavedEstimator(BaseEstimator):  # type: ignore[misc]
    """An estimator that is saved by what it consists of, without attributes and module paths.

    Files (:func:`tensorswitch.estimators.save_estimator`) and pickles, of joblib or skops for
    example, hold the same state; pickles also what it takes to continue, such as sums over rows.
    """

    @abstractmethod
    def _fitted_state(self, sums: bool) -> State:
        """Return the fitted parts, and on request what it takes to add rows."""

    @abstractmethod
    def _restore(self, fitted: State) -> None:
        """Take over the fitted parts of a state."""

    @abstractmethod
    def __sklearn_is_fitted__(self) -> bool:
        """Return whether there are fitted parts."""

    def state(self, sums: bool = False) -> State:
        """Return parameters and fitted parts, on request with what it takes to add rows."""
        seen = {name: vars(self)[name] for name in SEEN if name in vars(self)}
        parameters = {
            name: switch_name(value) if isinstance(value, Switch) else value
            for name, value in self.get_params(deep=False).items()
        }
        return {"parameters": parameters, "seen": seen, "fitted": self._fitted_state(sums)}

    @classmethod
    def from_state(cls, state: State) -> Self:
        """Return the fitted estimator of a state."""
        model = cls(**state["parameters"])
        model._take_over(state)
        return model

    def _take_over(self, state: State) -> None:
        self.__dict__.update({name: state["seen"][name] for name in SEEN if name in state["seen"]})
        self._restore(state["fitted"])

    def __getstate__(self) -> State:
        state: State = {"parameters": self.get_params(deep=False)}
        if self.__sklearn_is_fitted__():
            content = {k: v for k, v in self.state(sums=True).items() if k != "parameters"}
            header, tensors = persistence.encode(content)
            state["header"] = json.dumps(header)
            state["arrays"] = {name: tensor.numpy() for name, tensor in tensors.items()}
        return state

    def __setstate__(self, state: State) -> None:
        self.__dict__.update(state["parameters"])  # as they are: skops and joblib know their types
        if "header" in state:
            arrays = {k: torch.from_numpy(np.array(v)) for k, v in state["arrays"].items()}
            self._take_over(persistence.decode(json.loads(state["header"]), arrays))


P = ParamSpec("P")
Result = TypeVar("Result")
Model = TypeVar("Model", bound=SavedEstimator)
Class = TypeVar("Class", bound=type)


def unchanged_on_error(
    method: Callable[Concatenate[Model, P], Result],
) -> Callable[Concatenate[Model, P], Result]:
    """Decorate ``fit`` or ``partial_fit`` so that all attributes are restored if it raises.

    Attributes are restored by reference. An estimator that modifies objects in place must return
    copies of them, by attribute name, from a method ``_before_fit``.
    """

    @wraps(method)
    def wrapped(self: Model, /, *args: P.args, **kwargs: P.kwargs) -> Result:
        before = dict(self.__dict__)
        if hasattr(self, "_before_fit"):
            before.update(self._before_fit())
        try:
            return method(self, *args, **kwargs)
        except BaseException:  # Ctrl-C, too
            self.__dict__.clear()
            self.__dict__.update(before)
            raise

    return wrapped


def documented_as(other: type, without: Sequence[str] = ()) -> Callable[[Class], Class]:
    """Put what another class says of parameters and attributes into the docstring of a class.

    The texts take the place of ``{parameters}`` and ``{attributes}``; ``without`` names entries
    that the class does not have.
    """

    def documented(cls: Class) -> Class:
        if other.__doc__ is None or cls.__doc__ is None:  # Python was started with -OO
            return cls
        theirs, text = cleandoc(other.__doc__), cleandoc(cls.__doc__)  # as Python 3.13 has them
        for title in ("Parameters", "Attributes"):
            heading = f"{title}\n{'-' * len(title)}\n"
            section = theirs.split(heading)[1].split("\n\n")[0]
            entries = re.split(r"\n(?=\S)", section)
            kept = [entry for entry in entries if entry.split()[0] not in without]
            text = text.replace(f"{{{title.lower()}}}", heading + "\n".join(kept))
        cls.__doc__ = text
        return cls

    return documented
