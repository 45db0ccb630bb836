"""Products with a kernel matrix that is kept, or made anew, in tiles."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor

from tensorswitch._checks import check_dtype_device, check_shape
from tensorswitch._memory import empty
from tensorswitch.kernels._inputs import (
    UnitRows,
    as_tensor,
    check_depth,
    check_kind,
    diagonal_factor,
)
from tensorswitch.kernels._sweep import sweep

TILE = 768  # rows and columns of a tile: fits in cache, yet large compared to the call overhead

Array = TypeVar("Array", np.ndarray, Tensor)


class KernelTiles:
    """The symmetric matrix ``K(X, X)`` as tiles of its upper triangle.

        K v = Σ_{i ≤ j} K_ij v_j + Σ_{i < j} K_ijᵀ v_i

    Tiles are made, used and dropped in each product, or kept, which takes half the memory of the
    matrix and makes further products about ten times as fast.

    Parameters
    ----------
    X : Tensor of shape (rows, features)
        Rows, in float32 or float64.
    kind : {"ss", "ts", "ntk"}, default="ts"
        Kind of kernel.
    depth : int, default=1
        Number of hidden layers; 0 is the linear kernel.
    keep : bool, default=False
        Whether to keep the tiles after the first product.
    part, parts : int, default=0 and 1
        Which part of the tiles to take, and the number of parts. Products of all parts add up.

    Examples
    --------
    >>> import torch
    >>> from tensorswitch.kernels import KernelTiles
    >>> KernelTiles(torch.eye(2)) @ torch.ones(2, 1)
    tensor([[1.],
            [1.]])
    """

    def __init__(
        self,
        X: Tensor,
        kind: str = "ts",
        depth: int = 1,
        *,
        keep: bool = False,
        part: int = 0,
        parts: int = 1,
    ) -> None:
        self._key = (check_kind(kind), check_depth(depth))
        if not 0 <= part < parts:
            raise ValueError(f"part must be between 0 and parts - 1 = {parts - 1}, got {part}")
        x = as_tensor("X", X)
        self._rows = UnitRows(x)
        self._diagonal = self._rows.squares * diagonal_factor(*self._key) if part == 0 else None
        self._keep = keep
        self._kept: list[tuple[slice, slice, Tensor]] | None = None
        self._size = max(128, min(TILE, (1 << 20) // max(1, x.shape[1])))
        starts = range(0, len(x), self._size)
        pairs = [(i, j) for i in starts for j in starts if i <= j]
        self._places = pairs[part::parts]

    @staticmethod
    def kept_bytes(rows: int, dtype: torch.dtype, parts: int = 1) -> int:
        """Return the memory that kept tiles take.

        Parameters
        ----------
        rows : int
            Number of rows.
        dtype : torch.dtype
            Type of the rows.
        parts : int, default=1
            Number of parts.

        Returns
        -------
        int
            Bytes.
        """
        return (rows * (rows + TILE) // 2 * dtype.itemsize) // parts

    def __matmul__(self, v: Tensor) -> Tensor:
        check_shape("V", v, (None, None), "(rows, columns)")
        if len(v) != len(self._rows.norms):
            raise ValueError(f"X has {len(self._rows.norms)} rows but V has {len(v)}")
        check_dtype_device("V", v, "X", self._rows.norms)
        scaled, result = v * self._rows.norms, torch.zeros_like(v)
        for a, b, tile in self._tiles():
            result[a].addmm_(tile, scaled[b])
            if a != b:
                result[b].addmm_(tile.t(), scaled[a])
        result.mul_(self._rows.norms)
        if self._diagonal is not None:
            result.addcmul_(self._diagonal[:, None], v)
        return result

    def _tiles(self) -> Iterator[tuple[slice, slice, Tensor]]:
        """Yield tiles of unit rows, with zeros on the diagonal, which is known exactly."""
        if self._kept is not None:
            yield from self._kept
            return
        total = sum((a.stop - a.start) * (b.stop - b.start) for a, b in self._slices())
        norms = self._rows.norms
        buffer = empty((total,), norms.dtype, norms.device) if self._keep else None
        kept, start = [], 0
        for a, b in self._slices():
            _, _, tile = next(iter(sweep(self._rows[a], self._rows[b], [self._key])))
            if a == b:
                upper = tile.triu(1)
                tile = upper + upper.t()
            if buffer is not None:
                held = buffer[start : start + tile.numel()].view(tile.shape)
                tile = held.copy_(tile)
                kept.append((a, b, tile))
                start += tile.numel()
            yield a, b, tile
        if buffer is not None:
            self._kept = kept

    def _slices(self) -> Iterator[tuple[slice, slice]]:
        rows = len(self._rows.norms)
        for pair in self._places:
            a, b = (slice(i, min(i + self._size, rows)) for i in pair)
            yield a, b


@torch.no_grad()
def kernel_product(
    X: Array, V: Array, kind: str = "ts", depth: int = 1, *, part: int = 0, parts: int = 1
) -> Array:
    """Return ``K(X, X) V`` tile by tile, without storing the kernel matrix.

    Each tile above the diagonal is also used for its mirror image below it. The tiles can be
    divided into ``parts``, whose results add up to the product.

    Parameters
    ----------
    X : array of shape (rows, features)
        NumPy array or torch tensor of float32 or float64.
    V : array of shape (rows, columns)
        Array of the same type.
    kind : {"ss", "ts", "ntk"}, default="ts"
        Kind of kernel.
    depth : int, default=1
        Number of hidden layers; 0 is the linear kernel.
    part, parts : int, default=0 and 1
        Which part of the product to compute, and the number of parts.

    Returns
    -------
    array of shape (rows, columns)
        The product, of the type of ``X``.

    Examples
    --------
    >>> import numpy as np
    >>> from tensorswitch.kernels import kernel_product
    >>> kernel_product(np.eye(2), np.ones((2, 1)))
    array([[1.],
           [1.]])
    """
    x = as_tensor("X", X)
    v = as_tensor("V", V).to(x)
    result = KernelTiles(x, kind, depth, part=part, parts=parts) @ v
    return result if isinstance(X, Tensor) else result.numpy()
