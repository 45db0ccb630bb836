"""The readout ``Z W`` of a deep TS representation as a linear map with an adjoint."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from tensorswitch.ridge._solution import mean_diagonal
from tensorswitch.switched import switched_linear, switched_outer
from tensorswitch.switches import Routes, Switch, as_switch, combine_gates, deep_gates

BLOCK_BYTES = 1 << 26  # of expanded errors held at a time


def apply_readout(
    x: Tensor,
    gate_weights: Sequence[Tensor] | Tensor | Routes,
    weight: Tensor,
    switch: Switch | str = "relu",
    intercept: Tensor | None = None,
) -> Tensor:
    """Return ``Wᵀ z + c`` with ``z = h_L ⊗ … ⊗ h_1 ⊗ x`` for each row.

    Parameters
    ----------
    x : Tensor of shape (rows, n_0)
        The inputs.
    gate_weights : sequence of Tensor, bool Tensor of shape (rows, gates) or Routes
        The gate weights of each layer, of shape (n_l, units below), or the gates themselves.
    weight : Tensor of shape (n_L, …, n_1, n_0, out)
        The readout W, as in :class:`Solution`.
    switch : Switch or str, default="relu"
        The switch that opens the gates, if they follow from weights.
    intercept : Tensor of shape (out,), optional
        The intercept c, by default zero.

    Returns
    -------
    Tensor of shape (rows, out)
        The outputs.

    Examples
    --------
    The gates of two units are open for positive and for negative inputs, respectively.

    >>> import torch
    >>> from tensorswitch.ridge import apply_readout
    >>> gate_weights = [torch.tensor([[1.0], [-1.0]])]
    >>> weight = torch.tensor([[[1.0]], [[10.0]]])
    >>> apply_readout(torch.tensor([[2.0], [-3.0]]), gate_weights, weight)
    tensor([[  2.],
            [-30.]])
    """
    with torch.autocast(x.device.type, enabled=False):
        if isinstance(gate_weights, Tensor | Routes):
            outputs = switched_linear(x, gate_weights, weight)
        else:
            gates = deep_gates(x, gate_weights, as_switch(switch))
            outputs = ReadoutMap(x, gates, None).forward(inner_first(weight))
        return outputs if intercept is None else outputs + intercept.to(outputs)


class ReadoutMap:
    """``Z`` as a linear map: a switched linear map, followed by the gates of the upper layers.

    Weights have the shape (n_1, n_0, n_L · … · n_2, out); see :func:`inner_first`.

    Parameters
    ----------
    x : Tensor of shape (rows, n_0)
        The inputs.
    gates : list of bool Tensor
        The gates of each layer, of shape (rows, n_l).
    sample_weight : Tensor of shape (rows,) or None
        Weights s of the rows in :meth:`adjoint` and :meth:`normal`.
    """

    independent = True  # whether inputs and gates may be taken as independent, to precondition

    def __init__(self, x: Tensor, gates: list[Tensor], sample_weight: Tensor | None) -> None:
        self.x, self.gates, self.sample_weight = x, gates, sample_weight
        self.above = combine_gates(self.gates[1:]) if len(self.gates) > 1 else None

    @property
    def like(self) -> Tensor:
        """A tensor of the type and on the device of weights and outputs."""
        return self.x[:0]

    @property
    def sizes(self) -> list[int]:
        """Number of inputs, and of gates of each layer."""
        return [self.x.shape[1], *(h.shape[1] for h in self.gates)]

    def mean_diagonal(self) -> float:
        """Return the mean of the diagonal of ``Zᵀ diag(s) Z``."""
        return mean_diagonal(self.x, self.gates, self.sample_weight)

    def scaled(self, exponent: int, sample_weight: Tensor | None) -> ReadoutMap:
        """Return the map for inputs times ``2^exponent`` and other weights of the rows."""
        return ReadoutMap(times_power(self.x, exponent), self.gates, sample_weight)

    def rows(self, index: Tensor) -> list[Tensor]:
        """Return the inputs and gates of some rows."""
        return [part[index] for part in (self.x, *self.gates)]

    def forward(self, weight: Tensor) -> Tensor:
        """Return ``Z W``, of shape (rows, out)."""
        return torch.cat(
            [self._forward(part, weight.flatten(2)) for part in self._parts(weight.shape[-1])]
        )

    def adjoint(self, errors: Tensor) -> Tensor:
        """Return ``Zᵀ diag(s) E`` for errors E of shape (rows, out)."""
        return self._sum(errors.shape[1], lambda part: errors[part])

    def normal(
        self, weight: Tensor, change: Callable[[slice, Tensor], Tensor] | None = None
    ) -> Tensor:
        """Return ``Zᵀ diag(s) Z W``, computed in blocks of rows.

        ``change(part, outputs)`` replaces the outputs ``Z W`` of some rows on the way.
        """
        flat = weight.flatten(2)

        def errors(part: slice) -> Tensor:
            outputs = self._forward(part, flat)
            return outputs if change is None else change(part, outputs)

        return self._sum(weight.shape[-1], errors)

    def _sum(self, out: int, errors: Callable[[slice], Tensor]) -> Tensor:
        above = 1 if self.above is None else self.above.shape[1]
        result = self.x.new_zeros(self.gates[0].shape[1], self.x.shape[1], above * out)
        for part in self._parts(out):
            r = errors(part)
            if self.sample_weight is not None:
                r = r * self.sample_weight[part, None]
            if self.above is not None:
                r = (self.above[part, :, None] * r[:, None, :]).flatten(1)
            result += switched_outer(self.x[part], self.gates[0][part], r)
        return result.view(*result.shape[:2], above, out)

    def _forward(self, part: slice, weight: Tensor) -> Tensor:
        y = switched_linear(self.x[part], self.gates[0][part], weight)
        if self.above is None:
            return y
        above = self.above[part].to(y.dtype)
        return torch.bmm(above.unsqueeze(1), y.view(len(y), above.shape[1], -1)).squeeze(1)

    def _parts(self, out: int) -> list[slice]:
        width = out * (1 if self.above is None else self.above.shape[1])
        step = max(64, min(8192, BLOCK_BYTES // (width * self.x.element_size())))
        return [slice(s, s + step) for s in range(0, max(1, len(self.x)), step)]


def times_power(tensor: Tensor, exponent: int) -> Tensor:
    """Multiply by ``2^exponent`` in two steps, since the power alone may overflow."""
    half = exponent // 2
    return tensor * 2.0**half * 2.0 ** (exponent - half)


def inner_first(weight: Tensor) -> Tensor:
    """Permute weights from (n_L, …, n_2, n_1, n_0, out) to (n_1, n_0, n_L · … · n_2, out)."""
    *_, n1, n0, out = weight.shape
    return weight.reshape(-1, n1, n0, out).permute(1, 2, 0, 3).contiguous()


def outer_first(weight: Tensor, gates: Sequence[int]) -> Tensor:
    """Invert :func:`inner_first`, for layers with the given numbers of gates."""
    n1, n0, _, out = weight.shape
    return weight.permute(2, 0, 1, 3).reshape(*reversed(gates[1:]), n1, n0, out)
