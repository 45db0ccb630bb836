"""Sums of data on a Dask cluster: each worker sums its chunks, and a tree merges the sums."""

from collections.abc import Callable, Iterable, Sequence
from functools import reduce
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

    The sums are computed on the current Dask cluster, or else in threads of this process. Tasks do
    not modify their inputs: if a worker dies and Dask repeats a partition or a merge, its rows are
    still counted once.

    Parameters
    ----------
    x, targets : dask.array.Array of shape (rows, n_0) and (rows, out)
        Inputs and targets, which are rechunked to match them.
    representation : Representation
        The map from inputs to z.
    sample_weight : dask.array.Array of shape (rows,), optional
        Weights s of the rows, 1 by default.
    dtype : torch.dtype, optional
        Data type of rows and sums. By default that of the gate weights, or float32 without them.
    split_every : int, default=4
        Number of sums that are merged at a time.

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

    given = {"x": x, "targets": targets}
    if sample_weight is not None:
        given["sample_weight"] = sample_weight
    chunks = chunks_of(given)
    for name, array in given.items():
        if array.ndim != (axes := 1 if name == "sample_weight" else 2):
            raise ValueError(f"{name} must have {axes} axes, got shape {array.shape}")
    kind = dtype or representation.dtype or torch.float32
    add, shared = delayed(_sum), delayed(representation)
    sums = [add(shared, kind, targets.shape[1], *part) for part in chunks]
    return merged(sums, _merge, split_every)


def chunks_of(arrays: dict[str, Any]) -> Iterable[tuple[Any, ...]]:
    """Return the chunks of rows of Dask arrays, those of the first one, as delayed arrays."""
    whole: list[Any] = []
    rows = 0
    for name, array in arrays.items():
        if not hasattr(array, "to_delayed"):
            raise TypeError(
                f"{name} must be a Dask array, got {type(array).__name__}; "
                "convert it with dask.array.from_array()"
            )
        if whole and len(array) != rows:
            raise ValueError(f"{next(iter(arrays))} has {rows} rows but {name} has {len(array)}")
        rows = len(array)
        chunks = whole[0].chunks[0] if whole else array.chunks[0]
        whole.append(array.rechunk({0: chunks, **dict.fromkeys(range(1, array.ndim), -1)}))
    return zip(*(array.to_delayed().ravel() for array in whole), strict=True)


def merged(parts: list[Any], merge: Callable[[Sequence[Any]], Any], split_every: int) -> Any:
    """Compute delayed parts and merge them in a tree, so that no worker has to hold all."""
    from dask.delayed import delayed

    if split_every < 2:
        raise ValueError(f"split_every must be at least 2, got {split_every}")
    join = delayed(merge)
    while len(parts) > 1:
        parts = [join(parts[s : s + split_every]) for s in range(0, len(parts), split_every)]
    return parts[0].compute()


def _sum(
    representation: Representation, dtype: torch.dtype, outputs: int, *chunks: np.ndarray
) -> Sums:
    tensors = [from_numpy(np.ascontiguousarray(chunk)).to(dtype) for chunk in chunks]
    return Sums(representation, outputs, dtype=dtype).update(*tensors)


def _merge(parts: Sequence[Sums]) -> Sums:
    return reduce(Sums.merge, parts[1:], parts[0].copy())
