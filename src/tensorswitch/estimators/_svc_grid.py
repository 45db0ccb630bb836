"""Validation errors of support vector machines on a grid of kernels, depths and C."""

import sys
from collections.abc import Iterable, Iterator

import numpy as np
import torch
from numpy.typing import ArrayLike
from sklearn.svm import SVC
from sklearn.utils import check_X_y

from tensorswitch._checks import check_above_zero
from tensorswitch.estimators._base import State
from tensorswitch.estimators._kernel_svc import (
    Machine,
    Pairs,
    cache_bytes,
    constant_input,
    prepared,
    solve,
    vote,
)
from tensorswitch.kernels import check_depth, check_kind, equivalent_kernels


def kernel_svc_grid(
    X: ArrayLike,
    y: ArrayLike,
    X_val: ArrayLike,
    y_val: ArrayLike,
    *,
    kinds: Iterable[str] = ("ss", "ts"),
    depths: Iterable[int] = range(1, 11),
    Cs: Iterable[float] = (1, 10, 100, 1000),
    normalize: bool = True,
    bias: bool | float = False,
    tol: float = 1e-3,
    cache_size: float = 200,
    memory_gb: float | None = None,
    n_jobs: int | None = None,
    verbose: bool = False,
) -> dict[tuple[str, int, float], float]:
    """Compute the validation error of :class:`TSKernelSVC` for a grid of kernels, depths and C.

    The work on the kernels is shared: one sweep computes several kinds and depths, as far as
    ``memory_gb`` allows, and each matrix is used for every C. A machine without coefficients at
    their bound C is that of all larger C, too, for which it is not solved again. The default grid
    is the paper's. The result has, for each ``(kind, depth, C)``, the fraction of the validation
    samples that is misclassified.

    Parameters
    ----------
    X, y, X_val, y_val : array-like of shape (n_samples, n_features) and (n_samples,)
        Training and validation samples with their class labels.
    kinds, depths : iterable of {"ss", "ts", "ntk"}, and iterable of int
        Kernels and their depths, by default "ss" and "ts" of 1 to 10 layers.
    Cs : iterable of float, default=(1, 10, 100, 1000)
        Penalties of errors.
    normalize, bias, tol, cache_size, memory_gb, n_jobs, verbose : as for :class:`TSKernelSVC`
        As in the paper, samples are scaled to unit length, and there is no constant input.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from tensorswitch.estimators import kernel_svc_grid
    >>> X, y = load_digits(return_X_y=True)
    >>> data = X[:600], y[:600], X[600:900], y[600:900]
    >>> errors = kernel_svc_grid(*data, depths=[1, 3], Cs=[1, 10])
    >>> min(errors.values()) < 0.1
    True
    """
    kinds = [kinds] if isinstance(kinds, str) else kinds
    kinds, depths, Cs = [check_kind(k) for k in kinds], [check_depth(d) for d in depths], list(Cs)
    for C in Cs:
        check_above_zero(C=C)
    if not kinds or not depths or not Cs:
        raise ValueError("the grid is empty: give at least one kind, one depth and one C")
    rows, labels = check_X_y(X, y, dtype=[np.float64, np.float32], order="C")
    held, expected = check_X_y(X_val, y_val, dtype=rows.dtype, order="C")
    if rows.shape[1] != held.shape[1]:
        raise ValueError(f"X has {rows.shape[1]} features but X_val has {held.shape[1]}")
    if (labels.dtype.kind in "OUS") != (expected.dtype.kind in "OUS"):
        raise ValueError(
            f"labels of y have the type {labels.dtype}, but those of y_val {expected.dtype}"
        )
    pairs = Pairs(labels)
    constant = constant_input(bias, rows, normalize)
    rows, held = (prepared(part, normalize, constant) for part in (rows, held))
    matrices = sys.maxsize
    if memory_gb is not None:
        check_above_zero(memory_gb=memory_gb)
        most = max(map(len, pairs.rows))
        budget = memory_gb * 2**30 - cache_bytes(cache_size)
        matrices = max(1, int(budget // (8 * most * (most + len(held)))))
    batches = [(kinds, depths)]
    if len(kinds) * len(depths) > matrices:
        starts = range(0, len(depths), matrices)
        batches = [([k], depths[s : s + matrices]) for k in kinds for s in starts]
    largest = max(len(k) * len(d) for k, d in batches)
    options = {"kernel": "precomputed", "tol": tol, "cache_size": cache_size}

    def job(i: int, j: int, pair: np.ndarray) -> dict[tuple[str, int, float], np.ndarray]:
        decisions = {}
        for some_kinds, some_depths in batches:
            wanted: State = {"depths": some_depths, "kinds": some_kinds}
            grams = equivalent_kernels(rows[pair], dtype=torch.float64, **wanted)
            across = equivalent_kernels(held, rows[pair], dtype=torch.float64, **wanted)
            for key in list(grams):
                gram, test = grams.pop(key), across.pop(key)
                for C, machine in _machines(gram, pairs.labels[pair] == j, Cs, options):
                    decisions[(*key, C)] = test @ machine.dense(len(pair)) + machine.intercept
                del gram, test
        return decisions

    def need(count: int) -> int:
        return largest * 8 * count * (count + len(held)) + cache_bytes(cache_size)

    results = pairs.run(job, need, memory_gb, n_jobs, verbose)
    errors = {}
    for key in results[0]:
        decisions = np.stack([r[key] for r in results], axis=1)
        predicted = pairs.classes[vote(decisions, len(pairs.classes))]
        errors[key] = float(np.mean(predicted != expected))
    return errors


def _machines(
    gram: np.ndarray, is_second: np.ndarray, Cs: list[float], options: State
) -> Iterator[tuple[float, Machine]]:
    """Yield each C, the smallest first, with its machine."""
    machine, smaller = None, 0.0
    for C in sorted(Cs):
        if machine is None or not machine.is_free(smaller):
            machine = solve(SVC(C=C, **options), gram, is_second, np.arange(len(gram)))
        yield C, machine
        smaller = C
