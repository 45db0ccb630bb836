"""The map and the outer sum on GPUs: no sort, no count of open gates, no synchronisation.

If Triton is installed, a kernel masks the tiles of the input by their gates. Otherwise, and for
float64, the dense strategy expands some units at a time.
"""

from __future__ import annotations

import importlib.util
from functools import cache
from typing import Any

from torch import Tensor

from tensorswitch.switched import _compute


def map_rows(x: Tensor, gates: Tensor, weight: Tensor) -> Tensor:
    """Return ``F(x, V)``."""
    kernels = _kernels_for(x)
    if kernels is None:
        return _compute.map_rows(x, gates, weight, 0)
    result: Tensor = kernels.map_rows(x, gates, weight)
    return result


def outer(x: Tensor, gates: Tensor, errors: Tensor) -> Tensor:
    """Return ``O(x, δ)``."""
    kernels = _kernels_for(x)
    if kernels is None:
        return _compute.outer(x, gates, errors, 0)
    result: Tensor = kernels.outer(x, gates, errors)
    return result


def _kernels_for(x: Tensor) -> Any:
    """Return the module of Triton kernels, None if they cannot be used."""
    kernels = _kernels() if x.device.type == "cuda" else None
    return kernels if kernels is not None and x.dtype in kernels.DTYPES else None


@cache
def _kernels() -> Any:
    if importlib.util.find_spec("triton") is None:
        return None
    from tensorswitch.switched import _triton

    return _triton
