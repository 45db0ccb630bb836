"""Checks of the layers of a ReLU network that is to be converted."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn


def check_relu_layers(hidden: Sequence[nn.Linear], output: nn.Linear) -> None:
    """Raise unless the layers form a network."""
    names = [f"hidden layer {i}" for i in range(1, len(hidden) + 1)]
    if len(hidden) == 1:
        names = ["hidden"]
    for name, layer in zip([*names, "output"], [*hidden, output], strict=True):
        if not isinstance(layer, nn.Linear):
            raise TypeError(f"{name} must be a torch.nn.Linear, got {type(layer).__name__}")
    for name, layer, above in zip(names, hidden, [*hidden[1:], output], strict=True):
        if layer.out_features != above.in_features:
            raise ValueError(
                f"{name} has out_features {layer.out_features} but "
                f"the layer above it has in_features {above.in_features}"
            )


def bias_or_zeros(layer: nn.Linear | nn.Conv2d) -> Tensor:
    """Return the bias of a layer, zeros if it has none."""
    return layer.weight.new_zeros(len(layer.weight)) if layer.bias is None else layer.bias
