"""What the ridge estimators share: rows in chunks, removal, merging, explanations, torch."""

from __future__ import annotations

import warnings
from abc import abstractmethod
from collections.abc import Sequence
from copy import copy
from pathlib import Path
from typing import Any, Self, TypeVar

import numpy as np
import torch
from sklearn.base import ClassifierMixin, MultiOutputMixin, RegressorMixin
from sklearn.utils import check_random_state
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import check_classification_targets, unique_labels
from sklearn.utils.validation import _check_sample_weight, check_is_fitted
from torch import nn

from tensorswitch._checks import from_numpy
from tensorswitch.estimators._calibration_sample import CalibrationSample, Calibrator, places_of
from tensorswitch.estimators._front import Front
from tensorswitch.estimators._inputs import rows_of_numbers
from tensorswitch.estimators._labels import (
    check_classes,
    check_partial_fit,
    class_factors,
    class_places,
)
from tensorswitch.estimators._modules import Unscaled
from tensorswitch.estimators._readout import NewRows, Readout, RidgeSettings, TargetUnits
from tensorswitch.estimators._state import SavedEstimator
from tensorswitch.estimators._transaction import unchanged_on_error
from tensorswitch.explain import Explanation
from tensorswitch.linear import Solution
from tensorswitch.linear._rows import row_hashes
from tensorswitch.nn import to_onnx
from tensorswitch.preprocessing import dense_blocks

Model = TypeVar("Model", bound="RidgeEstimator")


def can_update(model: Any) -> bool:
    """Raise unless the solver keeps sums."""
    if model.solver not in ("auto", "streaming"):
        raise AttributeError(
            f"partial_fit needs solver='streaming' or 'auto', got solver={model.solver!r}"
        )
    return True


class RidgeEstimator(SavedEstimator):
    """An estimator that consists of a front and a ridge readout."""

    _readout: Readout
    n_features_in_: int

    @abstractmethod
    def _new_front(
        self, X: Any, targets: np.ndarray, weight: np.ndarray | None, rows: NewRows, whole: bool
    ) -> Front:
        """Fit what comes before the readout to the first rows; ``whole`` if no others follow."""

    @abstractmethod
    def _settings(self) -> RidgeSettings:
        """Return the parameters of the readout."""

    def _checked(self, X: Any, **options: Any) -> Any:
        """Return validated rows: of a fitted model, or with ``reset`` of one to be fitted."""
        first = options.get("reset", False)
        dtype = [np.float64, np.float32] if first else _numpy_type(self._readout.front.dtype)
        given = {"dtype": dtype, "order": "C", "accept_sparse": "csr", "reset": False, **options}
        return rows_of_numbers(self, X, given.pop("y", "no_validation"), **given)

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "_readout")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    def _rows(self, X: Any, targets: np.ndarray, weight: np.ndarray | None) -> NewRows:
        return NewRows(X, targets, None if weight is None else from_numpy(weight), row_hashes_of(X))

    def _fit(self, rows: NewRows, units: TargetUnits) -> np.ndarray | None:
        """Fit front and readout to all rows, and return outputs for rows left out."""
        settings = self._settings()
        front = self._front(rows, units, True)
        self._readout, left_out = Readout.fit(front, units, rows, settings)
        return left_out

    def _add(self, rows: NewRows, units: TargetUnits | None) -> None:
        """Add rows to the sums; with ``units``, these are the first."""
        settings = self._settings()
        if units is not None:
            front = self._front(rows, units, False)
            self._readout = Readout.empty(front, units, settings, len(rows))
        else:
            warn_of_ignored(rows.X, self._readout.front)
        self._readout = self._readout.add(rows, settings)

    def _front(self, rows: NewRows, units: TargetUnits, whole: bool) -> Front:
        scaled = (rows.targets - units.shift) / units.scale
        weight = None if rows.weight is None else rows.weight.numpy()
        return self._new_front(rows.X, scaled, weight, rows, whole)

    def _seed(self) -> int:
        return int(check_random_state(getattr(self, "random_state", 0)).randint(2**31))

    def _weights(self, X: Any, sample_weight: Any) -> np.ndarray | None:
        """Return sample weights in the type of the sums."""
        if sample_weight is None:
            return None
        dtype = np.float32 if X.dtype == np.float32 else np.float64
        checked: np.ndarray = _check_sample_weight(
            sample_weight, X, dtype=dtype, ensure_non_negative=True
        )
        return checked

    @property
    def solver_(self) -> str:
        """The solver that was used."""
        check_is_fitted(self)
        return self._readout.solver

    @property
    def solution_(self) -> Solution:
        """The readout with its λ and, if several were tried, their errors."""
        check_is_fitted(self)
        return self._readout.solution

    @property
    def n_iter_(self) -> int:
        """Number of iterations of conjugate gradients, 1 for the direct solvers."""
        return max(1, self.solution_.iterations)

    @property
    def n_samples_seen_(self) -> float:
        """Sum of the weights of the samples that the sums contain."""
        check_is_fitted(self)
        return self._readout.summed().rows / self._readout.front.count

    @property
    def alpha_(self) -> float:
        """The penalty λ that was used."""
        return self.solution_.alpha

    @property
    def coef_(self) -> np.ndarray:
        """The readout, of shape (n_L, …, n_1, n_inputs, n_outputs)."""
        return self.solution_.weight.numpy() * self._readout.units.scale

    @property
    def intercept_(self) -> np.ndarray:
        """The intercept, of shape (n_outputs,); zero without one."""
        found, units = self.solution_.intercept, self._readout.units
        return units.shift if found is None else found.numpy() * units.scale + units.shift

    def explain(self, X: Any) -> Explanation:
        """Return what each feature contributes, exactly.

        Once its gates are known, a TS representation is linear in the input, ``W_eff(x) x``; given
        columns have their weights, and the share of a patch of an image is divided evenly among
        its pixels.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Samples.

        Returns
        -------
        Explanation
            Contributions of shape (n_samples, n_outputs, n_features), or a height and a width in
            place of features, relative to the mean of the training samples where there is one.
            They add up with the constant to ``decision_function`` or ``predict``. Two classes have
            one output.
        """
        check_is_fitted(self)
        X = self._checked(X, accept_sparse=False)
        found, units = self._readout.front.explain(X, self.solution_), self._readout.units
        constant = found.constant * units.scale + units.shift
        return Explanation(found.contributions * units.scale, constant)

    def to_torch(self) -> nn.Sequential:
        """Return the fitted model as a torch module from features to outputs.

        Returns
        -------
        torch.nn.Sequential
            For classifiers the decision function, with a single output for two classes; for
            regressors the predictions, as columns. They are in float64 where float32 would lose
            them, as targets are far from zero compared with their spread (Unix times). The last
            layers can be trained further; what comes before them is fixed.
        """
        check_is_fitted(self)
        module, units = self._readout.front.module(self.solution_), self._readout.units
        if not units.plain:
            module.append(Unscaled(units.shift, units.scale))
        return module.eval()

    def to_onnx(self, path: str | Path) -> None:
        """Write the fitted model as an ONNX file, from features to the outputs of ``to_torch``.

        The input ``x`` has the shape (rows, n_features), or (images, channels, height, width) for
        images, in float32, or in float64 if the model was fitted with it; the output ``y`` has the
        shape (rows, outputs).

        Parameters
        ----------
        path : str or Path
            File to write.

        Raises
        ------
        ImportError
            If the packages of the extra ``onnx`` are missing.
        """
        network = self.to_torch()
        front = self._readout.front
        to_onnx(network, path, torch.zeros(2, *front.input_shape, dtype=front.dtype, device="cpu"))

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
        check_is_fitted(self)
        if classes is not None:
            raise ValueError("a regressor has no classes")
        model, readout = copy_of(self), self._readout
        model._readout = Readout.empty(readout.front, readout.units, self._settings())
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
        check_is_fitted(self)
        check_is_fitted(other)
        if type(self) is not type(other):
            raise ValueError(
                f"a {type(self).__name__} cannot be merged with a {type(other).__name__}"
            )
        self._merge(copy_of(other))
        return self

    def _merge(self, other: Self) -> None:
        self._readout = self._readout.merge(other._readout)

    def all_reduce(self) -> Self:
        """Sum what the ranks of ``torch.distributed`` have learned, each from its own rows.

        All ranks must have the same features and classes. Afterwards all have the same model.
        Probabilities are calibrated on rows of the own rank.

        Returns
        -------
        self : object
            The fitted estimator.
        """
        check_is_fitted(self)
        self._readout = self._readout.all_reduce()
        return self

    def _fitted_state(self, sums: bool) -> dict[str, Any]:
        return {"readout": self._readout.state(sums)}

    def _restore(self, fitted: dict[str, Any]) -> None:
        self._readout = Readout.from_state(fitted["readout"])


class RidgeClassifier(ClassifierMixin, RidgeEstimator):  # type: ignore[misc]
    """Ridge regression of ±1 targets, with calibrated probabilities."""

    classes_: np.ndarray
    class_weight: Any
    _calibrator: Calibrator

    @unchanged_on_error
    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Fit the readout to all rows at once.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Training samples.
        y : array-like of shape (n_samples,)
            Class labels.
        sample_weight : array-like of shape (n_samples,), optional
            Weights of the samples, 1 by default. A weight of two is a repeated sample.

        Returns
        -------
        self : object
            The fitted estimator.
        """
        self._validate_params()
        X, y = self._checked(X, y=y, reset=True)
        check_classification_targets(y)
        weight = self._weights(X, sample_weight)
        used = np.ones(len(y), dtype=bool) if weight is None else weight > 0
        classes = check_classes(y[used], of=len(y))
        places = np.zeros(len(y), dtype=np.int64)  # of rows without weight, the class is arbitrary
        places[used] = class_places(y[used], classes)
        factors = None
        if self.class_weight is not None:
            factors = class_factors(self.class_weight, classes, places, weight)
        rows = self._targets(X, places, len(classes), weight, factors)
        outputs = self._fit(rows, _plain(rows))
        self.classes_ = classes
        self._calibrate(CalibrationSample.of(self._readout, rows, places, outputs))
        return self

    @available_if(can_update)  # type: ignore[untyped-decorator]
    @unchanged_on_error
    def partial_fit(self, X: Any, y: Any, classes: Any = None, sample_weight: Any = None) -> Self:
        """Add a chunk of rows; the readout is solved when it is next needed.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            A chunk of samples.
        y : array-like of shape (n_samples,)
            Class labels. Later chunks may contain new ones.
        classes : array-like of shape (n_classes,), optional
            All labels of the chunk, and more if they are known. Required in the first call.
        sample_weight : array-like of shape (n_samples,), optional
            Weights of the samples, 1 by default. A weight of two is a repeated sample.

        Returns
        -------
        self : object
            The fitted estimator.
        """
        self._validate_params()
        first = not self.__sklearn_is_fitted__()
        known = check_partial_fit(None, classes) if first else None
        X, y = self._checked(X, y=y, reset=first)
        check_classification_targets(y)
        if known is None:
            self._grow(y if classes is None else np.concatenate([y, unique_labels(classes)]))
            known = self.classes_
        places = class_places(y, known)
        weight = self._weights(X, sample_weight)
        rows = self._targets(X, places, len(known), weight, self._factors_in_chunks(known))
        self._add(rows, _plain(rows) if first else None)
        self.classes_ = known
        if first:
            self._calibrate(CalibrationSample.of(self._readout, rows, places))
            return self
        before = self._sample().decay(self._readout.settings.forgetting)
        new = CalibrationSample.of(self._readout, rows, places, bound=before.bound)
        self._calibrate(before.concat(new))
        return self

    @available_if(can_update)  # type: ignore[untyped-decorator]
    @unchanged_on_error
    def remove(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Remove rows that were fitted from the sums.

        The model is then that of the other rows, with the same scaling, components and gates. Sums
        cannot tell which rows they contain: rows that were never fitted are subtracted, too.
        Probabilities are calibrated on what is left of a sample of 2,000 rows.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Samples that were fitted.
        y : array-like of shape (n_samples,)
            Their labels.
        sample_weight : array-like of shape (n_samples,), optional
            The weights they were fitted with, 1 by default.

        Returns
        -------
        self : object
            The fitted estimator.
        """
        check_is_fitted(self)
        X, y = self._checked(X, y=y)
        places = class_places(y, self.classes_)
        weight = self._weights(X, sample_weight)
        factors = self._factors_in_chunks(self.classes_)
        rows = self._targets(X, places, len(self.classes_), weight, factors)
        self._readout = self._readout.remove(rows, self._settings())
        each = None if rows.weight is None else rows.weight.double().numpy()
        self._calibrate(self._sample().remove(rows.hashes, places, each))
        return self

    def _targets(
        self,
        X: Any,
        places: np.ndarray,
        classes: int,
        weight: np.ndarray | None,
        factors: np.ndarray | None,
    ) -> NewRows:
        """Return rows with targets of ±1: a column per class, or a single one for two classes."""
        targets = np.where(places[:, None] == np.arange(classes), 1, -1).astype(np.float32)
        if factors is not None:
            weight = (1.0 if weight is None else weight) * factors[places]
            weight = weight.astype(np.float32 if X.dtype == np.float32 else np.float64)
        return self._rows(X, targets[:, 1:] if classes == 2 else targets, weight)

    def _factors_in_chunks(self, classes: np.ndarray) -> np.ndarray | None:
        """Return the factor of each class where the numbers of their rows are not known."""
        if self.class_weight is None:
            return None
        if isinstance(self.class_weight, str):
            raise ValueError(
                f"class_weight={self.class_weight!r} needs all rows at once; for partial_fit and "
                "remove, pass a dict of weights"
            )
        return np.array([self.class_weight.get(c, 1.0) for c in classes.tolist()])

    def _sample(self) -> CalibrationSample:
        """Return the rows to calibrate with, which a model has that can be updated."""
        self._readout.summed()
        assert self._calibrator.sample is not None
        return self._calibrator.sample

    def _calibrate(self, sample: CalibrationSample) -> None:
        self._calibrator = Calibrator(sample, self._readout)

    def _merge(self, other: Self) -> None:
        self._readout.summed()  # which a model that was loaded does not have
        other._readout = copy(other._readout)
        other._readout.summed()
        self._grow(other.classes_)
        other._grow(self.classes_)
        super()._merge(other)
        self._calibrate(self._sample().concat(other._sample()))

    def all_reduce(self) -> Self:  # as of the base
        super().all_reduce()
        self._calibrate(self._sample())
        return self

    def without_rows(self, classes: Any = None) -> Self:  # as of the base
        model = super().without_rows()
        model.classes_ = self.classes_ if classes is None else check_classes(classes)
        if classes is not None:
            outputs = 1 if len(model.classes_) == 2 else len(model.classes_)
            units = TargetUnits(np.zeros(outputs))
            model._readout = Readout.empty(self._readout.front, units, self._settings())
        front = self._readout.front
        x = torch.empty(0, front.representation.in_features, dtype=front.dtype, device="cpu")
        none = np.empty(0, dtype=np.int64)
        model._calibrate(CalibrationSample(torch.from_numpy(none), x, none, np.empty(0)))
        return model

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
        check_is_fitted(self)
        sums = self._readout.summed()
        counts = (sums.rows + sums.target_sum.numpy()) / 2  # of targets that are ±1
        if len(self.classes_) == 2:
            counts = np.array([sums.rows - counts[0], counts[0]])
        kept = np.flatnonzero(counts > 1e-9 * max(1.0, sums.rows))
        self._change_classes(check_classes(self.classes_[kept]), kept.tolist())
        return self

    def _grow(self, y: np.ndarray) -> None:
        """Add classes that appear for the first time; so far, no row belonged to them."""
        labels = check_classes(np.concatenate([np.unique(y), self.classes_]))
        if len({array.dtype.kind in "OUS" for array in (y, self.classes_)}) > 1:
            class_places(y, self.classes_)  # raises
        old: list[int | None] = [None] * len(labels)
        for before, after in enumerate(class_places(self.classes_, labels)):
            old[after] = before
        self._change_classes(labels, old)

    def _change_classes(self, labels: np.ndarray, old: Sequence[int | None]) -> None:
        """Replace the classes; ``old`` are the indices they have had, None for new ones."""
        if len(labels) == len(self.classes_):
            return
        single = len(self.classes_) == 2
        columns, signs, offsets = [], [], []
        for before in old[1:] if len(labels) == 2 else old:
            columns.append(0 if single or before is None else before)
            signs.append(0.0 if before is None else -1.0 if single and before == 0 else 1.0)
            offsets.append(-1.0 if before is None else 0.0)
        places = np.zeros(len(self.classes_), dtype=np.int64)
        for after, before in enumerate(old):
            if before is not None:
                places[before] = after
        sample = self._sample().relabel(places)
        self._readout = self._readout.retarget(columns, signs, offsets)
        self.classes_ = labels
        self._calibrate(sample)

    def decision_function(self, X: Any) -> np.ndarray:
        """Return the outputs of the readout.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Samples.

        Returns
        -------
        ndarray of shape (n_samples, n_classes) or (n_samples,)
            The output of each class. For two classes there is a single output, which is positive
            for the second.
        """
        outputs = self._outputs(X)
        return outputs[:, 0] if outputs.shape[1] == 1 else outputs

    def predict_proba(self, X: Any) -> np.ndarray:
        """Return the probability of each class.

        They are the softmax of the outputs times a temperature, which minimises the log-loss of
        training rows whose outputs come from readouts that have not seen them.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Samples.

        Returns
        -------
        ndarray of shape (n_samples, n_classes)
            Probabilities, in the order of ``classes_``.
        """
        outputs = self._outputs(X).astype(np.float64)
        return self._calibrator.found.calibration.probabilities(outputs)

    def predict(self, X: Any) -> np.ndarray:
        """Predict the class with the largest output.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Samples.

        Returns
        -------
        ndarray of shape (n_samples,)
            Class labels.
        """
        outputs = self._outputs(X)  # first: it raises if the model is not fitted
        found: np.ndarray = self.classes_[places_of(outputs)]
        return found

    @property
    def cv_score_(self) -> float:
        """Accuracy on training rows for which the readout was fitted without them.

        They are left out one by one if there are few rows, and fold by fold otherwise. At most
        2,000 rows are judged. It is NaN if there was no memory for the sums of folds.
        """
        check_is_fitted(self)
        return self._calibrator.found.score

    def _outputs(self, X: Any) -> np.ndarray:
        check_is_fitted(self)
        return self._readout.predict(self._checked(X))

    def _fitted_state(self, sums: bool) -> dict[str, Any]:
        fitted = super()._fitted_state(sums)
        return {**fitted, "classes": self.classes_, "calibrator": self._calibrator.state(sums)}

    def _restore(self, fitted: dict[str, Any]) -> None:
        super()._restore(fitted)
        self.classes_ = fitted["classes"]
        self._calibrator = Calibrator.from_state(fitted["calibrator"], self._readout)


class RidgeRegressor(MultiOutputMixin, RegressorMixin, RidgeEstimator):  # type: ignore[misc]
    """Ridge regression of one or several targets."""

    _flat: bool  # whether targets are given without an axis of outputs

    @unchanged_on_error
    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Fit the readout to all rows at once.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Training samples.
        y : array-like of shape (n_samples,) or (n_samples, n_outputs)
            Targets.
        sample_weight : array-like of shape (n_samples,), optional
            Weights of the samples, 1 by default. A weight of two is a repeated sample.

        Returns
        -------
        self : object
            The fitted estimator.
        """
        self._validate_params()
        X, y = self._checked(X, y=y, reset=True, multi_output=True, y_numeric=True)
        rows = self._targets(X, y, sample_weight)
        self._fit(rows, self._units(rows))
        self._flat = y.ndim == 1
        return self

    @available_if(can_update)  # type: ignore[untyped-decorator]
    @unchanged_on_error
    def partial_fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Add a chunk of rows; the readout is solved when it is next needed.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            A chunk of samples.
        y : array-like of shape (n_samples,) or (n_samples, n_outputs)
            Targets.
        sample_weight : array-like of shape (n_samples,), optional
            Weights of the samples, 1 by default. A weight of two is a repeated sample.

        Returns
        -------
        self : object
            The fitted estimator.
        """
        self._validate_params()
        first = not self.__sklearn_is_fitted__()
        X, y = self._checked(X, y=y, reset=first, multi_output=True, y_numeric=True)
        if not first:
            self._check_axes(y)
        rows = self._targets(X, y, sample_weight)
        self._add(rows, self._units(rows) if first else None)
        self._flat = y.ndim == 1
        return self

    @available_if(can_update)  # type: ignore[untyped-decorator]
    @unchanged_on_error
    def remove(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Remove rows that were fitted from the sums.

        The model is then that of the other rows, with the same scaling, components and gates. Sums
        cannot tell which rows they contain: rows that were never fitted are subtracted, too.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Samples that were fitted.
        y : array-like of shape (n_samples,) or (n_samples, n_outputs)
            Their targets.
        sample_weight : array-like of shape (n_samples,), optional
            The weights they were fitted with, 1 by default.

        Returns
        -------
        self : object
            The fitted estimator.
        """
        check_is_fitted(self)
        X, y = self._checked(X, y=y, multi_output=True, y_numeric=True)
        self._check_axes(y)
        self._readout = self._readout.remove(self._targets(X, y, sample_weight), self._settings())
        return self

    def predict(self, X: Any) -> np.ndarray:
        """Predict targets.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Samples.

        Returns
        -------
        ndarray of shape (n_samples,) or (n_samples, n_outputs)
            Predictions, in the shape of the training targets.
        """
        check_is_fitted(self)
        outputs = self._readout.predict(self._checked(X))
        return outputs[:, 0] if self._flat else outputs

    def _targets(self, X: Any, y: np.ndarray, sample_weight: Any) -> NewRows:
        targets = np.ascontiguousarray(y.reshape(len(y), -1), dtype=np.float64)
        return self._rows(X, targets, self._weights(X, sample_weight))

    def _units(self, rows: NewRows) -> TargetUnits:
        if not self._settings().fit_intercept:
            return _plain(rows)
        return TargetUnits.fit(rows.targets, None if rows.weight is None else rows.weight.numpy())

    def _check_axes(self, y: np.ndarray) -> None:
        if (y.ndim == 1) != self._flat:
            raise ValueError(
                f"y has {y.ndim} axes, but the first chunk had {1 if self._flat else 2}"
            )

    def _fitted_state(self, sums: bool) -> dict[str, Any]:
        return {**super()._fitted_state(sums), "flat": self._flat}

    def _restore(self, fitted: dict[str, Any]) -> None:
        super()._restore(fitted)
        self._flat = fitted["flat"]


def copy_of(model: Model) -> Model:
    """Return another estimator with the same fitted parts, not copies of them."""
    made = object.__new__(type(model))
    made.__dict__.update(vars(model))
    return made


def row_hashes_of(X: Any) -> torch.Tensor:
    """Return a hash of each row, as it was given."""
    parts = (from_numpy(np.ascontiguousarray(rows)) for _, rows in dense_blocks(X))
    return torch.cat([row_hashes(rows) for rows in parts])


def warn_of_ignored(X: Any, front: Front) -> None:
    """Warn if most columns vary that the scaling of the first chunk took for constant.

    Of a few, such as pixels at the border, nobody has to know.
    """
    if 2 * len(found := front.ignored(X)) > X.shape[1]:
        warnings.warn(
            f"{len(found)} of {X.shape[1]} columns were constant in the first chunk and are "
            "ignored in all others; begin with a larger chunk, or pass means and standard "
            "deviations as standardize=",
            UserWarning,
            stacklevel=2,
        )


def _plain(rows: NewRows) -> TargetUnits:
    """Return the units of targets that are taken as they are."""
    return TargetUnits(np.zeros(rows.targets.shape[1]))


def _numpy_type(dtype: torch.dtype) -> type:
    return np.float32 if dtype == torch.float32 else np.float64
