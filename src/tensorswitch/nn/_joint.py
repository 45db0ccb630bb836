"""Layers with an SS and a TS readout of the same units."""

from __future__ import annotations

from torch import Tensor, nn

from tensorswitch._checks import check_dtype_device, check_floating
from tensorswitch.nn._relu import check_relu_layers
from tensorswitch.switched import switched_linear


class JointSwitching(nn.Module):
    """Apply ``y = output(relu(hidden(x))) + Σ_j h_j C_jᵀ x / √(n g)`` with ``h = H(hidden(x))``.

    Units pass on their activations, as in an SS layer, and copies of the n inputs, as in a TS
    layer. The readout of the copies does not change how the g gates learn: they follow the
    gradient of the SS part, to which the gates of the copies are constants. ``C`` starts at zero,
    so that the layer starts as the ReLU layer it was built from, and its factor keeps the steps of
    optimisers such as Adam, which are of one size for all weights, as small as those of the ReLU
    layer.

    Parameters
    ----------
    hidden : torch.nn.Linear
        Hidden layer. It becomes part of this layer, without a copy.
    output : torch.nn.Linear
        Readout; likewise.

    Attributes
    ----------
    hidden : torch.nn.Linear
        Hidden layer, whose units are the gates.
    output : torch.nn.Linear
        Readout.
    weight : Parameter of shape (gates, in_features, out_features)
        ``C``, the analysis weights.

    Raises
    ------
    ValueError
        If the sizes of the layers do not agree.

    See Also
    --------
    CompressedSwitching : The same with far fewer weights.

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
        """Compute the output of the layer.

        Parameters
        ----------
        x : Tensor of shape (..., in_features)
            Input.

        Returns
        -------
        Tensor of shape (..., out_features)
            Output.
        """
        check_floating("input", x)
        check_dtype_device("input", x, "weight", self.weight)
        if x.dim() < 1 or x.shape[-1] != self.hidden.in_features:
            raise ValueError(
                f"input must end in an axis of {self.hidden.in_features} in_features, "
                f"got shape {tuple(x.shape)}"
            )
        scores = self.hidden(x)
        gates = scores.detach().flatten(0, -2) > 0 if x.dim() > 1 else scores.detach()[None] > 0
        y: Tensor = self.output(scores.relu())
        return y + self._added(x, gates).reshape(y.shape)

    def _added(self, x: Tensor, gates: Tensor) -> Tensor:
        gate_count, inputs, _ = self.weight.shape
        rows = x.reshape(-1, inputs) * (inputs * gate_count) ** -0.5
        return switched_linear(rows, gates, self.weight)
