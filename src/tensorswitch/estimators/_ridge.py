"""What the ridge estimators share: rows in chunks, removal, merging, explanations, torch."""

from __future__ import annotations

import warnings
from abc import abstractmethod
from collections.abc import Sequence
from copy import copy
from dataclasses import fields
from functools import reduce
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import ArrayLike
from sklearn.base import ClassifierMixin, MultiOutputMixin, RegressorMixin
from sklearn.utils import Tags
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import unique_labels
from sklearn.utils.validation import _check_sample_weight, check_is_fitted
from torch import Tensor, distributed, nn

from tensorswitch._checks import from_numpy
from tensorswitch._memory import dense_rows
from tensorswitch.estimators._base import (
    ClassWeight,
    Matrix,
    MatrixLike,
    Model,
    SavedEstimator,
    State,
    Weights,
    unchanged_on_error,
)
from tensorswitch.estimators._calibration_sample import CalibrationSample, Calibrator, places_of
from tensorswitch.estimators._front import Front, NewRows
from tensorswitch.estimators._ledger import RowLedger
from tensorswitch.estimators._modules import Unscaled
from tensorswitch.estimators._readout import Readout, RidgeSettings, TargetUnits
from tensorswitch.estimators._validation import (
    check_classes,
    check_partial_fit,
    check_rows,
    check_training_rows,
    class_factors,
    class_places,
    signed_targets,
)
from tensorswitch.explain import Explanation
from tensorswitch.linear import Solution
from tensorswitch.linear._rows import fold_hashes, row_hashes
from tensorswitch.nn import to_onnx
from tensorswitch.preprocessing import dense_blocks


def can_update(model: RidgeEstimator) -> bool:
    """Raise unless the solver keeps sums."""
    if model.solver not in ("auto", "streaming"):
        raise AttributeError(
            f"partial_fit needs solver='streaming' or 'auto', got solver={model.solver!r}"
        )
    return True


class RidgeEstimator(SavedEstimator):
    """An estimator that consists of a front and a ridge readout."""

    solver: str
    n_features_in_: int
    _readout: Readout
    _ledger: RowLedger | None = None  # of the rows, if they are tracked

    @abstractmethod
    def _new_front(self, rows: NewRows, whole: bool) -> Front:
        """Fit what comes before the readout to the first rows; ``whole`` if no others follow."""

    @abstractmethod
    def _start(self, y: np.ndarray, weight: Weights, classes: ArrayLike | None) -> None:
        """Take from the first targets what does not change: their axes, or a set of classes."""

    @abstractmethod
    def _encoded(self, X: Matrix, y: np.ndarray, weight: Weights, whole: bool) -> NewRows:
        """Return rows with targets of the readout; ``whole`` if these are all rows."""

    def _settings(self) -> RidgeSettings:
        """Return the parameters that the readout needs."""
        given = self.get_params(deep=False)
        known = {field.name for field in fields(RidgeSettings)} & given.keys()
        return RidgeSettings(
            **{name: given[name] for name in known},
            left_out=isinstance(self, RidgeClassifier),
            name=type(self).__name__,
        )

    def _checked_rows(self, X: MatrixLike, accept_sparse: str | bool = "csr") -> Matrix:
        """Return validated rows for the fitted model."""
        dtype = np.float32 if self._readout.front.dtype == torch.float32 else np.float64
        return check_rows(self, X, dtype=dtype, accept_sparse=accept_sparse)

    def _checked_chunk(self, X: MatrixLike, y: ArrayLike, first: bool) -> tuple[Matrix, np.ndarray]:
        """Return validated rows and targets: the first ones, or more for the fitted model."""
        options: State = {"accept_sparse": "csr", "reset": first}
        if not first:
            single = self._readout.front.dtype == torch.float32
            options["dtype"] = np.float32 if single else np.float64
        return check_training_rows(self, X, y, **options)

    def _seen(self) -> int:
        """Return how many rows the sums have, if there are any."""
        readout = getattr(self, "_readout", None)
        return 0 if readout is None or readout.sums is None else int(readout.sums.rows)

    def _outputs(self, X: MatrixLike) -> np.ndarray:
        check_is_fitted(self)
        return self._readout.predict(self._checked_rows(X))

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "_readout")

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    @unchanged_on_error
    def fit(self, X: MatrixLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Fit the readout to all rows at once.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Training samples.
        y : array-like of shape (n_samples,) or (n_samples, n_outputs)
            Class labels of a classifier, targets of a regressor.
        sample_weight : array-like of shape (n_samples,), optional
            Weights of the samples, 1 by default. A weight of two is a repeated sample.
        """
        self._validate_params()
        rows, y = self._checked_chunk(X, y, first=True)
        weight = _weights(rows, sample_weight)
        self._start(y, weight, None)
        new = self._encoded(rows, y, weight, whole=True)
        units = self._units(new)
        front = self._new_front(units.scaled_rows(new), whole=True)
        self._readout, left_out = Readout.fit(front, units, new, self._settings())
        self._track(new, y, first=True)
        self._calibrate_with(new, first=True, left_out=left_out)
        return self

    def _add_chunk(
        self,
        X: MatrixLike,
        y: ArrayLike,
        sample_weight: ArrayLike | None,
        classes: ArrayLike | None = None,
    ) -> Self:
        """Add a chunk of rows, of which the first decides what comes before the readout."""
        self._validate_params()
        first = not self.__sklearn_is_fitted__()
        rows, y = self._checked_chunk(X, y, first)
        weight = _weights(rows, sample_weight)
        if first:
            self._start(y, weight, classes)
        else:
            self._continue(y, classes)
        new, settings = self._encoded(rows, y, weight, whole=False), self._settings()
        if first:
            units = self._units(new)
            front = self._new_front(units.scaled_rows(new), whole=False)
            self._readout = Readout.empty(front, units, settings, len(new))
        else:
            warn_of_ignored(rows, self._readout.front)
        self._track(new, y, first=first)
        self._readout = self._readout.add(new, settings)
        self._calibrate_with(new, first=first)
        return self

    def _track(self, rows: NewRows, y: np.ndarray, *, first: bool) -> None:
        """Enter rows into the ledger, if they are tracked."""
        if first:
            self._ledger = None
        if getattr(self, "track_rows", False) and (first or self._ledger is not None):
            new = RowLedger.of(rows.hashes, y, rows.weight)
            self._ledger = new if self._ledger is None else self._ledger.merge(new)

    def _continue(self, y: np.ndarray, classes: ArrayLike | None) -> None:
        """Prepare for further targets."""

    def _calibrate_with(
        self,
        rows: NewRows,
        *,
        first: bool = False,
        removed: bool = False,
        left_out: np.ndarray | None = None,
    ) -> None:
        """Update what probabilities are calibrated with; ``left_out`` are outputs for the rows."""

    @available_if(can_update)  # type: ignore[untyped-decorator]
    @unchanged_on_error
    def remove(self, X: MatrixLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Remove rows that were fitted from the sums.

        The model is then that of the other rows, with the same scaling, components and gates. Sums
        cannot tell which rows they contain: rows that were never fitted are subtracted, too, unless
        ``track_rows`` is true, where they are refused.
        Probabilities of classifiers are calibrated on what is left of a sample of 2,000 rows.

        Parameters
        ----------
        X, y, sample_weight : as for :meth:`fit`
            Samples that were fitted, with their targets and weights.
        """
        check_is_fitted(self)
        rows, y = self._checked_chunk(X, y, first=False)
        new = self._encoded(rows, y, _weights(rows, sample_weight), whole=False)
        if self._ledger is not None:
            self._ledger = self._ledger.remove(RowLedger.of(new.hashes, y, new.weight))
        self._readout = self._readout.remove(new, self._settings())
        self._calibrate_with(new, removed=True)
        return self

    def _units(self, rows: NewRows) -> TargetUnits:
        """Return the units of the targets, which are taken as they are."""
        return TargetUnits(np.zeros(rows.targets.shape[1]))

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

    def explain(self, X: ArrayLike) -> Explanation:
        """Return what each feature contributes, exactly.

        Once its gates are known, a TS representation is linear in the input, ``W_eff(x) x``; given
        columns have their weights, and the share of a patch of an image is divided evenly among
        its pixels. Contributions have the shape (n_samples, n_outputs, n_features), or a height and
        a width in place of features, and are relative to the mean of the training samples where
        there is one. They add up with the constant to ``decision_function`` or ``predict``. Two
        classes have one output.
        """
        check_is_fitted(self)
        rows, units = self._checked_rows(X, accept_sparse=False), self._readout.units
        found = self._readout.front.explain(rows, self.solution_)
        constant = found.constant * units.scale + units.shift
        return Explanation(found.contributions * units.scale, constant)

    def to_torch(self) -> nn.Sequential:
        """Return the fitted model as a torch module from features to outputs.

        For classifiers the decision function, with a single output for two classes; for regressors
        the predictions, as columns. They are in float64 where float32 would lose them, as targets
        are far from zero compared with their spread (Unix times). The last layers can be trained
        further; what comes before them is fixed.
        """
        check_is_fitted(self)
        module, units = self._readout.front.module(self.solution_), self._readout.units
        if not units.plain:
            module.append(Unscaled(units.shift, units.scale))
        return module.eval()

    def to_onnx(self, path: str | Path) -> None:
        """Write the fitted model to an ONNX file, from features to the outputs of ``to_torch``.

        The input ``x`` has the shape (rows, n_features), or (images, channels, height, width) for
        images, in float32, or in float64 if the model was fitted with it; the output ``y`` has the
        shape (rows, outputs).
        """
        network = self.to_torch()
        front = self._readout.front
        example = torch.zeros(2, *front.input_shape, dtype=front.dtype, device="cpu")
        to_onnx(network, example, path)

    def without_rows(self, classes: ArrayLike | None = None) -> Self:
        """Return a model with the same features that has learned from no rows.

        Models of different rows can only be merged if they have the same features. Fit one to a
        sample, and let each machine start from what this method returns; it predicts once it has
        rows. Features do not depend on the classes of a classifier, so that ``classes`` may be
        others than those of the sample; by default they are the same.
        """
        check_is_fitted(self)
        if classes is not None:
            raise ValueError("a regressor has no classes")
        model, readout = copy_of(self), self._readout
        model._readout = Readout.empty(readout.front, readout.units, self._settings())
        if model._ledger is not None:
            model._ledger = RowLedger(model._ledger.hashes[:0], model._ledger.weight[:0])
        return model

    @unchanged_on_error
    def merge(self, other: Self) -> Self:
        """Add what another model has learned from other rows, which is not modified.

        The result is the model of all rows, up to rounding. Both must have the same features; see
        :meth:`without_rows`.
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
        mine, theirs = self._ledger, other._ledger
        self._ledger = mine.merge(theirs) if mine is not None and theirs is not None else None

    def all_reduce(self) -> Self:
        """Sum what the ranks of ``torch.distributed`` have learned, each from its own rows.

        All ranks must have the same features and classes. Afterwards all have the same model.
        Probabilities are calibrated on rows of the own rank.
        """
        check_is_fitted(self)
        self._readout = self._readout.all_reduce()
        if self._ledger is not None:
            every: list[Any] = [None] * distributed.get_world_size()
            distributed.all_gather_object(every, self._ledger)
            self._ledger = reduce(RowLedger.merge, every)
        return self

    def _fitted_state(self, sums: bool) -> State:
        return {"readout": self._readout.state(sums), "ledger": self._ledger if sums else None}

    def _restore(self, fitted: State) -> None:
        self._readout = Readout.from_state(fitted["readout"])
        self._ledger = fitted.get("ledger")


class RidgeClassifier(ClassifierMixin, RidgeEstimator):  # type: ignore[misc]
    """Ridge regression of ±1 targets, with calibrated probabilities."""

    classes_: np.ndarray
    class_weight: ClassWeight
    _calibrator: Calibrator

    @available_if(can_update)  # type: ignore[untyped-decorator]
    @unchanged_on_error
    def partial_fit(
        self,
        X: MatrixLike,
        y: ArrayLike,
        classes: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
    ) -> Self:
        """Add a chunk of rows; the readout is solved when it is next needed.

        Parameters
        ----------
        X, y, sample_weight : as for :meth:`fit`
            A chunk of samples. Later chunks may contain new labels.
        classes : array-like of shape (n_classes,), optional
            All labels of the chunk, and more if they are known. Required in the first call.
        """
        if not self.__sklearn_is_fitted__():
            classes = check_partial_fit(None, classes)  # later calls may bring new ones
        return self._add_chunk(X, y, sample_weight, classes)

    def _start(self, y: np.ndarray, weight: Weights, classes: ArrayLike | None) -> None:
        self.classes_ = check_classes(y, weight=weight) if classes is None else np.asarray(classes)

    def _continue(self, y: np.ndarray, classes: ArrayLike | None) -> None:
        self._grow(y if classes is None else np.concatenate([y, unique_labels(classes)]))

    def _encoded(self, X: Matrix, y: np.ndarray, weight: Weights, whole: bool) -> NewRows:
        """Return rows with targets of ±1: a column per class, or a single one for two classes."""
        places = class_places(y, self.classes_, weight)
        factors = self._factors(places, weight, whole)
        targets = signed_targets(places, len(self.classes_)).astype(np.float32)
        if factors is not None:
            weight = (1.0 if weight is None else weight) * factors[places]
            weight = weight.astype(np.float32 if X.dtype == np.float32 else np.float64)
        return _new_rows(X, targets, weight, places, self._seen())

    def _factors(self, places: np.ndarray, weight: Weights, whole: bool) -> np.ndarray | None:
        """Return the factor of each class; in chunks, the numbers of their rows are not known."""
        if self.class_weight is None:
            return None
        if whole:
            return class_factors(self.class_weight, self.classes_, places, weight)
        if isinstance(self.class_weight, str):
            raise ValueError(
                f"class_weight={self.class_weight!r} needs all rows at once; for partial_fit and "
                "remove, pass a dict of weights"
            )
        return np.array([self.class_weight.get(c, 1.0) for c in self.classes_.tolist()])

    def _calibrate_with(
        self,
        rows: NewRows,
        *,
        first: bool = False,
        removed: bool = False,
        left_out: np.ndarray | None = None,
    ) -> None:
        if first:
            sample = CalibrationSample.of(self._readout, rows, left_out)
        elif removed:
            sample = self._sample().remove(rows)
        else:
            before = self._sample().decay(self._readout.settings.forgetting)
            sample = before.concat(CalibrationSample.of(self._readout, rows, bound=before.bound))
        self._calibrate(sample)

    def _sample(self) -> CalibrationSample:
        """Return the rows to calibrate with, which a model has that can be updated."""
        self._readout.summed()
        assert self._calibrator.sample is not None
        return self._calibrator.sample

    def _calibrate(self, sample: CalibrationSample) -> None:
        self._calibrator = Calibrator(sample, self._readout)

    def _merge(self, other: Self) -> None:
        self._readout.summed()  # which a model that was loaded does not have
        other._readout = copy(other._readout)  # as summed() caches what it makes
        other._readout.summed()
        self._grow(other.classes_)
        other._grow(self.classes_)
        super()._merge(other)
        self._calibrate(self._sample().concat(other._sample()))

    def all_reduce(self) -> Self:  # as of the base
        super().all_reduce()
        self._calibrate(self._sample())
        return self

    def without_rows(self, classes: ArrayLike | None = None) -> Self:  # as of the base
        model = super().without_rows()
        if classes is not None:
            model.classes_ = check_classes(classes)
            units = TargetUnits(np.zeros(1 if len(model.classes_) == 2 else len(model.classes_)))
            model._readout = Readout.empty(self._readout.front, units, self._settings())
        model._calibrate(CalibrationSample.empty(self._readout.front))
        return model

    def drop_empty_classes(self) -> Self:
        """Forget classes whose rows have all been removed, as if they had never appeared.

        At least two classes must be left.
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
        if (y.dtype.kind in "OUS") != (self.classes_.dtype.kind in "OUS"):
            class_places(y, self.classes_)  # raises
        old: list[int | None] = [None] * len(labels)
        for before, after in enumerate(class_places(self.classes_, labels)):
            old[after] = before
        self._change_classes(labels, old)

    def _change_classes(self, labels: np.ndarray, old: Sequence[int | None]) -> None:
        """Replace the classes; ``old`` are the indices they have had, None for new ones."""
        if len(labels) == len(self.classes_):
            return
        # Two classes share the column of the second one; that of the first is its negative. For a
        # new class, the targets of all rows so far are −1.
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

    def decision_function(self, X: MatrixLike) -> np.ndarray:
        """Return the outputs of the readout, of shape (n_samples, n_classes).

        For two classes, (n_samples,): the output that is positive for the second.
        """
        outputs = self._outputs(X)
        return outputs[:, 0] if outputs.shape[1] == 1 else outputs

    def predict_proba(self, X: MatrixLike) -> np.ndarray:
        """Return the probability of each class, of shape (n_samples, n_classes).

        They are the softmax of the outputs times a temperature, which minimises the log-loss of
        training rows whose outputs come from readouts that have not seen them.
        """
        outputs = self._outputs(X).astype(np.float64)
        return self._calibrator.found.calibration.probabilities(outputs)

    def predict(self, X: MatrixLike) -> np.ndarray:
        """Predict the class with the largest output."""
        outputs = self._outputs(X)  # first: it raises if the model is not fitted
        return self.classes_[places_of(outputs)]

    @property
    def cv_score_(self) -> float:
        """Accuracy on training rows for which the readout was fitted without them.

        They are left out one by one if there are few rows, and fold by fold otherwise. At most
        2,000 rows are judged. It is NaN if there was no memory for the sums of folds.
        """
        check_is_fitted(self)
        return self._calibrator.found.score

    def _fitted_state(self, sums: bool) -> State:
        fitted = super()._fitted_state(sums)
        return {**fitted, "classes": self.classes_, "calibrator": self._calibrator.state(sums)}

    def _restore(self, fitted: State) -> None:
        super()._restore(fitted)
        self.classes_ = fitted["classes"]
        self._calibrator = Calibrator.from_state(fitted["calibrator"], self._readout)


class RidgeRegressor(MultiOutputMixin, RegressorMixin, RidgeEstimator):  # type: ignore[misc]
    """Ridge regression of one or several targets."""

    _flat: bool  # whether targets are given without an axis of outputs

    @available_if(can_update)  # type: ignore[untyped-decorator]
    @unchanged_on_error
    def partial_fit(
        self, X: MatrixLike, y: ArrayLike, sample_weight: ArrayLike | None = None
    ) -> Self:
        """Add a chunk of rows; the readout is solved when it is next needed.

        Parameters
        ----------
        X, y, sample_weight : as for :meth:`fit`
            A chunk of samples.
        """
        return self._add_chunk(X, y, sample_weight)

    def predict(self, X: MatrixLike) -> np.ndarray:
        """Predict targets, in the shape of those of the training samples."""
        outputs = self._outputs(X)
        return outputs[:, 0] if self._flat else outputs

    def _start(self, y: np.ndarray, weight: Weights, classes: ArrayLike | None) -> None:
        self._flat = y.ndim == 1

    def _encoded(self, X: Matrix, y: np.ndarray, weight: Weights, whole: bool) -> NewRows:
        if (y.ndim == 1) != self._flat:
            raise ValueError(
                f"y has {y.ndim} axes, but the first chunk had {1 if self._flat else 2}"
            )
        targets = np.ascontiguousarray(y.reshape(len(y), -1), np.float64)
        return _new_rows(X, targets, weight, None, self._seen())

    def _units(self, rows: NewRows) -> TargetUnits:
        if not self._settings().fit_intercept:
            return super()._units(rows)
        return TargetUnits.fit(rows.targets, None if rows.weight is None else rows.weight.numpy())

    def _fitted_state(self, sums: bool) -> State:
        return {**super()._fitted_state(sums), "flat": self._flat}

    def _restore(self, fitted: State) -> None:
        super()._restore(fitted)
        self._flat = fitted["flat"]


def copy_of(model: Model) -> Model:
    """Return another estimator with the same fitted parts, not copies of them."""
    made = object.__new__(type(model))
    made.__dict__.update(vars(model))
    return made


def warn_of_ignored(X: Matrix, front: Front) -> None:
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


def _weights(X: Matrix, sample_weight: ArrayLike | None) -> Weights:
    """Return sample weights in the type of the sums."""
    if sample_weight is None:
        return None
    dtype = np.float32 if X.dtype == np.float32 else np.float64
    return _check_sample_weight(sample_weight, X, dtype=dtype, ensure_non_negative=True)


def _new_rows(
    X: Matrix, targets: np.ndarray, weight: Weights, places: np.ndarray | None, seen: int
) -> NewRows:
    """Return rows with hashes of each as it was given; ``seen`` is the number of earlier rows."""
    parts = (from_numpy(np.ascontiguousarray(rows)) for _, rows in dense_blocks(X))
    hashes = torch.cat([row_hashes(rows) for rows in parts])
    s = None if weight is None else from_numpy(weight)

    def values(rows: Tensor) -> Tensor:
        return from_numpy(dense_rows(X[rows.numpy()]).reshape(len(rows), -1))

    keys = from_numpy(targets if places is None else places[:, None])
    return NewRows(X, targets, s, hashes, fold_hashes(values, hashes, keys, s, seen), places)
