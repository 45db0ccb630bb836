"""Kernel ridge regression that needs no settings, as a scikit-learn classifier and regressor."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from numbers import Integral, Real
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, MultiOutputMixin, RegressorMixin
from sklearn.metrics import accuracy_score, r2_score
from sklearn.utils import check_random_state
from sklearn.utils.class_weight import compute_class_weight
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from tensorswitch._memory import available_memory
from tensorswitch._progress import progress_bar
from tensorswitch.estimators._explaining import ExplainedKernelRidge
from tensorswitch.estimators._labels import check_classes, class_places
from tensorswitch.estimators._transaction import unchanged_on_error
from tensorswitch.kernel_ridge import (
    BIASES,
    DEPTHS,
    KINDS,
    PENALTIES,
    SCALINGS,
    Calibration,
    DistinctRows,
    KernelModel,
    Search,
)
from tensorswitch.kernels import check_depth, check_kind

__all__ = ["TSKernelRidgeClassifier", "TSKernelRidgeRegressor"]

DIRECT_ROWS = 10_000
MATRICES = 4  # of doubles, with as many rows and columns as there are rows, that a direct fit holds


class _TSKernelRidge(ExplainedKernelRidge, BaseEstimator):  # type: ignore[misc]
    """What classifier and regressor share."""

    def __init__(
        self,
        *,
        kernel: str = "auto",
        depth: int | str = "auto",
        alpha: float | str = "auto",
        scaling: str = "auto",
        bias: float | str = "auto",
        column_weights: bool = True,
        memory_gb: float | None = None,
        random_state: Any = 0,
        verbose: bool = False,
    ) -> None:
        self.kernel = kernel
        self.depth = depth
        self.alpha = alpha
        self.scaling = scaling
        self.bias = bias
        self.column_weights = column_weights
        self.memory_gb = memory_gb
        self.random_state = random_state
        self.verbose = verbose

    _model: KernelModel

    def _search(self, X: np.ndarray, targets: np.ndarray, weight: np.ndarray | None) -> Search:
        """Choose and solve. ``weight`` has no zeros."""
        options = self._options()
        seed = int(check_random_state(self.random_state).randint(2**31))
        rows = DistinctRows.of(X, targets, weight, seed)
        if len(rows) < 2:
            raise ValueError(
                f"X has {len(rows)} distinct row with a positive weight (n_samples={len(X)}); "
                "at least 2 are needed"
            )
        with self._progress() as watch:
            return Search(rows, direct_rows=self._direct_rows(), seed=seed, watch=watch, **options)

    @contextmanager
    def _progress(self) -> Iterator[Callable[[str], None]]:
        with progress_bar(type(self).__name__, self.verbose) as bar:
            yield lambda note: bar(note=note)

    def _options(self) -> dict[str, Any]:
        """Return what is tried, a single value where it is fixed."""
        kinds = KINDS if self.kernel == "auto" else (check_kind(self.kernel),)
        depths = DEPTHS if _is_auto(self.depth) else (check_depth(self.depth),)  # type: ignore[arg-type]
        biases = BIASES if _is_auto(self.bias) else (_number("bias", self.bias),)
        penalties = PENALTIES
        if not _is_auto(self.alpha):
            penalties = (_number("alpha", self.alpha, above_zero=True),)
        if self.scaling != "auto" and self.scaling not in SCALINGS:
            known = ", ".join(map(repr, ("auto", *SCALINGS)))
            raise ValueError(f"scaling must be one of {known}; got {self.scaling!r}")
        scalings = SCALINGS if self.scaling == "auto" else (self.scaling,)
        names = ("kinds", "depths", "biases", "penalties", "scalings")
        values = (kinds, depths, biases, penalties, scalings)
        chosen: dict[str, Any] = dict(zip(names, values, strict=True))
        return {**chosen, "column_weights": bool(self.column_weights)}

    def _direct_rows(self) -> int:
        """Up to how many rows the kernel matrix fits."""
        if self.memory_gb is not None and not self.memory_gb > 0:
            raise ValueError(f"memory_gb must be above 0, got {self.memory_gb!r}")
        given = self.memory_gb
        budget = 0.7 * available_memory() if given is None else given * 2**30
        return min(DIRECT_ROWS, int((budget / (8 * MATRICES)) ** 0.5))

    def _keep(self, search: Search, X: np.ndarray, used: np.ndarray, weight: Any) -> np.ndarray:
        """Set what both have; return the leave-one-out outputs of the rows that were used."""
        chosen = search.chosen
        self._model = search.model
        self.kernel_, self.depth_, self.bias_ = chosen.kind, chosen.depth, chosen.bias
        self.alpha_, self.scaling_ = chosen.penalty, chosen.scaling.name
        weights = chosen.scaling.weights
        self.column_weights_ = np.ones(X.shape[1]) if weights is None else weights / weights.max()
        entries = [c.entry() for c in search.tried]
        self.candidates_ = {name: [e[name] for e in entries] for name in entries[0]}
        left_out = search.targets[: search.loo_rows] - search.loo.residuals
        outputs = np.full((len(search.data), left_out.shape[1]), np.nan)
        outputs[: search.loo_rows] = left_out.numpy()
        result: np.ndarray = outputs[search.data.place]
        return result

    def _weights(self, X: np.ndarray, sample_weight: Any) -> np.ndarray | None:
        if sample_weight is None:
            return None
        weight: np.ndarray = _check_sample_weight(
            sample_weight, X, dtype=np.float64, ensure_non_negative=True
        )
        if not weight.any():
            raise ValueError("sample_weight is zero for every row")
        return weight

    def _outputs(self, X: Any) -> np.ndarray:
        check_is_fitted(self, "kernel_")
        X = validate_data(self, X, dtype=np.float64, order="C", reset=False)
        return self._model.outputs(X)


class TSKernelRidgeClassifier(ClassifierMixin, _TSKernelRidge):  # type: ignore[misc]
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
    scaling : {"auto", "standard", "common", "robust"}, default="auto"
        Columns divided by their standard deviations, all by one number (for pixels and principal
        components), or by the distances of their quartiles with the ends bent inwards.
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
        Of the sample on which candidates are tried.
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
    >>> bool(model.score(X[1::2], y[1::2]) > 0.95)
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
        X : array-like of shape (n_samples, n_features)
            The rows.
        y : array-like of shape (n_samples,)
            Their labels.
        sample_weight : array-like of shape (n_samples,), optional
            Weights of the rows. A weight of two is a repeated row.

        Returns
        -------
        self : TSKernelRidgeClassifier
        """
        X, y = validate_data(self, X, y, dtype=np.float64, order="C")
        check_classification_targets(y)
        weight = self._weights(X, sample_weight)
        used = np.ones(len(y), dtype=bool) if weight is None else weight > 0
        classes = check_classes(y[used])
        places = class_places(y[used], classes)
        if self.class_weight is not None:
            factors = compute_class_weight(self.class_weight, classes=classes, y=y[used])
            weight = (np.ones(len(y)) if weight is None else weight).copy()
            weight[used] *= factors[places]
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
        """Return the logarithms of the odds.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
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
        X : array-like of shape (n_samples, n_features)
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
        X : array-like of shape (n_samples, n_features)
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


class TSKernelRidgeRegressor(MultiOutputMixin, RegressorMixin, _TSKernelRidge):  # type: ignore[misc]
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
    scaling : {"auto", "standard", "common", "robust"}, default="auto"
        As in :class:`TSKernelRidgeClassifier`.
    bias : float or "auto", default="auto"
        The constant column; by default 1 and 3 are tried.
    column_weights : bool, default=True
        Weigh columns by how strongly predictions depend on them, if leave-one-out prefers it.
    memory_gb : float, optional
        As in :class:`TSKernelRidgeClassifier`.
    random_state : int or RandomState, default=0
        Of the sample on which candidates are tried.
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
        X : array-like of shape (n_samples, n_features)
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
        X, y = validate_data(self, X, y, dtype=np.float64, order="C", **options)
        weight = self._weights(X, sample_weight)
        used = np.ones(len(y), dtype=bool) if weight is None else weight > 0
        given = None if weight is None else weight[used]
        raw = np.asarray(y, dtype=np.float64).reshape(len(y), -1)[used]
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
        """Predict targets, with their standard deviations if asked for.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
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
        X = validate_data(self, X, dtype=np.float64, order="C", reset=False)
        variance = self._model.variance(X)[:, None] * self._variance
        deviations = np.sqrt(variance) * self._spread
        return result, deviations[:, 0] if self._flat else deviations


def _is_auto(value: Any) -> bool:
    return isinstance(value, str) and value == "auto"


def _number(name: str, value: Any, above_zero: bool = False) -> float:
    valid = isinstance(value, Real | Integral) and not isinstance(value, bool)
    if not valid or not np.isfinite(value) or value < 0 or (above_zero and value == 0):
        least = "above 0" if above_zero else "of at least 0"
        raise ValueError(f"{name} must be 'auto' or a finite number {least}, got {value!r}")
    return float(value)
