"""Validation of rows, targets and sample weights."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias, TypeGuard

import torch
from torch import Tensor

from tensorswitch._checks import check_dtype_device, check_shape
from tensorswitch.linear._copies import Copies, check_wide
from tensorswitch.linear._representation import Representation, RowsOf
from tensorswitch.switches import Routes, Switch

CHECKED_ROWS = 8192
# What a solver is told about z: a representation, gate weights, or the gates themselves.
Gates: TypeAlias = Representation | Sequence[Tensor] | Tensor | Routes


@dataclass(frozen=True)
class Given:
    """Validated rows with their gates, targets and weights."""

    rows: RowsOf
    targets: Tensor
    sample_weight: Tensor | None = None

    def at(self, index: slice | Tensor) -> Given:
        """Return some of the rows."""
        weight = None if self.sample_weight is None else self.sample_weight[index]
        return Given(self.rows[index], self.targets[index], weight)

    def weights(self) -> Tensor:
        """Return the weights, which are 1 by default."""
        ones = self.targets.new_ones(len(self.targets))
        return ones if self.sample_weight is None else self.sample_weight


@dataclass(frozen=True)
class Problem(Given):
    """A validated ridge problem.

    ``hashes`` say which rows are identical and to which folds they belong. They may be those of the
    rows before a transformation such as PCA, whose rounding errors depend on the chunk.
    """

    representation: Representation = None  # type: ignore[assignment]
    hashes: Tensor = None  # type: ignore[assignment]

    @classmethod
    def checked(
        cls,
        x: Tensor,
        targets: Tensor,
        gates: Gates,
        sample_weight: Tensor | None = None,
        switch: Switch | str = "relu",
        hashes: Tensor | None = None,
    ) -> Problem:
        """Return the problem, detached from the graph, or raise if its parts are inconsistent."""
        routes = None
        if isinstance(gates, Representation):
            representation = gates
        elif isinstance(gates, Routes) or _is_boolean(gates):
            routes = gates if isinstance(gates, Routes) else Routes(gates)
            representation = Copies.given(routes.gates.shape[1], x.shape[-1])
        else:
            representation = Copies(gates, switch)  # type: ignore[arg-type]  # not boolean gates
        given = check_rows(x, targets, representation, sample_weight, routes)
        hashes = representation.hashes(given.rows) if hashes is None else hashes
        return cls(given.rows, given.targets, given.sample_weight, representation, hashes)

    def with_targets(self, targets: Tensor) -> Problem:
        """Return the problem with other targets."""
        return replace(self, targets=targets)


def _is_boolean(gates: Gates) -> TypeGuard[Tensor]:
    return isinstance(gates, Tensor) and gates.dtype == torch.bool


@torch.no_grad()
def check_rows(
    x: Tensor,
    targets: Tensor,
    representation: Representation,
    sample_weight: Tensor | None = None,
    routes: Tensor | Routes | None = None,
    out: int | None = None,
    dtype: torch.dtype | None = None,
    device: torch.device | None = None,
) -> Given:
    """Return rows, targets and weights, detached and with the weights in the type of ``x``."""
    for which, given in (("x", x), ("targets", targets)):
        check_wide(which, given)
        if given.layout != torch.strided:
            raise TypeError(f"{which} is {given.layout}; convert it with .to_dense()")
    check_shape("x", x, (None, representation.in_features), "(rows, in_features)")
    representation.check(x, dtype or x.dtype, device or x.device)
    with torch.autocast(x.device.type, enabled=False):
        rows = representation.rows(x.detach(), routes)
    check_shape("targets", targets, (len(rows), out), "(rows, out_features)")
    check_dtype_device("targets", targets, "x", x)
    if not targets.shape[1]:
        raise ValueError("targets has no columns")
    if sample_weight is not None:
        sample_weight = check_sample_weight(sample_weight, rows.x)
    targets = targets.detach()
    _check_sums(rows.x, targets, sample_weight)
    return Given(rows, targets, sample_weight)


def check_sample_weight(sample_weight: Tensor, x: Tensor) -> Tensor:
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
