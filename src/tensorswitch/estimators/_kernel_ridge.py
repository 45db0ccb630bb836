"""What the kernel ridge estimators share: settings, the search, and its results."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from numbers import Integral, Real
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from tensorswitch._memory import available_memory
from tensorswitch._progress import progress_bar
from tensorswitch.estimators._explaining import ExplainedKernelRidge
from tensorswitch.estimators._inputs import check_squares, validated
from tensorswitch.kernel_ridge import (
    BIASES,
    DEPTHS,
    KINDS,
    PENALTIES,
    SCALINGS,
    DistinctRows,
    KernelModel,
    Search,
)
from tensorswitch.kernels import check_depth, check_kind

DIRECT_ROWS = 10_000
MATRICES = 4  # of doubles, with as many rows and columns as there are rows, that a direct fit holds


class TSKernelRidgeBase(ExplainedKernelRidge, BaseEstimator):  # type: ignore[misc]
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
        check_squares(X)
        seed = int(check_random_state(self.random_state).randint(2**31))
        rows = DistinctRows.of(X, targets, weight, seed)
        if len(rows) < 2:
            raise ValueError(
                f"X has {len(rows)} distinct row with a positive weight (n_samples={len(X)}); "
                "at least 2 are needed"
            )
        with self._progress() as watch:
            options |= {"direct_rows": self._direct_rows(), "memory": self._memory()}
            return Search(rows, seed=seed, watch=watch, **options)

    @contextmanager
    def _progress(self) -> Iterator[Callable[[str], None]]:
        with progress_bar(type(self).__name__, self.verbose) as bar:
            yield lambda note: bar(note=note)

    def _options(self) -> dict[str, Any]:
        """Return the values to try, a single one where it is fixed."""
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
        return min(DIRECT_ROWS, int((self._memory() / (8 * MATRICES)) ** 0.5))

    def _memory(self) -> float:
        """Return the bytes that may be used."""
        if self.memory_gb is not None and not self.memory_gb > 0:
            raise ValueError(f"memory_gb must be above 0, got {self.memory_gb!r}")
        given = self.memory_gb
        return 0.7 * available_memory() if given is None else given * 2**30

    def _keep(self, search: Search, X: np.ndarray, used: np.ndarray, weight: Any) -> np.ndarray:
        """Set the shared attributes; return the leave-one-out outputs of the rows used."""
        chosen = search.chosen
        self._model = search.model
        self.kernel_, self.depth_, self.bias_ = chosen.kind, chosen.depth, chosen.bias
        self.alpha_, self.scaling_ = chosen.penalty, chosen.scaling.name
        self.column_weights_ = chosen.scaling.feature_weights
        entries = [c.entry() for c in search.tried]
        self.candidates_ = {name: [e[name] for e in entries] for name in entries[0]}
        left_out = search.targets[: search.loo_rows] - search.loo.residuals
        outputs = np.full((len(search.data), left_out.shape[1]), np.nan)
        outputs[: search.loo_rows] = left_out.numpy()
        result: np.ndarray = outputs[search.data.place]
        return result

    def _outputs(self, X: Any) -> np.ndarray:
        check_is_fitted(self, "kernel_")
        return self._model.outputs(self._rows(X))

    def _rows(self, X: Any) -> Any:
        """Return rows to predict, which stay sparse if they are."""
        return validated(self, X, dtype=np.float64, reset=False)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags


def _is_auto(value: Any) -> bool:
    return isinstance(value, str) and value == "auto"


def _number(name: str, value: Any, above_zero: bool = False) -> float:
    valid = isinstance(value, Real | Integral) and not isinstance(value, bool)
    if not valid or not np.isfinite(value) or value < 0 or (above_zero and value == 0):
        least = "above 0" if above_zero else "of at least 0"
        raise ValueError(f"{name} must be 'auto' or a finite number {least}, got {value!r}")
    return float(value)
