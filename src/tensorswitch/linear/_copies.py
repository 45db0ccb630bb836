"""Copies of the input: ``z = h_L ⊗ … ⊗ h_1 ⊗ x``, by the switched linear map."""

import math
from collections.abc import Sequence
from typing import Any, Self

import torch
from torch import Tensor

from tensorswitch._checks import check_dtype_device, check_floating, check_positive, check_shape
from tensorswitch.linear._packed import PackedPairs, add_gram
from tensorswitch.linear._representation import BLOCK_BYTES, Representation, RowsOf
from tensorswitch.linear._rows import row_hashes
from tensorswitch.persistence import saved_as
from tensorswitch.switched import switched_linear, switched_outer
from tensorswitch.switches import Routes, Switch, as_switch, combine_gates, deep_gates, switch_name


@saved_as("copies")
class Copies(Representation):
    """The TS representation of any depth with fixed gates.

        z = h_L ⊗ … ⊗ h_1 ⊗ x,        z · z' = (x · x') Π_l (h_l · h'_l)

    Parameters
    ----------
    gate_weights : sequence of Tensor
        The fixed gate weights of each layer, of shape (n_l, units below).
    switch : Switch or str, default="relu"
        The switch that opens the gates.

    Attributes
    ----------
    gate_weights, switch : list of Tensor, and Switch
        Copies of the gate weights, empty if gates come with the rows, and the switch.
    sizes, units : tuple of int, and int
        Number of gates of each layer, from the first, and their product.

    Examples
    --------
    >>> import torch
    >>> from tensorswitch.linear import Copies
    >>> copies = Copies([torch.eye(2), torch.ones(3, 2)])
    >>> copies.shape
    (3, 2, 2)
    """

    def __init__(self, gate_weights: Sequence[Tensor], switch: Switch | str = "relu") -> None:
        self.switch = as_switch(switch)
        checked = check_gate_weights(gate_weights, self.switch)
        kept = torch.contiguous_format
        self.gate_weights = [w.detach().clone(memory_format=kept) for w in checked]
        self._set_sizes([len(w) for w in self.gate_weights], self.gate_weights[0].shape[1])

    @classmethod
    def given(cls, units: int, in_features: int) -> Self:
        """Return the representation for gates that come with the rows.

        Its :meth:`rows` need ``routes``: by a trained network, or a switch of your own.

        Parameters
        ----------
        units, in_features : int
            Number of gates, and of inputs n_0.
        """
        check_positive(units=units, in_features=in_features)
        copies = cls.__new__(cls)
        copies.switch, copies.gate_weights = as_switch("none"), []
        copies._set_sizes([units], in_features)
        return copies

    def _set_sizes(self, sizes: Sequence[int], in_features: int) -> None:
        self.sizes, self.in_features = tuple(sizes), in_features
        self.units = math.prod(sizes)
        self.shape = (*reversed(self.sizes), in_features)
        self.packing = PackedPairs(self.units, in_features)

    @property
    def dtype(self) -> torch.dtype | None:
        """The type of the gate weights, if there are any."""
        return self.gate_weights[0].dtype if self.gate_weights else None

    def rows(self, x: Tensor, routes: Tensor | Routes | None = None) -> RowsOf:
        """Return rows with the gates that they open, or that are given."""
        if self.gate_weights:
            if routes is not None:
                raise TypeError("routes are only for gates that do not follow from weights")
            check_dtype_device("x", x, "gate_weights", self.gate_weights[0])
            return RowsOf(x, tuple(deep_gates(x, self.gate_weights, self.switch)))
        if routes is None:
            raise TypeError("routes are required: these copies have no gate weights")
        check_floating("x", x)
        # All solvers rely on ``z = h ⊗ x``, which a sum of copies of several rows is not.
        x, gates = (routes if isinstance(routes, Routes) else Routes(routes)).aligned(x)
        if gates.shape[1] != self.units:
            raise ValueError(
                f"routes must have {self.units} units like the representation, got {gates.shape[1]}"
            )
        return RowsOf(x, (gates,))

    def accumulate(
        self, gram: Tensor, cross: Tensor, rows: RowsOf, targets: Tensor, sign: int = 1
    ) -> None:
        """Add ``Σ h_i h_j x xᵀ`` per pair of units and ``Σ h_j x tᵀ``; few rows are expanded."""
        kind = torch.promote_types(rows.x.dtype, gram.dtype)
        x, targets, gates = rows.x.to(kind), targets.to(kind), combine_gates(rows.gates)
        by_unit = cross.view(self.units, self.in_features, -1)
        add_gram(gram, by_unit, x, gates, targets, sign)

    def hashes(self, rows: RowsOf) -> Tensor:
        """Return hashes of the inputs, and of gates that do not follow from them."""
        found = super().hashes(rows)
        return found if self.gate_weights else found + 3 * row_hashes(rows.gates[0])

    def differences(self, other: Representation) -> str:
        """Return how other copies differ, or ""."""
        if not isinstance(other, Copies) or bool(self.gate_weights) != bool(other.gate_weights):
            return "one has gate weights of its own, the other has not"
        if self.shape != other.shape:
            return f"the shapes differ: {self.shape} and {other.shape}"
        pairs = zip(self.gate_weights, other.gate_weights, strict=True)
        if not all(torch.equal(a, b) for a, b in pairs):
            return "the sums were made with different gate weights"
        if self.switch != other.switch:
            return f"the switches differ: {self.switch} and {other.switch}"
        return ""

    def state(self) -> dict[str, Any]:
        """Return gate weights and switch, or the sizes if gates come with the rows."""
        if not self.gate_weights:
            return {"units": self.units, "in_features": self.in_features}
        return {"gate_weights": self.gate_weights, "switch": switch_name(self.switch)}

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> Self:
        """Return the copies of a state."""
        return cls(**state) if "gate_weights" in state else cls.given(**state)

    def _block_rows(self, out: int, size: int) -> int:
        expanded = max(1, out * math.prod(self.sizes[1:]))  # by all layers but the first
        return min(8192, BLOCK_BYTES // (expanded * size))

    def _apply(self, rows: RowsOf, weight: Tensor) -> Tensor:
        out, n0, n1 = weight.shape[1], self.in_features, self.sizes[0]
        if len(self.sizes) == 1:
            return switched_linear(rows.x, rows.gates[0], weight.reshape(n1, n0, out))
        # Gates above the first layer are further outputs of the map, read out by one product.
        inner = weight.reshape(-1, n1, n0, out).permute(1, 2, 0, 3).reshape(n1, n0, -1)
        y = switched_linear(rows.x, rows.gates[0], inner)
        above = combine_gates(rows.gates[1:]).to(y.dtype)
        return torch.bmm(above.unsqueeze(1), y.view(len(y), above.shape[1], out)).squeeze(1)

    def _adjoint(self, rows: RowsOf, errors: Tensor) -> Tensor:
        out, n0, n1 = errors.shape[1], self.in_features, self.sizes[0]
        if len(self.sizes) == 1:
            return switched_outer(rows.x, rows.gates[0], errors).reshape(-1, out)
        above = combine_gates(rows.gates[1:])
        expanded = (above[:, :, None] * errors[:, None, :]).flatten(1)
        inner = switched_outer(rows.x, rows.gates[0], expanded)
        return inner.view(n1, n0, -1, out).permute(2, 0, 1, 3).reshape(-1, out)


def check_gate_weights(gate_weights: Sequence[Tensor], switch: Switch) -> list[Tensor]:
    """Return the gate weights as a list, or raise if a layer does not match the one below."""
    if isinstance(gate_weights, Tensor) or not len(gate_weights):
        raise ValueError(
            "gate_weights must be a non-empty list with one matrix per layer, or boolean gates"
        )
    weights = list(gate_weights)
    for i, w in enumerate(weights):
        check_wide(f"gate_weights[{i}]", w)
        below = len(weights[i - 1]) // switch.pieces if i else None
        axes = "(gates, units below)" if i else "(gates, inputs)"
        check_shape(f"gate_weights[{i}]", w, (None, below), axes)
        switch.check_gates(len(w))
        check_dtype_device(f"gate_weights[{i}]", w, "gate_weights[0]", weights[0])
        if not w.isfinite().all():
            raise ValueError(f"gate_weights[{i}] contains NaN or infinity")
    return weights


def check_wide(name: str, tensor: Tensor) -> None:
    """Raise unless a tensor has a type in which sums over rows are exact enough."""
    check_floating(name, tensor)
    if tensor.dtype not in (torch.float32, torch.float64):
        what = "sums over rows need torch.float32 or torch.float64; convert it with .float()"
        raise TypeError(f"{name} is {tensor.dtype}, but {what}")
