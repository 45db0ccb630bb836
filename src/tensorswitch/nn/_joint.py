"""Two readouts of the same units: ``y = output(relu(hidden(x))) + Σ_j h_j C_jᵀ x / √(n g)``."""

import torch
from torch import Tensor, nn

from tensorswitch._checks import check_positive
from tensorswitch.nn._base import check_relu_layers, fold_rows
from tensorswitch.switched import switched_linear


class JointSwitching(nn.Module):
    """Apply ``y = output(relu(hidden(x))) + Σ_j h_j C_jᵀ x / √(n g)`` with ``h = H(hidden(x))``.

    Units pass on their activations, as in an SS layer, and copies of the n inputs, as in a TS
    layer. The g gates follow the gradient of the SS part alone. ``C`` starts at zero, so that the
    layer starts as the ReLU layer it was built from, and its factor keeps the steps of optimisers
    such as Adam, which are of one size for all weights, as small as those of the ReLU layer.

    Parameters
    ----------
    hidden, output : torch.nn.Linear
        Hidden layer, whose units are the gates, and readout. They become parts of this layer,
        without a copy.

    Attributes
    ----------
    weight : Parameter of shape (gates, in_features, out_features)
        ``C``, the analysis weights.

    Examples
    --------
    >>> import torch
    >>> from torch import nn
    >>> from tensorswitch import JointSwitching
    >>> hidden, output = nn.Linear(5, 8), nn.Linear(8, 3)
    >>> x = torch.randn(2, 5)
    >>> layer = JointSwitching(hidden, output)
    >>> torch.equal(layer(x), output(hidden(x).relu()))
    True
    """

    weight: nn.Parameter

    def __init__(self, hidden: nn.Linear, output: nn.Linear) -> None:
        super().__init__()
        check_relu_layers([hidden], output)
        self.hidden, self.output = hidden, output
        shapes = self._shapes(hidden.out_features, hidden.in_features, output.out_features)
        for name, shape in shapes.items():
            self.register_parameter(name, nn.Parameter(hidden.weight.new_empty(shape)))
        self.reset_parameters()

    def _shapes(self, gates: int, inputs: int, outputs: int) -> dict[str, tuple[int, ...]]:
        return {"weight": (gates, inputs, outputs)}

    def reset_parameters(self) -> None:
        """Set ``C`` to zero; the ReLU layer stays as it is."""
        nn.init.zeros_(self.weight)

    def forward(self, x: Tensor) -> Tensor:
        """Return the output, (..., out_features), for input of shape (..., in_features)."""
        rows, lead = fold_rows(x, self.weight, self.hidden.in_features)
        scores = self.hidden(rows)
        y: Tensor = self.output(scores.relu()) + self._added(rows, scores.detach() > 0)
        return y if len(lead) == 1 else y.reshape(*lead, -1)

    def _added(self, x: Tensor, gates: Tensor) -> Tensor:
        gate_count, inputs, _ = self.weight.shape
        return switched_linear(x * (inputs * gate_count) ** -0.5, gates, self.weight)


class CompressedSwitching(JointSwitching):
    """Apply ``y = output(relu(hidden(x))) + Q Σ_j h_j C_jᵀ (P x)`` with ``h = H(hidden(x))``.

    The TS layer that computes the same as a ReLU layer has as many weights as the readout, times
    the number of inputs. This one keeps the ReLU layer, as :class:`JointSwitching` does, and adds a
    TS layer between a projection ``P`` of the input to ``rank`` features and a projection ``Q``
    back: ``n · rank²`` weights for n units.

    Parameters
    ----------
    hidden, output : torch.nn.Linear
        As in :class:`JointSwitching`.
    rank : int, default=4
        Number of features of the copies, and of the outputs before ``Q``.

    Attributes
    ----------
    reduce, spread : Parameter of shape (rank, in_features) and (out_features, rank)
        ``P`` and ``Q``, with orthonormal rows and columns at the start.
    weight : Parameter of shape (gates, rank, rank)
        ``C``, the analysis weights.

    Examples
    --------
    >>> from torch import nn
    >>> from tensorswitch import CompressedSwitching
    >>> CompressedSwitching(nn.Linear(5, 8), nn.Linear(8, 3), rank=2).weight.shape
    torch.Size([8, 2, 2])
    """

    reduce: nn.Parameter
    spread: nn.Parameter

    def __init__(self, hidden: nn.Linear, output: nn.Linear, rank: int = 4) -> None:
        check_positive(rank=rank)
        check_relu_layers([hidden], output)
        least = min(hidden.in_features, output.out_features)
        if rank > least:
            what = f"in_features {hidden.in_features} and out_features {output.out_features}"
            raise ValueError(f"rank must be at most {least}, the smaller of {what}, got {rank}")
        self.rank = rank
        super().__init__(hidden, output)

    def _shapes(self, gates: int, inputs: int, outputs: int) -> dict[str, tuple[int, ...]]:
        rank = self.rank
        return {"reduce": (rank, inputs), "weight": (gates, rank, rank), "spread": (outputs, rank)}

    def reset_parameters(self) -> None:
        """Draw new projections and set ``C`` to zero; the ReLU layer stays as it is."""
        for weight in (self.reduce, self.spread):
            # Narrow types have no QR decomposition.
            kind = torch.promote_types(weight.dtype, torch.float32)
            weight.data.copy_(nn.init.orthogonal_(torch.empty_like(weight, dtype=kind)))
        super().reset_parameters()

    def _added(self, x: Tensor, gates: Tensor) -> Tensor:
        copies = nn.functional.linear(x, self.reduce)
        return switched_linear(copies, gates, self.weight) @ self.spread.t()

    def extra_repr(self) -> str:
        """Return the settings shown by ``repr``."""
        return f"rank={self.rank}"
