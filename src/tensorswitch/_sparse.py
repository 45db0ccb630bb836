"""Sparse matrices as dense rows, block by block and if they fit into memory."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from tensorswitch._memory import available_memory

BLOCK = 4096  # rows converted at a time

__all__ = ["dense_rows"]


def dense_rows(matrix: Any, name: str = "X", copies: int = 1) -> Any:
    """Return a sparse matrix as a dense array, and anything else as it is.

    Parameters
    ----------
    matrix : array or sparse matrix of shape (rows, features)
        The rows.
    name : str, default="X"
        What to call it in an error.
    copies : int, default=1
        How many arrays of this size the caller will hold.

    Returns
    -------
    ndarray of shape (rows, features)

    Raises
    ------
    MemoryError
        If dense rows would not fit into the available memory.
    """
    if "scipy.sparse" not in sys.modules:  # then nobody has made such a matrix
        return matrix
    from scipy.sparse import issparse

    if not issparse(matrix):
        return matrix
    dtype = matrix.dtype if matrix.dtype in (np.float32, np.float64) else np.dtype(np.float64)
    rows, columns = matrix.shape
    needed = copies * rows * columns * dtype.itemsize
    if needed > available_memory():
        raise MemoryError(
            f"{name} is sparse with {rows:,} rows and {columns:,} columns, which as dense rows "
            f"take {needed / 2**30:.1f} GB, but {available_memory() / 2**30:.1f} GB are available; "
            "reduce the columns first, for example with sklearn.decomposition.TruncatedSVD"
        )
    matrix = matrix.tocsr()
    result = np.empty((rows, columns), dtype=dtype)
    for start in range(0, rows, BLOCK):
        result[start : start + BLOCK] = matrix[start : start + BLOCK].toarray()
    return result
