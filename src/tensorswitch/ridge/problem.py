"""Validation of rows, targets, sample weights and gate weights."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, TypeGuard

import torch
from torch import Tensor

from tensorswitch._checks import check_dtype_device, check_floating, check_shape
from tensorswitch.ridge.rows import row_hashes
from tensorswitch.switches import Routes, Switch, as_switch, deep_gates

CHECKED_ROWS = 8192


class Problem(NamedTuple):
    """A validated ridge problem.

    ``hashes`` say which rows are identical and to which folds they belong. They may be those of the
    rows before a transformation such as PCA, whose rounding errors depend on the chunk. If the
    gates are ``given``, gate weights only stand for their number.
    """

    x: Tensor
    targets: Tensor
    gate_weights: list[Tensor]
    sample_weight: Tensor | None
    switch: Switch
    hashes: Tensor
    given: Tensor | None = None

    @classmethod
    def checked(
        cls,
        x: Tensor,
        targets: Tensor,
        gate_weights: Sequence[Tensor] | Tensor | Routes,
        sample_weight: Tensor | None,
        switch: Switch | str,
        hashes: Tensor | None = None,
    ) -> Problem:
        """Return the problem, detached from the graph, or raise if its parts are inconsistent."""
        switch, given = as_switch(switch), None
        if isinstance(gate_weights, Routes) or _is_boolean(gate_weights):
            x, given = given_gates(x, gate_weights)
            weights = [unused_weights(given.shape[1], x)]
        else:
            weights = check_gate_weights(gate_weights, switch)
        x, targets, sample_weight = check_rows(x, targets, sample_weight, weights)
        if hashes is None:
            hashes = row_hashes(x) if given is None else routed_hashes(x, given)
        return cls(x, targets, weights, sample_weight, switch, hashes, given)

    @property
    def sizes(self) -> list[int]:
        """Number of gates of each layer, from the first."""
        return [len(w) for w in self.gate_weights]

    def gates(self) -> list[Tensor]:
        """Return which gates of each layer are open, of shape (rows, n_l)."""
        if self.given is not None:
            return [self.given]
        return deep_gates(self.x, self.gate_weights, self.switch)


def _is_boolean(gates: Sequence[Tensor] | Tensor) -> TypeGuard[Tensor]:
    return isinstance(gates, Tensor) and gates.dtype == torch.bool


def given_gates(x: Tensor, gates: Tensor | Routes) -> tuple[Tensor, Tensor]:
    """Return inputs and gates with a row for each row of the targets, or raise.

    All solvers rely on ``z = h ⊗ x``, which a sum of copies of several rows is not.
    """
    check_floating("x", x)
    return (gates if isinstance(gates, Routes) else Routes(gates)).aligned(x)


def unused_weights(units: int, x: Tensor) -> Tensor:
    """Return zeros of the shape of the gate weights, which given gates do not have."""
    return x.new_zeros(1, 1).expand(units, x.shape[1])


def routed_hashes(x: Tensor, gates: Tensor) -> Tensor:
    """Return hashes of rows, which are identical if both their inputs and their gates are."""
    return row_hashes(x) + 3 * row_hashes(gates)


def check_gate_weights(gate_weights: Any, switch: Switch) -> list[Tensor]:
    """Return the gate weights as a list, or raise if a layer does not match the one below."""
    if isinstance(gate_weights, Tensor) or not len(gate_weights):
        raise ValueError(
            "gate_weights must be a non-empty list with one matrix per layer, or boolean gates"
        )
    weights = list(gate_weights)
    for i, w in enumerate(weights):
        _check_wide(f"gate_weights[{i}]", w)
        below = len(weights[i - 1]) // switch.pieces if i else None
        axes = "(gates, units below)" if i else "(gates, inputs)"
        check_shape(f"gate_weights[{i}]", w, (None, below), axes)
        switch.check_gates(len(w))
        check_dtype_device(f"gate_weights[{i}]", w, "gate_weights[0]", weights[0])
        if not w.isfinite().all():
            raise ValueError(f"gate_weights[{i}] contains NaN or infinity")
    return weights


def _check_wide(name: str, tensor: Tensor) -> None:
    """Raise unless ``tensor`` has a type in which sums over rows are exact enough."""
    check_floating(name, tensor)
    if tensor.dtype not in (torch.float32, torch.float64):
        raise TypeError(
            f"{name} is {tensor.dtype}, but sums over rows need torch.float32 or torch.float64; "
            "convert it with .float()"
        )


def check_rows(
    x: Tensor,
    targets: Tensor,
    sample_weight: Tensor | None,
    gate_weights: Sequence[Tensor],
    out: int | None = None,
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Return rows, targets and weights, detached and with the weights in the type of ``x``."""
    for which, given in (("x", x), ("targets", targets)):
        _check_wide(which, given)
        if given.layout != torch.strided:
            raise TypeError(f"{which} is {given.layout}; convert it with .to_dense()")
    n_in = gate_weights[0].shape[1]
    check_shape("x", x, (None, n_in), "(rows, in_features)")
    check_dtype_device("x", x, "gate_weights", gate_weights[0])
    check_shape("targets", targets, (len(x), out), "(rows, out_features)")
    check_dtype_device("targets", targets, "x", x)
    if not targets.shape[1]:
        raise ValueError("targets has no columns")
    if sample_weight is not None:
        sample_weight = check_sample_weight(sample_weight, x)
    x, targets = x.detach(), targets.detach()
    _check_sums(x, targets, sample_weight)
    return x, targets, sample_weight


def check_sample_weight(sample_weight: Any, x: Tensor) -> Tensor:
    """Return the weights of the rows ``x``, in their type, or raise if they cannot be weights."""
    if not isinstance(sample_weight, Tensor):
        raise TypeError(
            f"sample_weight must be a torch tensor, got {type(sample_weight).__name__}; "
            "convert it with torch.as_tensor()"
        )
    check_shape("sample_weight", sample_weight, (len(x),), "(rows,)")
    weight: Tensor = sample_weight.detach().to(x)
    if (weight < 0).any():
        raise ValueError("sample_weight must not be negative")
    return weight


def _check_sums(x: Tensor, targets: Tensor, sample_weight: Tensor | None) -> None:
    """Raise if a sum of weighted squares leaves the range of the type.

    These bound all other sums: ``|Σ s z_i z_j|² ≤ Σ s z_i² · Σ s z_j²``, and likewise for products
    with targets.
    """
    limit = torch.finfo(x.dtype).max / 4  # leaves room for partial sums of a block
    if sample_weight is not None and not float(sample_weight.double().square().sum()) < limit:
        check_finite("sample_weight", sample_weight)
        raise ValueError(f"sample_weight is so large that sums overflow {x.dtype}; scale it down")
    for name, rows in (("x", x), ("targets", targets)):
        if not rows.numel():
            continue
        energy = float(column_energies(rows, sample_weight).max())
        largest = float(torch.linalg.vector_norm(rows, torch.inf))
        if not (energy < limit and largest**2 < limit):
            check_finite(name, rows)
            weighted = "" if sample_weight is None else " with these sample weights"
            raise ValueError(
                f"{name} is so large that sums of its squares{weighted} overflow {rows.dtype}; "
                "scale it down or use float64"
            )


def column_energies(rows: Tensor, sample_weight: Tensor | None) -> Tensor:
    """Return ``Σ_b s_b x_bi²`` of each column, in float64."""
    total = torch.zeros(rows.shape[1], dtype=torch.float64, device=rows.device)
    for start in range(0, len(rows), CHECKED_ROWS):
        part = slice(start, start + CHECKED_ROWS)
        squares = rows[part].double().square()  # not in place: double() may return x itself
        total += squares.sum(0) if sample_weight is None else sample_weight[part].double() @ squares
    return total


def check_finite(name: str, tensor: Tensor) -> None:
    """Raise if there are NaN or infinities."""
    if not tensor.isfinite().all():
        raise ValueError(f"{name} contains NaN or infinity")


def check_some_rows(rows: float) -> None:
    """Raise if the sum of the weights is zero."""
    if not rows > 0:
        raise ValueError("nothing to solve: there are no rows, or all sample weights are zero")
