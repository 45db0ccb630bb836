"""Kernel ridge regression that needs no settings, as a scikit-learn classifier and regressor."""

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, field
from numbers import Integral
from typing import ClassVar, Self

import numpy as np
import torch
from numpy.typing import ArrayLike
from sklearn.base import ClassifierMixin, MultiOutputMixin, RegressorMixin
from sklearn.metrics import accuracy_score, r2_score
from sklearn.utils import Tags
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import check_is_fitted

from tensorswitch._memory import dense_rows, memory_budget
from tensorswitch._progress import progress_bar
from tensorswitch.estimators._base import (
    ABOVE_ZERO,
    AT_LEAST_ZERO,
    AUTO,
    CLASS_WEIGHT,
    ClassWeight,
    Constraints,
    Matrix,
    MatrixLike,
    RandomState,
    SavedEstimator,
    State,
    Weights,
    documented_as,
    unchanged_on_error,
)
from tensorswitch.estimators._validation import (
    check_classes,
    check_rows,
    check_squares,
    check_training_rows,
    check_weights,
    class_factors,
    class_places,
    seed_of,
    signed_targets,
)
from tensorswitch.explain import Explanation
from tensorswitch.kernel_ridge import KernelModel, Search
from tensorswitch.linear._calibration import Calibration
from tensorswitch.persistence import saved_as
from tensorswitch.preprocessing import Scaling

COPIES = 3  # of dense rows that a fit holds
DIRECT_ROWS = 10_000
MATRICES = 4  # of doubles, with as many rows and columns as there are rows, that a direct fit holds
CONSTANT = 1e-12  # relative deviation of targets that count as constant
BLOCK = 1 << 26  # kernel values held at a time


@dataclass(eq=False, repr=False)
class TSKernelRidge(SavedEstimator):
    """Search → (scaling, kernel, coefficients): what classifier and regressor share."""

    _: KW_ONLY
    kernel: str = "auto"
    depth: int | str = "auto"
    alpha: float | str = "auto"
    scaling: str = "auto"
    bias: float | str = "auto"
    column_weights: bool = True
    memory_gb: float | None = None
    random_state: RandomState = 0
    verbose: bool = False

    _parameter_constraints: ClassVar[Constraints] = {
        "kernel": [StrOptions({"auto", "ss", "ts", "ntk"})],
        "depth": [AUTO, Interval(Integral, 0, None, closed="left")],
        "alpha": [AUTO, ABOVE_ZERO],
        "scaling": [StrOptions({"auto", "standard", "common", "robust", "ramps"})],
        "bias": [AUTO, AT_LEAST_ZERO],
        "column_weights": ["boolean"],
        "memory_gb": [None, ABOVE_ZERO],
        **{name: [name] for name in ("random_state", "verbose")},
    }

    @abstractmethod
    def _encoded(self, y: np.ndarray, weight: Weights) -> tuple[np.ndarray, Weights]:
        """Return targets of the expansion, (rows, outputs), and weights; 0 leaves rows out."""

    @abstractmethod
    def _judge(
        self, y: np.ndarray, left_out: np.ndarray, weight: Weights, variance: np.ndarray
    ) -> None:
        """Take calibration and scores from outputs for rows left out, nan where there are none."""

    @abstractmethod
    def _as_outputs(self, raw: Explanation) -> Explanation:
        """Map explanations of the expansion to those of predictions."""

    @unchanged_on_error
    def fit(self, X: MatrixLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Choose everything by leave-one-out error and solve.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            The rows.
        y : array-like of shape (n_samples,) or (n_samples, n_outputs)
            Labels, or targets of a regression.
        sample_weight : array-like of shape (n_samples,), optional
            Weights of the rows. A weight of two is a repeated row.
        """
        self._validate_params()
        X, y = check_training_rows(self, X, y, dtype=np.float64, accept_sparse="csr")
        rows = dense_rows(X, copies=COPIES)
        check_squares(rows)
        targets, weight = self._encoded(y, check_weights(rows, sample_weight))
        used = np.ones(len(y), dtype=bool) if weight is None else weight > 0
        shares = None if weight is None else weight[used]
        with progress_bar(type(self).__name__, self.verbose) as bar:
            search = self._search(lambda note: bar(note=note))
            found = search.fit(rows[used], targets[used], shares)
        self._keep(found.model, found.alpha, found.candidates)
        left_out = np.full(targets.shape, np.nan)
        left_out[used] = found.left_out
        self._judge(y, left_out, weight, found.variance)
        return self

    def _search(self, watch: Callable[[str], None]) -> Search:
        """Return the search among what the parameters leave open."""
        names = ("kinds", "depths", "penalties", "scalings", "biases")
        values = (self.kernel, self.depth, self.alpha, self.scaling, self.bias)
        choices = zip(names, values, strict=True)
        fixed = {name: (value,) for name, value in choices if value != "auto"}
        return Search(
            **fixed,  # type: ignore[arg-type]
            column_weights=bool(self.column_weights),
            direct_rows=self._direct_rows(),
            memory=memory_budget(self.memory_gb),
            seed=seed_of(self.random_state),
            watch=watch,
        )

    def _direct_rows(self) -> int:
        """Return for how many rows the kernel matrix fits."""
        return min(DIRECT_ROWS, int((memory_budget(self.memory_gb) / (8 * MATRICES)) ** 0.5))

    def _keep(self, model: KernelModel, alpha: float, candidates: State) -> None:
        """Set what was chosen."""
        self._model, self.alpha_, self.candidates_ = model, float(alpha), candidates
        self.kernel_, self.depth_, self.bias_ = model.kind, model.depth, model.bias
        self.scaling_ = model.columns.kind
        self.column_weights_ = model.columns.feature_weights

    def explain(self, X: ArrayLike) -> Explanation:
        """Return what each feature contributes: ``z_i ∂f/∂z_i``, exactly.

        Kernels of ReLU networks are homogeneous of degree one in the scaled row z, so that
        ``f(x) = intercept + Σ_i z_i ∂f/∂z_i`` by Euler's theorem. The share of the constant column
        of z belongs to the constant. As z is zero for a value at the centre of its column,
        contributions say what differs from a row of averages. Those of shape (n_samples, n_outputs,
        n_features) add up with the constant to ``decision_function`` or ``predict``; two classes
        have one output.
        """
        X = self._rows(X, accept_sparse=False)  # contributions are dense in any case
        model = self._model
        step = max(1, BLOCK // len(model.support))
        shares, outputs = [], []
        for begin in range(0, len(X), step):
            z = model.scaled(X[begin : begin + step])
            shares.append(model.contributions(z).double().numpy())
            outputs.append((model.kernel(z) @ model.coef + model.intercept).double())
        total, share = torch.cat(outputs).numpy(), np.concatenate(shares)[:, :, :-1]
        raw = Explanation(share, total - share.sum(2)).grouped(model.columns.sources, X.shape[1])
        return self._as_outputs(raw)

    def nearest_rows(
        self, X: ArrayLike, others: ArrayLike, count: int = 3
    ) -> tuple[np.ndarray, np.ndarray]:
        """Find the rows whose patterns of gates are most similar.

        A kernel has infinitely many random gates, of which two rows at an angle θ share
        ``1 − θ / π``.

        Parameters
        ----------
        X, others, count : as for :meth:`TSRidgeClassifier.nearest_rows`
            The indices and the shares of gates are returned as there.
        """
        rows = (self._rows(x, accept_sparse=False) for x in (X, others))
        a, b = (torch.nn.functional.normalize(self._model.scaled(x).double()) for x in rows)
        places, share = [], []
        for part in a.split(max(1, BLOCK // max(1, len(b)))):
            angle = (part @ b.t()).clamp(-1, 1).acos()  # rounding may leave the range
            least = angle.topk(min(count, len(b)), largest=False)
            places.append(least.indices.numpy())
            share.append(1 - least.values.numpy() / np.pi)
        return np.concatenate(places), np.concatenate(share)

    def _rows(self, X: MatrixLike, accept_sparse: str | bool = "csr") -> Matrix:
        """Return rows to predict, which stay sparse if they are."""
        check_is_fitted(self)
        return check_rows(self, X, dtype=np.float64, accept_sparse=accept_sparse)

    def _fitted_state(self, sums: bool) -> State:
        names = ("alpha", "candidates", "loo_predictions", "loo_score")
        return {"model": self._model, **{name: getattr(self, f"{name}_") for name in names}}

    def _restore(self, fitted: State) -> None:
        self._keep(fitted["model"], fitted["alpha"], fitted["candidates"])
        self.loo_predictions_, self.loo_score_ = fitted["loo_predictions"], fitted["loo_score"]

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "_model")

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags


@saved_as("kernel-ridge-classifier")
@dataclass(eq=False, repr=False)
class TSKernelRidgeClassifier(ClassifierMixin, TSKernelRidge):  # type: ignore[misc]
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
    random_state, verbose : int or RandomState, default=0, and bool, default=False
        Seed of the sample on which candidates are tried, and whether to show progress.

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

    class_weight: ClassWeight = field(default=None, kw_only=True)

    _parameter_constraints = TSKernelRidge._parameter_constraints | CLASS_WEIGHT

    def _encoded(self, y: np.ndarray, weight: Weights) -> tuple[np.ndarray, Weights]:
        weight = np.ones(len(y)) if weight is None else weight
        self.classes_ = check_classes(y, weight=weight)
        places = class_places(y, self.classes_, weight)
        used = weight > 0
        factors = class_factors(self.class_weight, self.classes_, places[used], weight[used])
        return signed_targets(places, len(self.classes_)), weight * factors[places]

    def _judge(
        self, y: np.ndarray, left_out: np.ndarray, weight: Weights, variance: np.ndarray
    ) -> None:
        assert weight is not None
        known = ~np.isnan(left_out[:, 0])
        outputs, weight = left_out[known], weight[known]
        places = class_places(y[known], self.classes_)
        self._calibration = Calibration.fit(outputs, places, weight)
        probabilities = self._calibration.probabilities(outputs)
        self.loo_predictions_ = np.full((len(y), len(self.classes_)), np.nan)
        self.loo_predictions_[known] = probabilities
        guesses = probabilities.argmax(1)
        self.loo_score_ = float(accuracy_score(places, guesses, sample_weight=weight))

    def decision_function(self, X: MatrixLike) -> np.ndarray:
        """Return outputs of shape (n_samples, n_classes), whose softmax is ``predict_proba``.

        For two classes, (n_samples,): the logarithm of the odds of the second.
        """
        logits = self._logits(X)
        return logits[:, 1] - logits[:, 0] if logits.shape[1] == 2 else logits

    def predict_proba(self, X: MatrixLike) -> np.ndarray:
        """Return the probability of each class, of shape (n_samples, n_classes)."""
        rows = self._rows(X)  # raises before there is a model
        return self._calibration.probabilities(self._model(rows))

    def predict(self, X: MatrixLike) -> np.ndarray:
        """Return the most probable class of each row."""
        logits = self._logits(X)
        return self.classes_[logits.argmax(1)]

    def _logits(self, X: MatrixLike) -> np.ndarray:
        rows = self._rows(X)
        return self._calibration.logits(self._model(rows))

    def _as_outputs(self, raw: Explanation) -> Explanation:
        """Map explanations of the expansion to those of ``decision_function``."""
        calibration = self._calibration
        weight, offset = calibration.temperature * calibration.matrix, calibration.offset
        if raw.constant.shape[1] == 1:  # two classes: f and −f, and the difference of logits
            weight = (np.array([[-1.0, 1.0]]) @ weight) @ np.array([[-1.0], [1.0]])
            offset = offset[1:] - offset[:1]
        share = np.einsum("rof,op->rpf", raw.contributions, weight)
        return Explanation(share, raw.constant @ weight + offset)

    def _fitted_state(self, sums: bool) -> State:
        own = {"classes": self.classes_, "calibration": self._calibration}
        return {**super()._fitted_state(sums), **own}

    def _restore(self, fitted: State) -> None:
        super()._restore(fitted)
        self.classes_, self._calibration = fitted["classes"], fitted["calibration"]


@saved_as("kernel-ridge-regressor")
@documented_as(
    TSKernelRidgeClassifier, without=("class_weight", "classes_", "loo_predictions_", "loo_score_")
)
@dataclass(eq=False, repr=False)
class TSKernelRidgeRegressor(MultiOutputMixin, RegressorMixin, TSKernelRidge):  # type: ignore[misc]
    """Kernel ridge regression with the equivalent kernels; no settings are needed.

    Scaling and weights of the columns, kernel, depth and penalty are those of least leave-one-out
    error, which is computed exactly. ``predict(X, return_std=True)`` gives the standard deviation
    of a Gaussian process with the same kernel, whose variance is chosen by leave-one-out residuals.

    {parameters}

    {attributes}
    loo_predictions_ : ndarray of shape (n_samples,) or (n_samples, n_outputs)
        The prediction of each row from a model fitted to all rows that differ from it; nan where
        there is none.
    loo_score_ : float
        Their R².

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

    def _encoded(self, y: np.ndarray, weight: Weights) -> tuple[np.ndarray, Weights]:
        raw = y.reshape(len(y), -1).astype(np.float64)
        used = slice(None) if weight is None else weight > 0
        shares = None if weight is None else weight[used]
        self._targets, self._flat = Scaling.fit(raw[used], shares, constant=CONSTANT), y.ndim == 1
        return self._targets(raw), weight

    def _judge(
        self, y: np.ndarray, left_out: np.ndarray, weight: Weights, variance: np.ndarray
    ) -> None:
        self._variance = variance
        predictions = self._targets.inverse(left_out)
        self.loo_predictions_ = self._shaped(predictions)
        known = ~np.isnan(predictions[:, 0])
        shares = None if weight is None else weight[known]
        raw = y.reshape(len(y), -1)[known]
        self.loo_score_ = float(r2_score(raw, predictions[known], sample_weight=shares))

    def predict(
        self, X: MatrixLike, return_std: bool = False
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

    def _fitted_state(self, sums: bool) -> State:
        own = {"targets": self._targets, "variance": self._variance, "flat": self._flat}
        return {**super()._fitted_state(sums), **own}

    def _restore(self, fitted: State) -> None:
        super()._restore(fitted)
        self._targets, self._flat = fitted["targets"], fitted["flat"]
        self._variance = fitted["variance"]
