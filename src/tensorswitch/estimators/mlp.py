"""SS and TS networks with the interface of scikit-learn's multi-layer perceptrons."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Sequence
from numbers import Integral
from typing import Any, Self

import numpy as np
import torch
from sklearn.base import BaseEstimator, ClassifierMixin, MultiOutputMixin, RegressorMixin
from sklearn.model_selection import train_test_split
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from tensorswitch._checks import check_above_zero, check_number, check_positive, from_numpy
from tensorswitch._progress import progress_bar
from tensorswitch.estimators._explaining import ExplainedNetwork
from tensorswitch.estimators._labels import check_classes, check_partial_fit, class_places
from tensorswitch.estimators._transaction import unchanged_on_error
from tensorswitch.models import mlp
from tensorswitch.training import Learner, Rows

__all__ = ["TSMLPClassifier", "TSMLPRegressor"]


class _TSMLP(ExplainedNetwork, BaseEstimator):  # type: ignore[misc]
    """Base class of the classifier and the regressor."""

    _loss: str
    _learner: Learner

    def __init__(
        self,
        hidden_layer_sizes: Sequence[int] | int = (64, 64),
        kind: str = "ts-lrc",
        *,
        learn_gates: bool | None = None,
        optimizer: str = "adam",
        learning_rate_init: float = 1e-3,
        momentum: float = 0.9,
        alpha: float = 1e-4,
        batch_size: int = 128,
        max_iter: int = 50,
        tol: float = 1e-4,
        n_iter_no_change: int = 10,
        early_stopping: bool = False,
        validation_fraction: float = 0.1,
        bias: bool = True,
        warm_start: bool = False,
        random_state: Any = None,
        device: str = "cpu",
        verbose: bool = False,
    ) -> None:
        self.hidden_layer_sizes = hidden_layer_sizes
        self.kind = kind
        self.learn_gates = learn_gates
        self.optimizer = optimizer
        self.learning_rate_init = learning_rate_init
        self.momentum = momentum
        self.alpha = alpha
        self.batch_size = batch_size
        self.max_iter = max_iter
        self.tol = tol
        self.n_iter_no_change = n_iter_no_change
        self.early_stopping = early_stopping
        self.validation_fraction = validation_fraction
        self.bias = bias
        self.warm_start = warm_start
        self.random_state = random_state
        self.device = device
        self.verbose = verbose

    def _before_fit(self) -> dict[str, Any]:
        """Return copies of the attributes that training modifies in place."""
        if not hasattr(self, "_learner"):
            return {}
        curves = {name: list(getattr(self, name)) for name in ("loss_curve_", "validation_curve_")}
        return {"_learner": copy.deepcopy(self._learner), **curves}

    def _fit(
        self, X: np.ndarray, targets: np.ndarray, outputs: int, labels: np.ndarray | None
    ) -> Self:
        check_positive(max_iter=self.max_iter, n_iter_no_change=self.n_iter_no_change)
        random = check_random_state(self.random_state)
        if self.warm_start and hasattr(self, "_learner"):
            self._go_on()
        else:
            self._start(X.shape[1], outputs, random)
        held = None
        if self.early_stopping:
            if not 0 < self.validation_fraction < 1:
                raise ValueError(
                    f"validation_fraction must be between 0 and 1, got {self.validation_fraction!r}"
                )
            options = {
                "test_size": self.validation_fraction,
                "random_state": random.randint(2**31),
                "stratify": labels,
            }
            X, X_held, targets, held_targets = train_test_split(X, targets, **options)
            held = Rows.from_numpy(X_held, held_targets).to(self.device)
        rows = Rows.from_numpy(X, targets).to(self.device)
        best, waited, kept = np.inf, 0, None
        with progress_bar(type(self).__name__, self.verbose, self.max_iter) as bar:
            for _ in range(self.max_iter):
                self._epoch(rows)
                criterion = self.loss_curve_[-1]
                if held is not None:
                    loss, error = self._learner.evaluate(held)
                    criterion = loss if np.isnan(error) else error
                    self.validation_curve_.append(criterion)
                note = "" if held is None else f", validation {criterion:.4f}"
                bar(note=f"loss {self.loss_curve_[-1]:.4f}{note}")
                if criterion < best and held is not None:
                    state = self._learner.network.state_dict()
                    kept = {name: value.clone() for name, value in state.items()}
                waited = 0 if criterion < best - self.tol else waited + 1
                best = min(best, criterion)
                if waited >= self.n_iter_no_change:
                    break
        if kept is not None:
            self._learner.network.load_state_dict(kept)
        return self

    def _partial_fit(self, X: np.ndarray, targets: np.ndarray, outputs: int, first: bool) -> Self:
        if first:
            self._start(X.shape[1], outputs, check_random_state(self.random_state))
        self._epoch(Rows.from_numpy(X, targets).to(self.device))
        return self

    def _start(self, n_in: int, outputs: int, random: np.random.RandomState) -> None:
        check_above_zero(learning_rate_init=self.learning_rate_init)
        check_number(alpha=self.alpha)
        shape = self._network_shape()
        # The weights depend on random_state alone, and torch's global generator is not advanced.
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(random.randint(2**31))
            network = mlp(n_in, outputs, **shape)
        self._learner = Learner(
            network,
            loss=self._loss,
            optimizer=self.optimizer,
            lr=self.learning_rate_init,
            momentum=self.momentum,
            weight_decay=self.alpha,
            batch_size=self.batch_size,
            seed=random.randint(2**31),
            device=self.device,
        )
        self._learner_shape = {**shape, "optimizer": self.optimizer, "device": self.device}
        self.loss_curve_: list[float] = []
        self.validation_curve_: list[float] = []
        self.n_iter_ = 0

    def _network_shape(self) -> dict[str, Any]:
        """Return the arguments that the network is built from."""
        sizes = self.hidden_layer_sizes
        several = (
            list(sizes) if isinstance(sizes, Iterable) and not isinstance(sizes, str) else [sizes]
        )
        if not several or not all(
            isinstance(n, Integral) and not isinstance(n, bool) and n > 0 for n in several
        ):
            raise ValueError(
                f"hidden_layer_sizes must be a positive integer or a list of them, got {sizes!r}"
            )
        kind = self.kind
        if self.learn_gates is not None and kind in ("ts-lrc", "ts-ibp-lrc"):
            kind = "ts-ibp-lrc" if self.learn_gates else "ts-lrc"
        return {
            "kind": kind,
            "depth": len(several),
            "width": [int(n) for n in several],
            "bias": bool(self.bias),
        }

    def _go_on(self) -> None:
        """Continue with the present network; only parameters of the optimiser may have changed."""
        before = self._learner_shape
        now = {**self._network_shape(), "optimizer": self.optimizer, "device": self.device}
        changed = [
            f"{name} was {before[name]!r} and is {now[name]!r}"
            for name in now
            if now[name] != before[name]
        ]
        if changed:
            raise ValueError(
                f"warm_start continues with the same network, but {', '.join(changed)}; "
                "set warm_start=False to start again"
            )
        check_above_zero(learning_rate_init=self.learning_rate_init)
        check_number(alpha=self.alpha, momentum=self.momentum)
        check_positive(batch_size=self.batch_size)
        self._learner.batch_size = int(self.batch_size)
        for group in self._learner.optimizer.param_groups:
            group.update(lr=self.learning_rate_init, weight_decay=self.alpha)
            if "momentum" in group:
                group["momentum"] = self.momentum

    def _epoch(self, rows: Rows) -> None:
        self.loss_curve_.append(self._learner.epoch(rows)[0])
        self.n_iter_ += 1

    @property
    def network_(self) -> torch.nn.Module:
        """The network."""
        check_is_fitted(self, "n_iter_")
        return self._learner.network

    @property
    def loss_(self) -> float:
        """Training loss of the last epoch."""
        return self.loss_curve_[-1]

    def _outputs(self, X: Any) -> np.ndarray:
        check_is_fitted(self, "n_iter_")
        X = validate_data(self, X, dtype=np.float32, order="C", reset=False)
        return self._learner.outputs(from_numpy(X)).cpu().numpy()


class TSMLPClassifier(ClassifierMixin, _TSMLP):  # type: ignore[misc]
    """Classifier with a TS or SS network, trained by gradient descent on the cross-entropy.

    The networks are those of the paper [1]_. Parameters follow
    :class:`sklearn.neural_network.MLPClassifier`.

    Parameters
    ----------
    hidden_layer_sizes : int or sequence of int, default=(64, 64)
        Number of gates of each hidden layer.
    kind : {"ts-lrc", "ts-ibp-lrc", "ts-ibp", "ss"}, default="ts-lrc"
        The network: "ts-lrc" compresses the copies (LRC) and keeps its gates fixed; "ts-ibp-lrc"
        also trains the gates, by inverted backpropagation; "ts-ibp" trains the gates and does not
        compress; "ss" is an ordinary ReLU network.
    learn_gates : bool, optional
        Whether to train the gates of compressed layers. By default ``kind`` decides.
    optimizer : {"adam", "adamw", "sgd"}, default="adam"
        The optimiser.
    learning_rate_init : float, default=1e-3
        The learning rate.
    momentum : float, default=0.9
        Momentum of "sgd".
    alpha : float, default=1e-4
        Strength of the L2 penalty.
    batch_size : int, default=128
        Number of rows per step.
    max_iter : int, default=50
        Maximum number of epochs.
    tol : float, default=1e-4
        Smallest decrease of the monitored quantity that counts as an improvement.
    n_iter_no_change : int, default=10
        Stop after this many epochs in a row without an improvement of the training loss or, with
        ``early_stopping``, of the validation error.
    early_stopping : bool, default=False
        Whether to hold out rows for validation and keep the weights of the best epoch.
    validation_fraction : float, default=0.1
        Fraction of the rows that ``early_stopping`` holds out.
    bias : bool, default=True
        Whether the layers have biases.
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
    loss_curve_ : list of float
        Training loss of each epoch.
    validation_curve_ : list of float
        Validation error of each epoch; empty without ``early_stopping``.
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
    >>> model = TSMLPClassifier((32,), learning_rate_init=0.01, max_iter=10, random_state=0)
    >>> model = model.fit(X[:1000] / 16, y[:1000])
    >>> bool(model.score(X[1000:] / 16, y[1000:]) > 0.9)
    True
    """

    _loss = "cross-entropy"
    classes_: np.ndarray

    @unchanged_on_error
    def fit(self, X: Any, y: Any) -> Self:
        """Train the network.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Training samples.
        y : array-like of shape (n_samples,)
            Class labels.

        Returns
        -------
        self : object
            The fitted estimator.
        """
        X, y = validate_data(self, X, y, dtype=np.float32, order="C")
        check_classification_targets(y)
        classes = check_classes(y)
        if (
            self.warm_start
            and hasattr(self, "classes_")
            and not np.array_equal(classes, self.classes_)
        ):
            raise ValueError(
                f"warm_start needs the classes of the previous fit, {self.classes_}, got {classes}"
            )
        self.classes_ = classes
        targets = class_places(y, classes)
        return self._fit(X, targets, len(classes), targets)

    @unchanged_on_error
    def partial_fit(self, X: Any, y: Any, classes: Any = None) -> Self:
        """Train for one epoch on a chunk of rows.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            A chunk of samples.
        y : array-like of shape (n_samples,)
            Class labels.
        classes : array-like of shape (n_classes,), optional
            All labels that any chunk may contain. Required in the first call.

        Returns
        -------
        self : object
            The fitted estimator.
        """
        first = not hasattr(self, "classes_")
        known = check_partial_fit(None if first else self.classes_, classes)
        X, y = validate_data(self, X, y, dtype=np.float32, order="C", reset=first)
        check_classification_targets(y)
        targets = class_places(y, known)
        self.classes_ = known
        return self._partial_fit(X, targets, len(known), first)

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


class TSMLPRegressor(MultiOutputMixin, RegressorMixin, _TSMLP):  # type: ignore[misc]
    """Regressor with a TS or SS network, trained by gradient descent on the squared error.

    The networks are those of the paper [1]_. Parameters follow
    :class:`sklearn.neural_network.MLPRegressor`. Targets may have several columns.

    Parameters
    ----------
    hidden_layer_sizes : int or sequence of int, default=(64, 64)
        Number of gates of each hidden layer.
    kind : {"ts-lrc", "ts-ibp-lrc", "ts-ibp", "ss"}, default="ts-lrc"
        The network: "ts-lrc" compresses the copies (LRC) and keeps its gates fixed; "ts-ibp-lrc"
        also trains the gates, by inverted backpropagation; "ts-ibp" trains the gates and does not
        compress; "ss" is an ordinary ReLU network.
    learn_gates : bool, optional
        Whether to train the gates of compressed layers. By default ``kind`` decides.
    optimizer : {"adam", "adamw", "sgd"}, default="adam"
        The optimiser.
    learning_rate_init : float, default=1e-3
        The learning rate.
    momentum : float, default=0.9
        Momentum of "sgd".
    alpha : float, default=1e-4
        Strength of the L2 penalty.
    batch_size : int, default=128
        Number of rows per step.
    max_iter : int, default=50
        Maximum number of epochs.
    tol : float, default=1e-4
        Smallest decrease of the monitored quantity that counts as an improvement.
    n_iter_no_change : int, default=10
        Stop after this many epochs in a row without an improvement of the training loss or, with
        ``early_stopping``, of the validation loss.
    early_stopping : bool, default=False
        Whether to hold out rows for validation and keep the weights of the best epoch.
    validation_fraction : float, default=0.1
        Fraction of the rows that ``early_stopping`` holds out.
    bias : bool, default=True
        Whether the layers have biases.
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
    network_ : torch.nn.Module
        The network.
    n_iter_ : int
        Number of epochs.
    loss_ : float
        Training loss of the last epoch.
    loss_curve_ : list of float
        Training loss of each epoch.
    validation_curve_ : list of float
        Validation loss of each epoch; empty without ``early_stopping``.
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

    _loss = "squared"

    @unchanged_on_error
    def fit(self, X: Any, y: Any) -> Self:
        """Train the network.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Training samples.
        y : array-like of shape (n_samples,) or (n_samples, n_outputs)
            Targets.

        Returns
        -------
        self : object
            The fitted estimator.
        """
        X, y = validate_data(
            self, X, y, dtype=np.float32, order="C", multi_output=True, y_numeric=True
        )
        targets = self._targets(y, self.warm_start and hasattr(self, "_learner"))
        return self._fit(X, targets, targets.shape[1], None)

    @unchanged_on_error
    def partial_fit(self, X: Any, y: Any) -> Self:
        """Train for one epoch on a chunk of rows.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            A chunk of samples.
        y : array-like of shape (n_samples,) or (n_samples, n_outputs)
            Targets.

        Returns
        -------
        self : object
            The fitted estimator.
        """
        first = not hasattr(self, "_learner")
        X, y = validate_data(
            self, X, y, dtype=np.float32, order="C", reset=first, multi_output=True, y_numeric=True
        )
        targets = self._targets(y, not first)
        return self._partial_fit(X, targets, targets.shape[1], first)

    _shape: tuple[int, ...]

    def _targets(self, y: np.ndarray, going_on: bool) -> np.ndarray:
        shape = y.shape[1:]
        if going_on and shape != self._shape:
            raise ValueError(
                f"y has rows of shape {shape}, but previous targets had shape {self._shape}"
            )
        self._shape = shape
        return np.ascontiguousarray(y.reshape(len(y), -1), dtype=np.float32)

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
        outputs = self._outputs(X).astype(np.float64)
        return outputs if self._shape else outputs[:, 0]
