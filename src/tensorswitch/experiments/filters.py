"""The weights of the first hidden units as pictures."""

from __future__ import annotations

from typing import cast

import numpy as np
from torch import Tensor

from tensorswitch.models import Network

__all__ = ["first_filters", "first_weight"]


def first_weight(network: Network) -> Tensor | None:
    """Return the weights of the first layer if it is fully connected.

    Parameters
    ----------
    network : Network
        The network.

    Returns
    -------
    Tensor of shape (units, inputs) or None
        Gate weights of a TS layer, weights of an SS layer.
    """
    first = next(iter(network))
    for name in ("gate_weight", "weight"):
        weight = getattr(first, name, None)
        if weight is not None and weight.dim() == 2:
            return cast(Tensor, weight)
    return next(iter(getattr(first, "gate_weights", [])), None)


def first_filters(
    network: Network, basis: np.ndarray | None, count: int = 16
) -> list[list[float]] | None:
    """Return the weights of the first units in pixels.

    Parameters
    ----------
    network : Network
        The network.
    basis : ndarray of shape (pixels, components) or None
        Principal components that the inputs were projected on.
    count : int, default=16
        How many units.

    Returns
    -------
    list of list of float, or None
        Weights of shape (units, pixels), if the first layer is fully connected.
    """
    weight = first_weight(network)
    if weight is None:
        return None
    units = weight.detach().cpu().numpy()[:count]
    seen: list[list[float]] = (units if basis is None else units @ basis.T).round(5).tolist()
    return seen
