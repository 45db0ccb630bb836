"""Routes: which units get a copy of which input row."""

from dataclasses import dataclass

import torch
from torch import Tensor

from tensorswitch._checks import check_shape


@dataclass(frozen=True)
class Routes:
    """Describe where copies of the input rows go.

    Every pair of a source row and a target row has its own gates.

    Parameters
    ----------
    gates : bool Tensor of shape (pairs, units)
        Which units are open for each pair.
    source, target : int64 Tensor of shape (pairs,), optional
        Input row and output row of each pair. By default both of pair ``p`` are row ``p``.
    rows : int, optional
        Number of output rows. Required with ``target``.

    Examples
    --------
    Rows 0 and 1 both add to output row 0, each with its own open unit:

    >>> import torch
    >>> from tensorswitch import Routes, switched_linear
    >>> gates = torch.tensor([[True, False], [False, True]])
    >>> routes = Routes(gates, target=torch.tensor([0, 0]), rows=1)
    >>> switched_linear(torch.tensor([[1.0], [10.0]]), routes, torch.tensor([[[2.0]], [[3.0]]]))
    tensor([[32.]])
    """

    gates: Tensor
    source: Tensor | None = None
    target: Tensor | None = None
    rows: int | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.gates, Tensor) or self.gates.dtype != torch.bool:
            raise TypeError(
                f"gates must be a boolean tensor, got {_kind(self.gates)}; "
                "turn scores into gates with a switch, or with scores > 0"
            )
        check_shape("gates", self.gates, (None, None), "(rows, gates)")
        if self.source is None and self.target is None and self.rows is None:
            return
        for name in ("source", "target"):
            index = getattr(self, name)
            if index is not None:
                if not isinstance(index, Tensor) or index.dtype != torch.int64:
                    raise TypeError(f"{name} must be an int64 tensor, got {_kind(index)}")
                check_shape(name, index, (self.gates.shape[0],), "(pairs,)")
                _check_range(name, index, self.rows if name == "target" else None)
        if (self.target is None) != (self.rows is None):
            raise ValueError("target and rows go together: give both or neither")

    def check_source(self, x: Tensor) -> None:
        """Raise unless ``x``, (rows, in_features), can be the input of these routes."""
        if self.gates.device != x.device:
            raise ValueError(
                f"gates are on {self.gates.device} but x is on {x.device}; move one with .to()"
            )
        rows = self.gates.shape[0] if self.source is None else None
        check_shape("x", x, (rows, None), "(rows, in_features)")
        if self.source is not None:
            _check_range("source", self.source, x.shape[0])

    def _copies(self, x: Tensor) -> Tensor:
        """Return the input row of each pair."""
        self.check_source(x)
        return x if self.source is None else x.index_select(0, self.source)

    def expand(self, x: Tensor) -> Tensor:
        """Return ``Z_t = Σ_p h_p ⊗ x_source(p)``, (output rows, units, in_features)."""
        copies = self._copies(x)
        z = self.gates[:, :, None] * copies[:, None, :]
        if self.target is None or self.rows is None:
            return z
        return z.new_zeros(self.rows, *z.shape[1:]).index_add(0, self.target, z)

    def aligned(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return one input row and one row of gates for each output row, ``Z_t = h_t ⊗ x_t``.

        Raises if an output row adds up several input rows. One without open gates has zeros.
        """
        copies = self._copies(x)
        if self.target is None or self.rows is None:
            return copies, self.gates
        used = self.gates.any(1).nonzero().flatten()
        target = self.target[used]
        shared = (torch.bincount(target, minlength=self.rows) > 1).nonzero().flatten()
        if len(shared):
            raise ValueError(
                f"several input rows add to output row {int(shared[0])}, but boolean gates copy "
                "one row; form the expanded tensor with Routes.expand() and use it as features"
            )
        x, gates = (
            rows.new_zeros(self.rows, rows.shape[1]).index_copy(0, target, rows[used])
            for rows in (copies, self.gates)
        )
        return x, gates


def _kind(value: object) -> object:
    return value.dtype if isinstance(value, Tensor) else type(value).__name__


def _check_range(name: str, index: Tensor, rows: int | None) -> None:
    fake = torch.compiler.is_compiling() or type(index) is not Tensor
    if fake or index.device.type != "cpu" or not index.numel():
        return  # the values are not known yet, or reading them would synchronise with the device
    least, most = int(index.min()), int(index.max())
    if least < 0 or (rows is not None and most >= rows):
        valid = "at least 0" if rows is None else f"between 0 and {rows - 1}"
        raise ValueError(f"{name} must have entries {valid}, got {least} to {most}")
