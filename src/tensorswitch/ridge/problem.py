"""What the solvers share: gates, checks, the solution, and the choice of λ."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from tensorswitch._checks import check_dtype_device, check_floating, check_shape
from tensorswitch.ridge._cholesky import SingularError

log = logging.getLogger("tensorswitch.ridge")

Alpha = float | str | Sequence[float | str]
PROBES = 16
CHECKED_ROWS = 8192


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


def draw_gates(in_features: int, gates: Sequence[int], generator: torch.Generator, dtype: torch.dtype = torch.float32) -> list[Tensor]:
    """Gate weights of each layer, (n_l, n_{l-1}), by Glorot's uniform distribution."""
    weights = []
    for n in gates:
        uniform = torch.rand(n, in_features, generator=generator, dtype=dtype, device=generator.device)
        weights.append((2 * uniform - 1) * math.sqrt(6 / (n + in_features)))
        in_features = n
    return weights


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
    values = check_alphas(alpha, mean)
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
    if math.isinf(least):
        log.warning("none of the alphas leaves rows to judge it by; the largest, %.3g, is taken", best.alpha)
    elif best.alpha in (values[0], values[-1]):
        end = "largest" if best.alpha == values[0] else "smallest"
        log.info("the best alpha, %.3g, is the %s one tried; a wider range may hold a better one", best.alpha, end)
    return best._replace(path=tuple(path))


def effective_rows(total: float, squares: float) -> float:
    """How many rows weights with this sum and sum of squares stand for: whole numbers count as repetitions, and a common factor does not matter."""
    return max(total, total**2 / squares) if squares > 0 else 0.0


def probes(length: int, like: Tensor) -> Tensor:
    """Columns of ±1: ``tr A`` is the mean of ``gᵀ A g`` over them, for positive A with a small relative error."""
    generator = torch.Generator("cpu").manual_seed(0)
    return torch.randint(0, 2, (length, PROBES), generator=generator, device="cpu").mul_(2).sub_(1).to(like)


def check_alphas(alpha: Any, mean: float) -> list[float]:
    """The values of λ, from the largest down, each once."""
    several = not isinstance(alpha, str) and np.ndim(alpha) > 0
    values = {_check_alpha(a, mean) for a in (alpha if several else [alpha])}
    if not values:
        raise ValueError("alpha is empty: give at least one value")
    return sorted(values, reverse=True)


def _check_alpha(alpha: Any, mean: float) -> float:
    if isinstance(alpha, str) and alpha == "mean":
        return mean if mean > 0 else 1.0
    try:
        value = math.nan if isinstance(alpha, str | bool) else float(alpha)
    except (TypeError, ValueError):
        value = math.nan
    if not math.isfinite(value) or value < 0:
        raise ValueError(f"alpha must be 'mean' or a number of at least 0, or a list of these, got {alpha!r}")
    return value


def check_gate_weights(gate_weights: Any) -> list[Tensor]:
    if isinstance(gate_weights, Tensor) or not len(gate_weights):
        raise ValueError("gate_weights must be a list with a matrix for each layer, at least one")
    weights = list(gate_weights)
    for i, w in enumerate(weights):
        check_floating(f"gate_weights[{i}]", w)
        check_shape(f"gate_weights[{i}]", w, (None, len(weights[i - 1]) if i else None), "(gates, inputs)" if i == 0 else "(gates, gates below)")
        check_dtype_device(f"gate_weights[{i}]", w, "gate_weights[0]", weights[0])
        if not w.isfinite().all():
            raise ValueError(f"gate_weights[{i}] contains NaN or infinity")
    return weights


def check_rows(
    x: Tensor, targets: Tensor, sample_weight: Tensor | None, gate_weights: Sequence[Tensor], out: int | None = None
) -> tuple[Tensor, Tensor, Tensor | None]:
    """The same, with weights of the type of ``x``, and none of them with a history of gradients."""
    for which, given in (("x", x), ("targets", targets)):
        check_floating(which, given)
        if given.layout != torch.strided:
            raise TypeError(f"{which} is {given.layout}; convert it with .to_dense()")
    n_in = gate_weights[0].shape[1]
    check_shape("x", x, (None, n_in), "(rows, in_features)")
    check_dtype_device("x", x, "gate_weights", gate_weights[0])
    check_shape("targets", targets, (len(x), out), "(rows, out_features)")
    check_dtype_device("targets", targets, "x", x)
    if not targets.shape[1]:
        raise ValueError("targets has no columns")
    if sample_weight is not None:
        if not isinstance(sample_weight, Tensor):
            raise TypeError(f"sample_weight must be a torch tensor, got {type(sample_weight).__name__}; convert it with torch.as_tensor()")
        check_shape("sample_weight", sample_weight, (len(x),), "(rows,)")
        sample_weight = sample_weight.detach().to(x)
        if (sample_weight < 0).any():
            raise ValueError("sample_weight must not be negative")
    x, targets = x.detach(), targets.detach()
    _check_sums(x, targets, sample_weight)
    return x, targets, sample_weight


def _check_sums(x: Tensor, targets: Tensor, sample_weight: Tensor | None) -> None:
    """Raise if a sum of weighted squares leaves the range of the type, which bounds all others.

    ``|Σ s z_i z_j|² ≤ Σ s z_i² · Σ s z_j²``, and likewise for products with targets.
    """
    limit = torch.finfo(x.dtype).max / 4  # room for the sums of a block on their way
    if sample_weight is not None and not float(sample_weight.double().square().sum()) < limit:
        _check_finite("sample_weight", sample_weight)
        raise ValueError(f"sample_weight is so large that sums overflow {x.dtype}; scale it down")
    for name, rows in (("x", x), ("targets", targets)):
        if not rows.numel():
            continue
        energy = float(column_energies(rows, sample_weight).max())
        largest = float(torch.linalg.vector_norm(rows, torch.inf))
        if not (energy < limit and largest**2 < limit):
            _check_finite(name, rows)
            weighted = "" if sample_weight is None else " with these sample weights"
            raise ValueError(f"{name} is so large that sums of its squares{weighted} overflow {rows.dtype}; scale it down, or use float64")


def column_energies(rows: Tensor, sample_weight: Tensor | None) -> Tensor:
    """``Σ_b s_b x_bi²`` of each column, in float64."""
    total = torch.zeros(rows.shape[1], dtype=torch.float64, device=rows.device)
    for start in range(0, len(rows), CHECKED_ROWS):
        part = slice(start, start + CHECKED_ROWS)
        squares = rows[part].double().square()  # not in place: it may be x itself
        total += squares.sum(0) if sample_weight is None else sample_weight[part].double() @ squares
    return total


def _check_finite(name: str, tensor: Tensor) -> None:
    if not tensor.isfinite().all():
        raise ValueError(f"{name} contains NaN or infinity")


def check_some_rows(rows: float) -> None:
    if not rows > 0:
        raise ValueError("nothing to solve: there are no rows, or all have a weight of zero")
