"""The steps before a ridge readout: scaling, principal components, a constant input and gates."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import torch
from scipy import sparse
from torch import Tensor

from tensorswitch._checks import check_positive, from_numpy
from tensorswitch.estimators._inputs import TOO_LARGE
from tensorswitch.switches import ReLU, Switch, draw_gates

__all__ = ["Front", "Scaling", "moments", "rows_of"]

BLOCK_BYTES = 1 << 26  # of dense rows made at a time
CONSTANT = 1e-10  # a deviation that is smaller, relative to the values, is rounding error


class Scaling(NamedTuple):
    """``(x − centre) · factor`` of each column.

    ``name`` is "columns" if each has a factor of its own, "common" if all have the same, "given"
    if the user passed them, and "none".
    """

    name: str
    centre: np.ndarray | None
    factor: np.ndarray | None

    @classmethod
    def fit(cls, name: str, centre: np.ndarray, deviation: np.ndarray, size: np.ndarray) -> Scaling:
        """Return the scaling for means, standard deviations and root mean squares of columns."""
        if name == "none":
            return cls(name, None, None)
        varies = deviation > CONSTANT * size
        if name == "common":
            square = np.square(deviation[varies]).mean() if varies.any() else 1.0
            deviation = np.full_like(deviation, np.sqrt(square))
        factor = np.divide(1.0, deviation, out=np.zeros_like(deviation), where=varies)
        return cls(name, centre, factor)

    @classmethod
    def given(cls, moments: Any, features: int) -> Scaling:
        """Return the scaling by a pair of means and standard deviations."""
        try:
            if isinstance(moments, str):
                raise TypeError("a word is no pair")
            centre, deviation = (np.broadcast_to(np.asarray(m, float), features) for m in moments)
        except (TypeError, ValueError) as error:
            raise ValueError(
                "standardize must be True, False, 'auto', 'columns', 'common', or a pair of means "
                f"and standard deviations with {features} numbers each; got {moments!r}"
            ) from error
        if not (
            np.isfinite(centre).all() and np.isfinite(deviation).all() and (deviation >= 0).all()
        ):
            raise ValueError("the means and standard deviations of standardize must be finite")
        return cls.fit("columns", centre, deviation, np.abs(centre))._replace(name="given")

    def __call__(self, X: np.ndarray) -> np.ndarray:
        if self.centre is None or self.factor is None:
            return X
        result: np.ndarray = ((X - self.centre) * self.factor).astype(X.dtype)
        return result

    def ignored(self, X: Any) -> np.ndarray:
        """Return the columns that were constant when the scaling was fitted, but vary in X."""
        if self.centre is None or self.factor is None:
            return np.empty(0, dtype=np.int64)
        columns = np.flatnonzero(self.factor == 0)
        centre = self.centre[columns]
        varies = np.zeros(len(columns), dtype=bool)
        for _, rows in rows_of(X[:, columns]):
            varies |= (np.abs(rows - centre) > 1e-6 * np.abs(centre)).any(0)
        return columns[varies]


class Front(NamedTuple):
    """The steps before the readout.

    Parameters
    ----------
    scaling : Scaling
        Of the columns.
    mean, basis : ndarray or None
        Principal components of the scaled columns, times a factor.
    intercept : bool
        Whether a constant input is appended.
    gate_weights : list of Tensor
        The gate weights of each layer.
    switch : Switch
        The rule that opens the gates.
    """

    scaling: Scaling
    mean: np.ndarray | None
    basis: np.ndarray | None
    intercept: bool
    gate_weights: list[Tensor]
    switch: Switch = ReLU()

    def __call__(self, X: Any) -> Tensor:
        """Return the inputs of the gates, of shape (rows, n_0), made block by block."""
        n_in = self.gate_weights[0].shape[1]
        result = self.gate_weights[0].new_empty(X.shape[0], n_in)
        for part, rows in rows_of(X):
            rows = self.scaling(rows)
            if self.basis is not None:
                rows = (rows - self.mean) @ self.basis
            result[part, : rows.shape[1]] = from_numpy(np.ascontiguousarray(rows))
        if self.intercept:
            result[:, -1] = 1
        return result

    @classmethod
    def fit(
        cls,
        X: Any,
        weight: np.ndarray | None,
        scaling: Scaling,
        components: int | None,
        intercept: bool,
        gates: list[int],
        switch: Switch,
        seed: int,
    ) -> Front:
        """Fit principal components and draw gate weights from Glorot's uniform distribution."""
        mean = basis = None
        features = X.shape[1]
        if components is not None:
            mean, basis = _components(X, weight, scaling, components)
            features = basis.shape[1]
        n_in = features + intercept
        generator = torch.Generator().manual_seed(seed)
        dtype = torch.float32 if X.dtype == np.float32 else torch.float64
        gate_weights = draw_gates(n_in, gates, generator, dtype, switch)
        if intercept:
            # In the first layer the constant input, above it the unit that is always 1. All of its
            # pieces have the same score, of which the first one wins.
            constant = n_in - 1
            for w in gate_weights:
                w[: switch.pieces] = 0
                w[: switch.pieces, constant] = 1
                constant = 0
        return cls(scaling, mean, basis, intercept, gate_weights, switch)


def rows_of(X: Any) -> Iterator[tuple[slice, np.ndarray]]:
    """Yield blocks of rows as arrays, so that sparse rows are never dense all at once."""
    step = max(1, BLOCK_BYTES // (max(1, X.shape[1]) * X.dtype.itemsize))
    for start in range(0, X.shape[0], step):
        part = slice(start, min(start + step, X.shape[0]))
        rows = X[part]
        yield part, rows.toarray() if sparse.issparse(rows) else rows


def moments(X: Any, weight: np.ndarray | None) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return means, standard deviations and root mean squares of the columns, with weights."""
    with np.errstate(over="ignore"):
        mean, square = _average(X, weight, lambda rows: rows), _average(X, weight, np.square)
        spread = _average(X, weight, lambda rows: np.square(rows - mean))
    if not (np.isfinite(square).all() and np.isfinite(spread).all()):
        raise ValueError(TOO_LARGE)
    return mean, np.sqrt(spread), np.sqrt(square)


def _average(
    X: Any, weight: np.ndarray | None, of: Callable[[np.ndarray], np.ndarray]
) -> np.ndarray:
    """Return the weighted mean over the rows, in float64."""
    total, count = np.zeros(X.shape[1]), 0.0
    for part, rows in rows_of(X):
        s = np.ones(len(rows)) if weight is None else weight[part].astype(np.float64)
        total, count = total + s @ of(rows.astype(np.float64)), count + s.sum()
    result: np.ndarray = total / max(count, np.finfo(float).tiny)
    return result


def _components(
    X: Any, weight: np.ndarray | None, scaling: Scaling, count: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return the mean of the scaled rows and their leading principal components."""
    check_positive(components=count)
    if count > min(X.shape):
        raise ValueError(
            f"components={count} exceeds the smaller of {X.shape[0]} rows and {X.shape[1]} features"
        )
    mean = _average(X, weight, lambda rows: scaling(rows))
    moment, total = np.zeros((X.shape[1], X.shape[1])), 0.0
    for part, rows in rows_of(X):
        centred = scaling(rows.astype(np.float64)) - mean
        s = np.ones(len(rows)) if weight is None else weight[part].astype(np.float64)
        moment += (centred * s[:, None]).T @ centred
        total += s.sum()
    values, vectors = np.linalg.eigh(moment)
    basis = vectors[:, ::-1][:, : int(count)]
    if scaling.name != "none":  # a mean square of 1, as that of the constant input
        square = values[::-1][: int(count)].mean() / max(total, np.finfo(float).tiny)
        basis = basis / (np.sqrt(square) if square > 0 else 1.0)
    return mean.astype(X.dtype), np.ascontiguousarray(basis.astype(X.dtype))
