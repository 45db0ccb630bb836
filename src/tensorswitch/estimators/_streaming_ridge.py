"""Ridge regression on features that are given, in one pass."""

from dataclasses import KW_ONLY, dataclass, field
from typing import ClassVar

import numpy as np
from sklearn.utils._param_validation import StrOptions

from tensorswitch.estimators._base import CLASS_WEIGHT, ClassWeight, Constraints, documented_as
from tensorswitch.estimators._front import NewRows, ScaledColumns, Standardize
from tensorswitch.estimators._readout import COLUMN_SOLVERS
from tensorswitch.estimators._ridge import RidgeClassifier, RidgeEstimator, RidgeRegressor
from tensorswitch.estimators._ts_ridge import OF_SUMS
from tensorswitch.linear._penalty import Alpha
from tensorswitch.persistence import saved_as


@dataclass(eq=False, repr=False)
class StreamingRidge(RidgeEstimator):
    """Scaling of the given columns, by the moments of all rows or of the first chunk."""

    alpha: Alpha = "cv"
    _: KW_ONLY
    standardize: Standardize = True
    fit_intercept: bool = True
    solver: str = "auto"
    forgetting: float = 1.0
    track_rows: bool = False
    memory_gb: float | None = None
    verbose: bool = False

    _parameter_constraints: ClassVar[Constraints] = {
        **OF_SUMS,
        "solver": [StrOptions(set(COLUMN_SOLVERS))],
    }

    def _new_front(self, rows: NewRows, whole: bool) -> ScaledColumns:
        return ScaledColumns.fit(rows, self.standardize)

    @property
    def coef_(self) -> np.ndarray:
        """The readout of the scaled features, in the shape of scikit-learn's linear models."""
        found: np.ndarray = super().coef_.T
        return found[0] if getattr(self, "_flat", False) else found


@saved_as("streaming-ridge-classifier")
@dataclass(eq=False, repr=False)
class StreamingRidgeClassifier(StreamingRidge, RidgeClassifier):
    """Classifier by ridge regression of ±1 targets on given features, in one pass.

        W, c = argmin Σ ‖Wᵀ z + c − t‖² + λ ‖W‖²

    Only the sums ``Σ z zᵀ`` and ``Σ z tᵀ`` are kept, in half the memory of the full matrix, so the
    number of rows is not limited, and neither is that of features by LAPACK's 32-bit integers. The
    penalty is chosen by exact cross-validation from the sums of folds. Classes may appear in later
    chunks, models can be merged, and rows can be removed again.

    It suits features that others have computed: embeddings of a pretrained network, random
    convolutional kernels (ROCKET), or :class:`tensorswitch.features.PatchFeatures`.

    Parameters
    ----------
    alpha : float, str or a sequence of these, default="cv"
        The ridge penalty λ: a number; "mean", the mean of the diagonal of the centred Gram matrix,
        or a multiple of it such as "0.1 mean"; several of these; or "cv" for a range of multiples.
        One of several is chosen by cross-validation.
    standardize : bool or pair of array-likes, default=True
        Whether to subtract the mean of each feature and divide by its standard deviation. ``fit``
        takes them from all rows, ``partial_fit`` from the first chunk; they can also be given, so
        that several machines agree.
    fit_intercept : bool, default=True
        Whether to add an intercept that is not penalised.
    solver : {"auto", "streaming", "matrix-free"}, default="auto"
        "streaming" solves the normal equations. "matrix-free" keeps the rows in half precision, in
        memory or in a temporary file, and uses conjugate gradients: for ``fit`` with so many
        features that their Gram matrix takes too much memory or time. Such a model cannot be
        updated. "auto" is "streaming" up to 40,000 features, if there is memory for it.
    forgetting : float, default=1.0
        Factor in (0, 1] by which each ``partial_fit`` multiplies the previous sums.
    track_rows : bool, default=False
        Keep a hash of each row (16 bytes), so that ``remove`` refuses rows that are not there.
    memory_gb : float, optional
        Memory budget in GiB. By default 70 % of the memory that is available.
    class_weight : dict or "balanced", optional
        Weights of the classes. "balanced" needs all rows at once.
    verbose : bool, default=False
        Show a progress bar.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        The class labels, sorted.
    coef_ : ndarray of shape (n_classes, n_features), or (1, n_features) for two classes
        The readout of the scaled features.
    intercept_ : ndarray of shape (n_outputs,)
        The intercept.
    alpha_ : float
        The penalty λ that was used.
    solution_ : Solution
        The readout with the errors of all λ that were tried.
    n_features_in_ : int
        Number of features.

    See Also
    --------
    sklearn.linear_model.RidgeClassifierCV : The same model with all rows in memory.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from tensorswitch.estimators import StreamingRidgeClassifier
    >>> X, y = load_digits(return_X_y=True)
    >>> model = StreamingRidgeClassifier()
    >>> for start in range(0, 1500, 500):
    ...     model = model.partial_fit(X[start : start + 500], y[start : start + 500], range(10))
    >>> bool(model.score(X[1500:], y[1500:]) > 0.85)
    True
    """

    class_weight: ClassWeight = field(default=None, kw_only=True)

    _parameter_constraints = StreamingRidge._parameter_constraints | CLASS_WEIGHT


@saved_as("streaming-ridge-regressor")
@documented_as(StreamingRidgeClassifier, without=("class_weight", "classes_", "coef_"))
@dataclass(eq=False, repr=False)
class StreamingRidgeRegressor(StreamingRidge, RidgeRegressor):
    """Ridge regression on given features, in one pass.

        W, c = argmin Σ ‖Wᵀ z + c − t‖² + λ ‖W‖²

    Only the sums ``Σ z zᵀ`` and ``Σ z tᵀ`` are kept; see :class:`StreamingRidgeClassifier`. Targets
    may have several columns.

    {parameters}

    {attributes}
    coef_ : ndarray of shape (n_features,) or (n_outputs, n_features)
        The readout of the scaled features.

    Examples
    --------
    >>> import numpy as np
    >>> from tensorswitch.estimators import StreamingRidgeRegressor
    >>> X = np.random.default_rng(0).normal(size=(500, 3))
    >>> model = StreamingRidgeRegressor().fit(X, X @ [1.0, 2.0, 3.0] + 5)
    >>> np.round(model.predict(np.ones((1, 3))), 2)
    array([11.])
    """
