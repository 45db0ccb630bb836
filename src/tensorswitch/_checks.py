"""Argument checks whose errors name the argument, the axis and both sizes."""

import math
from collections.abc import Sequence
from numbers import Integral, Real

import numpy as np
import torch
from torch import Tensor

LARGEST_SQUARED = 1e150  # squares of larger numbers, and sums of them, overflow
TOO_LARGE = "numbers beyond 1e150 cannot be squared; divide them by a common factor"


def check_shape(name: str, tensor: Tensor, expected: Sequence[int | None], axes: str) -> None:
    """Raise unless ``tensor`` has the expected sizes, None for any, on ``axes`` "(rows, gates)"."""
    shape = tuple(tensor.shape)
    if len(shape) != len(expected):
        raise ValueError(f"{name} must have {len(expected)} axes {axes}, got shape {shape}")
    for axis, (size, want) in enumerate(zip(shape, expected, strict=True)):
        if want is not None and size != want:
            axis_name = axes.strip("()").rstrip(",").split(", ")[axis]
            what = f"expected {want}; its shape is {shape}, expected {axes}"
            raise ValueError(f"{name} has size {size} on axis {axis} ({axis_name}), {what}")


def check_floating(name: str, tensor: Tensor) -> None:
    """Raise unless ``tensor`` is a floating-point tensor."""
    if not isinstance(tensor, Tensor):
        what = f"got {type(tensor).__name__}; convert it with torch.as_tensor()"
        raise TypeError(f"{name} must be a torch tensor, {what}")
    if not tensor.is_floating_point():
        raise TypeError(
            f"{name} must be a floating-point tensor, got {tensor.dtype}; convert it with .float()"
        )


def autocast_dtype(device: torch.device) -> torch.dtype | None:
    """Return the autocast dtype of the device, or None if autocast is off."""
    if torch.amp.is_autocast_available(device.type) and torch.is_autocast_enabled(device.type):
        return torch.get_autocast_dtype(device.type)
    return None


def check_dtype_device(name: str, tensor: Tensor, other_name: str, other: Tensor) -> None:
    """Raise unless both tensors have the same device and, outside autocast, the same dtype."""
    check_floating(name, tensor)
    if tensor.device != other.device:
        what = f"{other_name} is on {other.device}; move one with .to()"
        raise ValueError(f"{name} is on {tensor.device} but {what}")
    if tensor.dtype != other.dtype and autocast_dtype(tensor.device) is None:
        raise TypeError(
            f"{name} is {tensor.dtype} but {other_name} is {other.dtype}; convert one with .to()"
        )


def check_positive(**sizes: int) -> None:
    """Raise unless each is a positive integer."""
    for name, size in sizes.items():
        if not isinstance(size, Integral) or isinstance(size, bool) or size < 1:
            raise ValueError(f"{name} must be a positive integer, got {size!r}")


def check_number(**numbers: float) -> None:
    """Raise unless each is a finite, non-negative number."""
    for name, value in numbers.items():
        if not _is_finite(value) or value < 0:
            raise ValueError(f"{name} must be a finite number of at least 0, got {value!r}")


def check_above_zero(**numbers: float) -> None:
    """Raise unless each is a finite, positive number."""
    for name, value in numbers.items():
        if not _is_finite(value) or value <= 0:
            raise ValueError(f"{name} must be a finite number above 0, got {value!r}")


def _is_finite(value: float) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool) and math.isfinite(value)


def check_factor(**numbers: float) -> None:
    """Raise unless all numbers are above 0 and at most 1."""
    for name, number in numbers.items():
        if not 0 < number <= 1:
            raise ValueError(f"{name} must be in (0, 1], got {number}")


def check_seed(seed: int) -> int:
    """Return the seed; raise unless it is an integer that torch accepts."""
    if isinstance(seed, bool) or not isinstance(seed, Integral) or not 0 <= seed < 2**63:
        raise ValueError(f"seed must be an integer of at least 0 and below 2^63, got {seed!r}")
    return int(seed)


def check_device(device: torch.device | str) -> torch.device:
    """Return the device; raise if torch does not know it or it is not available."""
    try:
        torch.empty(0, device=device)
        return torch.device(device)
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        reason = str(error).split("\n")[0]
        raise ValueError(f"device {str(device)!r} cannot be used here: {reason}") from error


def from_numpy(array: np.ndarray) -> Tensor:
    """Return a tensor that shares the array's memory, or a copy if the array is read-only."""
    # Torch warns about read-only arrays, such as memory maps.
    return torch.from_numpy(array if array.flags.writeable else array.copy())


def pair(name: str, value: int | Sequence[int], least: int = 1) -> tuple[int, int]:
    """Return height and width, which may be given as one number."""
    both = tuple(value) if isinstance(value, Sequence) else (value, value)
    if len(both) != 2 or not all(isinstance(v, Integral) and v >= least for v in both):
        raise ValueError(
            f"{name} must be an integer or a pair of integers of at least {least}, got {value!r}"
        )
    return int(both[0]), int(both[1])
