"""Ridge regression on the copies of random gates: classifier and regressor."""

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, field
from numbers import Real
from typing import ClassVar

import numpy as np
import torch
from numpy.typing import ArrayLike
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import check_is_fitted

from tensorswitch.estimators._base import (
    ABOVE_ZERO,
    AT_LEAST_ZERO,
    AUTO,
    CLASS_WEIGHT,
    POSITIVE,
    ClassWeight,
    Constraints,
    RandomState,
    documented_as,
)
from tensorswitch.estimators._front import GatedInputs, NewRows, Standardize
from tensorswitch.estimators._ridge import RidgeClassifier, RidgeEstimator, RidgeRegressor
from tensorswitch.estimators._validation import seed_of
from tensorswitch.explain import nearest_patterns
from tensorswitch.linear._penalty import Alpha
from tensorswitch.persistence import saved_as
from tensorswitch.switches import Switch

# What all ridge estimators accept.
ALPHA: Constraints = {"alpha": [AT_LEAST_ZERO, str, "array-like"]}
OF_SUMS: Constraints = {
    **ALPHA,
    "fit_intercept": ["boolean"],
    "standardize": "no_validation",  # words, or a pair of means and deviations: see Scaling.given
    "forgetting": [Interval(Real, 0, 1, closed="right")],
    "track_rows": ["boolean"],
    "memory_gb": [ABOVE_ZERO, None],
    "verbose": ["verbose"],
}


@dataclass(eq=False, repr=False)
class GatedRidge(RidgeEstimator):
    """Random gates in front of a ridge readout."""

    gates: Sequence[int] | int | str = "auto"
    alpha: Alpha = "cv"
    _: KW_ONLY
    switch: Switch | str = "relu"
    solver: str = "auto"
    standardize: Standardize = "auto"
    components: int | None = None
    fit_intercept: bool = True
    tol: float = 1e-4
    max_iter: int = 500
    forgetting: float = 1.0
    track_rows: bool = False
    memory_gb: float | None = None
    random_state: RandomState = None
    verbose: bool = False

    _parameter_constraints: ClassVar[Constraints] = {
        **OF_SUMS,
        "gates": [AUTO, POSITIVE, "array-like"],
        "switch": [str, Switch],
        "solver": [StrOptions({"auto", "streaming", "matrix-free", "dual"})],
        "components": [POSITIVE, None],
        "tol": [ABOVE_ZERO],
        "max_iter": [POSITIVE],
        "random_state": ["random_state"],
    }

    def _new_front(self, rows: NewRows, whole: bool) -> GatedInputs:
        return GatedInputs.fit(
            rows,
            gates=self.gates,
            switch=self.switch,
            standardize=self.standardize,
            components=self.components,
            intercept=bool(self.fit_intercept),
            seed=seed_of(self.random_state),
        )

    @property
    def gate_weights_(self) -> list[np.ndarray]:
        """The gate weights of each layer, of shape (n_l, n_{l-1})."""
        return [w.numpy() for w in self._gated().representation.gate_weights]

    @property
    def scaling_(self) -> str:
        """How columns were scaled: "columns", "common", "given" or "none"."""
        return self._gated().scaling.kind

    def open_gates(self, X: ArrayLike) -> np.ndarray:
        """Return which gates are open, the pattern that decides what linear map is applied.

        Of shape (n_samples, n_gates), with the gates of all layers, the first layer first.
        """
        gated = self._gated()
        X = self._checked_rows(X, accept_sparse=False)
        return torch.cat(gated.gates(X), dim=1).numpy()

    def nearest_rows(
        self, X: ArrayLike, others: ArrayLike, count: int = 3
    ) -> tuple[np.ndarray, np.ndarray]:
        """Find the rows whose patterns of gates are most similar.

        Parameters
        ----------
        X, others : array-like of shape (n_samples, n_features) and (n_others, n_features)
            Samples, and rows to compare with, such as the training rows.
        count : int, default=3
            How many to find.

        Returns
        -------
        places, share : ndarray of shape (n_samples, count)
            Indices of the most similar rows, most similar first, and the share of gates that agree.
        """
        return nearest_patterns(self.open_gates(X), self.open_gates(others), count)

    def _gated(self) -> GatedInputs:
        check_is_fitted(self)
        front = self._readout.front
        assert isinstance(front, GatedInputs)
        return front


@saved_as("ridge-classifier")
@dataclass(eq=False, repr=False)
class TSRidgeClassifier(GatedRidge, RidgeClassifier):
    """Classifier by ridge regression of ±1 targets on a TS representation with random gates.

        W, c = argmin Σ ‖Wᵀ z + c − t‖² + λ ‖W‖²,        z = h_L ⊗ … ⊗ h_1 ⊗ x

    The gates are drawn at random and stay fixed [1]_, so training takes one pass over the data and
    one linear system. ``fit`` takes all rows at once. ``partial_fit`` takes them in chunks, keeps
    sums whose size does not depend on the number of rows, and computes the same solution; classes
    may appear later, models with the same gates can be merged, and ``remove`` takes rows out again.

    Parameters
    ----------
    gates : "auto", int or sequence of int, default="auto"
        Number of gates of each layer, ``(n_1, …, n_L)``. An integer is a single layer. "auto" is
        one layer with about 4,096 features in all, of 16 to 256 gates.
    alpha : float, str or a sequence of these, default="cv"
        The ridge penalty λ: a number; "mean", the mean of the diagonal of the (centred) Gram matrix
        ``Σ z zᵀ``, as in the paper, or a multiple of it such as "0.1 mean"; or several of these, of
        which one is chosen by cross-validation. "cv" stands for multiples from 1,000 to 3e-5. The
        dual solver leaves out one row at a time with its copies, the others one of five folds (only
        a single one with more than 20,000 rows). A row's fold is a hash of its content, so order,
        chunks and copies make no difference. Where rows repeat because inputs have few values, they
        are left out one by one.
    switch : Switch or {"relu", "maxout", "maxout:PIECES", "none"}, default="relu"
        The rule that opens the gates; see :func:`tensorswitch.switches.as_switch`. With maxout,
        ``gates`` must be multiples of the number of pieces per unit.
    solver : {"auto", "streaming", "matrix-free", "dual"}, default="auto"
        "streaming" accumulates a Gram matrix, "matrix-free" runs conjugate gradients, and "dual"
        factorises a kernel matrix, for few rows. All compute the same solution. "auto" picks the
        one with the least estimated work that fits into memory and logs the reason.
    standardize : {"auto", True, False, "common"} or pair of array-likes, default="auto"
        Scaling of the inputs. True subtracts the mean of each column and divides by its standard
        deviation; "common" divides all columns by one number, which suits pixels and principal
        components, where rare columns would be amplified noise; "auto" picks one of these by
        leave-one-out error on a sample of rows; False leaves inputs as they are. ``fit`` takes
        means and deviations from all rows, ``partial_fit`` from the first chunk. They can also be
        given as a pair of means and standard deviations.
    components : int, optional
        Number of principal components to project on first. They are fitted by ``fit`` on all rows
        and by ``partial_fit`` on the first chunk. By default there is no projection.
    fit_intercept : bool, default=True
        Whether gates and readout have biases: a constant input is appended, the first gate of
        each layer is always open (with maxout, the other pieces of its unit are always closed), and
        an intercept is added that is not penalised. The paper's networks have none: they are
        ``standardize=False, fit_intercept=False``.
    tol : float, default=1e-4
        Relative residual at which conjugate gradients stop.
    max_iter : int, default=500
        Maximum number of iterations of conjugate gradients.
    forgetting : float, default=1.0
        Factor in (0, 1] by which each ``partial_fit`` multiplies the previous sums, for data that
        drifts.
    track_rows : bool, default=False
        Keep a hash of each row (16 bytes), so that ``remove`` refuses rows that are not there.
    memory_gb : float, optional
        Memory budget in GiB. By default 70 % of the memory that is available when fitting.
    class_weight : dict or "balanced", optional
        Weights of the classes. "balanced" weighs each class by the inverse of its frequency, which
        needs all rows at once.
    random_state : int, RandomState instance or None, default=None
        Seed of the gate weights.
    verbose : bool, default=False
        Show a progress bar for conjugate gradients.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        The class labels, sorted.
    gate_weights_ : list of ndarray of shape (n_l, n_{l-1})
        The gate weights of each layer.
    coef_ : ndarray of shape (n_L, …, n_1, n_inputs, n_outputs)
        The readout. With an intercept, the last input is the constant one.
    intercept_ : ndarray of shape (n_outputs,)
        The intercept, zero without one.
    alpha_ : float
        The penalty λ that was used.
    solver_ : str
        The solver that was used.
    scaling_ : str
        "columns", "common", "given" or "none".
    solution_ : Solution
        The readout with λ, the number of iterations and, if several values of λ were tried, the
        error of each.
    n_iter_ : int
        Number of iterations of conjugate gradients, 1 for the direct solvers.
    cv_score_ : float
        Accuracy on training rows for which the readout was fitted without them.
    n_features_in_ : int
        Number of features seen during fit.

    See Also
    --------
    TSRidgeRegressor : Ridge regression on the same representation.

    References
    ----------
    .. [1] C.-Y. Tsai, A. Saxe and D. Cox, "Tensor Switching Networks", NIPS 2016, arXiv:1610.10087.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from tensorswitch.estimators import TSRidgeClassifier
    >>> X, y = load_digits(return_X_y=True)
    >>> model = TSRidgeClassifier(random_state=0).fit(X[:1000], y[:1000])
    >>> bool(model.score(X[1000:], y[1000:]) > 0.94)
    True
    """

    class_weight: ClassWeight = field(default=None, kw_only=True)

    _parameter_constraints = GatedRidge._parameter_constraints | CLASS_WEIGHT


@saved_as("ridge-regressor")
@documented_as(TSRidgeClassifier, without=("class_weight", "classes_", "cv_score_"))
@dataclass(eq=False, repr=False)
class TSRidgeRegressor(GatedRidge, RidgeRegressor):
    """Ridge regression on a TS representation with random gates.

        W, c = argmin Σ ‖Wᵀ z + c − t‖² + λ ‖W‖²,        z = h_L ⊗ … ⊗ h_1 ⊗ x

    As :class:`TSRidgeClassifier`, for targets that may have several columns. Fitting ``a·y + b``
    gives the predictions ``a·p + b``.

    {parameters}

    {attributes}

    See Also
    --------
    TSRidgeClassifier : What the parameters mean in detail.

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
