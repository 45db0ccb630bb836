"""Arguments of the kernels: checked, as tensors, and as unit vectors with their lengths."""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from tensorswitch._checks import from_numpy
from tensorswitch._memory import dense_rows

UNIT_BYTES = 1 << 25  # unit vectors larger than this are recomputed for each tile


def check_depth(depth: int) -> int:
    """Return the depth as an int; raise unless it is a non-negative integer."""
    if isinstance(depth, bool) or not isinstance(depth, int | np.integer):
        raise TypeError(f"depth must be an integer, got {depth!r}")
    if depth < 0:
        raise ValueError(f"depth must be 0 or more, got {depth}")
    return int(depth)


def check_kind(kind: str) -> str:
    """Return the kind; raise if it is unknown."""
    if kind not in ("ss", "ts", "ntk"):
        raise ValueError(f"the kind of kernel must be 'ss', 'ts' or 'ntk', got {kind!r}")
    return kind


def diagonal_factor(kind: str, depth: int) -> int:
    """Return ``k(x, x) / ‖x‖²``, which depends on the kind and depth only."""
    return depth + 1 if kind == "ntk" else 1


def as_tensors(X: Any, Y: Any) -> tuple[Tensor, Tensor]:
    x = as_tensor("X", X)
    y = x if Y is None else as_tensor("Y", Y)
    if x.shape[1] != y.shape[1]:
        raise ValueError(f"X has {x.shape[1]} features but Y has {y.shape[1]}")
    if x.dtype != y.dtype or x.device != y.device:
        raise TypeError(
            f"X is {x.dtype} on {x.device} but Y is {y.dtype} on {y.device}; convert one of them"
        )
    return x, y


def as_tensor(name: str, array: Any) -> Tensor:
    if isinstance(array, Tensor):
        if array.requires_grad and torch.is_grad_enabled():
            raise ValueError(f"kernels have no gradient, but {name} requires one; detach it")
        tensor = array.detach()
    else:
        tensor = from_numpy(np.ascontiguousarray(dense_rows(array, name)))
    if tensor.dtype not in (torch.float32, torch.float64):
        if tensor.dtype.is_complex or tensor.dtype == torch.bool:
            raise TypeError(f"{name} must hold real numbers, got {tensor.dtype}")
        tensor = tensor.to(torch.float32 if tensor.is_floating_point() else torch.float64)
    if tensor.dim() != 2:
        raise ValueError(
            f"{name} must have 2 axes (rows, features), got shape {tuple(tensor.shape)}"
        )
    if not largest(tensor).isfinite().all():
        raise ValueError(f"{name} contains NaN or infinity")
    return tensor.contiguous()


class UnitRows:
    """Rows scaled to unit length, computed on demand if they are many; zeros stay zeros."""

    def __init__(self, x: Tensor) -> None:
        self.x = x
        # Scale by a power of two first, which is exact, so that no square overflows or underflows.
        most = 120 if x.dtype == torch.float32 else 1000
        exponent = torch.frexp(largest(x)).exponent.clamp(-most, most)
        # Not by torch.ldexp, which overflows outside the range of float32.
        self.factor = torch.from_numpy(np.ldexp(1.0, -exponent.cpu().numpy())).to(x)
        scaled = (x[part] * self.factor[part] for part in _row_blocks(x))
        square = torch.cat([part.double().square_().sum(1, keepdim=True) for part in scaled])
        self.length = torch.where(square > 0, square.sqrt(), 1).to(x.dtype)
        factor = self.factor.double()
        self.norms = (square.sqrt() / factor).to(x.dtype)
        self.squares = (square / factor / factor)[:, 0].to(x.dtype)
        self.rows = None if x.numel() * x.element_size() > UNIT_BYTES else self._make(slice(None))

    def __getitem__(self, part: slice) -> Tensor:
        return self._make(part) if self.rows is None else self.rows[part]

    def _make(self, part: slice) -> Tensor:
        return (self.x[part] * self.factor[part]).div_(self.length[part])


def _row_blocks(x: Tensor) -> list[slice]:
    step = max(1, (1 << 18) // max(1, x.shape[1]))
    return [slice(s, s + step) for s in range(0, max(1, len(x)), step)]


def largest(x: Tensor) -> Tensor:
    """Return the largest magnitude in each row, (rows, 1)."""
    if not x.numel():
        return x.new_zeros(len(x), 1)
    return torch.cat([x[part].abs().amax(1, keepdim=True) for part in _row_blocks(x)])
