"""Cholesky's factorisation in place: half a matrix of memory on the CPU.

LAPACK's *rectangular full packed* format holds the lower triangle of a symmetric matrix of order N in ``N (N + 1) / 2`` numbers and still works
on it with matrix products. Its first columns stand in place; the triangle to the lower right is turned over into the room above them. Seen row by
row (that is, transposed) with ``k = ⌈N/2⌉`` and ``e = 1`` where N is even, else 0:

    F[j, e + i] = A[i, j]              for j < k, i ≥ j
    F[c, r]     = A[k + c − 1 + e, k + r]    for r < c + e
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from scipy.linalg import lapack
from torch import Tensor


class SingularError(ValueError):
    """The system has no solution that could be trusted."""


def packed_rows(order: int, rows: Callable[[int, int], Tensor], step: int, like: Tensor) -> Tensor:
    """A symmetric matrix of this order in the packed format, taken from ``rows(start, stop)``, its rows a few at a time."""
    k, e = (order + 1) // 2, 1 - order % 2
    packed = like.new_empty(k, order + e)
    for start in range(0, k, step):
        stop = min(start + step, k)
        packed[start:stop, e + start :] = rows(start, stop)[:, start:]
    for start in range(k, order, step):  # after the rows above, which reach into its triangle
        stop = min(start + step, order)
        below = rows(start, stop)[:, k:stop]
        first = start - k + 1 - e
        room = packed[first : first + len(below), : stop - k]
        room.copy_(torch.where(torch.ones_like(below, dtype=torch.bool).tril(start - k), below, room))
    return packed


def diagonal(packed: Tensor, order: int) -> Tensor:
    """A view of the two parts of the diagonal would need two tensors; so this gives where it lies in the flattened storage."""
    k, e = packed.shape[0], 1 - order % 2
    width = packed.shape[1]
    first = torch.arange(k, device=packed.device)
    second = torch.arange(order - k, device=packed.device)
    return torch.cat([first * width + first + e, (second + 1 - e) * width + second])


def factorise_packed(packed: Tensor, order: int, shift: float) -> Callable[[Tensor], Tensor]:
    """What multiplies by ``(A + shift · I)⁻¹``; ``packed`` is overwritten."""
    factor, _, substitute = _factorise_packed(packed, order, shift)
    return lambda right: torch.from_numpy(substitute(order, factor, right.to(packed.dtype).numpy(), uplo="L")[0])


def solve_packed(packed: Tensor, order: int, right: Tensor, shift: float, traced: bool = False) -> tuple[Tensor, float]:
    """``(A + shift · I)⁻¹ right``, and the trace of that inverse if it is asked for; ``packed`` is overwritten."""
    factor, place, substitute = _factorise_packed(packed, order, shift)
    answer, _ = substitute(order, factor, right.to(packed.dtype).numpy(), uplo="L")
    invert = lapack.dpftri if packed.dtype == torch.float64 else lapack.spftri
    trace = float(torch.from_numpy(invert(order, factor, uplo="L", overwrite_a=1)[0])[place].double().sum()) if traced else 0.0
    return torch.from_numpy(answer), trace


def _factorise_packed(packed: Tensor, order: int, shift: float) -> tuple[Any, Tensor, Any]:
    place = diagonal(packed, order)
    flat = packed.view(-1)
    flat[place] += shift
    double = packed.dtype == torch.float64
    factorise, substitute = (lapack.dpftrf, lapack.dpftrs) if double else (lapack.spftrf, lapack.spftrs)
    factor, info = factorise(order, flat.numpy(), uplo="L", overwrite_a=1)
    _check(info, torch.from_numpy(factor)[place])
    return factor, place, substitute


def factorise_full(matrix: Tensor) -> Callable[[Tensor], Tensor]:
    """What multiplies by ``A⁻¹``."""
    factor, info = torch.linalg.cholesky_ex(matrix)
    _check(int(info), factor.diagonal())
    return lambda right: torch.cholesky_solve(right.to(matrix.dtype), factor)


def solve_full(matrix: Tensor, right: Tensor, traced: bool = False) -> tuple[Tensor, float]:
    """``A⁻¹ right``, and the trace of the inverse if it is asked for; the matrix is overwritten on the CPU."""
    if not matrix.is_cpu:
        factor, info = torch.linalg.cholesky_ex(matrix)
        _check(int(info), factor.diagonal())
        trace = float(torch.cholesky_inverse(factor).diagonal().double().sum()) if traced else 0.0
        return torch.cholesky_solve(right.to(matrix.dtype), factor), trace
    double = matrix.dtype == torch.float64
    factorise, substitute, invert = (lapack.dpotrf, lapack.dpotrs, lapack.dpotri) if double else (lapack.spotrf, lapack.spotrs, lapack.spotri)
    factor, info = factorise(matrix.numpy().T, lower=1, overwrite_a=1, clean=0)
    _check(info, torch.from_numpy(factor.diagonal().copy()))
    answer, _ = substitute(factor, right.to(matrix.dtype).numpy(), lower=1)
    trace = float(invert(factor, lower=1, overwrite_c=1)[0].diagonal().sum(dtype=float)) if traced else 0.0
    return torch.from_numpy(answer), trace


def _check(info: Any, diagonal: Tensor) -> None:
    """The square of the factor's smallest entry on the diagonal bounds the smallest eigenvalue from above."""
    squares = diagonal.double().square()
    if info or not float(squares.min()) > torch.finfo(diagonal.dtype).eps * float(squares.max()):  # nor if it is NaN
        hint = "use a larger alpha" if diagonal.dtype == torch.float64 else "use a larger alpha, or float64"
        raise SingularError(f"the system is singular to working precision; {hint}")
