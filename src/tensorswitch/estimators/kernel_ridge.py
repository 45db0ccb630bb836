"""Kernel ridge regression that needs no settings, as a scikit-learn classifier and regressor."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from sklearn.base import ClassifierMixin, MultiOutputMixin, RegressorMixin
from sklearn.metrics import accuracy_score, r2_score
from sklearn.utils.multiclass import check_classification_targets

from tensorswitch.estimators._inputs import check_squares, sample_weights, validated
from tensorswitch.estimators._kernel_ridge import MATRICES, TSKernelRidgeBase
from tensorswitch.estimators._labels import check_classes, class_factors, class_places
from tensorswitch.estimators._transaction import unchanged_on_error
from tensorswitch.kernel_ridge import Calibration

__all__ = ["TSKernelRidgeClassifier", "TSKernelRidgeRegressor"]


class TSKernelRidgeClassifier(ClassifierMixin, TSKernelRidgeBase):  # type: ignore[misc]
    """Kernel ridge classification with the equivalent kernels; no settings are needed.

    Ridge regression of ±1 targets, all classes at once, with the SS, TS or tangent kernel of an
    infinitely wide network. Scaling and weights of the columns, kernel, depth and penalty are those
    of least leave-one-out error, which is computed exactly. Probabilities are calibrated on the
    leave-one-out outputs.

    Parameters
    ----------
    kernel : {"auto", "ss", "ts", "ntk"}, default="auto"
        The kind of kernel; by default all are tried.
    depth : int or "auto", default="auto"
        Layers of the infinitely wide network; by default 1 and 4 are tried.
    alpha : float or "auto", default="auto"
        The penalty λ, in multiples of the mean diagonal of the centred kernel matrix.
    scaling : {"auto", "standard", "common", "robust", "ramps"}, default="auto"
        "standard" divides columns by their standard deviations; "common" divides all by one number
        (for pixels and principal components); "robust" divides them by the distances of their
        quartiles, compresses large values, and adds the ranks as further columns; "ramps" replaces
        each column by ramps between its quantiles, which suit targets that change at thresholds.
        "auto" tries all, ramps with up to 256 columns.
    bias : float or "auto", default="auto"
        The constant column, where rows have a mean squared length of 1; by default 1 and 3 are
        tried.
    column_weights : bool, default=True
        Weigh columns by how strongly predictions depend on them, if leave-one-out prefers it.
    class_weight : dict, "balanced" or None, default=None
        Factors on the weights of rows.
    memory_gb : float, optional
        What the kernel matrix may take, by default seven tenths of the available memory. Beyond
        it, and beyond 10,000 rows, settings are chosen on a sample and the system is solved by
        conjugate gradients on tiles.
    random_state : int or RandomState, default=0
        Seed of the sample on which candidates are tried.
    verbose : bool, default=False
        Show progress.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        The labels.
    kernel_, depth_, alpha_, scaling_, bias_ : str, int, float, str, float
        What was chosen.
    column_weights_ : ndarray of shape (n_features,)
        Weights of the scaled columns, the largest of which is 1.
    loo_predictions_ : ndarray of shape (n_samples, n_classes)
        Calibrated probabilities of each row from a model fitted to all rows that differ from it;
        nan for rows without weight and, where settings were chosen on a sample, outside of it.
    loo_score_ : float
        Their accuracy.
    candidates_ : dict of lists
        Everything that was tried; ``pandas.DataFrame(model.candidates_)`` shows it as a table.
    n_features_in_ : int
        Number of columns.

    References
    ----------
    Tsai, Saxe and Cox, Tensor Switching Networks, NIPS 2016, arXiv:1610.10087.
    Cho and Saul, Kernel Methods for Deep Learning, NIPS 2009.
    Jacot, Gabriel and Hongler, Neural Tangent Kernel, NeurIPS 2018, arXiv:1806.07572.
    Radhakrishnan et al., Mechanism for feature learning, Science 2024 (column weights from
    gradients).

    Examples
    --------
    >>> from sklearn.datasets import load_wine
    >>> from tensorswitch.estimators import TSKernelRidgeClassifier
    >>> X, y = load_wine(return_X_y=True)
    >>> model = TSKernelRidgeClassifier().fit(X[::2], y[::2])
    >>> bool(model.score(X[1::2], y[1::2]) > 0.9)
    True
    """

    classes_: np.ndarray

    def __init__(
        self,
        *,
        kernel: str = "auto",
        depth: int | str = "auto",
        alpha: float | str = "auto",
        scaling: str = "auto",
        bias: float | str = "auto",
        column_weights: bool = True,
        class_weight: Any = None,
        memory_gb: float | None = None,
        random_state: Any = 0,
        verbose: bool = False,
    ) -> None:
        super().__init__(
            kernel=kernel,
            depth=depth,
            alpha=alpha,
            scaling=scaling,
            bias=bias,
            column_weights=column_weights,
            memory_gb=memory_gb,
            random_state=random_state,
            verbose=verbose,
        )
        self.class_weight = class_weight

    @unchanged_on_error
    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Choose everything by leave-one-out error and solve.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            The rows.
        y : array-like of shape (n_samples,)
            Their labels.
        sample_weight : array-like of shape (n_samples,), optional
            Weights of the rows. A weight of two is a repeated row.

        Returns
        -------
        self : TSKernelRidgeClassifier
        """
        X, y = validated(self, X, y, dtype=np.float64)
        check_classification_targets(y)
        weight = sample_weights(X, sample_weight)
        used = np.ones(len(y), dtype=bool) if weight is None else weight > 0
        classes = check_classes(y[used], of=len(y))
        places = class_places(y[used], classes)
        if self.class_weight is not None:
            weight = (np.ones(len(y)) if weight is None else weight).copy()
            weight[used] *= class_factors(self.class_weight, classes, places, weight[used])[places]
            places = places[weight[used] > 0]
            used = weight > 0
        targets = np.where(places[:, None] == np.arange(len(classes)), 1.0, -1.0)
        targets = targets[:, 1:] if len(classes) == 2 else targets
        given = None if weight is None else weight[used]
        search = self._search(X[used], targets, given)
        outputs = self._keep(search, X, used, given)
        known = ~np.isnan(outputs[:, 0])
        plain = np.ones(len(places)) if given is None else given
        self._calibration = Calibration.fit(outputs[known], places[known], plain[known])
        self.loo_predictions_ = np.full((len(y), len(classes)), np.nan)
        probabilities = self._calibration.probabilities(outputs[known])
        self.loo_predictions_[np.flatnonzero(used)[known]] = probabilities
        guesses = probabilities.argmax(1)
        self.loo_score_ = float(accuracy_score(places[known], guesses, sample_weight=plain[known]))
        self.classes_ = classes
        return self

    def decision_function(self, X: Any) -> np.ndarray:
        """Return outputs whose softmax is ``predict_proba``.

        For two classes it is the logarithm of the odds of the second.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            The rows.

        Returns
        -------
        ndarray of shape (n_samples, n_classes), or (n_samples,) for two classes
            Positive for the second class, where there are two.
        """
        logits = self._calibrated(X)
        return logits[:, 1] - logits[:, 0] if logits.shape[1] == 2 else logits

    def predict_proba(self, X: Any) -> np.ndarray:
        """Return the probability of each class.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            The rows.

        Returns
        -------
        ndarray of shape (n_samples, n_classes)
        """
        outputs = self._outputs(X)
        return self._calibration.probabilities(outputs)

    def predict(self, X: Any) -> np.ndarray:
        """Return the most probable class.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            The rows.

        Returns
        -------
        ndarray of shape (n_samples,)
        """
        logits = self._calibrated(X)
        return self.classes_[logits.argmax(1)]  # type: ignore[no-any-return]

    def _calibrated(self, X: Any) -> np.ndarray:
        outputs = self._outputs(X)
        return self._calibration.logits(outputs)


class TSKernelRidgeRegressor(MultiOutputMixin, RegressorMixin, TSKernelRidgeBase):  # type: ignore[misc]
    """Kernel ridge regression with the equivalent kernels; no settings are needed.

    Scaling and weights of the columns, kernel, depth and penalty are those of least leave-one-out
    error, which is computed exactly. ``predict(X, return_std=True)`` gives the standard deviation
    of a Gaussian process with the same kernel, whose variance is chosen by leave-one-out residuals.

    Parameters
    ----------
    kernel : {"auto", "ss", "ts", "ntk"}, default="auto"
        The kind of kernel; by default all are tried.
    depth : int or "auto", default="auto"
        Layers of the infinitely wide network; by default 1 and 4 are tried.
    alpha : float or "auto", default="auto"
        The penalty λ, in multiples of the mean diagonal of the centred kernel matrix.
    scaling : {"auto", "standard", "common", "robust", "ramps"}, default="auto"
        As in :class:`TSKernelRidgeClassifier`.
    bias : float or "auto", default="auto"
        The constant column; by default 1 and 3 are tried.
    column_weights : bool, default=True
        Weigh columns by how strongly predictions depend on them, if leave-one-out prefers it.
    memory_gb : float, optional
        As in :class:`TSKernelRidgeClassifier`.
    random_state : int or RandomState, default=0
        Seed of the sample on which candidates are tried.
    verbose : bool, default=False
        Show progress.

    Attributes
    ----------
    kernel_, depth_, alpha_, scaling_, bias_ : str, int, float, str, float
        What was chosen.
    column_weights_ : ndarray of shape (n_features,)
        Weights of the scaled columns, the largest of which is 1.
    loo_predictions_ : ndarray of shape (n_samples,) or (n_samples, n_outputs)
        The prediction of each row from a model fitted to all rows that differ from it; nan where
        there is none.
    loo_score_ : float
        Their R².
    candidates_ : dict of lists
        Everything that was tried; ``pandas.DataFrame(model.candidates_)`` shows it as a table.
    n_features_in_ : int
        Number of columns.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from tensorswitch.estimators import TSKernelRidgeRegressor
    >>> X, y = load_diabetes(return_X_y=True)
    >>> model = TSKernelRidgeRegressor().fit(X[:300], y[:300])
    >>> bool(model.score(X[300:], y[300:]) > 0.45)
    True
    >>> mean, deviation = model.predict(X[300:302], return_std=True)
    >>> deviation.shape
    (2,)
    """

    @unchanged_on_error
    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Choose everything by leave-one-out error and solve.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            The rows.
        y : array-like of shape (n_samples,) or (n_samples, n_outputs)
            Their targets.
        sample_weight : array-like of shape (n_samples,), optional
            Weights of the rows. A weight of two is a repeated row.

        Returns
        -------
        self : TSKernelRidgeRegressor
        """
        options = {"multi_output": True, "y_numeric": True}
        X, y = validated(self, X, y, dtype=np.float64, **options)
        weight = sample_weights(X, sample_weight)
        used = np.ones(len(y), dtype=bool) if weight is None else weight > 0
        given = None if weight is None else weight[used]
        raw = np.asarray(y, dtype=np.float64).reshape(len(y), -1)[used]
        check_squares(raw)
        mean = np.average(raw, axis=0, weights=given)
        spread = np.sqrt(np.average(np.square(raw - mean), axis=0, weights=given))
        spread = np.where(spread > 1e-12 * np.maximum(np.abs(raw).max(0), 1e-300), spread, 1.0)
        search = self._search(X[used], (raw - mean) / spread, given)
        outputs = self._keep(search, X, used, given)
        self._mean, self._spread, self._flat = mean, spread, y.ndim == 1
        loo = search.loo
        share = search.weight[: search.loo_rows, None]
        squares = loo.residuals.square() * loo.precision[:, None] * share
        self._variance = (squares.sum(0) / share.sum()).numpy()
        predictions = np.full((len(y), raw.shape[1]), np.nan)
        predictions[used] = outputs * spread + mean
        known = ~np.isnan(outputs[:, 0])
        shares = None if given is None else given[known]
        truth, guess = raw[known], predictions[used][known]
        self.loo_score_ = float(r2_score(truth, guess, sample_weight=shares))
        self.loo_predictions_ = predictions[:, 0] if self._flat else predictions
        return self

    def predict(
        self, X: Any, return_std: bool = False
    ) -> np.ndarray | tuple[np.ndarray, np.ndarray]:
        """Predict targets, with their standard deviations if requested.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            The rows.
        return_std : bool, default=False
            Return standard deviations, too. They include the noise, and need a kernel matrix of
            the training rows.

        Returns
        -------
        y : ndarray of shape (n_samples,) or (n_samples, n_outputs)
            Predictions.
        std : ndarray of the same shape
            Only if ``return_std``.
        """
        outputs = self._outputs(X) * self._spread + self._mean
        result: np.ndarray = outputs[:, 0] if self._flat else outputs
        if not return_std:
            return result
        rows = len(self._model.support)
        if rows > self._direct_rows():
            needed = 8 * MATRICES * rows**2 / 2**30
            raise MemoryError(f"return_std needs {needed:.1f} GB for {rows:,} training rows")
        variance = self._model.variance(self._rows(X))[:, None] * self._variance
        deviations = np.sqrt(variance) * self._spread
        return result, deviations[:, 0] if self._flat else deviations
