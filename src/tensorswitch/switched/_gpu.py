"""The map and the outer sum on GPUs: no sort, no count of open gates, no synchronisation.

A Triton kernel masks the tiles of the input by their gates, if Triton is installed. Otherwise the
dense strategy expands a few units at a time.
"""

from __future__ import annotations

from torch import Tensor

from tensorswitch.switched import _compute


def map_rows(x: Tensor, gates: Tensor, weight: Tensor) -> Tensor:
    """Return ``F(x, V)``."""
    return _compute.map_rows(x, gates, weight, 0)


def outer(x: Tensor, gates: Tensor, errors: Tensor) -> Tensor:
    """Return ``O(x, δ)``."""
    return _compute.outer(x, gates, errors, 0)
