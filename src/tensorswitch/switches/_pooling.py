"""Max pooling as a switch: the patch at the best position of each window is copied.

source(w, j) = argmax_{u ∈ w} w_j · x_u,        h_wj = H(max_{u ∈ w} w_j · x_u)
"""

from dataclasses import dataclass, field
from functools import partial

import torch
from torch import Tensor
from torch.nn import functional as F

from tensorswitch._checks import check_floating, check_shape, pair
from tensorswitch.switches._routes import Routes
from tensorswitch.switches._switch import AllOpen, Switch


@dataclass(frozen=True)
class MaxPool2d:
    """Copy, for each unit and window, the patch at the position with the highest score.

    Among equal scores the first one in row-major order wins. The patch is copied only if
    ``switch`` opens the gate there. With :class:`Maxout`, the best piece at the best position wins.

    Parameters
    ----------
    kernel_size, stride : int or tuple of (int, int)
        Height and width of a window, and distance between windows, by default the same.
    switch : Switch, default=AllOpen()
        Rule that opens the gates.

    Examples
    --------
    >>> import torch
    >>> from tensorswitch.switches import MaxPool2d
    >>> routes = MaxPool2d(2)(torch.tensor([[[[0.0, 1.0], [3.0, 2.0]]]]))
    >>> routes.gates[:, 0], routes.target
    (tensor([False, False,  True, False]), tensor([0, 0, 0, 0]))
    """

    kernel_size: int | tuple[int, int]
    stride: int | tuple[int, int] | None = None
    switch: Switch = field(default_factory=AllOpen)

    def __call__(self, scores: Tensor) -> Routes:
        """Return the routes of scores, (images, gates, height, width), from positions to windows.

        Both are numbered image by image and within an image in row-major order.
        """
        check_floating("scores", scores)
        check_shape("scores", scores, (None,) * 4, "(images, gates, height, width)")
        images, gates, height, width = scores.shape
        self.switch.check_gates(gates)
        flat = scores.permute(0, 2, 3, 1).reshape(-1, gates)
        opened = self.switch.open(flat).view(images, height, width, gates).permute(0, 3, 1, 2)
        finite = torch.where(scores.isnan(), -torch.inf, scores)  # max_pool2d lets NaN win
        units = finite.unflatten(1, (-1, self.switch.pieces)).amax(2)
        kh, kw = pair("kernel_size", self.kernel_size)
        sh, sw = (kh, kw) if self.stride is None else pair("stride", self.stride)
        if kh > height or kw > width:
            raise ValueError(
                f"a {kh}×{kw} pooling window with stride {sh}×{sw} does not fit in "
                f"scores of {height}×{width}"
            )
        # The winning position: (images, units, windows).
        winner = F.max_pool2d(units, (kh, kw), (sh, sw), return_indices=True)[1].flatten(2)
        place = partial(torch.arange, device=scores.device)
        top, left = place(0, height - kh + 1, sh), place(0, width - kw + 1, sw)
        corner = (top[:, None] * width + left).flatten()
        within = place(kh)[:, None] * width + place(kw)
        position = (corner[:, None] + within.flatten()).flatten()  # (windows · candidates,)

        # (images, windows · candidates, units)
        wins = winner.transpose(1, 2).repeat_interleave(kh * kw, 1) == position[:, None]
        wins = wins.repeat_interleave(self.switch.pieces, 2)
        routed = wins & opened.flatten(2).transpose(1, 2)[:, position]
        source = (place(images)[:, None] * (height * width) + position).flatten()
        windows = images * len(corner)
        target = place(windows).repeat_interleave(kh * kw, 0)
        return Routes(routed.flatten(0, 1), source, target, windows)
