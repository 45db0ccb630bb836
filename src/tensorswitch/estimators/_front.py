"""What comes before a ridge readout: from the rows of a user to those of a representation.

    x ↦ ((x − centre) · factor − mean) B ↦ z = φ(…)

A front is fitted once, on all rows or on the first chunk, and never changes: sums over rows of the
same front can be added and subtracted.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, Self

import numpy as np
import torch
from torch import Tensor, nn

from tensorswitch._checks import check_positive, from_numpy
from tensorswitch.estimators._modules import Steps, linear_module
from tensorswitch.explain import Explanation
from tensorswitch.linear import Columns, Copies, Representation, Solution
from tensorswitch.linear._dual import leave_one_out
from tensorswitch.linear._problem import Problem
from tensorswitch.nn import TensorSwitching
from tensorswitch.persistence import saved_as
from tensorswitch.preprocessing import (
    PrincipalComponents,
    Scaling,
    column_moments,
    dense_blocks,
)
from tensorswitch.switches import Switch, as_switch, combine_gates, draw_gates

CHUNK_BYTES = 1 << 27  # of features made at a time
BLOCK = 1 << 26  # numbers of effective weights held at a time


class Front(Protocol):
    """The steps between rows as they are given and the rows of a representation.

    ``variants`` yields the inputs of rows and of whatever else stands for the same rows, such as
    mirror images, of which there are ``count`` in all.
    """

    @property
    def scaling(self) -> Scaling: ...

    @property
    def representation(self) -> Representation: ...

    @property
    def dtype(self) -> torch.dtype: ...

    @property
    def count(self) -> int: ...

    def __call__(self, X: Any) -> Tensor: ...

    def variants(self, X: Any) -> Iterator[Tensor]: ...

    def chunks(self, rows: int) -> list[slice]: ...

    def ignored(self, X: Any) -> np.ndarray: ...

    def explain(self, X: Any, solution: Solution) -> Explanation: ...

    def module(self, solution: Solution) -> nn.Sequential: ...

    @property
    def input_shape(self) -> tuple[int, ...]: ...

    def state(self) -> dict[str, Any]: ...


@dataclass(frozen=True)
class GateSettings:
    """What ``gates="auto"`` aims at, chosen by ``benchmarks.tables``: features in all, and limits.

    The kind of scaling is chosen on ``rows``, where a common factor must be better than ``better``.
    """

    features: int = 4096
    fewest: int = 16
    most: int = 256
    rows: int = 600
    better: float = 0.98
    tried: tuple[str, ...] = tuple(f"{10.0**k} mean" for k in range(3, -5, -1))


SETTINGS = GateSettings()


@saved_as("gated-inputs")
@dataclass(frozen=True, eq=False)
class GatedInputs:
    """Scaling, principal components and a constant input, in front of copies by random gates.

    Parameters
    ----------
    scaling : Scaling
        Of the columns.
    components : PrincipalComponents or None
        Of the scaled columns.
    intercept : bool
        Whether a constant input is appended.
    representation : Copies
        The gates.
    """

    scaling: Scaling
    components: PrincipalComponents | None
    intercept: bool
    representation: Copies
    count = 1

    @property
    def dtype(self) -> torch.dtype:
        """The type of inputs and sums."""
        return self.representation.gate_weights[0].dtype

    @property
    def input_shape(self) -> tuple[int, ...]:
        """The number of columns."""
        if self.components is not None:
            return (len(self.components.mean),)
        return (self.representation.in_features - self.intercept,)

    def __call__(self, X: Any) -> Tensor:
        """Return the inputs of the gates, of shape (rows, n_0), made block by block."""
        result = torch.empty(
            X.shape[0], self.representation.in_features, dtype=self.dtype, device="cpu"
        )
        for part, rows in dense_blocks(X):
            rows = self.scaling(rows)
            if self.components is not None:
                rows = self.components(rows)
            result[part, : rows.shape[1]] = from_numpy(np.ascontiguousarray(rows))
        if self.intercept:
            result[:, -1] = 1
        return result

    def variants(self, X: Any) -> Iterator[Tensor]:
        """Yield the inputs of the rows."""
        yield self(X)

    def chunks(self, rows: int) -> list[slice]:
        """Return all rows at once: their inputs take no more room than they do."""
        return [slice(0, rows)]

    def ignored(self, X: Any) -> np.ndarray:
        """Return the columns that were constant, but vary in other rows."""
        return self.scaling.ignored(X)

    def gates(self, X: Any) -> tuple[Tensor, ...]:
        """Return which gates rows open, layer by layer."""
        return self.representation.rows(self(X)).gates

    def explain(self, X: np.ndarray, solution: Solution) -> Explanation:
        """Return ``W_eff(x)_oi x_i``, the share of each column in each output."""
        *_, n_in, outputs = solution.weight.shape
        chains = solution.weight.flatten(0, -3).flatten(1)
        basis, mean, start = self._at_zero(n_in)
        parts, constants = [], []
        step = max(1, BLOCK // (n_in * outputs + len(chains)))
        for begin in range(0, len(X), step):
            some = X[begin : begin + step]
            gates = combine_gates(self.gates(some)).to(chains)
            effective = (gates @ chains).view(len(some), n_in, outputs)
            scaled = self.scaling(some)
            rows = from_numpy(scaled if mean is None else scaled - mean)
            slopes = effective[:, : rows.shape[1]]
            if basis is not None:
                slopes = torch.einsum("fi,rio->rfo", basis, effective[:, : basis.shape[1]])
            parts.append(slopes.transpose(1, 2) * rows[:, None])
            constants.append(start @ effective)
        constant = torch.cat(constants)
        if solution.intercept is not None:
            constant = constant + solution.intercept.to(constant)
        return Explanation(torch.cat(parts).numpy(), constant.numpy())

    def _at_zero(self, n_in: int) -> tuple[Tensor | None, np.ndarray | None, Tensor]:
        """Return ``B``, what is subtracted from scaled rows, and the inputs of a row of zeros.

        The inputs are ``(scaled(x) − mean) B + start``. Rows that are scaled have their centre at
        zero; the mean is subtracted from others.
        """
        start = torch.zeros(n_in, dtype=self.dtype, device="cpu")
        if self.intercept:
            start[-1] = 1
        if self.components is None:
            return None, None, start
        mean, basis = self.components.mean, self.components.basis
        if self.scaling.centre is None:
            return from_numpy(basis), mean, start
        start[: basis.shape[1]] = -from_numpy(mean @ basis)
        return from_numpy(basis), None, start

    def module(self, solution: Solution) -> nn.Sequential:
        """Return the steps and the readout as one torch module."""
        copies = self.representation
        steps = Steps.of(self.scaling, self.components, float(self.intercept), self.dtype)
        readout = TensorSwitching(
            copies.in_features,
            list(copies.sizes),
            solution.weight.shape[-1],
            switch=copies.switch,
            dtype=self.dtype,
            device="cpu",
        )
        with torch.no_grad():
            for parameter, given in zip(readout.gate_weights, copies.gate_weights, strict=True):
                parameter.copy_(given)
            readout.weight.copy_(solution.weight)
            assert readout.bias is not None
            readout.bias.zero_()
            if solution.intercept is not None:
                readout.bias.copy_(solution.intercept)
        return nn.Sequential(steps, readout)

    def state(self) -> dict[str, Any]:
        """Return the steps."""
        return {
            "scaling": self.scaling,
            "components": self.components,
            "intercept": self.intercept,
            "representation": self.representation,
        }

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> Self:
        """Return the front of a state."""
        return cls(**state)


@saved_as("scaled-columns")
@dataclass(frozen=True, eq=False)
class ScaledColumns:
    """Scaling, in front of a readout of the columns themselves."""

    scaling: Scaling
    representation: Columns
    dtype: torch.dtype
    count = 1

    @property
    def input_shape(self) -> tuple[int, ...]:
        """The number of columns."""
        return self.representation.shape

    def __call__(self, X: Any) -> Tensor:
        """Return the scaled columns, made block by block."""
        result = torch.empty(X.shape, dtype=self.dtype, device="cpu")
        for part, rows in dense_blocks(X):
            result[part] = from_numpy(np.ascontiguousarray(self.scaling(rows)))
        return result

    def variants(self, X: Any) -> Iterator[Tensor]:
        """Yield the scaled columns of the rows."""
        yield self(X)

    def chunks(self, rows: int) -> list[slice]:
        """Return parts whose scaled columns fit into memory."""
        return chunks_of(rows, self.representation.features, self.dtype)

    def ignored(self, X: Any) -> np.ndarray:
        """Return the columns that were constant, but vary in other rows."""
        return self.scaling.ignored(X)

    def explain(self, X: np.ndarray, solution: Solution) -> Explanation:
        """Return the scaled value of each column times its weight."""
        share = self(X)[:, None, :] * solution.weight.t()
        constant = np.zeros(share.shape[:2])
        return Explanation(
            share.numpy(),
            constant if solution.intercept is None else constant + solution.intercept.numpy(),
        )

    def module(self, solution: Solution) -> nn.Sequential:
        """Return the steps and the readout as one torch module."""
        steps = Steps.of(self.scaling, None, 0.0, self.dtype)
        return nn.Sequential(steps, linear_module(solution.weight, solution.intercept))

    def state(self) -> dict[str, Any]:
        """Return the steps."""
        return {
            "scaling": self.scaling,
            "representation": self.representation,
            "dtype": self.dtype,
        }

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> Self:
        """Return the front of a state."""
        return cls(**state)


def chunks_of(rows: int, features: int, dtype: torch.dtype) -> list[slice]:
    """Return parts of rows whose features take no more than ``CHUNK_BYTES``."""
    step = max(64, CHUNK_BYTES // (features * dtype.itemsize))
    return [slice(start, min(start + step, rows)) for start in range(0, rows, step)]


def fit_scaled_columns(X: Any, weight: np.ndarray | None, standardize: Any) -> ScaledColumns:
    """Return the front of given features, scaled as ``standardize`` says."""
    if isinstance(standardize, bool | np.bool_):
        scaling = Scaling.fit(X, weight, "columns" if standardize else "none")
    else:
        scaling = Scaling.given(standardize, X.shape[1])
    return ScaledColumns(scaling, Columns(X.shape[1]), _type_of(X))


def fit_gated_inputs(
    X: Any,
    targets: np.ndarray,
    weight: np.ndarray | None,
    hashes: Tensor,
    *,
    gates: Any,
    switch: Switch | str,
    standardize: Any,
    components: int | None,
    intercept: bool,
    seed: int,
) -> GatedInputs:
    """Draw gates, and fit scaling and principal components to the first rows."""
    n_in = (X.shape[1] if components is None else _checked_components(components, X)) + intercept
    rule = as_switch(switch)
    copies = _draw(n_in, _sizes(gates, n_in, rule), rule, _type_of(X), intercept, seed)

    def front(scaling: Scaling) -> GatedInputs:
        # Components have a mean square of 1 where they are scaled, as the constant input has.
        unit, found = scaling.kind != "none", None
        if components is not None:
            found = PrincipalComponents.fit(X, components, weight, scaling, unit)
        return GatedInputs(scaling, found, intercept, copies)

    kinds = {"columns": "columns", "common": "common", True: "columns", False: "none"}
    if not isinstance(standardize, str | bool | np.bool_):
        return front(Scaling.given(standardize, X.shape[1]))
    if standardize != "auto":
        if standardize not in kinds:
            Scaling.given(standardize, X.shape[1])  # raises
        return front(Scaling.fit(X, weight, kinds[standardize]))
    moments = column_moments(X, weight)
    some = _lowest_rows(hashes, weight, SETTINGS.rows)
    rows, t = X[some], from_numpy(np.ascontiguousarray(targets[some].astype(np.float64)))
    s = None if weight is None else from_numpy(weight[some])
    exact = Copies([w.double() for w in copies.gate_weights], rule)
    found, errors = {}, {}
    for kind in ("columns", "common"):
        found[kind] = front(Scaling.of_moments(moments, kind))
        x, alike = found[kind](rows).double(), hashes[torch.from_numpy(some)]
        problem = Problem.checked(x, t, exact, s, hashes=alike)
        errors[kind] = leave_one_out(problem, SETTINGS.tried, intercept)
    # Scaling each column is the usual choice; a common factor must be clearly better.
    return found["common" if errors["common"] < SETTINGS.better * errors["columns"] else "columns"]


def _type_of(X: Any) -> torch.dtype:
    """Return the type of inputs and sums, which is that of the rows."""
    return torch.float32 if X.dtype == np.float32 else torch.float64


def _checked_components(components: int, X: Any) -> int:
    """Return the number of components, before gates are drawn for it."""
    check_positive(components=components)
    if components > min(X.shape):
        raise ValueError(
            f"components={components} exceeds the smaller of {X.shape[0]} rows and "
            f"{X.shape[1]} features"
        )
    return int(components)


def _sizes(gates: Sequence[int] | int | str, n_in: int, switch: Switch) -> list[int]:
    """Return the number of gates of each layer."""
    if isinstance(gates, str):
        if gates != "auto":
            raise ValueError(f"gates must be 'auto' or numbers of gates, got {gates!r}")
        found = min(SETTINGS.most, max(SETTINGS.fewest, SETTINGS.features // n_in))
        return [max(switch.pieces, found - found % switch.pieces)]
    sizes: list[Any] = [gates] if np.ndim(gates) == 0 else list(gates)  # type: ignore[arg-type]
    if not sizes:
        raise ValueError("gates is empty: give the number of gates of at least one layer")
    for size in sizes:
        check_positive(gates=size)
        switch.check_gates(size)
    return [int(size) for size in sizes]


def _draw(
    n_in: int, sizes: list[int], switch: Switch, dtype: torch.dtype, intercept: bool, seed: int
) -> Copies:
    """Draw gate weights from Glorot's uniform distribution; with an intercept, one is always open.

    The first gate of the first layer then sees the constant input, above it the unit that is
    always 1. All of its pieces have the same score, of which the first one wins.
    """
    generator = torch.Generator().manual_seed(seed)
    gate_weights = draw_gates(n_in, sizes, generator, dtype, switch)
    constant = n_in - 1
    for w in gate_weights if intercept else []:
        w[: switch.pieces] = 0
        w[: switch.pieces, constant] = 1
        constant = 0
    return Copies(gate_weights, switch)


def _lowest_rows(hashes: Tensor, weight: np.ndarray | None, count: int) -> np.ndarray:
    """Return the rows with the lowest hashes, which neither order nor repetition changes."""
    used = np.ones(len(hashes), bool) if weight is None else weight > 0
    values = hashes.numpy()
    kept = np.unique(values[used])[:count]
    return np.flatnonzero(used & np.isin(values, kept))
