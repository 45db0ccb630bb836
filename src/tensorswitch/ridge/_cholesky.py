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


def solve_packed(packed: Tensor, order: int, right: Tensor, shift: float) -> Tensor:
    """``(A + shift · I)⁻¹ right``; ``packed`` is overwritten."""
    place = diagonal(packed, order)
    flat = packed.view(-1)
    flat[place] += shift
    factorise, substitute = (lapack.dpftrf, lapack.dpftrs) if packed.dtype == torch.float64 else (lapack.spftrf, lapack.spftrs)
    storage = flat.numpy()
    factor, info = factorise(order, storage, uplo="L", overwrite_a=1)
    _check(info, flat[place] if factor is storage else torch.from_numpy(factor)[place])
    answer, _ = substitute(order, factor, right.to(packed.dtype).numpy(), uplo="L")
    return torch.from_numpy(answer)


def solve_full(matrix: Tensor, right: Tensor) -> Tensor:
    """``A⁻¹ right``; the matrix is overwritten on the CPU."""
    if not matrix.is_cpu:
        factor, info = torch.linalg.cholesky_ex(matrix)
        _check(int(info), factor.diagonal())
        return torch.cholesky_solve(right.to(matrix.dtype), factor)
    factorise, substitute = (lapack.dpotrf, lapack.dpotrs) if matrix.dtype == torch.float64 else (lapack.spotrf, lapack.spotrs)
    factor, info = factorise(matrix.numpy().T, lower=1, overwrite_a=1, clean=0)
    _check(info, torch.from_numpy(factor.diagonal().copy()))
    answer, _ = substitute(factor, right.to(matrix.dtype).numpy(), lower=1)
    return torch.from_numpy(answer)


def _check(info: Any, diagonal: Tensor) -> None:
    """The square of the factor's smallest entry on the diagonal bounds the smallest eigenvalue from above."""
    squares = diagonal.double().square()
    if info or float(squares.min()) <= torch.finfo(diagonal.dtype).eps * float(squares.max()):
        hint = "use a larger alpha" if diagonal.dtype == torch.float64 else "use a larger alpha, or float64"
        raise SingularError(f"the system is singular to working precision; {hint}")
