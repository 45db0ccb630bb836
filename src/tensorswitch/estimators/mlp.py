"""SS and TS networks with the interface of scikit-learn's multi-layer perceptrons."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

import numpy as np
from scipy.special import softmax
from sklearn.base import ClassifierMixin, MultiOutputMixin, RegressorMixin
from sklearn.utils._param_validation import StrOptions
from sklearn.utils.multiclass import check_classification_targets

from tensorswitch.estimators._labels import (
    check_classes,
    check_partial_fit,
    class_factors,
    class_places,
)
from tensorswitch.estimators._mlp import Constraints, TSMLPBase
from tensorswitch.estimators._transaction import unchanged_on_error
from tensorswitch.persistence import saved_as

__all__ = ["TSMLPClassifier", "TSMLPRegressor"]


@saved_as("mlp-classifier")
@dataclass(eq=False, repr=False)
class TSMLPClassifier(ClassifierMixin, TSMLPBase):  # type: ignore[misc]
    """Classifier with a TS or SS network, trained by gradient descent on the cross-entropy.

    Parameters follow :class:`sklearn.neural_network.MLPClassifier`.

    Parameters
    ----------
    hidden_layer_sizes : int or sequence of int, default=(100,)
        Number of units (gates) of each hidden layer.
    kind : {"ss+ts", "ts-lrc", "ts-ibp-lrc", "ts-ibp", "ss"}, default="ss+ts"
        The network: "ss" is an ordinary ReLU network; "ss+ts" adds a readout of copies of the
        input, so that the gates learn as those of the ReLU network do
        (:class:`tensorswitch.JointSwitching`). The others are those of the paper [1]_: "ts-lrc"
        compresses the copies and keeps its gates fixed; "ts-ibp-lrc" also trains the gates, by
        inverted backpropagation; "ts-ibp" trains the gates and does not compress.
    learn_gates : bool, optional
        Whether to train the gates of compressed layers. By default ``kind`` decides.
    optimizer : {"adam", "adamw", "sgd"}, default="adam"
        The optimiser.
    learning_rate_init : float or "auto", default="auto"
        The learning rate; by default 1e-3, and 2e-4 for "ts-lrc" on standardised columns.
    momentum : float, default=0.9
        Momentum of "sgd".
    alpha : float, default=1e-4
        Strength of the L2 penalty.
    batch_size : int or "auto", default="auto"
        Number of rows per step; by default a sixteenth of them, at least 32 and at most 128, and
        200 if there are fewer than 300 rows.
    max_iter : int, default=200
        Maximum number of epochs.
    tol : float, default=1e-4
        Smallest decrease of the monitored loss that counts as an improvement.
    n_iter_no_change : int, default=20
        Stop after this many epochs in a row without an improvement of the training loss or, with
        ``early_stopping``, of the validation loss.
    early_stopping : bool or "auto", default="auto"
        Whether to hold out rows for validation and keep the weights of the best epoch; by default
        if there are at least 300.
    validation_fraction : float, default=0.1
        Fraction of the rows that ``early_stopping`` holds out.
    bias : bool, default=True
        Whether the layers have biases and, with ``standardize``, a constant input.
    standardize : bool, default=True
        Whether columns are centred and divided by their standard deviations, which are those of
        the first chunk in ``partial_fit``. Constant columns are ignored.
    class_weight : dict, "balanced" or None, default=None
        Factors on the weights of rows, as in :class:`sklearn.linear_model.LogisticRegression`.
    warm_start : bool, default=False
        Whether ``fit`` continues training the network of the previous ``fit``.
    random_state : int, RandomState instance or None, default=None
        Seed of the weights, of the order of the rows and of the validation split.
    device : str, default="cpu"
        The torch device to train on.
    verbose : bool, default=False
        Show a progress bar.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        The class labels, sorted.
    network_ : torch.nn.Module
        The network.
    n_iter_ : int
        Number of epochs.
    loss_ : float
        Training loss of the last epoch.
    loss_curve_, validation_curve_ : list of float
        Losses of each epoch; no validation losses without ``early_stopping``.
    n_features_in_ : int
        Number of features seen during fit.

    See Also
    --------
    TSMLPRegressor : Regression with the same networks.

    References
    ----------
    .. [1] C.-Y. Tsai, A. Saxe and D. Cox, "Tensor Switching Networks", NIPS 2016, arXiv:1610.10087.

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

    class_weight: Any = field(default=None, kw_only=True)
    classes_: np.ndarray = field(init=False)

    _parameter_constraints: ClassVar[Constraints] = {
        **TSMLPBase._parameter_constraints,
        "class_weight": [StrOptions({"balanced"}), dict, None],
    }

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
        known = check_partial_fit(getattr(self, "classes_", None), classes)
        if isinstance(self.class_weight, str):
            raise ValueError(
                f"class_weight={self.class_weight!r} needs all rows at once; "
                "pass a dict of weights to use it with partial_fit"
            )
        return self._learn_chunk(X, y, sample_weight, known)

    def _encoded(
        self, y: np.ndarray, weight: np.ndarray | None, continues: bool, classes: Any = None
    ) -> tuple[np.ndarray, np.ndarray | None, int]:
        check_classification_targets(y)
        known = classes
        if known is None:
            known = check_classes(y if weight is None else y[weight > 0], of=len(y))
            before = getattr(self, "classes_", known)
            if continues and not np.array_equal(known, before):
                raise ValueError(
                    f"warm_start needs the classes of the previous fit, {before}, got {known}"
                )
        used = np.ones(len(y), bool) if weight is None else weight > 0
        targets = np.zeros(len(y), np.int64)
        targets[used] = class_places(y[used], known)
        self.classes_ = known
        if self.class_weight is not None:
            rows = np.ones(len(y)) if weight is None else weight
            weight = rows * class_factors(self.class_weight, known, targets, rows)[targets]
        return targets, weight, len(known)

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
        found: np.ndarray = softmax(self._outputs(X).astype(np.float64), axis=1)
        return found

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
        places = self._outputs(X).argmax(1)  # raises if the model is not fitted
        labels: np.ndarray = self.classes_[places]
        return labels


@saved_as("mlp-regressor")
@dataclass(eq=False, repr=False)
class TSMLPRegressor(MultiOutputMixin, RegressorMixin, TSMLPBase):  # type: ignore[misc]
    """Regressor with a TS or SS network, trained by gradient descent on the squared error.

    Parameters follow :class:`sklearn.neural_network.MLPRegressor`. Targets may have several
    columns, and are standardised inside.

    Parameters
    ----------
    hidden_layer_sizes : int or sequence of int, default=(100,)
        Number of units (gates) of each hidden layer.
    kind : {"ss+ts", "ts-lrc", "ts-ibp-lrc", "ts-ibp", "ss"}, default="ss+ts"
        The network: "ss" is an ordinary ReLU network; "ss+ts" adds a readout of copies of the
        input, so that the gates learn as those of the ReLU network do
        (:class:`tensorswitch.JointSwitching`). The others are those of the paper [1]_: "ts-lrc"
        compresses the copies and keeps its gates fixed; "ts-ibp-lrc" also trains the gates, by
        inverted backpropagation; "ts-ibp" trains the gates and does not compress.
    learn_gates : bool, optional
        Whether to train the gates of compressed layers. By default ``kind`` decides.
    optimizer : {"adam", "adamw", "sgd"}, default="adam"
        The optimiser.
    learning_rate_init : float or "auto", default="auto"
        The learning rate; by default 1e-3, and 2e-4 for "ts-lrc" on standardised columns.
    momentum : float, default=0.9
        Momentum of "sgd".
    alpha : float, default=1e-4
        Strength of the L2 penalty.
    batch_size : int or "auto", default="auto"
        Number of rows per step; by default a sixteenth of them, at least 32 and at most 128, and
        200 if there are fewer than 300 rows.
    max_iter : int, default=200
        Maximum number of epochs.
    tol : float, default=1e-4
        Smallest decrease of the monitored loss that counts as an improvement.
    n_iter_no_change : int, default=20
        Stop after this many epochs in a row without an improvement of the training loss or, with
        ``early_stopping``, of the validation loss.
    early_stopping : bool or "auto", default="auto"
        Whether to hold out rows for validation and keep the weights of the best epoch; by default
        if there are at least 300.
    validation_fraction : float, default=0.1
        Fraction of the rows that ``early_stopping`` holds out.
    bias : bool, default=True
        Whether the layers have biases and, with ``standardize``, a constant input.
    standardize : bool, default=True
        Whether columns are centred and divided by their standard deviations, which are those of
        the first chunk in ``partial_fit``. Constant columns are ignored.
    warm_start : bool, default=False
        Whether ``fit`` continues training the network of the previous ``fit``.
    random_state : int, RandomState instance or None, default=None
        Seed of the weights, of the order of the rows and of the validation split.
    device : str, default="cpu"
        The torch device to train on.
    verbose : bool, default=False
        Show a progress bar.

    Attributes
    ----------
    target_shape_ : tuple of int
        Shape of the targets of a row, () for one-dimensional targets.
    network_ : torch.nn.Module
        The network.
    n_iter_ : int
        Number of epochs.
    loss_ : float
        Training loss of the last epoch.
    loss_curve_, validation_curve_ : list of float
        Losses of each epoch; no validation losses without ``early_stopping``.
    n_features_in_ : int
        Number of features seen during fit.

    See Also
    --------
    TSMLPClassifier : Classification with the same networks.

    References
    ----------
    .. [1] C.-Y. Tsai, A. Saxe and D. Cox, "Tensor Switching Networks", NIPS 2016, arXiv:1610.10087.

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

    target_shape_: tuple[int, ...] = field(init=False)

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
        return self._learn_chunk(X, y, sample_weight)

    def _encoded(
        self, y: np.ndarray, weight: np.ndarray | None, continues: bool, classes: Any = None
    ) -> tuple[np.ndarray, np.ndarray | None, int]:
        shape = y.shape[1:]
        if continues and shape != self.target_shape_:
            raise ValueError(
                f"y has rows of shape {shape}, but previous targets had shape {self.target_shape_}"
            )
        self.target_shape_ = shape
        targets = np.ascontiguousarray(y.reshape(len(y), -1), dtype=np.float64)
        return targets, weight, targets.shape[1]

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
        outputs = self._outputs(X)
        return outputs if self.target_shape_ else outputs.ravel()
