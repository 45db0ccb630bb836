"""Gates of deep networks: drawing their weights, opening and combining them."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from tensorswitch.switches._switch import ReLU, Switch


def draw_gates(
    in_features: int,
    gates: Sequence[int],
    generator: torch.Generator,
    dtype: torch.dtype = torch.float32,
    switch: Switch | None = None,
) -> list[Tensor]:
    """Draw the gate weights of each layer, (n_l, units below), from Glorot's uniform distribution.

    Parameters
    ----------
    in_features, gates : int and sequence of int
        Number of inputs n_0, and number of gates of each layer, (n_1, …, n_L).
    generator, dtype : torch.Generator and torch.dtype
        Source of randomness, on the device of the weights, and their type, by default float32.
    switch : Switch, default=ReLU()
        Rule that opens the gates. Its units are the inputs of the next layer.

    Examples
    --------
    >>> import torch
    >>> from tensorswitch.ridge import draw_gates
    >>> [w.shape for w in draw_gates(5, (4, 3), torch.Generator().manual_seed(0))]
    [torch.Size([4, 5]), torch.Size([3, 4])]
    """
    switch = ReLU() if switch is None else switch
    weights = []
    for n in gates:
        switch.check_gates(n)
        shape, device = (n, in_features), generator.device
        uniform = torch.rand(shape, generator=generator, dtype=dtype, device=device)
        weights.append((2 * uniform - 1) * math.sqrt(6 / (n + in_features)))
        in_features = n // switch.pieces
    return weights


def deep_gates(
    x: Tensor, gate_weights: Sequence[Tensor], switch: Switch | None = None
) -> list[Tensor]:
    """Return ``h_l = H(W_l x_{l-1})``, (rows, n_l), for each layer of the scalar network.

    Parameters
    ----------
    x, gate_weights, switch : Tensor of shape (rows, n_0), sequence of Tensor, and Switch
        Input rows, weights as of :func:`draw_gates`, and rule that opens gates, by default ReLU.
    """
    switch = ReLU() if switch is None else switch
    gates = []
    for w in gate_weights:
        scores = x @ w.t()
        gates.append(switch.open(scores))
        x = switch.units(scores)
    return gates


def combine_gates(gates: Sequence[Tensor]) -> Tensor:
    """Return ``h_L ⊗ … ⊗ h_1``, (rows, n_L · … · n_1): which chains of units are open.

    Parameters
    ----------
    gates : sequence of bool Tensor
        ``h_1, …, h_L``, of shape (rows, n_l).

    Examples
    --------
    >>> import torch
    >>> from tensorswitch.switches import combine_gates
    >>> first, second = torch.tensor([[True, False]]), torch.tensor([[False, True]])
    >>> combine_gates([first, second])
    tensor([[False, False,  True, False]])
    """
    combined = gates[0]
    for h in gates[1:]:
        combined = (h[:, :, None] & combined[:, None, :]).flatten(1)
    return combined
