"""Ridge regression on a TS representation in one pass: classifier."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any, Self

import numpy as np
import torch
from sklearn.base import ClassifierMixin
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import check_classification_targets, unique_labels
from sklearn.utils.validation import check_is_fitted

from tensorswitch.estimators._changing_classes import ChangingClasses
from tensorswitch.estimators._held_rows import HeldRows, lowest_rows
from tensorswitch.estimators._labels import (
    check_classes,
    check_partial_fit,
    class_factors,
    class_places,
)
from tensorswitch.estimators._merging import Mergeable
from tensorswitch.estimators._ridge_base import can_update, row_hashes_of
from tensorswitch.estimators._ridge_docs import documented
from tensorswitch.estimators._temperature import fit_temperature
from tensorswitch.estimators._transaction import unchanged_on_error
from tensorswitch.kernel_ridge import Calibration
from tensorswitch.ridge import SingularError
from tensorswitch.ridge.rows import fold_of_hashes
from tensorswitch.ridge.solving import left_out_readouts
from tensorswitch.switches import Switch

__all__ = ["TSRidgeClassifier"]

log = logging.getLogger("tensorswitch.ridge")
TOO_CONFIDENT = "probabilities are calibrated on training rows, since %s; they may be too confident"


@documented
class TSRidgeClassifier(ClassifierMixin, ChangingClasses, Mergeable):  # type: ignore[misc]
    """Classifier by ridge regression of ±1 targets on a TS representation with random gates.

        W, c = argmin Σ ‖Wᵀ z + c − t‖² + λ ‖W‖²,        z = h_L ⊗ … ⊗ h_1 ⊗ x

    The gates are drawn at random and stay fixed [1]_, so training takes one pass over the data and
    one linear system. ``fit`` takes all rows at once. ``partial_fit`` takes them in chunks, keeps
    sums whose size does not depend on the number of rows, and computes the same solution; classes
    may appear later, models with the same gates can be merged, and ``remove`` takes rows out again.

    Parameters
    ----------
    {parameters}
    class_weight : dict or "balanced", optional
        Weights of the classes. "balanced" weighs each class by the inverse of its frequency, which
        needs all rows at once.
    {last parameters}

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        The class labels, sorted.
    {attributes}

    See Also
    --------
    TSRidgeRegressor : Ridge regression on the same representation.

    {references}

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from tensorswitch.estimators import TSRidgeClassifier
    >>> X, y = load_digits(return_X_y=True)
    >>> model = TSRidgeClassifier(random_state=0).fit(X[:1000], y[:1000])
    >>> bool(model.score(X[1000:], y[1000:]) > 0.94)
    True
    """

    _left_out_wanted = True

    def __init__(
        self,
        gates: Sequence[int] | int | str = "auto",
        alpha: float | str | Sequence[float | str] = "cv",
        *,
        switch: Switch | str = "relu",
        solver: str = "auto",
        standardize: Any = "auto",
        components: int | None = None,
        fit_intercept: bool = True,
        selection: str = "cv",
        tol: float = 1e-4,
        max_iter: int = 500,
        forgetting: float = 1.0,
        memory_gb: float | None = None,
        class_weight: Any = None,
        random_state: Any = None,
        verbose: bool = False,
    ) -> None:
        super().__init__(
            gates,
            alpha,
            switch=switch,
            solver=solver,
            standardize=standardize,
            components=components,
            fit_intercept=fit_intercept,
            selection=selection,
            tol=tol,
            max_iter=max_iter,
            forgetting=forgetting,
            memory_gb=memory_gb,
            random_state=random_state,
            verbose=verbose,
        )
        self.class_weight = class_weight

    classes_: np.ndarray
    _held: HeldRows
    _lazy: dict[str, Any]  # what is computed when it is first needed

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
        X, y = self._validated(X, y, True)
        check_classification_targets(y)
        weight = self._weights(X, sample_weight)
        used = np.ones(len(y), dtype=bool) if weight is None else weight > 0
        classes = check_classes(y[used], of=len(y))
        places = np.zeros(len(y), dtype=np.int64)  # of rows without weight, the class is arbitrary
        places[used] = class_places(y[used], classes)
        weight = self._class_weights(X, y[used], places, classes, weight)
        solved = self._fit(X, self._targets(places, len(classes), X.dtype), weight)
        self.classes_ = classes
        outputs = None if solved.left_out is None else solved.left_out.numpy()
        self._held = self._sample(X, places, weight, outputs)
        self._lazy = {}
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
        first = not self._started()
        known = check_partial_fit(None, classes) if first else self.classes_
        X, y = self._validated(X, y, first)
        check_classification_targets(y)
        if not first:
            self._grow(y if classes is None else np.concatenate([y, unique_labels(classes)]))
            known = self.classes_
        places = class_places(y, known)
        weight = self._class_weights(X, None, places, known, self._weights(X, sample_weight))
        self._partial_fit(X, self._targets(places, len(known), X.dtype), weight, first)
        self.classes_ = known
        if first:
            self._held = self._sample(X, places, weight, None)
        else:
            before = self._held if self.forgetting == 1 else self._held.faded(self.forgetting)
            self._held = before.joined(self._sample(X, places, weight, None, before.bound))
        self._lazy = {}
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
        check_is_fitted(self, "solver_")
        X, y = self._validated(X, y, False)
        places = class_places(y, self.classes_)
        weight = self._class_weights(
            X, None, places, self.classes_, self._weights(X, sample_weight)
        )
        self._remove(X, self._targets(places, len(self.classes_), X.dtype), weight)
        each = np.ones(len(places)) if weight is None else weight.astype(np.float64)
        self._held = self._held.without(row_hashes_of(X), places, each)
        self._lazy = {}
        return self

    def _class_weights(
        self,
        X: Any,
        y: np.ndarray | None,
        places: np.ndarray,
        classes: np.ndarray,
        weight: np.ndarray | None,
    ) -> np.ndarray | None:
        """Return sample weights times those of the classes; without ``y``, rows come in chunks."""
        if self.class_weight is None:
            return weight
        if y is None and isinstance(self.class_weight, str):
            raise ValueError(
                f"class_weight={self.class_weight!r} needs all rows at once; for partial_fit and "
                "remove, pass a dict of weights"
            )
        if y is None and isinstance(self.class_weight, dict):  # also of classes yet to appear
            factors = np.array([self.class_weight.get(c, 1.0) for c in classes.tolist()])
        else:
            factors = class_factors(self.class_weight, classes, places, weight)
        found: np.ndarray = (1.0 if weight is None else weight) * factors[places]
        return found.astype(np.float32 if X.dtype == np.float32 else np.float64)

    @staticmethod
    def _targets(places: np.ndarray, classes: int, dtype: Any) -> np.ndarray:
        """Return targets of ±1, with a column per class, or a single column for two classes."""
        targets = np.where(places[:, None] == np.arange(classes), 1, -1).astype(dtype)
        return targets[:, 1:] if classes == 2 else targets

    def _sample(
        self,
        X: Any,
        places: np.ndarray,
        weight: np.ndarray | None,
        outputs: np.ndarray | None,
        bound: int | None = None,
    ) -> HeldRows:
        """Return the rows to calibrate with: those of the lowest hashes, below the bound."""
        weight = np.ones(len(places)) if weight is None else weight.astype(np.float64)
        known = weight > 0
        if outputs is not None:
            known &= np.isfinite(outputs).all(1)
        hashes = row_hashes_of(X)
        if bound is not None:  # without features of rows that would be dropped again
            known &= hashes.numpy() <= bound
            if not known.any():
                return HeldRows.none(self._held.x)
        rows = np.flatnonzero(known)
        first, total = lowest_rows(hashes.numpy()[rows], places[rows], weight[rows])
        rows = rows[first]
        x = self._fitted.front(X[rows])
        outputs = None if outputs is None else outputs[rows]
        return HeldRows(hashes[torch.from_numpy(rows)], x, places[rows], total, outputs)

    def _calibrated(self) -> Calibration:
        """Fit the temperature to outputs for rows that their readout has not seen."""
        if "calibration" not in self._lazy:
            held = self._held
            unseen = held.outputs if held.outputs is not None else self._left_out(held)
            outputs = self._seen(held) if unseen is None else unseen
            known = np.isfinite(outputs).all(1)
            self._lazy["score"] = float("nan")
            if unseen is not None and known.any():
                self._lazy["score"] = self._left_out_score(outputs[known], held.only(known))
            rows = outputs[known], held.places[known], held.weight[known]
            if not known.any():  # as if there were one row of the second class
                several = outputs.shape[1] > 1
                row = 2 * np.eye(outputs.shape[1])[[1]] - 1 if several else np.ones((1, 1))
                rows = row, np.ones(1, int), np.ones(1)
            self._lazy["calibration"] = fit_temperature(*rows)
        found: Calibration = self._lazy["calibration"]
        return found

    def _left_out_score(self, outputs: np.ndarray, held: HeldRows) -> float:
        right = self._places_of(outputs) == held.places
        return float(np.average(right, weights=held.weight))

    @property
    def cv_score_(self) -> float:
        """Accuracy on training rows for which the readout was fitted without them.

        They are left out one by one if there are few rows, and fold by fold otherwise. At most
        2,000 rows are judged. It is NaN if there was no memory for the sums of folds.
        """
        check_is_fitted(self, "solver_")
        self._calibrated()
        score: float = self._lazy["score"]
        return score

    def _seen(self, held: HeldRows) -> np.ndarray:
        """Return the outputs for sampled rows of the readout of all rows."""
        solution = self.solution_
        return self._readout(held.x, solution.weight, solution.intercept).numpy()

    def _left_out(self, held: HeldRows) -> np.ndarray | None:
        """Return the outputs for sampled rows of the readouts of the other folds, if there are."""
        statistics, solution = self._sums(), self.solution_
        front = self._fitted.front
        if statistics.folds == 1:
            log.warning(TOO_CONFIDENT, "the sums of folds do not fit into memory")
            return None
        folds = fold_of_hashes(held.hashes, statistics.folds)
        judged = range(1) if statistics.held_out else range(statistics.folds)
        sums = statistics.moments()
        try:
            readouts = left_out_readouts(sums, solution.alpha, front.intercept, judged)
        except SingularError:
            log.warning(TOO_CONFIDENT, "without one of the folds the readout is not determined")
            return None
        outputs = np.full((len(folds), statistics.out_features), np.nan)
        for fold, (weight, intercept) in readouts.items():
            rows = (folds == fold).nonzero().flatten()
            found = self._readout(held.x[rows], weight.view(solution.weight.shape), intercept)
            outputs[rows.numpy()] = found.numpy()
        return outputs

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
        outputs = self._outputs(X)
        return self._calibrated().probabilities(outputs.astype(np.float64))

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
        return self.classes_[self._places_of(outputs)]  # type: ignore[no-any-return]

    @staticmethod
    def _places_of(outputs: np.ndarray) -> np.ndarray:
        """Return the index of the class with the largest output."""
        single = outputs.shape[1] == 1
        return (outputs[:, 0] > 0).astype(int) if single else outputs.argmax(1)
