"""What the solvers share: gates, checks, the solution, and the choice of λ."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from tensorswitch._checks import check_dtype_device, check_floating, check_shape
from tensorswitch.ridge._cholesky import SingularError

log = logging.getLogger("tensorswitch.ridge")

Alpha = float | str | Sequence[float | str]
PROBES = 16


class Solution(NamedTuple):
    """``weight`` is (n_L, …, n_1, n_0, out), as in :class:`tensorswitch.TensorSwitching`.

    Where several λ were tried, ``path`` has each with its generalised cross-validation error, from the largest down.
    """

    weight: Tensor
    alpha: float
    iterations: int = 0
    residual: float = 0.0
    path: tuple[tuple[float, float], ...] = ()


class Fit(NamedTuple):
    """The solution for one λ, with what generalised cross-validation needs where it was asked for."""

    solution: Solution
    squared_error: float = math.nan
    freedom: float = math.nan  # effective degrees of freedom, tr Z (ZᵀZ + λI)⁻¹ Zᵀ


def deep_gates(x: Tensor, gate_weights: Sequence[Tensor]) -> list[Tensor]:
    """The gates of each layer, boolean (rows, n_l), which follow the ReLU network of the gate weights."""
    gates = []
    for w in gate_weights:
        x = (x @ w.t()).relu()
        gates.append(x > 0)
    return gates


def mean_diagonal(x: Tensor, gates: Sequence[Tensor], sample_weight: Tensor | None = None) -> float:
    """The mean of the diagonal of ``Σ s z zᵀ``."""
    energy = x.double().square().sum(1)
    for h in gates:
        energy *= h.sum(1)
    if sample_weight is not None:
        energy *= sample_weight
    return float(energy.sum()) / (x.shape[1] * math.prod(h.shape[1] for h in gates))


def best_of(alpha: Alpha, mean: float, rows: float, fit: Callable[[float, bool], Fit]) -> Solution:
    """``fit(λ, judged)`` for each λ, the largest first, and of these the one with the least generalised cross-validation error

        GCV = Σ s ‖t − Wᵀz‖² · rows / (rows − freedom)²

    A single λ is fitted without being judged.
    """
    if isinstance(alpha, (str, int, float)):
        return fit(check_alpha(alpha, mean), False).solution
    values = sorted({check_alpha(a, mean) for a in alpha}, reverse=True)
    if not values:
        raise ValueError("alpha is empty: give at least one value")
    if len(values) == 1:
        return fit(values[0], False).solution
    path, best, least = [], None, math.inf
    for value in values:
        try:
            result = fit(value, True)
        except SingularError:
            if best is None:  # the largest comes first: none of the others can do better
                raise
            log.info("alpha %.3g is too small for working precision and is left out", value)
            break
        spare = rows - result.freedom
        score = result.squared_error * rows / spare**2 if spare > 0 else math.inf
        path.append((value, score))
        if best is None or score < least:
            best, least = result.solution, score
    assert best is not None
    if best.alpha in (values[0], values[-1]):
        end = "largest" if best.alpha == values[0] else "smallest"
        log.info("the best alpha, %.3g, is the %s one tried; a wider range may hold a better one", best.alpha, end)
    return best._replace(path=tuple(path))


def probes(length: int, like: Tensor) -> Tensor:
    """Columns of ±1: ``tr A`` is the mean of ``gᵀ A g`` over them, and for large A nearly without error."""
    generator = torch.Generator().manual_seed(0)
    return torch.randint(0, 2, (length, PROBES), generator=generator).mul_(2).sub_(1).to(like)


def check_alpha(alpha: float | str, mean: float) -> float:
    if isinstance(alpha, str) and alpha == "mean":
        return mean if mean > 0 else 1.0
    if isinstance(alpha, (str, bool)) or not math.isfinite(alpha) or alpha < 0:
        raise ValueError(f"alpha must be 'mean' or a number of at least 0, or a list of these, got {alpha!r}")
    return float(alpha)


def check_rows(x: Tensor, targets: Tensor, sample_weight: Tensor | None, n_in: int, n_out: int | None) -> None:
    check_floating("x", x)
    check_shape("x", x, (None, n_in), "(rows, in_features)")
    check_shape("targets", targets, (len(x), n_out), "(rows, out_features)")
    check_dtype_device("targets", targets, "x", x)
    for name, tensor in (("x", x), ("targets", targets), ("sample_weight", sample_weight)):
        if tensor is not None and not _all_finite(tensor):
            raise ValueError(f"{name} contains NaN or infinity")
    if sample_weight is not None:
        check_shape("sample_weight", sample_weight, (len(x),), "(rows,)")
        if (sample_weight < 0).any():
            raise ValueError("sample_weight must not be negative")


def _all_finite(tensor: Tensor) -> bool:
    """One sum is enough, unless it overflows."""
    return bool(tensor.sum().isfinite()) or bool(tensor.isfinite().all())
