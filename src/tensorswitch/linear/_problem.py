"""A ridge problem, validated, and its solution.

W, c = argmin Σ_b s_b ‖Wᵀ z_b + c − t_b‖² + λ ‖W‖²,        z = φ(x)
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple, Self, TypeAlias

import torch
from torch import Tensor

from tensorswitch._checks import check_dtype_device, check_shape
from tensorswitch.linear._copies import Copies, check_wide
from tensorswitch.linear._representation import Representation, RowsOf
from tensorswitch.linear._rows import fold_hashes
from tensorswitch.persistence import saved_as
from tensorswitch.switches import Routes, Switch

CHECKED_ROWS = 8192
# What a solver is told about z: a representation, gate weights, or the gates themselves.
Gates: TypeAlias = Representation | Sequence[Tensor] | Tensor | Routes


@dataclass(frozen=True)
class Problem:
    """Validated rows with their gates, targets and weights.

    ``given_hashes`` may be those of the rows before a transformation such as PCA, whose rounding
    errors depend on the chunk.
    """

    representation: Representation
    rows: RowsOf
    targets: Tensor
    sample_weight: Tensor | None = None
    given_hashes: Tensor | None = None
    given_folds: Tensor | None = None

    @classmethod
    @torch.no_grad()
    def checked(
        cls,
        x: Tensor,
        targets: Tensor,
        gates: Gates,
        sample_weight: Tensor | None = None,
        switch: Switch | str = "relu",
        hashes: Tensor | None = None,
        fold_hashes: Tensor | None = None,
        routes: Tensor | Routes | None = None,
        out: int | None = None,
    ) -> Self:
        """Return the problem, detached from the graph, or raise if its parts are inconsistent."""
        for which, given in (("x", x), ("targets", targets)):
            check_wide(which, given)
            if given.layout != torch.strided:
                raise TypeError(f"{which} is {given.layout}; convert it with .to_dense()")
        if isinstance(gates, Representation):
            representation = gates
        elif isinstance(gates, Routes) or (isinstance(gates, Tensor) and gates.dtype == torch.bool):
            routes = gates if isinstance(gates, Routes) else Routes(gates)
            representation = Copies.given(routes.gates.shape[1], x.shape[-1])
        else:
            representation = Copies(gates, switch)  # type: ignore[arg-type]  # not boolean gates
        check_shape("x", x, (None, representation.in_features), "(rows, in_features)")
        with torch.autocast(x.device.type, enabled=False):
            rows = representation.rows(x.detach(), routes)
        check_shape("targets", targets, (len(rows), out), "(rows, out_features)")
        check_dtype_device("targets", targets, "x", x)
        if not targets.shape[1]:
            raise ValueError("targets has no columns")
        if sample_weight is not None:
            sample_weight = check_sample_weight(sample_weight, rows.x)
        targets = targets.detach()
        problem = cls(representation, rows, targets, sample_weight, hashes, fold_hashes)
        _check_sums(problem)
        return problem

    @cached_property
    def hashes(self) -> Tensor:
        """Hashes that say which rows are identical, and to which folds they belong."""
        if self.given_hashes is not None:
            return self.given_hashes
        return self.representation.hashes(self.rows)

    @cached_property
    def fold_hashes(self) -> Tensor:
        """Hashes by which rows belong to folds."""
        if self.given_folds is not None:
            return self.given_folds
        return fold_hashes(lambda i: self.rows[i].x, self.hashes, self.targets, self.sample_weight)

    @cached_property
    def input_energies(self) -> Tensor:
        """``Σ s x²`` of each column, in float64."""
        return _column_energies(self.rows.x, self.sample_weight)

    @cached_property
    def target_energies(self) -> Tensor:
        """``Σ s t²`` of each column, in float64."""
        return _column_energies(self.targets, self.sample_weight)

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: slice | Tensor) -> Self:
        weight = None if self.sample_weight is None else self.sample_weight[index]
        rows, targets = self.rows[index], self.targets[index]
        return replace(
            self,
            rows=rows,
            targets=targets,
            sample_weight=weight,
            given_hashes=None,
            given_folds=None,
        )

    def weights(self) -> Tensor:
        """Return the weights, which are 1 by default."""
        ones = self.targets.new_ones(len(self.targets))
        return ones if self.sample_weight is None else self.sample_weight


@saved_as("solution")
class Solution(NamedTuple):
    """Hold the solution of a ridge problem.

    Parameters
    ----------
    weight : Tensor of shape (n_L, …, n_1, n_0, out) or (features, out)
        The readout W, for copies in the layout of :class:`tensorswitch.TensorSwitching`.
    alpha : float
        The penalty λ that was used.
    iterations, residual : int, default=0, and float, default=0.0
        Number of iterations of conjugate gradients, and norm of their residual relative to
        ``Zᵀ T``, the largest over the outputs; 0 for the direct solvers.
    path : tuple of (float, float), default=()
        If several values of λ were tried, each with its error, in decreasing order of λ. The error
        is the mean squared error of rows that were left out.
    intercept : Tensor of shape (out,), optional
        The intercept c, in float64. None without one.

    Examples
    --------
    >>> import torch
    >>> from tensorswitch.linear import Columns, solve
    >>> z = torch.tensor([[0.0], [1.0], [2.0]])
    >>> solution = solve(z, 3 * z + 1, Columns(1), 1e-6, fit_intercept=True)
    >>> solution.weight.round(decimals=2), solution.intercept.round(decimals=2)
    (tensor([[3.]]), tensor([1.], dtype=torch.float64))
    """

    weight: Tensor
    alpha: float
    iterations: int = 0
    residual: float = 0.0
    path: tuple[tuple[float, float], ...] = ()
    intercept: Tensor | None = None

    def state(self) -> dict[str, Any]:
        """Return the fields."""
        return self._asdict()

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> Self:
        """Return the solution of a state."""
        return cls(**state)

    def shaped(self, representation: Representation) -> Self:
        """Return the solution with weights in the axes of the representation they belong to."""
        weight = self.weight.reshape(*representation.shape, self.weight.shape[-1])
        return self._replace(weight=weight)

    def outputs(self, representation: Representation, rows: RowsOf) -> Tensor:
        """Return ``Wᵀ φ(x) + c`` for each row, of shape (rows, out).

        Parameters
        ----------
        representation, rows : Representation and RowsOf
            The map φ, and the rows.
        """
        with torch.autocast(rows.x.device.type, enabled=False):
            flat = self.weight.reshape(-1, self.weight.shape[-1])
            found = representation.apply(rows, flat)
        return found if self.intercept is None else found + self.intercept.to(found)


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


def _check_sums(problem: Problem) -> None:
    """Raise if a sum of weighted squares leaves the range of the type.

    These bound all other sums: ``|Σ s z_i z_j|² ≤ Σ s z_i² · Σ s z_j²``, and likewise for products
    with targets.
    """
    dtype, weight = problem.targets.dtype, problem.sample_weight
    limit = torch.finfo(dtype).max / 4  # leaves room for partial sums of a block
    if weight is not None and not float(weight.double().square().sum()) < limit:
        check_finite("sample_weight", weight)
        raise ValueError(f"sample_weight is so large that sums overflow {dtype}; scale it down")
    for name, rows, energies in (
        ("x", problem.rows.x, problem.input_energies),
        ("targets", problem.targets, problem.target_energies),
    ):
        if not rows.numel():
            continue
        largest = float(torch.linalg.vector_norm(rows, torch.inf))
        if not (float(energies.max()) < limit and largest**2 < limit):
            check_finite(name, rows)
            weighted = "" if weight is None else " with these sample weights"
            raise ValueError(
                f"{name} is so large that sums of its squares{weighted} overflow {rows.dtype}; "
                "scale it down or use float64"
            )


def _column_energies(rows: Tensor, sample_weight: Tensor | None) -> Tensor:
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
