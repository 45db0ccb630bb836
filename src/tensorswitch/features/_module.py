"""Patch features as a torch module: ``f_wj = mean_{u ∈ w} H(w_j · p(u) − θ_j) c_j(u)``."""

import math
from itertools import pairwise
from numbers import Integral
from typing import Self

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tensorswitch._checks import check_positive, check_shape
from tensorswitch._memory import workspace
from tensorswitch.features._images import check_images
from tensorswitch.persistence import State, saved_as

SCORE_BYTES = 1 << 21  # of gate scores that are computed at a time, so that they stay in cache
SETTINGS = ("image_shape", "stride", "floor", "grid", "copies", "pool", "power")
TENSORS = ("filters", "offset", "gate_weight", "threshold")
Copies = int | str


@saved_as("patch-features")
class PatchFeatures2d(nn.Module):
    """Copy patches to the windows of an image and average them there.

        p(u) = Lᵀ (n(u) − μ),    h_j(u) = H(w_j · p(u) − θ_j),    f_wj = mean_{u ∈ w} h_j(u) c_j(u)

    ``n(u)`` is the patch at position u minus its mean, divided by ``√(variance + floor)``. What is
    copied, c_j, is the score ``w_j · p − θ_j`` and 1, or some components of p and 1. The features
    are ``sign(f) |f|^power``. Nothing is trained; see :func:`learn_patch_features`.

    Parameters
    ----------
    filters : Tensor of shape (components, channels, size, size)
        Columns of L, each with mean zero.
    offset, gate_weight, threshold : Tensor
        ``Lᵀ μ``, ``w_j`` and ``θ_j``: (components,), (gates, components) and (gates,).
    image_shape : tuple of (int, int, int)
        Channels, height and width of the images.
    floor : float, default=0.0
        Variance that is added to that of each patch, so that flat ones are not amplified.
    stride, grid, copies, pool, power : optional
        As in :class:`PatchFeatures`.

    Attributes
    ----------
    out_features : int
        Number of features, ``windows · gates · copies``.

    Examples
    --------
    >>> import torch
    >>> from tensorswitch.features import learn_patch_features
    >>> images = torch.rand(50, 1, 12, 12, generator=torch.Generator().manual_seed(0))
    >>> features = learn_patch_features(images, gates=16, size=4)
    >>> features(images).shape  # 4 windows, 16 gates, score and constant
    torch.Size([50, 128])
    """

    filters: Tensor
    offset: Tensor
    gate_weight: Tensor
    threshold: Tensor
    windows: Tensor

    def __init__(
        self,
        filters: Tensor,
        offset: Tensor,
        gate_weight: Tensor,
        threshold: Tensor,
        image_shape: tuple[int, int, int],
        *,
        stride: int = 1,
        floor: float = 0.0,
        grid: int = 2,
        copies: Copies = "score",
        pool: str = "mean",
        power: float = 0.5,
    ) -> None:
        super().__init__()
        check_positive(stride=stride, grid=grid)
        gates, components = gate_weight.shape
        size = filters.shape[-1]
        channels, height, width = image_shape
        expected = (components, channels, size, size)
        check_shape("filters", filters, expected, "(components, channels, size, size)")
        check_shape("offset", offset, (components,), "(components,)")
        check_shape("threshold", threshold, (gates,), "(gates,)")
        whole = isinstance(copies, Integral) and not isinstance(copies, bool)
        if copies != "score" and not (whole and 0 <= int(copies) <= components):
            what = f"a number from 0 to the {components} components, got {copies!r}"
            raise ValueError(f"copies must be 'score' or {what}")
        if pool not in ("mean", "max"):
            raise ValueError(f"pool must be 'mean' or 'max', got {pool!r}")
        self.image_shape = (channels, height, width)
        self.size, self.stride, self.floor = size, stride, floor
        self.grid, self.pool, self.power = grid, pool, power
        self.copies: Copies = copies if isinstance(copies, str) else int(copies)
        self.positions = positions(height, width, size, stride)
        if min(self.positions) < grid:
            raise ValueError(
                f"grid {grid} is finer than the {self.positions[0]} × {self.positions[1]} "
                f"positions of patches of size {size} in images of {height} × {width}"
            )
        for name, tensor in zip(TENSORS, (filters, offset, gate_weight, threshold), strict=True):
            self.register_buffer(name, tensor.detach().clone())
        windows = windows_of(*self.positions, grid)
        average = filters.new_zeros(len(windows), math.prod(self.positions))
        for row, inside in zip(average, windows, strict=True):
            row[inside.to(row.device)] = 1 / len(inside)
        self.register_buffer("windows", average)
        self.out_features = grid * grid * gates * self.copies_per_gate

    @property
    def copies_per_gate(self) -> int:
        """Number of entries of a copy, the constant included."""
        return 2 if isinstance(self.copies, str) else self.copies + 1

    def project(self, images: Tensor) -> Tensor:
        """Return the whitened patches with a constant, ``[p(u), 1]``, for each position u."""
        # Variances are blind to an offset, and so are learned filters; rounding errors are not.
        offset = images.mean((1, 2, 3), keepdim=True)
        images = images - offset
        p = F.conv2d(images, self.filters, stride=self.stride)
        p = p + offset * self.filters.sum((1, 2, 3))[:, None, None]
        mean, square = (
            F.avg_pool2d(x, self.size, self.stride).mean(1, keepdim=True)
            for x in (images, images.square())
        )
        variance = (square - mean.square()).clamp(min=0)
        p = p * positive(variance + self.floor).rsqrt() - self.offset[:, None, None]
        return F.pad(p, (0, 0, 0, 0, 0, 1), value=1.0).flatten(2).transpose(1, 2)

    def open_gates(self, images: Tensor) -> Tensor:
        """Return which gates are open, (images, positions, gates)."""
        check_images(images, self.image_shape)
        return self.project(images) @ self._scoring() > 0

    def pooled(self, images: Tensor) -> Tensor:
        """Return the pooled copies ``f``, (images, windows, gates, copies), before the power."""
        check_images(images, self.image_shape)
        scoring = self._scoring()
        if torch.compiler.is_compiling():  # compilers have no use for blocks and buffers
            return self._pooled(images, scoring, False)
        score_bytes = math.prod(self.positions) * len(self.gate_weight) * images.element_size()
        step = max(1, SCORE_BYTES // score_bytes)
        shape = (len(images), self.grid**2, len(self.gate_weight), self.copies_per_gate)
        if torch.is_grad_enabled() and images.requires_grad:
            parts = [self._pooled(part, scoring, False) for part in images.split(step)]
            return torch.cat(parts) if parts else images.new_zeros(shape)
        result = images.new_empty(shape)
        for start in range(0, len(images), step):
            part = slice(start, start + step)
            result[part] = self._pooled(images[part], scoring, True)
        return result

    def forward(self, images: Tensor) -> Tensor:
        """Return ``sign(f) |f|^power``, the windows first, then the gates, then the copies."""
        f = self.pooled(images).flatten(1)
        if self.power == 1:
            return f
        if self.power == 0.5 and not f.requires_grad and not torch.compiler.is_compiling():
            return f.abs().sqrt_().copysign_(f)
        safe = torch.where(f == 0, 1, f)  # the derivative of the power is infinite at zero
        return torch.where(f == 0, 0, f.sign() * safe.abs().pow(self.power))

    def _scoring(self) -> Tensor:
        """Return the matrix that turns ``[p, 1]`` into ``w_j · p − θ_j``."""
        return torch.cat([self.gate_weight, -self.threshold[:, None]], dim=1).t().contiguous()

    def _pooled(self, images: Tensor, scoring: Tensor, reuse: bool) -> Tensor:
        p = self.project(images)
        scores, opened = self._gated(p, scoring, reuse)
        if self.pool == "max":
            return self._maxima(p, scores)
        if isinstance(self.copies, str):
            rectified = scores.relu_() if reuse else scores.relu()
            return torch.stack([self.windows @ rectified, self.windows @ opened], dim=3)
        copies = self.copied(p)
        parts = [
            opened[:, rows].transpose(1, 2) @ copies[:, rows] / rows.numel()
            for rows in self._windows()
        ]
        return torch.stack(parts, dim=1)

    def copied(self, p: Tensor) -> Tensor:
        """Return the components that are copied, with the constant, of ``[p(u), 1]``."""
        return torch.cat([p[..., : self.copies], p[..., -1:]], dim=2)

    def _gated(self, p: Tensor, scoring: Tensor, reuse: bool) -> tuple[Tensor, Tensor]:
        """Return scores and gates, in buffers of the thread where no gradient is needed."""
        if not reuse:
            scores = p @ scoring
            return scores, (scores > 0).to(p.dtype)
        shape = (len(p) * p.shape[1], scoring.shape[1])
        scores = workspace.empty("patch scores", shape, p)
        torch.mm(p.flatten(0, 1), scoring, out=scores)
        opened = torch.gt(scores, 0, out=workspace.empty("patch gates", shape, p))
        return scores.view(*p.shape[:2], -1), opened.view(*p.shape[:2], -1)

    def _maxima(self, p: Tensor, scores: Tensor) -> Tensor:
        parts = []
        for rows in self._windows():
            best, place = scores[:, rows].max(1)
            opened = (best > 0).to(p.dtype)
            if isinstance(self.copies, str):
                parts.append(torch.stack([best.relu(), opened], dim=2))
                continue
            copies = self.copied(p[:, rows])
            index = place.unsqueeze(2).expand(-1, -1, copies.shape[2])
            parts.append(copies.gather(1, index) * opened.unsqueeze(2))
        return torch.stack(parts, dim=1)

    def _windows(self) -> list[Tensor]:
        """Return the positions in each window, on the device of the features."""
        return [rows.to(self.windows.device) for rows in windows_of(*self.positions, self.grid)]

    def state(self) -> State:
        """Return the settings and the tensors."""
        return {name: getattr(self, name) for name in (*SETTINGS, *TENSORS, "windows")}

    @classmethod
    def from_state(cls, state: State) -> Self:
        """Return the features of a state."""
        _, height, width = state["image_shape"]
        # A damaged shape must not allocate more than the file holds.
        across = positions(height, width, state["filters"].shape[-1], state["stride"])
        expected = (state["grid"] ** 2, math.prod(across))
        check_shape("windows", state["windows"], expected, "(windows, positions)")
        return cls(**{name: state[name] for name in (*SETTINGS, *TENSORS)})

    def extra_repr(self) -> str:
        """Return the settings shown by ``repr``."""
        gates, components = self.gate_weight.shape
        settings = ", ".join(f"{name}={getattr(self, name)!r}" for name in SETTINGS)
        return f"size={self.size}, gates={gates}, components={components}, {settings}"


def positions(height: int, width: int, size: int, stride: int) -> tuple[int, int]:
    """Return the number of patches along both axes, or raise if images are too small."""
    if min(height, width) < size:
        raise ValueError(
            f"images of {height} × {width} are smaller than the patches of {size} × {size}"
        )
    return (height - size) // stride + 1, (width - size) // stride + 1


def positive(variance: Tensor) -> Tensor:
    """Return variances to divide by, with 1 in place of 0, which flat patches have."""
    return torch.where(variance > 0, variance, 1.0)


def windows_of(height: int, width: int, grid: int) -> list[Tensor]:
    """Return the positions in each window of a grid, both numbered in row-major order."""
    place = torch.arange(height * width, device="cpu").view(height, width)
    rows, columns = ([round(i * n / grid) for i in range(grid + 1)] for n in (height, width))
    return [
        place[top:bottom, left:right].flatten()
        for top, bottom in pairwise(rows)
        for left, right in pairwise(columns)
    ]
