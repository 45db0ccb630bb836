"""Sums of data on a Dask cluster: each worker sums its chunks, and a tree merges the sums."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from tensorswitch._checks import from_numpy
from tensorswitch.linear._representation import Representation
from tensorswitch.linear._sums import Sums


def sum_on_dask(
    x: Any,
    targets: Any,
    representation: Representation,
    *,
    sample_weight: Any = None,
    dtype: torch.dtype | None = None,
    split_every: int = 4,
) -> Sums:
    """Sum ``C = Σ s z zᵀ`` and ``S = Σ s z tᵀ`` over the chunks of Dask arrays.

    The sums are computed on the current Dask cluster, or else in threads of this process.

    Parameters
    ----------
    x : dask.array.Array of shape (rows, n_0)
        The inputs, in chunks of rows.
    targets : dask.array.Array of shape (rows, out)
        The targets. They are rechunked to match ``x``.
    representation : Representation
        The map from inputs to z.
    sample_weight : dask.array.Array of shape (rows,), optional
        Weights s of the rows, 1 by default.
    dtype : torch.dtype, optional
        Data type of rows and sums. By default that of the gate weights, or float32 without them.
    split_every : int, default=4
        Number of sums that are merged at a time.

    Returns
    -------
    Sums
        The sums of all rows.

    Raises
    ------
    TypeError, ValueError
        If an argument is not a Dask array, shapes are inconsistent, or rows are not finite.

    Notes
    -----
    Tasks do not modify their inputs. If a worker dies and Dask repeats a partition or a merge, its
    rows are still counted once.

    Examples
    --------
    >>> import dask.array as da
    >>> import torch
    >>> from tensorswitch.linear import Copies, sum_on_dask
    >>> x = da.random.default_rng(0).standard_normal((100, 4), chunks=(25, 4))
    >>> sum_on_dask(x, x[:, :1], Copies([torch.eye(4)])).rows
    100.0
    """
    from dask.delayed import delayed

    given = {"x": (x, 2), "targets": (targets, 2), "sample_weight": (sample_weight, 1)}
    if sample_weight is None:
        del given["sample_weight"]
    for name, (array, axes) in given.items():
        if not hasattr(array, "to_delayed"):
            raise TypeError(
                f"{name} must be a Dask array, got {type(array).__name__}; "
                "convert it with dask.array.from_array()"
            )
        if array.ndim != axes:
            raise ValueError(f"{name} must have {axes} axes, got shape {array.shape}")
        if len(array) != len(x):
            raise ValueError(f"x has {len(x)} rows but {name} has {len(array)}")
    if split_every < 2:
        raise ValueError(f"split_every must be at least 2, got {split_every}")
    rows = x.chunks[0]
    parts = [a.rechunk({0: rows, 1: -1} if n == 2 else {0: rows}) for a, n in given.values()]
    dtype = dtype or representation.dtype or torch.float32
    shared = delayed(representation)
    add, join = delayed(_sum), delayed(_merge)
    sums = [
        add(shared, dtype, targets.shape[1], *chunks)
        for chunks in zip(*(p.to_delayed().ravel() for p in parts), strict=True)
    ]
    while len(sums) > 1:
        sums = [join(sums[s : s + split_every]) for s in range(0, len(sums), split_every)]
    return sums[0].compute()


def _sum(
    representation: Representation, dtype: torch.dtype, outputs: int, *chunks: np.ndarray
) -> Sums:
    tensors = [from_numpy(np.ascontiguousarray(chunk)).to(dtype) for chunk in chunks]
    return Sums(representation, outputs, dtype=dtype).update(*tensors)


def _merge(parts: Sequence[Sums]) -> Sums:
    total = parts[0].copy()
    for part in parts[1:]:
        total.merge(part)
    return total
