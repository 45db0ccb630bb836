"""What the kernel ridge estimators share: parameters, the search, and its results."""

from __future__ import annotations

from numbers import Integral, Real
from typing import Any, ClassVar

import numpy as np
from sklearn.utils import check_random_state
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import check_is_fitted

from tensorswitch._memory import memory_budget
from tensorswitch._progress import progress_bar
from tensorswitch.estimators._explaining import ExplainedKernelRidge
from tensorswitch.estimators._inputs import check_squares, validated
from tensorswitch.estimators._state import SavedEstimator
from tensorswitch.kernel_ridge import KernelModel, Search, SearchResult

DIRECT_ROWS = 10_000
MATRICES = 4  # of doubles, with as many rows and columns as there are rows, that a direct fit holds
AUTO = StrOptions({"auto"})


class TSKernelRidgeBase(ExplainedKernelRidge, SavedEstimator):
    """What classifier and regressor share."""

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "kernel": [StrOptions({"auto", "ss", "ts", "ntk"})],
        "depth": [AUTO, Interval(Integral, 0, None, closed="left")],
        "alpha": [AUTO, Interval(Real, 0, None, closed="neither")],
        "scaling": [StrOptions({"auto", "standard", "common", "robust", "ramps"})],
        "bias": [AUTO, Interval(Real, 0, None, closed="left")],
        "column_weights": ["boolean"],
        "memory_gb": [None, Interval(Real, 0, None, closed="neither")],
        "random_state": ["random_state"],
        "verbose": ["verbose"],
    }
    _model: KernelModel

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

    def _searched(
        self, X: np.ndarray, targets: np.ndarray, weight: np.ndarray | None
    ) -> SearchResult:
        """Choose and solve for rows with positive weights."""
        check_squares(X)
        choices = {
            "kinds": self.kernel,
            "depths": self.depth,
            "penalties": self.alpha,
            "scalings": self.scaling,
            "biases": self.bias,
        }
        fixed = {name: (value,) for name, value in choices.items() if value != "auto"}
        with progress_bar(type(self).__name__, self.verbose) as bar:
            search = Search(
                **fixed,  # type: ignore[arg-type]
                column_weights=bool(self.column_weights),
                direct_rows=self._direct_rows(),
                memory=memory_budget(self.memory_gb),
                seed=int(check_random_state(self.random_state).randint(2**31)),
                watch=lambda note: bar(note=note),
            )
            return search.fit(X, targets, weight)

    def _direct_rows(self) -> int:
        """Return for how many rows the kernel matrix fits."""
        return min(DIRECT_ROWS, int((memory_budget(self.memory_gb) / (8 * MATRICES)) ** 0.5))

    def _keep(self, model: KernelModel, alpha: float, candidates: dict[str, Any]) -> None:
        """Set what was chosen."""
        self._model, self.alpha_, self.candidates_ = model, float(alpha), candidates
        self.kernel_, self.depth_, self.bias_ = model.kind, model.depth, model.bias
        self.scaling_ = model.columns.kind
        self.column_weights_ = model.columns.feature_weights

    def _outputs(self, X: Any) -> np.ndarray:
        rows = self._rows(X)  # which raises before there is a model
        return self._model(rows)

    def _rows(self, X: Any) -> Any:
        """Return rows to predict, which stay sparse if they are."""
        check_is_fitted(self)
        return validated(self, X, dtype=np.float64, reset=False)

    def _fitted_state(self, sums: bool) -> dict[str, Any]:
        return {
            "model": self._model,
            "alpha": self.alpha_,
            "candidates": self.candidates_,
            "loo_predictions": self.loo_predictions_,
            "loo_score": self.loo_score_,
        }

    def _restore(self, fitted: dict[str, Any]) -> None:
        self._keep(fitted["model"], fitted["alpha"], fitted["candidates"])
        self.loo_predictions_, self.loo_score_ = fitted["loo_predictions"], fitted["loo_score"]

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "_model")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags
