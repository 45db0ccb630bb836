"""The readout from sums over weighted rows: choose λ by exact cross-validation, then solve.

    (C − n z̄ z̄ᵀ + λI) W = S − n z̄ t̄ᵀ,        c = t̄ − Wᵀ z̄
    error(λ) = Σ_k ‖T_k − Z_k W₋ₖ(λ) − c₋ₖ(λ)‖²,        W₋ₖ from the sums of all folds but k

with ``C = Σ s z zᵀ``, ``S = Σ s z tᵀ`` and ``n = Σ s``. The intercept c is not penalised; without
one z̄ and t̄ are zero. Everything happens when the system is solved, so sums of different rows can be
added and subtracted. The error on a fold that was left out follows from its sums
(:meth:`Moments.squared_error`), so that no row is read again.

Values of λ share a factorisation by Lanczos' algorithm. With ``A = (C + λ₀I)⁻¹`` and
``δ = λ − λ₀``, ``(C + λI)⁻¹ v = f(A) v`` with ``f(a) = a / (1 + δa)``. One run on A, started at v,
gives a basis Q and a tridiagonal matrix T with ``f(A) v ≈ ‖v‖ Q f(T) e₁`` for every λ [1]_. If λ
and λ₀ differ by a factor q, the pole of f is so far from the spectrum that each step reduces the
error by a factor of (√q − 1) / (√q + 1), whatever the spectrum. A path of values is therefore cut
into pieces that reach no further than a factor to either side of λ₀.

References
----------
.. [1] G. H. Golub and G. Meurant, "Matrices, Moments and Quadrature with Applications", Princeton
   University Press, 2010.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from tensorswitch.linear._cholesky import CholeskyFactor, SingularError
from tensorswitch.linear._penalty import Alpha, effective_rows, least_error, log, penalties
from tensorswitch.linear._problem import Solution
from tensorswitch.linear._representation import Packing

FOLDS = 5


@dataclass(frozen=True)
class Settings:
    """Where λ is chosen more cheaply, measured by ``benchmarks.ridge_choice``.

    With more than ``many_rows`` rows one fold is large enough to choose λ. Up to ``direct``
    features each λ is factorised; beyond, those within a factor ``reach`` of a middle come from
    ``steps`` steps of Lanczos' algorithm, to about 1e-4. Centred sums of squares below ``rounding``
    times the precision of the sums are taken for zero; below ``inexact``, errors are a percent or
    more.
    """

    many_rows: int = 20_000
    direct: int = 500
    reach: float = 10.0
    steps: int = 14
    rounding: int = 64
    inexact: int = 1024


SETTINGS = Settings()


@dataclass(frozen=True)
class Moments:
    """Sums over rows; those of several folds have an axis for them in front."""

    packing: Packing
    gram: Tensor  # Σ s z zᵀ, packed
    cross: Tensor  # Σ s z tᵀ and, as if there were a target of 1, Σ s z in the last column
    target_sum: Tensor  # Σ s t, in float64
    target_energy: Tensor  # Σ s t², in float64
    counts: Tensor  # Σ s and Σ s², in float64

    def tensors(self) -> dict[str, Tensor]:
        """Return the sums by name."""
        return {name: tensor for name, tensor in vars(self).items() if name != "packing"}

    def __getitem__(self, fold: int) -> Moments:
        return Moments(self.packing, *(tensor[fold] for tensor in self.tensors().values()))

    def copy(self) -> Moments:
        """Return sums with memory of their own."""
        return Moments(self.packing, *(tensor.clone() for tensor in self.tensors().values()))

    @property
    def right(self) -> Tensor:
        """``S = Σ s z tᵀ``."""
        return self.cross[..., :-1]

    @property
    def feature_sum(self) -> Tensor:
        """``Σ s z``."""
        return self.cross[..., -1]

    @property
    def rows(self) -> float:
        """``n = Σ s``."""
        return float(self.counts[..., 0].sum())

    @property
    def squares(self) -> float:
        """``Σ s²``."""
        return float(self.counts[..., 1].sum())

    @classmethod
    def sum(cls, parts: Sequence[Moments]) -> Moments:
        """Add sums of different rows."""
        if len(parts) == 1:
            return parts[0]
        total = parts[0].copy()
        for part in parts[1:]:
            total.add(part)
        return total

    def add(self, other: Moments) -> None:
        """Add sums of other rows, in place."""
        for mine, theirs in zip(self.tensors().values(), other.tensors().values(), strict=True):
            mine += theirs

    def diagonal(self) -> Tensor:
        """Return the diagonal of C, in float64."""
        return self.packing.diagonal(self.gram)

    def squared_error(self, weight: Tensor, intercept: Tensor | None) -> Tensor:
        """Return ``Σ s (t − Wᵀz − c)²`` of each output, without the rows.

        Σ s t² − 2 WᵀS + WᵀCW + 2 c (Wᵀ Σ s z − Σ s t) + n c²
        """
        w = weight.double()
        many = w.shape[1] // self.right.shape[1]
        cross, sums = self.right.double().repeat(1, many), self.target_sum.repeat(many)
        error = self.target_energy.repeat(many) - 2 * (w * cross).sum(0)
        error += (w * self.packing.product(self.gram, w)).sum(0)
        if intercept is not None:
            c = intercept.double()
            error += 2 * c * (self.feature_sum.double() @ w - sums) + self.rows * c.square()
        return error

    def warn_of_large_means(self) -> None:
        """Warn of features that lose most of their digits when their sums are centred."""
        # Variance by mean square
        part = 1 - self.feature_sum.double().square() / (self.rows * self.diagonal())
        eps = torch.finfo(self.gram.dtype).eps
        # Those below are constant, or cannot be told from it.
        lossy = (part > SETTINGS.rounding * eps) & (part < SETTINGS.inexact * eps)
        if count := int(lossy.sum()):
            log.warning(
                "the means of %d features are so large, compared to their standard deviations, "
                "that sums in %s lose most of their digits; centre the features, or use float64",
                count,
                self.gram.dtype,
            )


class System:
    """The normal equations of some rows, whose weights add up to more than zero."""

    def __init__(self, moments: Moments, fit_intercept: bool) -> None:
        self.moments, self.fit_intercept, self.right = moments, fit_intercept, moments.right
        if fit_intercept:
            rows, sums = moments.rows, moments.feature_sum.double()
            self.feature_mean, self.target_mean = sums / rows, moments.target_sum / rows
            spread = torch.outer(sums, self.target_mean)
            self.right = (moments.right.double() - spread).to(moments.cross)
            # What is left of a constant feature, such as the input for biases, is rounding error.
            whole = moments.diagonal()
            centred = whole - rows * self.feature_mean.square()
            least = SETTINGS.rounding * torch.finfo(moments.gram.dtype).eps
            self.constant = (centred <= least * whole).nonzero().flatten()
            self.right[self.constant] = 0

    def mean_diagonal(self) -> float:
        """Return the mean of the diagonal of ``C − n z̄ z̄ᵀ``."""
        diagonal = self.moments.diagonal()
        if self.fit_intercept:
            diagonal = diagonal - self.moments.rows * self.feature_mean.square()
            diagonal[self.constant] = 0
        return max(0.0, float(diagonal.mean()))

    def factorise(self, shift: float) -> CholeskyFactor:
        """Factorise ``C − n z̄ z̄ᵀ + shift · I``."""
        panels = self.moments.packing.panels(self.moments.gram)
        if self.fit_intercept:
            panels.add_outer(self.feature_mean, -self.moments.rows)
            # Their weights are zero then.
            panels.isolate(self.constant, self.mean_diagonal() or 1.0)
        return panels.cholesky(shift)

    def solve(self, alpha: float) -> Tensor:
        """Return the readout for one λ."""
        return self.factorise(alpha).solve(self.right)

    def solution(self, alpha: float) -> Solution:
        """Return the readout and the intercept for one λ."""
        weight = self.solve(alpha)
        return Solution(weight, alpha, intercept=self.intercept(weight))

    def intercept(self, weight: Tensor) -> Tensor | None:
        """Return ``c = t̄ − Wᵀ z̄``, or None without an intercept."""
        if not self.fit_intercept:
            return None
        many = weight.shape[1] // self.right.shape[1]
        return self.target_mean.repeat(many) - self.feature_mean @ weight.double()


def solve_moments(
    folds: Sequence[Moments],
    alpha: Alpha = "cv",
    fit_intercept: bool = True,
    *,
    first_only: bool = False,
    warn: bool = False,
) -> Solution:
    """Choose λ and solve; ``first_only`` if the first fold is the only one that may be left out."""
    total = Moments.sum(folds)
    if warn and fit_intercept:
        total.warn_of_large_means()
    system = System(total, fit_intercept)
    values = penalties(alpha, system.mean_diagonal())
    if len(values) == 1:
        return system.solution(values[0])
    if len(folds) == 1:
        raise ValueError(
            "one of several alpha is chosen by cross-validation, which needs the sums of folds; "
            "make them with folds=5, or give a single alpha"
        )
    rows = effective_rows(total.rows, total.squares)
    judged = range(1) if first_only else judged_folds(len(folds), rows)
    errors = fold_errors(folds, values, fit_intercept, judged)
    while True:
        best = least_error(values, errors)
        path = tuple((v, e) for v, e in zip(values, errors, strict=True) if math.isfinite(e))
        try:
            return system.solution(best)._replace(path=path)
        except SingularError:
            larger = [i for i, v in enumerate(values) if v > best]
            if not larger:
                raise
            log.info("alpha %.3g is too small for working precision and is skipped", best)
            values, errors = [values[i] for i in larger], [errors[i] for i in larger]


def judged_folds(folds: int, rows: float) -> range:
    """Return the folds that are left out in turn: all, or the first one if it has many rows."""
    return range(1 if rows > SETTINGS.many_rows else folds)


def fold_errors(
    folds: Sequence[Moments], values: Sequence[float], fit_intercept: bool, judged: Sequence[int]
) -> list[float]:
    """Return the mean squared error of each λ, largest first, on folds that were left out.

    It is infinite for values too small for the precision, and for all if one fold has all rows.
    """
    errors, rows = [0.0] * len(values), 0.0
    for k, system in _without_folds(folds, fit_intercept, judged):
        fold, found = folds[k], 0
        if not fold.rows > 0:
            continue
        # Less than this is rounding error. An offset of the targets is in the intercept.
        energy = fold.target_energy
        if fit_intercept:
            energy = energy - fold.target_sum.square() / fold.rows
        least = 100 * torch.finfo(system.right.dtype).eps * float(energy.clamp(min=0).sum())
        for weights in readouts(system, values):
            error = fold.squared_error(weights, system.intercept(weights))
            for one in error.view(-1, system.right.shape[1]).sum(1).tolist():
                errors[found] += max(one, least)
                found += 1
        errors[found:] = [math.inf] * (len(values) - found)
        rows += fold.rows
    return [error / rows if rows > 0 else math.inf for error in errors]


def left_out_readouts(
    folds: Sequence[Moments], alpha: float, fit_intercept: bool, judged: Sequence[int]
) -> dict[int, tuple[Tensor, Tensor | None]]:
    """Return W and c of all rows but those of each fold, where the other folds have rows."""
    found = {}
    for k, system in _without_folds(folds, fit_intercept, judged):
        weight = system.solve(alpha)
        found[k] = weight, system.intercept(weight)
    return found


def _without_folds(
    folds: Sequence[Moments], fit_intercept: bool, judged: Sequence[int]
) -> Iterator[tuple[int, System]]:
    """Yield the normal equations without each of some folds, where there are other rows."""
    for k in judged:
        others = [fold for j, fold in enumerate(folds) if j != k]
        if sum(fold.rows for fold in others) > 0:
            yield k, System(Moments.sum(others), fit_intercept)


def readouts(system: System, values: Sequence[float]) -> Iterator[Tensor]:
    """Yield W, of shape (features, values · out), for the next values of λ, the largest first.

    Values that are close to each other share a factorisation if it is expensive. It ends at values
    that are too small for the precision, with an error if all are.
    """
    first = True
    for piece in _pieces(values, SETTINGS.reach):
        try:
            if len(piece) < 3 or len(system.right) <= SETTINGS.direct:
                for value in piece:
                    yield system.solve(value)
                    first = False
            else:
                yield _together(system, piece)
        except SingularError:
            if first:  # smaller values are worse conditioned, so they would fail too
                raise
            log.info("alpha %.3g or more is too small for working precision; skipped", piece[0])
            return
        first = False


def _pieces(values: Sequence[float], reach: float) -> list[list[float]]:
    """Cut decreasing values into pieces within a factor ``reach`` of their geometric middle."""
    cut: list[list[float]] = []
    for value in values:
        if cut and cut[-1][0] <= reach**2 * value:
            cut[-1].append(value)
        else:
            cut.append([value])
    return cut


def _together(system: System, piece: Sequence[float]) -> Tensor:
    """Return the readouts of values close to each other from one factorisation."""
    middle = math.sqrt(piece[0] * piece[-1])
    try:
        solve = system.factorise(middle).solve
    except SingularError:  # the larger half may still work
        return torch.cat([system.solve(value) for value in piece], dim=1)
    path = _Lanczos(solve, system.right, SETTINGS.steps)
    return torch.cat([path.product(value - middle) for value in piece], dim=1)


class _Lanczos:
    """``f(A) v`` of each column of ``starts``, for a symmetric positive operator A and many λ."""

    def __init__(self, apply: Callable[[Tensor], Tensor], starts: Tensor, steps: int) -> None:
        self.basis: list[Tensor] = []
        columns, tiny = starts.shape[1], torch.finfo(starts.dtype).tiny
        norm = starts.double().norm(dim=0)
        self.norm = norm.cpu()
        v = starts / norm.clamp(min=tiny).to(starts)
        before = torch.zeros_like(v)
        beta = torch.zeros(columns, dtype=starts.dtype, device=starts.device)
        steps = min(steps, len(starts))
        matrix = torch.zeros(columns, steps, steps, dtype=torch.float64, device="cpu")
        for step in range(steps):
            self.basis.append(v)
            u = apply(v) - beta * before
            alpha = (v * u).sum(0)
            u -= alpha * v
            matrix[:, step, step] = alpha.double().cpu()
            beta = u.norm(dim=0)
            # A smaller norm is rounding error: the Krylov space is exhausted.
            beta = torch.where(beta > torch.finfo(u.dtype).eps * alpha.abs(), beta, 0)
            if step + 1 < steps:
                matrix[:, step, step + 1] = matrix[:, step + 1, step] = beta.double().cpu()
            before, v = v, torch.where(beta > 0, u / beta.clamp(min=tiny), 0)
        nodes, self.vectors = torch.linalg.eigh(matrix)
        self.nodes = nodes.clamp(min=0)

    def product(self, shift: float) -> Tensor:
        """Return ``f(A) v`` of each column, for ``δ = shift``."""
        # Where the Krylov space was exhausted T is zero, and those nodes have no weight.
        scale = (1 + shift * self.nodes).clamp(min=torch.finfo(torch.float64).tiny)
        parts = self.vectors * (self.nodes / scale * self.vectors[:, 0])[:, None]
        coefficients = parts.sum(2) * self.norm[:, None]
        result = torch.zeros_like(self.basis[0])
        for step, v in enumerate(self.basis):
            result += v * coefficients[:, step].to(v)
        return result
