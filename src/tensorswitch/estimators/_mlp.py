"""SS and TS networks with the interface of scikit-learn's multi-layer perceptrons."""

import copy
from abc import abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import KW_ONLY, dataclass, field
from numbers import Integral, Real
from pathlib import Path
from typing import ClassVar, Self

import numpy as np
import torch
from numpy.typing import ArrayLike
from scipy.special import softmax
from sklearn.base import ClassifierMixin, MultiOutputMixin, RegressorMixin, is_regressor
from sklearn.model_selection import train_test_split
from sklearn.utils import check_random_state
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import check_is_fitted

from tensorswitch._process import seeded
from tensorswitch._progress import progress_bar
from tensorswitch.estimators._base import (
    ABOVE_ZERO,
    AT_LEAST_ZERO,
    AUTO,
    CLASS_WEIGHT,
    POSITIVE,
    SEEN,
    ClassWeight,
    Constraints,
    RandomState,
    SavedEstimator,
    State,
    Weights,
    documented_as,
    unchanged_on_error,
)
from tensorswitch.estimators._scaled_network import ScaledNetwork, distinct_rows, start_at_zero
from tensorswitch.estimators._validation import (
    check_classes,
    check_partial_fit,
    check_rows,
    check_training_rows,
    check_weights,
    class_factors,
    class_places,
)
from tensorswitch.explain import Explanation
from tensorswitch.models import KINDS, mlp
from tensorswitch.nn import to_onnx
from tensorswitch.persistence import saved_as
from tensorswitch.preprocessing import Scaling
from tensorswitch.training import Learner, Rows

ROUNDING = 1e-15  # targets whose deviation is a smaller part of them are constant


@dataclass(frozen=True)
class Settings:
    """Constants of training, chosen by ``benchmarks.tables``.

    Of ``rates``, the second is for fixed gates on standardised columns. ``batches`` is the range of
    a sixteenth of the rows; with fewer than ``few_rows`` none are held out, and steps of
    ``few_batch`` rows are few. The constant input is in standard deviations of the others.
    """

    rates: tuple[float, float] = (1e-3, 2e-4)
    batches: tuple[int, int] = (32, 128)
    few_rows: int = 300
    few_batch: int = 200
    constant: float = 2.0


SETTINGS = Settings()


@dataclass(eq=False, repr=False)
class TSMLP(SavedEstimator):
    """Scaling → network → learner: what classifier and regressor share."""

    hidden_layer_sizes: Sequence[int] | int = (100,)
    kind: str = "ss+ts"
    _: KW_ONLY
    learn_gates: bool | None = None
    optimizer: str = "adam"
    learning_rate_init: float | str = "auto"
    momentum: float = 0.9
    alpha: float = 1e-4
    batch_size: int | str = "auto"
    max_iter: int = 200
    tol: float = 1e-4
    n_iter_no_change: int = 20
    early_stopping: bool | str = "auto"
    validation_fraction: float = 0.1
    bias: bool = True
    standardize: bool = True
    warm_start: bool = False
    random_state: RandomState = None
    device: str = "cpu"
    verbose: bool = False

    _model: ScaledNetwork = field(init=False)
    loss_curve_: list[float] = field(init=False)
    validation_curve_: list[float] = field(init=False)
    n_iter_: int = field(init=False)

    _parameter_constraints: ClassVar[Constraints] = {
        "hidden_layer_sizes": ["array-like", POSITIVE],
        "kind": [StrOptions(set(KINDS))],
        "learn_gates": ["boolean", None],
        "optimizer": [StrOptions({"adam", "adamw", "sgd"})],
        "learning_rate_init": [ABOVE_ZERO, AUTO],
        **{name: [AT_LEAST_ZERO] for name in ("momentum", "alpha")},
        "batch_size": [POSITIVE, AUTO],
        **{name: [POSITIVE] for name in ("max_iter", "n_iter_no_change")},
        "tol": [Real],
        "early_stopping": ["boolean", AUTO],
        "validation_fraction": [Interval(Real, 0, 1, closed="neither")],
        "device": [str, torch.device],
        **{name: [name] for name in ("random_state", "verbose")},
        **{name: ["boolean"] for name in ("bias", "standardize", "warm_start")},
    }

    @unchanged_on_error
    def fit(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Train the network.

        Parameters
        ----------
        X, y : array-like of shape (n_samples, n_features) and (n_samples,)
            Training samples, and class labels or targets, which may have several columns.
        sample_weight : array-like of shape (n_samples,), optional
            Factors on the losses of the samples. A weight of two is a repeated sample.
        """
        self._validate_params()
        random = check_random_state(self.random_state)
        X, y = check_training_rows(self, X, y)
        weight = check_weights(X, sample_weight)
        continues = self.warm_start and hasattr(self, "_model")
        targets, weight, outputs = self._encoded(y, weight, continues)
        unit = 1.0 if weight is None else float(weight[weight > 0].mean())
        X, targets, weight = distinct_rows(X, targets, weight)
        if continues:
            self._continue(X.shape[1])
        else:
            self._start(X, targets, weight, outputs, random)
        self._model.unit_weight = unit
        self._set_batch_size(len(X))  # of distinct rows, which weights do not change
        parts: list[tuple[np.ndarray, ...]] = [(X, targets, weight)]
        auto = self.early_stopping == "auto"
        if len(X) >= SETTINGS.few_rows if auto else self.early_stopping:
            parts = self._held_out(X, targets, weight, random)
        rows, *held = (self._model.rows(x, t, w, w.mean()) for x, t, w in parts)
        self._train(rows, held[0] if held else None)
        return self

    def _learn_chunk(
        self,
        X: ArrayLike,
        y: ArrayLike,
        sample_weight: ArrayLike | None,
        classes: np.ndarray | None = None,
    ) -> Self:
        """Train for one epoch on a chunk of rows, of which the first decides the scalings."""
        first = not hasattr(self, "_model")
        if first:
            self._validate_params()
        X, y = check_training_rows(self, X, y, reset=first)
        weight = check_weights(X, sample_weight)
        targets, weight, outputs = self._encoded(y, weight, not first, classes)
        used = np.ones(len(X)) if weight is None else weight[weight > 0]
        X, targets, weight = distinct_rows(X, targets, weight)
        if first:
            self._start(X, targets, weight, outputs, check_random_state(self.random_state))
            self._model.unit_weight = float(used.mean())
        self._set_batch_size(max(len(X), SETTINGS.few_rows))  # a chunk is not all there is
        unit = self._model.unit_weight * len(used) / max(1, len(X))
        self._epoch(self._model.rows(X, targets, weight, unit))
        return self

    @property
    def network_(self) -> torch.nn.Module:
        """The network."""
        check_is_fitted(self)
        return self._model.learner.network

    @property
    def loss_(self) -> float:
        """Training loss of the last epoch."""
        return self.loss_curve_[-1]

    def explain(self, X: ArrayLike) -> Explanation:
        """Return what each feature contributes: input times gradient, exact once gates are known.

        Contributions of shape (n_samples, n_outputs, n_features) add up with the constant to the
        outputs of the network.
        """
        check_is_fitted(self)
        return self._model.explain(check_rows(self, X))

    def to_torch(self) -> torch.nn.Module:
        """Return the fitted model as a torch module from features to logits or predictions.

        Predictions are columns, in float64 where float32 would lose them, as targets are far from
        zero compared with their spread (Unix times).
        """
        check_is_fitted(self)
        return self._model.module()

    def to_onnx(self, path: str | Path) -> None:
        """Write the fitted model to an ONNX file, from features to the outputs of ``to_torch``.

        Its input ``x`` has the shape (rows, n_features), in float32.
        """
        to_onnx(self.to_torch(), torch.zeros(2, self.n_features_in_, device="cpu"), path)

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "n_iter_")

    def _fitted_state(self, sums: bool) -> State:
        fitted = {k: v for k, v in vars(self).items() if k.endswith("_") and k not in SEEN}
        state = {"model": self._model, "attributes": fitted}
        if sums:
            learner = self._model.learner
            state["optimizer"] = learner.optimizer.state_dict()
            state["progress"] = learner.epochs_done, learner.generator.get_state()
        return state

    def _restore(self, fitted: State) -> None:
        self.__dict__.update(fitted["attributes"], _model=fitted["model"])
        if "optimizer" in fitted:
            learner = self._model.learner
            learner.optimizer.load_state_dict(fitted["optimizer"])
            learner.epochs_done, generator = fitted["progress"]
            learner.generator.set_state(generator)

    def _before_fit(self) -> State:
        """Return copies of the attributes that training modifies in place."""
        if not hasattr(self, "_model"):
            return {}
        curves = {name: list(getattr(self, name)) for name in ("loss_curve_", "validation_curve_")}
        return {"_model": copy.deepcopy(self._model), **curves}

    def _outputs(self, X: ArrayLike) -> np.ndarray:
        """Return logits, or predictions as columns."""
        check_is_fitted(self)
        return self._model.outputs(check_rows(self, X))

    @abstractmethod
    def _encoded(
        self, y: np.ndarray, weight: Weights, continues: bool, classes: np.ndarray | None = None
    ) -> tuple[np.ndarray, Weights, int]:
        """Return targets of the network, weights of rows, and the number of outputs."""

    def _start(
        self,
        X: np.ndarray,
        targets: np.ndarray,
        weight: np.ndarray,
        outputs: int,
        random: np.random.RandomState,
    ) -> None:
        """Fit the scalings, and make a network that has not learned anything."""
        shape, regression = self._network_shape(), is_regressor(self)
        constant = SETTINGS.constant if self.standardize and self.bias else 0.0
        inputs = Scaling.fit(X, weight) if self.standardize else Scaling()
        # The weights depend on random_state alone, and torch's global generator is not advanced.
        with seeded(random.randint(2**31)), torch.device("cpu"):
            network = mlp(X.shape[1] + bool(constant), outputs, **shape).float()
        if shape["kind"] in ("ts-lrc", "ts-ibp-lrc"):
            start_at_zero(network)
        rates: State = {"lr": self._learning_rate(), "weight_decay": self.alpha}
        options: State = {"loss": "squared" if regression else "cross-entropy", **rates}
        options |= {"optimizer": self.optimizer, "momentum": self.momentum, "device": self.device}
        learner = Learner(network, seed=random.randint(2**31), **options)
        scaled = Scaling.fit(targets, weight, constant=ROUNDING) if regression else Scaling()
        self._model = ScaledNetwork(inputs, scaled, constant, learner, self._fixed(X.shape[1]))
        self.loss_curve_, self.validation_curve_, self.n_iter_ = [], [], 0

    def _continue(self, columns: int) -> None:
        """Take the present network; only parameters of the optimiser may have changed."""
        before, now = self._model.settings, self._fixed(columns)
        changed = [f"{k} was {before[k]!r} and is {now[k]!r}" for k in now if now[k] != before[k]]
        if changed:
            what = f"{', '.join(changed)}; set warm_start=False to start again"
            raise ValueError(f"warm_start continues with the same network, but {what}")
        for group in self._model.learner.optimizer.param_groups:
            group.update(lr=self._learning_rate(), weight_decay=self.alpha)
            if "momentum" in group:
                group["momentum"] = self.momentum

    def _network_shape(self) -> State:
        """Return the arguments that the network is built from."""
        sizes, kind = self.hidden_layer_sizes, self.kind
        several = list(sizes) if isinstance(sizes, Iterable) else [sizes]
        whole = (isinstance(n, Integral) and not isinstance(n, bool) for n in several)
        if not several or not all(whole) or min(several) < 1:
            raise ValueError(
                f"hidden_layer_sizes must be a positive integer or a list of them, got {sizes!r}"
            )
        if self.learn_gates is not None:
            if kind not in ("ts-lrc", "ts-ibp-lrc"):
                what = f"leave it None with kind={kind!r}"
                raise ValueError(f"learn_gates is for kinds 'ts-lrc' and 'ts-ibp-lrc'; {what}")
            kind = "ts-ibp-lrc" if self.learn_gates else "ts-lrc"
        widths = [int(n) for n in several]
        return {"kind": kind, "depth": len(widths), "width": widths, "bias": bool(self.bias)}

    def _fixed(self, columns: int) -> State:
        """Return what must not change while training goes on."""
        rest = {"columns": columns, "optimizer": self.optimizer, "device": str(self.device)}
        return {**self._network_shape(), **rest}

    def _learning_rate(self) -> float:
        if self.learning_rate_init != "auto":
            return float(self.learning_rate_init)
        return SETTINGS.rates[bool(self.standardize) and self._network_shape()["kind"] == "ts-lrc"]

    def _set_batch_size(self, rows: int) -> None:
        least, most = SETTINGS.batches
        usual = min(most, max(least, rows // 16))
        auto = usual if rows >= SETTINGS.few_rows else SETTINGS.few_batch
        size = auto if self.batch_size == "auto" else int(self.batch_size)
        self._model.learner.batch_size = size

    def _held_out(
        self, X: np.ndarray, targets: np.ndarray, weight: np.ndarray, random: np.random.RandomState
    ) -> list[tuple[np.ndarray, ...]]:
        """Return rows to train on and rows that decide when to stop, with all classes in both."""
        strata = None
        if not is_regressor(self):
            counts = np.bincount(targets)
            held = self.validation_fraction * len(targets)
            enough = counts[counts > 0].min() > 1 and held >= np.count_nonzero(counts)
            strata = targets if enough or self.early_stopping is True else None
        options: State = {"test_size": self.validation_fraction, "stratify": strata}
        seed = random.randint(2**31)
        found = train_test_split(X, targets, weight, random_state=seed, **options)
        return [tuple(found[::2]), tuple(found[1::2])]

    def _train(self, rows: Rows, held: Rows | None) -> None:
        """Train until nothing improves; keep the best epoch on rows that were held out."""
        best, waited, kept, learner = np.inf, 0, None, self._model.learner
        with progress_bar(type(self).__name__, bool(self.verbose), self.max_iter) as bar:
            for _ in range(self.max_iter):
                self._epoch(rows)
                criterion, note = self.loss_curve_[-1], ""
                if held is not None:
                    criterion = learner.evaluate(held)[0]
                    self.validation_curve_.append(criterion)
                    note = f", validation {criterion:.4f}"
                bar(note=f"loss {self.loss_curve_[-1]:.4f}{note}")
                if criterion < best and held is not None:
                    state = learner.network.state_dict()
                    kept = {name: value.clone() for name, value in state.items()}
                waited = 0 if criterion < best - self.tol else waited + 1
                best = min(best, criterion)
                if waited >= self.n_iter_no_change:
                    break
        if kept is not None:
            learner.network.load_state_dict(kept)

    def _epoch(self, rows: Rows) -> None:
        self.loss_curve_.append(self._model.learner.epoch(rows)[0])
        self.n_iter_ += 1


@saved_as("mlp-classifier")
@dataclass(eq=False, repr=False)
class TSMLPClassifier(ClassifierMixin, TSMLP):  # type: ignore[misc]
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
    optimizer, momentum : {"adam", "adamw", "sgd"}, default="adam", and float, default=0.9
        The optimiser, and the momentum of "sgd".
    learning_rate_init : float or "auto", default="auto"
        The learning rate; by default 1e-3, and 2e-4 for "ts-lrc" on standardised columns.
    alpha : float, default=1e-4
        Strength of the L2 penalty.
    batch_size : int or "auto", default="auto"
        Number of rows per step; by default a sixteenth of them, at least 32 and at most 128, and
        200 if there are fewer than 300 rows.
    max_iter, tol : int, default=200, and float, default=1e-4
        Most epochs, and smallest decrease of the monitored loss that counts as an improvement.
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
    device, verbose : str, default="cpu", and bool, default=False
        The torch device to train on, and whether to show a progress bar.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        The class labels, sorted.
    network_ : torch.nn.Module
        The network.
    n_iter_, loss_ : int and float
        Number of epochs, and training loss of the last one.
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

    class_weight: ClassWeight = field(default=None, kw_only=True)
    classes_: np.ndarray = field(init=False)

    _parameter_constraints = TSMLP._parameter_constraints | CLASS_WEIGHT

    @unchanged_on_error
    def partial_fit(
        self,
        X: ArrayLike,
        y: ArrayLike,
        classes: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
    ) -> Self:
        """Train for one epoch on a chunk of rows.

        Parameters
        ----------
        X, y, sample_weight : as for :meth:`fit`
            A chunk of samples.
        classes : array-like of shape (n_classes,), optional
            All labels that any chunk may contain. Required in the first call.
        """
        known = check_partial_fit(getattr(self, "classes_", None), classes)
        if isinstance(self.class_weight, str):
            what = "needs all rows at once; pass a dict of weights to use it with partial_fit"
            raise ValueError(f"class_weight={self.class_weight!r} {what}")
        return self._learn_chunk(X, y, sample_weight, known)

    def _encoded(
        self, y: np.ndarray, weight: Weights, continues: bool, classes: np.ndarray | None = None
    ) -> tuple[np.ndarray, Weights, int]:
        if (known := classes) is None:
            known = check_classes(y, weight=weight)
            before = getattr(self, "classes_", known)
            if continues and not np.array_equal(known, before):
                raise ValueError(
                    f"warm_start needs the classes of the previous fit, {before}, got {known}"
                )
        targets = class_places(y, known, weight)
        self.classes_ = known
        if self.class_weight is not None:
            rows = np.ones(len(y)) if weight is None else weight
            weight = rows * class_factors(self.class_weight, known, targets, rows)[targets]
        return targets, weight, len(known)

    def predict_proba(self, X: ArrayLike) -> np.ndarray:
        """Return the probability of each class, of shape (n_samples, n_classes)."""
        return softmax(self._outputs(X).astype(np.float64), axis=1)

    def predict(self, X: ArrayLike) -> np.ndarray:
        """Predict the most probable class."""
        places = self._outputs(X).argmax(1)  # raises if the model is not fitted
        return self.classes_[places]


@saved_as("mlp-regressor")
@documented_as(TSMLPClassifier, without=("class_weight", "classes_"))
@dataclass(eq=False, repr=False)
class TSMLPRegressor(MultiOutputMixin, RegressorMixin, TSMLP):  # type: ignore[misc]
    """Regressor with a TS or SS network, trained by gradient descent on the squared error.

    Parameters follow :class:`sklearn.neural_network.MLPRegressor`. Targets may have several
    columns, and are standardised inside.

    {parameters}

    {attributes}
    target_shape_ : tuple of int
        Shape of the targets of a row, () for one-dimensional targets.

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
    def partial_fit(
        self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None
    ) -> Self:
        """Train for one epoch on a chunk of rows.

        Parameters
        ----------
        X, y, sample_weight : as for :meth:`fit`
            A chunk of samples.
        """
        return self._learn_chunk(X, y, sample_weight)

    def _encoded(
        self, y: np.ndarray, weight: Weights, continues: bool, classes: np.ndarray | None = None
    ) -> tuple[np.ndarray, Weights, int]:
        shape = y.shape[1:]
        if continues and shape != self.target_shape_:
            raise ValueError(
                f"y has rows of shape {shape}, but previous targets had shape {self.target_shape_}"
            )
        self.target_shape_ = shape
        targets = np.ascontiguousarray(y.reshape(len(y), -1), dtype=np.float64)
        return targets, weight, targets.shape[1]

    def predict(self, X: ArrayLike) -> np.ndarray:
        """Predict targets, in the shape of those of the training samples."""
        outputs = self._outputs(X)
        return outputs if self.target_shape_ else outputs.ravel()
