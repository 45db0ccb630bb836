"""What the network estimators share: scaling, the network, and training with weights."""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import Any, Self

import numpy as np
import torch
from sklearn.base import BaseEstimator
from sklearn.model_selection import train_test_split
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from tensorswitch._checks import check_above_zero, check_number, check_positive, from_numpy
from tensorswitch._progress import progress_bar
from tensorswitch._random import seeded
from tensorswitch.estimators._explaining import ExplainedNetwork
from tensorswitch.estimators._inputs import check_squares, rows_of_numbers
from tensorswitch.estimators._onnx import OnnxMixin
from tensorswitch.models import mlp
from tensorswitch.training import Learner, Rows

BATCHES = (32, 128)  # the range of batch_size="auto"
FEW_ROWS, FEW_BATCH = 300, 200  # with fewer rows, none are held out, and steps are few instead
CONSTANT = 2.0  # the constant input, in standard deviations of the others
RATES = (1e-3, 2e-4)  # learning rates of "auto"; the second for fixed gates on standardised inputs


@dataclass(frozen=True)
class Standardization:
    """``(x − centre) / spread`` in float32 and a constant column, or only the conversion."""

    centre: np.ndarray | None = None
    spread: np.ndarray | None = None
    constant: float = 0.0

    @classmethod
    def of(
        cls, x: np.ndarray, weight: np.ndarray, wanted: bool, constant: bool = False
    ) -> Standardization:
        """Take weighted means and standard deviations; columns without variance are centred."""
        if not wanted:
            return cls()
        x = np.asarray(x, dtype=np.float64)
        check_squares(x)
        centre = np.average(x, axis=0, weights=weight)
        spread = np.sqrt(np.average(np.square(x - centre), axis=0, weights=weight))
        varies = spread > 1e-10 * np.abs(x).max(0)
        return cls(centre, np.where(varies, spread, 1.0), CONSTANT if constant else 0.0)

    def __call__(self, x: np.ndarray) -> np.ndarray:
        """Return standardised rows; labels pass unchanged."""
        if self.centre is not None and self.spread is not None:
            x = (x - self.centre) / self.spread
        if self.constant:
            x = np.column_stack([x, np.full(len(x), self.constant)])
        return x if x.dtype == np.int64 else np.ascontiguousarray(x, dtype=np.float32)

    def inverse(self, z: np.ndarray) -> np.ndarray:
        """Return standardised numbers in their own units."""
        if self.centre is None or self.spread is None:
            return z
        result: np.ndarray = z * self.spread + self.centre
        return result


def distinct_rows(
    X: np.ndarray, targets: np.ndarray, weight: np.ndarray | None
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Merge identical rows with identical targets, and leave out those without weight.

    The result does not depend on the order of the rows, and a weight of two is a repeated row.
    """
    weight = np.ones(len(X)) if weight is None else weight
    X, targets, weight = X[weight > 0], targets[weight > 0], weight[weight > 0]
    content = (np.ascontiguousarray(X), np.ascontiguousarray(targets))
    digests = [
        hashlib.blake2b(a.tobytes() + b.tobytes(), digest_size=8).digest()
        for a, b in zip(*content, strict=True)
    ]
    codes = np.frombuffer(b"".join(digests), dtype=np.uint64)
    _, first, place = np.unique(codes, return_index=True, return_inverse=True)
    return X[first], targets[first], np.bincount(place, weight, len(first))


class TSMLPBase(ExplainedNetwork, OnnxMixin, BaseEstimator):  # type: ignore[misc]
    """Base class of the classifier and the regressor."""

    _loss: str
    _learner: Learner
    _unit_weight: float = 1.0  # mean weight of the rows of the first chunk

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
        self.standardize = standardize
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

    def _fit(self, X: np.ndarray, targets: np.ndarray, weight: Any, outputs: int) -> Self:
        check_positive(max_iter=self.max_iter, n_iter_no_change=self.n_iter_no_change)
        random = check_random_state(self.random_state)
        going_on = self.warm_start and hasattr(self, "_learner")
        self._unit_weight = 1.0 if weight is None else float(weight[weight > 0].mean())
        X, targets, weight = distinct_rows(X, targets, weight)
        if going_on:
            self._go_on(X.shape[1])
        else:
            self._take_scales(X, targets, weight)
            self._start(X.shape[1], outputs, random)
        self._set_batch_size(len(X))
        parts: list[tuple[np.ndarray, ...]] = [(X, targets, weight)]
        if self._stops_early(len(X)):
            parts = self._held_out(X, targets, weight, random)
        rows, *held = (self._rows(*part) for part in parts)
        self._epochs(rows, held[0] if held else None)
        return self

    def _rows(
        self, X: np.ndarray, targets: np.ndarray, weight: np.ndarray, *, unit: float | None = None
    ) -> Rows:
        """Return scaled rows for the learner, with weights in a unit, by default their mean."""
        parts = weight / (weight.mean() if unit is None else unit)
        shares = None if np.allclose(parts, 1, rtol=1e-12) else parts.astype(np.float32)
        return Rows.from_numpy(self._scale(X), self._target_scale(targets), shares).to(self.device)

    def _held_out(
        self, X: np.ndarray, targets: np.ndarray, weight: np.ndarray, random: np.random.RandomState
    ) -> list[tuple[np.ndarray, ...]]:
        """Return rows to train on, and rows that decide when to stop."""
        if not 0 < self.validation_fraction < 1:
            raise ValueError(
                f"validation_fraction must be between 0 and 1, got {self.validation_fraction!r}"
            )
        found = train_test_split(
            X,
            targets,
            weight,
            test_size=self.validation_fraction,
            random_state=random.randint(2**31),
            stratify=self._strata(targets),
        )
        return [tuple(found[::2]), tuple(found[1::2])]

    def _strata(self, targets: np.ndarray) -> np.ndarray | None:
        """Return the classes, if each has enough rows for both parts."""
        if self._scales_targets():
            return None
        counts = np.bincount(targets)
        held = self.validation_fraction * len(targets)
        enough = counts[counts > 0].min() > 1 and held >= np.count_nonzero(counts)
        return targets if enough or self.early_stopping is True else None

    def _epochs(self, rows: Rows, held: Rows | None) -> None:
        """Train until nothing improves; keep the best epoch on rows that were held out."""
        best, waited, kept = np.inf, 0, None
        with progress_bar(type(self).__name__, self.verbose, self.max_iter) as bar:
            for _ in range(self.max_iter):
                self._epoch(rows)
                criterion = self.loss_curve_[-1]
                if held is not None:
                    criterion = self._learner.evaluate(held)[0]
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

    def _partial_fit(
        self, X: np.ndarray, targets: np.ndarray, weight: Any, outputs: int, first: bool
    ) -> Self:
        given = np.ones(len(X)) if weight is None else weight
        used = given[given > 0]
        X, targets, weight = distinct_rows(X, targets, weight)
        if first:
            self._take_scales(X, targets, weight)
            self._start(X.shape[1], outputs, check_random_state(self.random_state))
            self._unit_weight = float(used.mean())
        self._set_batch_size(max(len(X), FEW_ROWS))  # a chunk is not all there is
        unit = self._unit_weight * len(used) / max(1, len(X))
        self._epoch(self._rows(X, targets, weight, unit=unit))
        return self

    def _take_scales(self, X: np.ndarray, targets: np.ndarray, weight: np.ndarray) -> None:
        self._scale = Standardization.of(X, weight, self.standardize, constant=bool(self.bias))
        self._target_scale = Standardization.of(targets, weight, self._scales_targets())

    def _set_batch_size(self, rows: int) -> None:
        if isinstance(self.batch_size, str):
            if self.batch_size != "auto":
                raise ValueError(f"batch_size must be 'auto' or an int, got {self.batch_size!r}")
            least, most = BATCHES
            usual = min(most, max(least, rows // 16))
            self._learner.batch_size = FEW_BATCH if rows < FEW_ROWS else usual
            return
        check_positive(batch_size=self.batch_size)
        self._learner.batch_size = int(self.batch_size)

    def _stops_early(self, rows: int) -> bool:
        if isinstance(self.early_stopping, str):
            if self.early_stopping != "auto":
                raise ValueError(
                    f"early_stopping must be True, False or 'auto', got {self.early_stopping!r}"
                )
            return rows >= FEW_ROWS
        return bool(self.early_stopping)

    def _scales_targets(self) -> bool:
        return self._loss == "squared"

    def _start(self, n_in: int, outputs: int, random: np.random.RandomState) -> None:
        rate = self._learning_rate()
        check_number(alpha=self.alpha)
        shape = self._network_shape()
        # The weights depend on random_state alone, and torch's global generator is not advanced.
        with seeded(random.randint(2**31)), torch.device("cpu"):
            network = mlp(n_in + bool(self._scale.constant), outputs, **shape).float()
        if shape["kind"] in ("ts-lrc", "ts-ibp-lrc"):
            _start_at_zero(network)
        self._learner = Learner(
            network,
            loss=self._loss,
            optimizer=self.optimizer,
            lr=rate,
            momentum=self.momentum,
            weight_decay=self.alpha,
            seed=random.randint(2**31),
            device=self.device,
        )
        self._learner_shape = self._fixed(n_in)
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
        if self.learn_gates is not None:
            if kind not in ("ts-lrc", "ts-ibp-lrc"):
                raise ValueError(
                    "learn_gates is for kinds 'ts-lrc' and 'ts-ibp-lrc'; "
                    f"leave it None with kind={kind!r}"
                )
            kind = "ts-ibp-lrc" if self.learn_gates else "ts-lrc"
        return {
            "kind": kind,
            "depth": len(several),
            "width": [int(n) for n in several],
            "bias": bool(self.bias),
        }

    def _fixed(self, columns: int) -> dict[str, Any]:
        """Return what must not change while training goes on."""
        rest = {"columns": columns, "optimizer": self.optimizer, "device": self.device}
        return {**self._network_shape(), **rest}

    def _learning_rate(self) -> float:
        if isinstance(self.learning_rate_init, str) and self.learning_rate_init == "auto":
            return RATES[bool(self.standardize) and self._network_shape()["kind"] == "ts-lrc"]
        check_above_zero(learning_rate_init=self.learning_rate_init)  # type: ignore[arg-type]
        return float(self.learning_rate_init)

    def _go_on(self, columns: int) -> None:
        """Continue with the present network; only parameters of the optimiser may have changed."""
        before, now = self._learner_shape, self._fixed(columns)
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
        rate = self._learning_rate()
        check_number(alpha=self.alpha, momentum=self.momentum)
        for group in self._learner.optimizer.param_groups:
            group.update(lr=rate, weight_decay=self.alpha)
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
        X = rows_of_numbers(self, X, dtype=[np.float64, np.float32], order="C", reset=False)
        return self._learner.outputs(from_numpy(self._scale(X))).cpu().numpy()


def _start_at_zero(network: torch.nn.Module) -> None:
    """Set the readout to zero.

    The network has far more parameters than rows, and what a random readout of copies adds in
    directions without data would stay there.
    """
    (*_, readout) = network.children()
    torch.nn.init.zeros_(readout.weight)  # type: ignore[arg-type]
