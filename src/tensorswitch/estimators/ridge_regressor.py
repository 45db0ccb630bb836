"""Ridge regression on a TS representation in one pass: regressor."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from sklearn.base import MultiOutputMixin, RegressorMixin
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from tensorswitch.estimators._merging import Mergeable
from tensorswitch.estimators._ridge_base import can_update
from tensorswitch.estimators._ridge_docs import documented
from tensorswitch.estimators._transaction import unchanged_on_error

__all__ = ["TSRidgeRegressor"]


@documented
class TSRidgeRegressor(MultiOutputMixin, RegressorMixin, Mergeable):  # type: ignore[misc]
    """Ridge regression on a TS representation with random gates.

        W, c = argmin Σ ‖Wᵀ z + c − t‖² + λ ‖W‖²,        z = h_L ⊗ … ⊗ h_1 ⊗ x

    The gates are drawn at random and stay fixed [1]_, so training takes one pass over the data and
    one linear system. ``fit`` takes all rows at once. ``partial_fit`` takes them in chunks, keeps
    sums whose size does not depend on the number of rows, and computes the same solution; models
    with the same gates can be merged, and ``remove`` takes rows out again. Targets may have several
    columns. Fitting ``a·y + b`` gives the predictions ``a·p + b``.

    Parameters
    ----------
    {parameters}
    {last parameters}

    Attributes
    ----------
    {attributes}

    See Also
    --------
    TSRidgeClassifier : Classification with the same representation.

    {references}

    Examples
    --------
    >>> import numpy as np
    >>> from tensorswitch.estimators import TSRidgeRegressor
    >>> X = np.random.default_rng(0).normal(size=(2000, 3))
    >>> y = np.abs(X).sum(1)
    >>> model = TSRidgeRegressor(gates=64, random_state=0).fit(X[:1500], y[:1500])
    >>> bool(model.score(X[1500:], y[1500:]) > 0.94)
    True
    """

    _scaled_targets = True
    _flat: bool

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
        X, y = self._validated(X, y, True, multi_output=True, y_numeric=True)
        self._fit(X, self._targets(y), self._weights(X, sample_weight))
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
        first = not self._started()
        X, y = self._validated(X, y, first, multi_output=True, y_numeric=True)
        self._check_axes(y, first)
        self._partial_fit(X, self._targets(y), self._weights(X, sample_weight), first)
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
        check_is_fitted(self, "solver_")
        X, y = self._validated(X, y, False, multi_output=True, y_numeric=True)
        self._check_axes(y, False)
        self._remove(X, self._targets(y), self._weights(X, sample_weight))
        return self

    def _check_axes(self, y: np.ndarray, first: bool) -> None:
        if not first and (y.ndim == 1) != self._flat:
            raise ValueError(
                f"y has {y.ndim} axes, but the first chunk had {1 if self._flat else 2}"
            )

    @staticmethod
    def _targets(y: np.ndarray) -> np.ndarray:
        return np.ascontiguousarray(y.reshape(len(y), -1), dtype=np.float64)

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
        outputs = self._outputs(X)
        return outputs[:, 0] if self._flat else outputs
