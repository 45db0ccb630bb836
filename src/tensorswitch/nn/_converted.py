"""Modules that take the place of parts of a converted network."""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tensorswitch.nn._base import bias_or_zeros
from tensorswitch.nn._conv import SwitchedConv2d
from tensorswitch.switched import switched_linear


class ShiftedSum(nn.Module):
    """Sum the outputs of a switched convolution over the kernel of the convolution above it.

    Channels are (out_channels, kernel height, kernel width): what each position above gets.
    """

    def __init__(self, above: nn.Conv2d) -> None:
        super().__init__()
        self.kernel_size, self.stride = above.kernel_size, above.stride
        self.padding = (int(above.padding[0]), int(above.padding[1]))
        self.bias = None if above.bias is None else nn.Parameter(above.bias.detach().clone())

    def forward(self, x: Tensor) -> Tensor:
        """Return images of out_channels."""
        (kh, kw), (sh, sw), (ph, pw) = self.kernel_size, self.stride, self.padding
        x = F.pad(x, (pw, pw, ph, ph))
        height, width = (x.shape[-2] - kh) // sh + 1, (x.shape[-1] - kw) // sw + 1
        x = x.unflatten(-3, (-1, kh, kw))
        y = x.new_zeros(()) if self.bias is None else self.bias[:, None, None]
        for i in range(kh):
            for j in range(kw):
                rows = slice(i, i + sh * (height - 1) + 1, sh)
                columns = slice(j, j + sw * (width - 1) + 1, sw)
                y = y + x[..., i, j, rows, columns]
        return y

    def extra_repr(self) -> str:
        """Return the settings shown by ``repr``."""
        return f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}"


class SwitchedReadout2d(nn.Module):
    """Apply ``y = Σ_p Σ_j H(w_j · x_p + b_j) V_pjᵀ [x_p, 1] + bias`` to the patches of an image.

    ``weight``, V, has the shape (positions, gates, patch size + 1, out_features).
    """

    def __init__(self, gates: SwitchedConv2d, weight: Tensor, bias: Tensor | None) -> None:
        super().__init__()
        self.gates = gates
        self.weight = nn.Parameter(weight)
        self.bias = None if bias is None else nn.Parameter(bias)

    def forward(self, x: Tensor) -> Tensor:
        """Return one row of outputs per image."""
        patches, _, routes, _ = self.gates._route(x)
        if routes.source is not None:
            patches = patches.index_select(0, routes.source)
        images, positions = x.shape[0], self.weight.shape[0]
        window = 1 if self.gates.pool is None else math.prod(self.gates.pool)
        shape = (images, positions, window)
        patches = F.pad(patches, (0, 1), value=1.0).unflatten(0, shape)
        h, scale = self.gates._dropped(routes.gates)
        opened = h.unflatten(0, shape)
        y = x.new_zeros(images, self.weight.shape[3])
        for p in range(positions):
            rows, h = patches[:, p].flatten(0, 1), opened[:, p].flatten(0, 1)
            y = y + switched_linear(rows, h, self.weight[p]).unflatten(0, (images, window)).sum(1)
        y = y * scale if scale != 1 else y
        return y if self.bias is None else y + self.bias


def convolution_below(
    hidden: nn.Conv2d, above: nn.Conv2d, pool: tuple[int, int] | None, dropout: float
) -> nn.Module:
    """Return what computes ``above(dropout(max_pool2d(relu(hidden(x)), pool)))``."""
    kh, kw = above.kernel_size
    one = nn.Conv2d(above.in_channels, above.out_channels * kh * kw, 1, bias=False)
    columns = above.weight.detach().permute(0, 2, 3, 1).flatten(0, 2)
    one.weight = nn.Parameter(columns[..., None, None])
    alone = (kh, kw) == (1, 1) and above.stride == (1, 1) and above.padding == (0, 0)
    if alone:
        one.bias = above.bias
    layer = SwitchedConv2d.from_relu(hidden, one, pool=pool, dropout=dropout)
    return layer if alone else nn.Sequential(layer, ShiftedSum(above))


@torch.no_grad()
def readout_below(
    hidden: nn.Conv2d, above: nn.Linear, pool: tuple[int, int] | None, dropout: float
) -> nn.Module:
    """Return what computes ``above(flatten(dropout(max_pool2d(relu(hidden(x)), pool))))``."""
    units = hidden.out_channels
    one = nn.Conv2d(units, 1, 1, bias=False, device=hidden.weight.device, dtype=hidden.weight.dtype)
    gates = SwitchedConv2d.from_relu(hidden, one, pool=pool, dropout=dropout)
    gates.requires_grad_(False)
    extended = torch.cat([hidden.weight.flatten(1), bias_or_zeros(hidden)[:, None]], 1)
    columns = above.weight.view(above.out_features, units, -1).permute(2, 1, 0)
    weight = extended[None, :, :, None] * columns[:, :, None, :]
    return SwitchedReadout2d(gates, weight, None if above.bias is None else above.bias.clone())
