"""SS and TS networks with the interface of scikit-learn's multi-layer perceptrons."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import numpy as np
import torch
from sklearn.base import ClassifierMixin, MultiOutputMixin, RegressorMixin
from sklearn.utils.multiclass import check_classification_targets

from tensorswitch.estimators._inputs import rows_of_numbers, sample_weights
from tensorswitch.estimators._labels import (
    check_classes,
    check_partial_fit,
    class_factors,
    class_places,
)
from tensorswitch.estimators._mlp import TSMLPBase
from tensorswitch.estimators._mlp_docs import documented
from tensorswitch.estimators._transaction import unchanged_on_error

__all__ = ["TSMLPClassifier", "TSMLPRegressor"]


@documented
class TSMLPClassifier(ClassifierMixin, TSMLPBase):  # type: ignore[misc]
    """Classifier with a TS or SS network, trained by gradient descent on the cross-entropy.

    The networks are those of the paper [1]_. Parameters follow
    :class:`sklearn.neural_network.MLPClassifier`.

    Parameters
    ----------
    {parameters}
    class_weight : dict, "balanced" or None, default=None
        Factors on the weights of rows, as in :class:`sklearn.linear_model.LogisticRegression`.
    {last parameters}

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        The class labels, sorted.
    {attributes}

    See Also
    --------
    TSMLPRegressor : Regression with the same networks.

    {references}

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from tensorswitch.estimators import TSMLPClassifier
    >>> X, y = load_digits(return_X_y=True)
    >>> model = TSMLPClassifier((32,), max_iter=30, random_state=0)
    >>> model = model.fit(X[:1000] / 16, y[:1000])
    >>> bool(model.score(X[1000:] / 16, y[1000:]) > 0.85)
    True
    """

    _loss = "cross-entropy"
    classes_: np.ndarray

    def __init__(
        self,
        hidden_layer_sizes: Sequence[int] | int = (100,),
        kind: str = "ss+ts",
        *,
        learn_gates: bool | None = None,
        optimizer: str = "adam",
        learning_rate_init: float | str = "auto",
        momentum: float = 0.9,
        alpha: float = 1e-4,
        batch_size: int | str = "auto",
        max_iter: int = 200,
        tol: float = 1e-4,
        n_iter_no_change: int = 20,
        early_stopping: bool | str = "auto",
        validation_fraction: float = 0.1,
        bias: bool = True,
        standardize: bool = True,
        class_weight: Any = None,
        warm_start: bool = False,
        random_state: Any = None,
        device: str = "cpu",
        verbose: bool = False,
    ) -> None:
        super().__init__(
            hidden_layer_sizes,
            kind,
            learn_gates=learn_gates,
            optimizer=optimizer,
            learning_rate_init=learning_rate_init,
            momentum=momentum,
            alpha=alpha,
            batch_size=batch_size,
            max_iter=max_iter,
            tol=tol,
            n_iter_no_change=n_iter_no_change,
            early_stopping=early_stopping,
            validation_fraction=validation_fraction,
            bias=bias,
            standardize=standardize,
            warm_start=warm_start,
            random_state=random_state,
            device=device,
            verbose=verbose,
        )
        self.class_weight = class_weight

    @unchanged_on_error
    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Train the network.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Training samples.
        y : array-like of shape (n_samples,)
            Class labels.
        sample_weight : array-like of shape (n_samples,), optional
            Factors on the losses of the samples. A weight of two is a repeated sample.

        Returns
        -------
        self : object
            The fitted estimator.
        """
        X, y = rows_of_numbers(self, X, y, dtype=[np.float64, np.float32], order="C")
        check_classification_targets(y)
        weight = sample_weights(X, sample_weight)
        classes = check_classes(y if weight is None else y[weight > 0], of=len(y))
        if (
            self.warm_start
            and hasattr(self, "classes_")
            and not np.array_equal(classes, self.classes_)
        ):
            raise ValueError(
                f"warm_start needs the classes of the previous fit, {self.classes_}, got {classes}"
            )
        self.classes_ = classes
        if weight is not None:
            X, y, weight = X[weight > 0], y[weight > 0], weight[weight > 0]
        targets = class_places(y, classes)
        return self._fit(X, targets, self._by_class(targets, weight), len(classes))

    @unchanged_on_error
    def partial_fit(self, X: Any, y: Any, classes: Any = None, sample_weight: Any = None) -> Self:
        """Train for one epoch on a chunk of rows.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            A chunk of samples.
        y : array-like of shape (n_samples,)
            Class labels.
        classes : array-like of shape (n_classes,), optional
            All labels that any chunk may contain. Required in the first call.
        sample_weight : array-like of shape (n_samples,), optional
            Factors on the losses of the samples. A weight of two is a repeated sample.

        Returns
        -------
        self : object
            The fitted estimator.
        """
        first = not hasattr(self, "classes_")
        known = check_partial_fit(None if first else self.classes_, classes)
        X, y = rows_of_numbers(self, X, y, dtype=[np.float64, np.float32], order="C", reset=first)
        check_classification_targets(y)
        targets = class_places(y, known)
        if isinstance(self.class_weight, str):
            raise ValueError(
                f"class_weight={self.class_weight!r} needs all rows at once; "
                "pass a dict of weights to use it with partial_fit"
            )
        self.classes_ = known
        weight = self._by_class(targets, sample_weights(X, sample_weight))
        return self._partial_fit(X, targets, weight, len(known), first)

    def _by_class(self, targets: np.ndarray, weight: np.ndarray | None) -> np.ndarray | None:
        """Return the weights of rows times those of their classes."""
        if self.class_weight is None:
            return weight
        factors = class_factors(self.class_weight, self.classes_, targets, weight)[targets]
        result: np.ndarray = factors if weight is None else factors * weight
        return result

    def predict_proba(self, X: Any) -> np.ndarray:
        """Predict the probability of each class.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Samples.

        Returns
        -------
        ndarray of shape (n_samples, n_classes)
            Probabilities, with classes in the order of ``classes_``.
        """
        return torch.from_numpy(self._outputs(X)).double().softmax(1).numpy()

    def predict(self, X: Any) -> np.ndarray:
        """Predict the most probable class.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Samples.

        Returns
        -------
        ndarray of shape (n_samples,)
            Class labels.
        """
        outputs = self._outputs(X)
        return self.classes_[outputs.argmax(1)]  # type: ignore[no-any-return]


@documented
class TSMLPRegressor(MultiOutputMixin, RegressorMixin, TSMLPBase):  # type: ignore[misc]
    """Regressor with a TS or SS network, trained by gradient descent on the squared error.

    The networks are those of the paper [1]_. Parameters follow
    :class:`sklearn.neural_network.MLPRegressor`. Targets may have several columns, and are
    standardised inside.

    Parameters
    ----------
    {parameters}
    {last parameters}

    Attributes
    ----------
    {attributes}

    See Also
    --------
    TSMLPClassifier : Classification with the same networks.

    {references}

    Examples
    --------
    >>> import numpy as np
    >>> from tensorswitch.estimators import TSMLPRegressor
    >>> X = np.random.default_rng(0).normal(size=(1000, 3))
    >>> y = np.abs(X).sum(1)
    >>> model = TSMLPRegressor((32, 32), learning_rate_init=0.01, random_state=0)
    >>> bool(model.fit(X[:800], y[:800]).score(X[800:], y[800:]) > 0.9)
    True
    """

    _loss = "squared"

    @unchanged_on_error
    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Train the network.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Training samples.
        y : array-like of shape (n_samples,) or (n_samples, n_outputs)
            Targets.
        sample_weight : array-like of shape (n_samples,), optional
            Factors on the losses of the samples. A weight of two is a repeated sample.

        Returns
        -------
        self : object
            The fitted estimator.
        """
        X, y = rows_of_numbers(
            self, X, y, dtype=[np.float64, np.float32], order="C", multi_output=True, y_numeric=True
        )
        targets = self._targets(y, self.warm_start and hasattr(self, "_learner"))
        return self._fit(X, targets, sample_weights(X, sample_weight), targets.shape[1])

    @unchanged_on_error
    def partial_fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Train for one epoch on a chunk of rows.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            A chunk of samples.
        y : array-like of shape (n_samples,) or (n_samples, n_outputs)
            Targets.
        sample_weight : array-like of shape (n_samples,), optional
            Factors on the losses of the samples. A weight of two is a repeated sample.

        Returns
        -------
        self : object
            The fitted estimator.
        """
        first = not hasattr(self, "_learner")
        X, y = rows_of_numbers(
            self,
            X,
            y,
            dtype=[np.float64, np.float32],
            order="C",
            reset=first,
            multi_output=True,
            y_numeric=True,
        )
        targets = self._targets(y, not first)
        weight = sample_weights(X, sample_weight)
        return self._partial_fit(X, targets, weight, targets.shape[1], first)

    _shape: tuple[int, ...]

    def _targets(self, y: np.ndarray, going_on: bool) -> np.ndarray:
        shape = y.shape[1:]
        if going_on and shape != self._shape:
            raise ValueError(
                f"y has rows of shape {shape}, but previous targets had shape {self._shape}"
            )
        self._shape = shape
        return np.ascontiguousarray(y.reshape(len(y), -1), dtype=np.float64)

    def predict(self, X: Any) -> np.ndarray:
        """Predict targets.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Samples.

        Returns
        -------
        ndarray of shape (n_samples,) or (n_samples, n_outputs)
            Predictions, in the shape of the training targets.
        """
        scaled = self._outputs(X)  # raises if the model is not fitted
        outputs = self._target_scale.inverse(scaled.astype(np.float64))
        return outputs if self._shape else outputs[:, 0]
