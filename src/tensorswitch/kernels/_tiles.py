"""Products with a kernel matrix that is kept, or made anew, in tiles."""

from collections.abc import Iterator

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


def tile_size(features: int) -> int:
    """Return the rows and columns of a tile, fewer where rows are long."""
    return max(128, min(TILE, (1 << 20) // max(1, features)))


class KernelTiles:
    """The symmetric matrix ``K(X, X)``, ``K v = Σ_{i ≤ j} K_ij v_j + Σ_{i < j} K_ijᵀ v_i``.

    Tiles are made, used and dropped in each product, or kept, which takes half the memory of the
    matrix and makes further products about ten times as fast. Products of all ``parts`` add up.
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
        rows, size = len(x), tile_size(x.shape[1])
        spans = [slice(start, min(start + size, rows)) for start in range(0, rows, size)]
        pairs = [(a, b) for i, a in enumerate(spans) for b in spans[i:]]
        self._places = pairs[part::parts]  # dealt out in turn, as tiles at the edge are smaller

    @staticmethod
    def kept_bytes(rows: int, dtype: torch.dtype, parts: int = 1) -> int:
        """Return the bytes that kept tiles take."""
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
        total = sum((a.stop - a.start) * (b.stop - b.start) for a, b in self._places)
        norms = self._rows.norms
        buffer = empty((total,), norms.dtype, norms.device) if self._keep else None
        kept, start = [], 0
        for a, b in self._places:
            _, _, tile = next(iter(sweep(self._rows[a], self._rows[b], [self._key])))
            if a == b:
                upper = tile.triu(1)
                tile = upper + upper.t()
            if buffer is not None:
                tile = buffer[start : start + tile.numel()].view(tile.shape).copy_(tile)
                kept.append((a, b, tile))
                start += tile.numel()
            yield a, b, tile
        if buffer is not None:
            self._kept = kept
