"""Kernel ridge regression that needs no settings, as a scikit-learn classifier and regressor."""

from __future__ import annotations

from typing import Any, ClassVar, Self

import numpy as np
from sklearn.base import ClassifierMixin, MultiOutputMixin, RegressorMixin, _fit_context
from sklearn.metrics import accuracy_score, r2_score
from sklearn.utils._param_validation import StrOptions
from sklearn.utils.multiclass import check_classification_targets

from tensorswitch.estimators._inputs import sample_weights, validated
from tensorswitch.estimators._kernel_ridge import MATRICES, TSKernelRidgeBase
from tensorswitch.estimators._labels import check_classes, class_factors, class_places
from tensorswitch.estimators._transaction import unchanged_on_error
from tensorswitch.explain import Explanation
from tensorswitch.linear._calibration import Calibration
from tensorswitch.persistence import saved_as
from tensorswitch.preprocessing import Scaling

__all__ = ["TSKernelRidgeClassifier", "TSKernelRidgeRegressor"]

CONSTANT = 1e-12  # relative deviation of targets that count as constant


@saved_as("kernel-ridge-classifier")
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

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **TSKernelRidgeBase._parameter_constraints,
        "class_weight": [None, dict, StrOptions({"balanced"})],
    }

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
    @_fit_context(prefer_skip_nested_validation=True)  # type: ignore[untyped-decorator]
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
        weight = np.ones(len(y)) if weight is None else weight
        used = weight > 0
        self.classes_ = check_classes(y[used], of=len(y))
        count = len(self.classes_)
        places = class_places(y[used], self.classes_)
        weight = weight[used]
        weight *= class_factors(self.class_weight, self.classes_, places, weight)[places]
        kept = weight > 0
        used[used], places, weight = kept, places[kept], weight[kept]
        targets = np.where(places[:, None] == np.arange(count), 1.0, -1.0)
        found = self._searched(X[used], targets[:, 1:] if count == 2 else targets, weight)
        self._keep(found.model, found.alpha, found.candidates)
        known = ~np.isnan(found.left_out[:, 0])
        outputs, places, weight = found.left_out[known], places[known], weight[known]
        self._calibration = Calibration.fit(outputs, places, weight)
        probabilities = self._calibration.probabilities(outputs)
        self.loo_predictions_ = np.full((len(y), count), np.nan)
        self.loo_predictions_[np.flatnonzero(used)[known]] = probabilities
        guesses = probabilities.argmax(1)
        self.loo_score_ = float(accuracy_score(places, guesses, sample_weight=weight))
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
        logits = self._logits(X)
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
        logits = self._logits(X)
        return self.classes_[logits.argmax(1)]  # type: ignore[no-any-return]

    def _logits(self, X: Any) -> np.ndarray:
        outputs = self._outputs(X)
        return self._calibration.logits(outputs)

    def _as_outputs(self, raw: Explanation) -> Explanation:
        """Map explanations of the expansion to those of ``decision_function``."""
        calibration = self._calibration
        weight, offset = calibration.temperature * calibration.matrix, calibration.offset
        if raw.constant.shape[1] == 1:  # two classes: f and −f, and the difference of logits
            weight = (np.array([[-1.0, 1.0]]) @ weight) @ np.array([[-1.0], [1.0]])
            offset = offset[1:] - offset[:1]
        share = np.einsum("rof,op->rpf", raw.contributions, weight)
        return Explanation(share, raw.constant @ weight + offset)

    def _fitted_state(self, sums: bool) -> dict[str, Any]:
        own = {"classes": self.classes_, "calibration": self._calibration}
        return {**super()._fitted_state(sums), **own}

    def _restore(self, fitted: dict[str, Any]) -> None:
        super()._restore(fitted)
        self.classes_, self._calibration = fitted["classes"], fitted["calibration"]


@saved_as("kernel-ridge-regressor")
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
    @_fit_context(prefer_skip_nested_validation=True)  # type: ignore[untyped-decorator]
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
        weight = None if weight is None else weight[used]
        raw = np.asarray(y, dtype=np.float64).reshape(len(y), -1)[used]
        self._targets, self._flat = Scaling.fit(raw, weight, constant=CONSTANT), y.ndim == 1
        found = self._searched(X[used], self._targets(raw), weight)
        self._keep(found.model, found.alpha, found.candidates)
        self._variance = found.variance
        guesses = self._targets.inverse(found.left_out)
        predictions = np.full((len(y), raw.shape[1]), np.nan)
        predictions[used] = guesses
        self.loo_predictions_ = self._shaped(predictions)
        known = ~np.isnan(guesses[:, 0])
        shares = None if weight is None else weight[known]
        self.loo_score_ = float(r2_score(raw[known], guesses[known], sample_weight=shares))
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
        rows = self._rows(X)
        result = self._shaped(self._targets.inverse(self._model(rows)))
        if not return_std:
            return result
        count = len(self._model.support)
        if count > self._direct_rows():
            needed = 8 * MATRICES * count**2 / 2**30
            raise MemoryError(f"return_std needs {needed:.1f} GB for {count:,} training rows")
        variance = self._model.variance(rows)[:, None] * self._variance
        return result, self._shaped(np.sqrt(variance) * self._targets.spread)

    def _shaped(self, outputs: np.ndarray) -> np.ndarray:
        """Return outputs in the shape of the targets."""
        return outputs[:, 0] if self._flat else outputs

    def _as_outputs(self, raw: Explanation) -> Explanation:
        """Map explanations of the expansion to those of ``predict``."""
        share = raw.contributions * self._targets.spread[:, None]
        return Explanation(share, self._targets.inverse(raw.constant))

    def _fitted_state(self, sums: bool) -> dict[str, Any]:
        own = {"targets": self._targets, "variance": self._variance, "flat": self._flat}
        return {**super()._fitted_state(sums), **own}

    def _restore(self, fitted: dict[str, Any]) -> None:
        super()._restore(fitted)
        self._targets, self._flat = fitted["targets"], fitted["flat"]
        self._variance = fitted["variance"]
