"""What comes before a ridge readout: from the rows of a user to those of a representation.

    x ↦ ((x − centre) · factor − mean) B ↦ z = φ(…)

A front is fitted once, on all rows or on the first chunk, and never changes: sums over rows of the
same front can be added and subtracted.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Self, TypeAlias

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor, nn

from tensorswitch._checks import check_positive, from_numpy
from tensorswitch.estimators._base import Matrix
from tensorswitch.estimators._modules import Steps, linear_module
from tensorswitch.explain import Explanation
from tensorswitch.linear import Columns, Copies, Representation, Solution
from tensorswitch.linear._dual import leave_one_out
from tensorswitch.linear._problem import Problem
from tensorswitch.linear._representation import CHUNK_BYTES
from tensorswitch.nn import TensorSwitching
from tensorswitch.persistence import SavedPart, saved_as
from tensorswitch.preprocessing import PrincipalComponents, Scaling, column_moments, dense_blocks
from tensorswitch.switches import Switch, as_switch, combine_gates, draw_gates

Standardize: TypeAlias = bool | str | tuple[ArrayLike, ArrayLike]

BLOCK = 1 << 26  # numbers of effective weights held at a time


@dataclass(frozen=True)
class NewRows:
    """Validated rows as given, with targets, weights, hashes and, of labels, places of classes.

    Rows belong to folds by ``fold_hashes``.
    """

    X: Matrix
    targets: np.ndarray
    weight: Tensor | None
    hashes: Tensor
    fold_hashes: Tensor
    places: np.ndarray | None = None

    def __len__(self) -> int:
        return int(self.X.shape[0])


class Front(SavedPart):
    """The steps between rows as they are given and the rows of a representation.

    ``count`` is how many rows stand for one that is given, such as an image and its mirror image.
    """

    scaling: Scaling
    representation: Representation
    dtype: torch.dtype
    count = 1

    @abstractmethod
    def __call__(self, X: Matrix) -> Tensor:
        """Return the rows of the representation."""

    def variants(self, X: Matrix) -> Iterator[Tensor]:
        """Yield these rows, and then others that stand for the same ones."""
        yield self(X)

    def chunks(self, rows: int) -> list[slice]:
        """Return parts of rows whose columns take no more than ``CHUNK_BYTES``."""
        step = max(64, CHUNK_BYTES // (self.representation.in_features * self.dtype.itemsize))
        return [slice(start, min(start + step, rows)) for start in range(0, rows, step)]

    def ignored(self, X: Matrix) -> np.ndarray:
        """Return the columns that were constant, but vary in other rows."""
        return self.scaling.ignored(X)

    @abstractmethod
    def explain(self, X: np.ndarray, solution: Solution) -> Explanation:
        """Return the share of each feature in each output."""

    @abstractmethod
    def module(self, solution: Solution) -> nn.Sequential:
        """Return the steps and the readout as one torch module."""

    @property
    @abstractmethod
    def input_shape(self) -> tuple[int, ...]:
        """The shape of a row that is given."""


@dataclass(frozen=True)
class GateSettings:
    """What ``gates="auto"`` aims at, chosen by ``benchmarks.tables``: features in all, and limits.

    The kind of scaling is chosen on a quarter of the rows, within the limits ``rows``, where a
    common factor must bring the error down to ``better`` of the other. On few of many rows of MNIST
    chance would decide.
    """

    features: int = 4096
    fewest: int = 16
    most: int = 256
    rows: tuple[int, int] = (600, 2_000)
    better: float = 0.98
    tried: tuple[str, ...] = tuple(f"{10.0**k} mean" for k in range(3, -5, -1))


SETTINGS = GateSettings()


@saved_as("gated-inputs")
@dataclass(frozen=True, eq=False)
class GatedInputs(Front):
    """Scaling, principal components and a constant input, in front of copies by random gates."""

    scaling: Scaling
    components: PrincipalComponents | None  # of the scaled columns
    intercept: bool  # whether a constant input is appended
    representation: Copies

    @classmethod
    def fit(
        cls,
        rows: NewRows,
        *,
        gates: Sequence[int] | int | str,
        switch: Switch | str,
        standardize: Standardize,
        components: int | None,
        intercept: bool,
        seed: int,
    ) -> GatedInputs:
        """Draw gates, and fit scaling and principal components to the first rows."""
        X, weight = rows.X, None if rows.weight is None else rows.weight.numpy()
        n_in = X.shape[1] if components is None else _checked_components(components, X)
        n_in, rule = n_in + intercept, as_switch(switch)
        copies = _draw(n_in, _sizes(gates, n_in, rule), rule, _type_of(X), intercept, seed)

        def front(scaling: Scaling) -> GatedInputs:
            # Components have a mean square of 1 where they are scaled, as the constant input has.
            unit, found = scaling.kind != "none", None
            if components is not None:
                found = PrincipalComponents.fit(X, components, weight, scaling, unit)
            return cls(scaling, found, intercept, copies)

        if not isinstance(standardize, str) or standardize != "auto":
            return front(_scaling_of(rows, standardize))
        moments = column_moments(X, weight)
        fronts = {kind: front(Scaling.of_moments(moments, kind)) for kind in ("columns", "common")}
        least, most = SETTINGS.rows
        sample = _lowest_rows(rows, max(least, min(most, len(rows) // 4)))
        errors = {kind: found._error(sample) for kind, found in fronts.items()}
        # Scaling each column is the usual choice; a common factor must be clearly better.
        clear = errors["common"] < SETTINGS.better * errors["columns"]
        return fronts["common" if clear else "columns"]

    def _error(self, rows: NewRows) -> float:
        """Return the least leave-one-out error of a readout of a few rows."""
        copies = self.representation
        exact = Copies([w.double() for w in copies.gate_weights], copies.switch)  # errors are close
        targets = from_numpy(np.ascontiguousarray(rows.targets.astype(np.float64)))
        x = self(rows.X).double()
        problem = Problem.checked(x, targets, exact, rows.weight, hashes=rows.hashes)
        return leave_one_out(problem, SETTINGS.tried, self.intercept)

    @property
    def dtype(self) -> torch.dtype:  # type: ignore[override]
        """The type of inputs and sums."""
        return self.representation.gate_weights[0].dtype

    @property
    def input_shape(self) -> tuple[int, ...]:
        if self.components is not None:
            return (len(self.components.mean),)
        return (self.representation.in_features - self.intercept,)

    def __call__(self, X: Matrix) -> Tensor:
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

    def chunks(self, rows: int) -> list[slice]:  # their inputs take no more room than they do
        return [slice(0, rows)]

    def gates(self, X: Matrix) -> tuple[Tensor, ...]:
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
        steps = Steps(self.scaling, self.components, float(self.intercept), self.dtype)
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


@saved_as("scaled-columns")
@dataclass(frozen=True, eq=False)
class ScaledColumns(Front):
    """Scaling, in front of a readout of the columns themselves."""

    scaling: Scaling
    representation: Columns
    dtype: torch.dtype

    @classmethod
    def fit(cls, rows: NewRows, standardize: Standardize) -> Self:
        """Scale given features as ``standardize`` says."""
        scaling = _scaling_of(rows, standardize)
        return cls(scaling, Columns(rows.X.shape[1]), _type_of(rows.X))

    @property
    def input_shape(self) -> tuple[int, ...]:
        return self.representation.shape

    def __call__(self, X: Matrix) -> Tensor:
        """Return the scaled columns, made block by block."""
        result = torch.empty(X.shape, dtype=self.dtype, device="cpu")
        for part, rows in dense_blocks(X):
            result[part] = from_numpy(np.ascontiguousarray(self.scaling(rows)))
        return result

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
        steps = Steps(self.scaling, None, 0.0, self.dtype)
        return nn.Sequential(steps, linear_module(solution.weight, solution.intercept))


def _scaling_of(rows: NewRows, standardize: Standardize) -> Scaling:
    """Return the scaling that a word or a flag asks for, or that of given means and deviations."""
    kinds = {"columns": "columns", "common": "common", True: "columns", False: "none"}
    if isinstance(standardize, str | bool | np.bool_) and standardize in kinds:
        weight = None if rows.weight is None else rows.weight.numpy()
        return Scaling.fit(rows.X, weight, kinds[standardize])
    return Scaling.given(standardize, rows.X.shape[1])


def _type_of(X: Matrix) -> torch.dtype:
    """Return the type of inputs and sums, which is that of the rows."""
    return torch.float32 if X.dtype == np.float32 else torch.float64


def _checked_components(components: int, X: Matrix) -> int:
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
    sizes = np.atleast_1d(gates).tolist()
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


def _lowest_rows(rows: NewRows, count: int) -> NewRows:
    """Return the rows with the lowest hashes, which neither order nor repetition changes."""
    hashes = rows.hashes
    used = torch.ones_like(hashes, dtype=torch.bool) if rows.weight is None else rows.weight > 0
    kept = torch.unique(hashes[used])[:count]
    some = (used & torch.isin(hashes, kept)).nonzero().flatten()
    weight = None if rows.weight is None else rows.weight[some]
    x, targets = rows.X[some.numpy()], rows.targets[some.numpy()]
    return NewRows(x, targets, weight, hashes[some], rows.fold_hashes[some])
