"""The map and the outer sum as Triton kernels.

    map      F(x, V)_b = Σ_j h_bj V_jᵀ x_b            outer    O(x, δ)_j = Σ_b h_bj x_b δ_bᵀ

Both are matrix products whose left factor, the expanded tensor ``h ⊗ x``, never leaves registers: a
tile of ``x`` is loaded once and masked by the gate of one unit after another. Products are
accumulated in float32. Gates are read where they are needed, so that nothing is sorted or counted
and the host never waits.
"""

import os

import torch
import triton
import triton.language as tl
from torch import Tensor

TILE_ROWS, TILE_IN, TILE_OUT = 64, 32, 64
INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"  # by NumPy, which has no bfloat16
DTYPES = (torch.float32, torch.bfloat16, torch.float16)


@triton.jit
def _map_kernel(
    x,
    gates,
    weight,
    y,
    rows,
    units,
    n_in,
    n_out,
    x_row,
    x_in,
    gates_row,
    gates_unit,
    weight_unit,
    weight_in,
    weight_out,
    precision: tl.constexpr,
    widen: tl.constexpr,
    tile_rows: tl.constexpr,
    tile_in: tl.constexpr,
    tile_out: tl.constexpr,
):
    row = tl.program_id(0) * tile_rows + tl.arange(0, tile_rows)
    out = tl.program_id(1) * tile_out + tl.arange(0, tile_out)
    total = tl.zeros((tile_rows, tile_out), dtype=tl.float32)
    for start in range(0, n_in, tile_in):
        feature = start + tl.arange(0, tile_in)
        inside = (row[:, None] < rows) & (feature[None, :] < n_in)
        tile = tl.load(x + row[:, None] * x_row + feature[None, :] * x_in, mask=inside, other=0.0)
        fits = (feature[:, None] < n_in) & (out[None, :] < n_out)
        place = feature[:, None] * weight_in + out[None, :] * weight_out
        for unit in range(units):
            opened = tl.load(gates + row * gates_row + unit * gates_unit, mask=row < rows, other=0)
            copies = tl.where(opened[:, None] != 0, tile, tl.zeros_like(tile))
            matrix = tl.load(weight + unit * weight_unit + place, mask=fits, other=0.0)
            if widen:
                copies, matrix = copies.to(tl.float32), matrix.to(tl.float32)
            total = tl.dot(copies, matrix, total, input_precision=precision)
    fits = (row[:, None] < rows) & (out[None, :] < n_out)
    tl.store(y + row[:, None] * n_out + out[None, :], total.to(y.dtype.element_ty), mask=fits)


@triton.jit
def _outer_kernel(
    x,
    gates,
    errors,
    result,
    rows,
    n_in,
    n_out,
    x_row,
    x_in,
    gates_row,
    gates_unit,
    errors_row,
    errors_out,
    precision: tl.constexpr,
    widen: tl.constexpr,
    tile_rows: tl.constexpr,
    tile_in: tl.constexpr,
    tile_out: tl.constexpr,
):
    unit = tl.program_id(0)
    feature = tl.program_id(1) * tile_in + tl.arange(0, tile_in)
    out = tl.program_id(2) * tile_out + tl.arange(0, tile_out)
    total = tl.zeros((tile_in, tile_out), dtype=tl.float32)
    for start in range(0, rows, tile_rows):
        row = start + tl.arange(0, tile_rows)
        inside = (feature[:, None] < n_in) & (row[None, :] < rows)
        tile = tl.load(x + row[None, :] * x_row + feature[:, None] * x_in, mask=inside, other=0.0)
        opened = tl.load(gates + row * gates_row + unit * gates_unit, mask=row < rows, other=0)
        copies = tl.where(opened[None, :] != 0, tile, tl.zeros_like(tile))
        fits = (row[:, None] < rows) & (out[None, :] < n_out)
        place = row[:, None] * errors_row + out[None, :] * errors_out
        delta = tl.load(errors + place, mask=fits, other=0.0)
        if widen:
            copies, delta = copies.to(tl.float32), delta.to(tl.float32)
        total = tl.dot(copies, delta, total, input_precision=precision)
    fits = (feature[:, None] < n_in) & (out[None, :] < n_out)
    place = unit * n_in * n_out + feature[:, None] * n_out + out[None, :]
    tl.store(result + place, total.to(result.dtype.element_ty), mask=fits)


def map_rows(x: Tensor, gates: Tensor, weight: Tensor) -> Tensor:
    """Return ``F(x, V)``; any strides, so that ``Vᵀ`` needs no copy."""
    (rows, n_in), (units, _, n_out) = x.shape, weight.shape
    y = x.new_empty(rows, n_out)
    if rows and n_out:
        grid = (triton.cdiv(rows, TILE_ROWS), triton.cdiv(n_out, TILE_OUT))
        sizes = (rows, units, n_in, n_out, *x.stride(), *gates.stride(), *weight.stride())
        _map_kernel[grid](x, gates.view(torch.uint8), weight, y, *sizes, **_settings(x.dtype))
    return y


def outer(x: Tensor, gates: Tensor, errors: Tensor) -> Tensor:
    """Return ``O(x, δ)``."""
    (rows, n_in), units, n_out = x.shape, gates.shape[1], errors.shape[1]
    result = x.new_empty(units, n_in, n_out)
    if result.numel():
        grid = (units, triton.cdiv(n_in, TILE_IN), triton.cdiv(n_out, TILE_OUT))
        sizes = (rows, n_in, n_out, *x.stride(), *gates.stride(), *errors.stride())
        opened = gates.view(torch.uint8)
        _outer_kernel[grid](x, opened, errors, result, *sizes, **_settings(x.dtype))
    return result


def _settings(dtype: torch.dtype) -> dict[str, object]:
    """Return tile sizes, and the precision that the user allows for float32 products."""
    exact = torch.get_float32_matmul_precision() == "highest"
    return {
        "precision": "ieee" if exact else "tf32",
        "widen": INTERPRETED and dtype == torch.bfloat16,
        "tile_rows": TILE_ROWS,
        "tile_in": TILE_IN,
        "tile_out": TILE_OUT,
    }
