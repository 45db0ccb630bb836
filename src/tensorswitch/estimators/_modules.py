"""Fitted estimators as torch modules: the steps before a readout, and targets in their units."""

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor, nn

from tensorswitch.preprocessing import PrincipalComponents, Scaling

FAR = 1e4  # spreads of the targets from zero, beyond which float32 has fewer than four digits


class Steps(nn.Module):
    """Scaling, principal components and a constant input.

    ``((x − centre) · factor − mean) B``, each of which may be missing, computed in float64 as in
    the estimators, and then a column with a constant.
    """

    centre: Tensor | None
    factor: Tensor | None
    mean: Tensor | None
    basis: Tensor | None

    def __init__(
        self,
        scaling: Scaling,
        components: PrincipalComponents | None = None,
        constant: float = 0.0,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        super().__init__()
        self.constant, self.dtype = float(constant), dtype
        for part, names in ((scaling, ("centre", "factor")), (components, ("mean", "basis"))):
            for name in names:
                array = getattr(part, name, None)
                self.register_buffer(name, None if array is None else _exact(array))

    def forward(self, x: Tensor) -> Tensor:
        """Return the inputs of a readout or a network."""
        if self.centre is not None or self.basis is not None:
            x = x.double()
        if self.centre is not None and self.factor is not None:
            x = (x - self.centre) * self.factor
        if self.basis is not None and self.mean is not None:
            x = (x - self.mean) @ self.basis
        x = x.to(self.dtype)
        if not self.constant:
            return x
        return nn.functional.pad(x, (0, 1), value=self.constant)


class Unscaled(nn.Module):
    """``z · spread + centre``: targets in their own units, in float64 if float32 is too coarse."""

    centre: Tensor
    spread: Tensor

    def __init__(self, centre: ArrayLike, spread: ArrayLike) -> None:
        super().__init__()
        self.register_buffer("centre", _exact(centre))
        self.register_buffer("spread", _exact(spread))
        self.is_far = bool((self.centre.abs() > FAR * self.spread).any())

    def forward(self, z: Tensor) -> Tensor:
        """Return predictions."""
        result = z.double() * self.spread + self.centre
        return result if self.is_far else result.to(z.dtype)


def linear_module(weight: Tensor, bias: Tensor | None) -> nn.Linear:
    """Return ``x ↦ x W + b`` as a layer."""
    n_in, n_out = weight.shape
    layer = nn.Linear(n_in, n_out, dtype=weight.dtype, device=weight.device)
    with torch.no_grad():
        layer.weight.copy_(weight.t())
        layer.bias.zero_()
        if bias is not None:
            layer.bias.copy_(bias)
    return layer


def _exact(array: ArrayLike) -> Tensor:
    """Return a buffer in float64."""
    return torch.tensor(np.asarray(array), dtype=torch.float64, device="cpu")
