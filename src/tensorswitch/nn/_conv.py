"""The TS layer on patches: ``y(u) = Σ_j H(w_j · p(u)) V_jᵀ p(u) + bias`` at each position u."""

from typing import Self

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tensorswitch._checks import check_positive, pair
from tensorswitch.nn._base import OneLayer, fold_rows
from tensorswitch.switches import MaxPool2d, Routes, Switch


class SwitchedConv2d(OneLayer):
    """Apply ``y = Σ_j H(w_j · p) V_jᵀ p + bias`` to every patch ``p`` of an image.

    With ``pool``, the gate scores are max pooled: in each window, a unit copies the patch at the
    position where its score is highest (Sec. 2.2, footnote).

    Parameters
    ----------
    in_channels, gates, out_channels : int
        Number of channels of the input, of gates, and of channels of the output.
    kernel_size, stride, padding : int or tuple of (int, int), default=1 and 0 for the last two
        Height and width of a patch, distance between patches, and zeros added on each side of the
        image; ``padding="same"`` adds as many as the output needs to have the size of the input.
    dilation : int or tuple of (int, int), default=1
        Distance between the pixels of a patch.
    pool : int or tuple of (int, int), optional
        Window of the max pooling, which is also its stride. The winning patch is copied only if
        the switch opens the gate there. By default every patch is copied to its own position.
    bias, switch, learn_gates, gate_bias, dropout, device, dtype : optional
        As in :class:`SwitchedLinear`.

    Attributes
    ----------
    gate_weight : Parameter of shape (gates, in_channels, kernel height, kernel width)
        Gate weights ``w_j``.
    weight : Parameter of shape (gates, in_channels, kernel height, kernel width, out_channels)
        Analysis weights ``V_j``.
    bias, gate_bias, constant : Parameter or None
        As in :class:`SwitchedLinear`.

    Examples
    --------
    >>> import torch
    >>> from tensorswitch import SwitchedConv2d
    >>> layer = SwitchedConv2d(3, 16, 8, kernel_size=3, padding=1, pool=2)
    >>> layer(torch.randn(4, 3, 32, 32)).shape
    torch.Size([4, 8, 16, 16])
    """

    def __init__(
        self,
        in_channels: int,
        gates: int,
        out_channels: int,
        kernel_size: int | tuple[int, int],
        stride: int | tuple[int, int] = 1,
        padding: int | tuple[int, int] | str = 0,
        bias: bool = True,
        *,
        dilation: int | tuple[int, int] = 1,
        switch: Switch | str = "relu",
        pool: int | tuple[int, int] | None = None,
        learn_gates: str | None = None,
        gate_bias: bool = False,
        dropout: float = 0.0,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        check_positive(in_channels=in_channels, gates=gates, out_channels=out_channels)
        self.in_channels, self.out_channels = in_channels, out_channels
        self.kernel_size, self.stride = pair("kernel_size", kernel_size), pair("stride", stride)
        self.dilation = pair("dilation", dilation)
        self.padding: tuple[int, int] | str
        if isinstance(padding, str) and padding not in ("same", "valid"):
            raise ValueError(f"padding must be numbers, 'same' or 'valid', got {padding!r}")
        if padding == "same" and self.stride != (1, 1):
            raise ValueError(f"padding='same' needs a stride of 1, got {self.stride}")
        given = 0 if isinstance(padding, str) else padding
        self.padding = "same" if padding == "same" else pair("padding", given, least=0)
        self.pool = None if pool is None else pair("pool", pool)
        settings, factory = (switch, learn_gates, gate_bias, dropout), (device, dtype)
        patch = (in_channels, *self.kernel_size)
        self._build(patch, gates, out_channels, bias, *settings, *factory)

    def forward(self, x: Tensor) -> Tensor:
        """Return (..., out_channels, height, width), as of a convolution divided by ``pool``."""
        x, lead = fold_rows(x, self.weight, self.in_channels, 0, 0)
        patches, scores, routes, (height, width) = self._route(x)
        y = self._read(patches, scores, routes.gates, routes)
        y = y.view(-1, height, width, self.out_channels).permute(0, 3, 1, 2)
        # As nn.Conv2d: in channels-last, which the rows have, only if the input is.
        if x.is_contiguous() or not x.is_contiguous(memory_format=torch.channels_last):
            y = y.contiguous()
        return y if len(lead) == 1 else y.reshape(*lead, *y.shape[1:])

    def _route(self, x: Tensor) -> tuple[Tensor, Tensor, Routes, tuple[int, int]]:
        """Return patches and their gate scores, a row each, their routes and the output size."""
        image, padding = tuple(x.shape[2:]), self.padding
        spans = [d * (k - 1) for d, k in zip(self.dilation, self.kernel_size, strict=True)]
        if isinstance(padding, str):  # the odd zero comes last, as in torch
            (top, left), padding = ((span // 2 for span in spans), (0, 0))
            x = F.pad(x, (left, spans[1] - left, top, spans[0] - top))
        sides = zip(x.shape[2:], padding, spans, self.stride, strict=True)
        height, width = ((n + 2 * p - span - 1) // s + 1 for n, p, span, s in sides)
        if height < 1 or width < 1:
            what = f"does not fit in an image of {image}"
            raise ValueError(f"a {self.kernel_size} kernel with padding {self.padding} {what}")
        patches = F.unfold(x, self.kernel_size, self.dilation, padding, self.stride)
        patches = patches.transpose(1, 2).reshape(-1, patches.shape[1])
        scores = self._scores(patches, self.gate_weight.flatten(1), self.gate_bias)
        if self.pool is None:
            return patches, scores, Routes(self.switch.open(scores.detach())), (height, width)
        images = scores.detach().view(-1, height, width, self.gates).permute(0, 3, 1, 2)
        routes = MaxPool2d(self.pool, switch=self.switch)(images)
        return patches, scores, routes, (height // self.pool[0], width // self.pool[1])

    @classmethod
    @torch.no_grad()
    def from_relu(
        cls,
        hidden: nn.Conv2d,
        output: nn.Conv2d,
        *,
        pool: int | tuple[int, int] | None = None,
        learn_gates: str | None = None,
        dropout: float = 0.0,
    ) -> Self:
        """Return the layer that computes ``output(max_pool2d(relu(hidden(x)), pool))``.

        ``hidden`` has no groups, and ``output`` has a 1×1 kernel. The layer has gate
        biases if ``hidden`` has a bias. ``dropout`` is that before ``output``. Weights are copied.
        """
        check_convolution("hidden", hidden, hidden=True)
        check_convolution("output", output)
        if output.kernel_size != (1, 1) or output.stride != (1, 1) or output.padding != (0, 0):
            raise ValueError(
                "output must have kernel size 1, stride 1 and no padding; "
                f"got kernel_size {output.kernel_size}, stride {output.stride}, "
                f"padding {output.padding}"
            )
        if hidden.out_channels != output.in_channels:
            what = f"output has in_channels {output.in_channels}"
            raise ValueError(f"hidden has out_channels {hidden.out_channels} but {what}")
        sizes = hidden.in_channels, hidden.out_channels, output.out_channels
        window = hidden.kernel_size, hidden.stride, hidden.padding
        settings = {
            "dilation": hidden.dilation,
            "pool": pool,
            "learn_gates": learn_gates,
            "dropout": dropout,
        }
        return cls._from_relu(hidden, output, *sizes, *window, **settings)


def check_convolution(name: str, layer: nn.Conv2d, hidden: bool = False) -> None:
    """Raise unless a convolution can be that of the units, or the one above them."""
    settings: list[tuple[str, object]] = [("groups", 1), ("padding_mode", "zeros")]
    settings += [] if hidden else [("dilation", (1, 1))]
    for setting, wanted in settings:
        if (value := getattr(layer, setting)) != wanted:
            raise ValueError(f"{name} has {setting}={value!r}; only {wanted!r} can be converted")
    if isinstance(layer.padding, str) and not hidden:
        raise ValueError(f"{name} has padding={layer.padding!r}; give the padding as a number")
