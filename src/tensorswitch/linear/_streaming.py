"""One solution from the sums of folds: choose λ by exact cross-validation, then solve for all rows.

    error(λ) = Σ_k ‖T_k − Z_k W₋ₖ(λ)‖²,        W₋ₖ from the sums of all folds but k

The error on the fold left out follows from its sums (:meth:`Moments.squared_error`), so that no
row is read again.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from tensorswitch.linear._cholesky import SingularError
from tensorswitch.linear._lanczos import Lanczos, pieces
from tensorswitch.linear._moments import Moments, System
from tensorswitch.linear._penalty import Alpha, effective_rows, least_error, log, penalties
from tensorswitch.linear._solution import Solution

FOLDS = 5
MANY_ROWS = 20_000  # from which one fold is large enough to choose λ
DIRECT = 500  # features up to which each λ is factorised
REACH, STEPS = 10.0, 14  # of vectors by Lanczos' algorithm: good to about 1e-4


def solve_moments(
    folds: Sequence[Moments],
    alpha: Alpha = "cv",
    fit_intercept: bool = True,
    *,
    first_only: bool = False,
) -> Solution:
    """Choose λ and solve; ``first_only`` if the first fold is the only one that may be left out."""
    system = System(Moments.sum(folds), fit_intercept)
    values = penalties(alpha, system.mean_diagonal())
    if len(values) == 1:
        return _solution(system, values[0])
    if len(folds) == 1:
        raise ValueError(
            "one of several alpha is chosen by cross-validation, which needs the sums of folds; "
            "make them with folds=5, or give a single alpha"
        )
    rows = effective_rows(system.moments.rows, system.moments.squares)
    judged = range(1) if first_only else judged_folds(len(folds), rows)
    errors = fold_errors(folds, values, fit_intercept, judged)
    while True:
        best = least_error(values, errors)
        path = tuple((v, e) for v, e in zip(values, errors, strict=True) if math.isfinite(e))
        try:
            return _solution(system, best)._replace(path=path)
        except SingularError:
            larger = [i for i, v in enumerate(values) if v > best]
            if not larger:
                raise
            log.info("alpha %.3g is too small for working precision and is skipped", best)
            values, errors = [values[i] for i in larger], [errors[i] for i in larger]


def judged_folds(folds: int, rows: float) -> range:
    """Return the folds that are left out in turn: all, or the first one if it has many rows."""
    return range(1 if rows > MANY_ROWS else folds)


def fold_errors(
    folds: Sequence[Moments],
    values: Sequence[float],
    fit_intercept: bool,
    judged: Sequence[int] | None = None,
) -> list[float]:
    """Return the mean squared error of each λ, largest first, on folds that were left out.

    It is infinite for values too small for the precision, and for all if one fold has all rows.
    """
    errors, rows = [0.0] * len(values), 0.0
    for k in range(len(folds)) if judged is None else judged:
        others = [fold for j, fold in enumerate(folds) if j != k and fold.rows > 0]
        if not folds[k].rows > 0 or not others:
            continue
        system, found = System(Moments.sum(others), fit_intercept), 0
        # Less than this is rounding error. An offset of the targets is in the intercept.
        energy = folds[k].target_energy
        if fit_intercept:
            energy = energy - folds[k].target_sum.square() / folds[k].rows
        least = 100 * torch.finfo(system.right.dtype).eps * float(energy.clamp(min=0).sum())
        for weights in readouts(system, values):
            error = folds[k].squared_error(weights, system.intercept(weights))
            for one in error.view(-1, system.right.shape[1]).sum(1).tolist():
                errors[found] += max(one, least)
                found += 1
        errors[found:] = [math.inf] * (len(values) - found)
        rows += folds[k].rows
    return [error / rows if rows > 0 else math.inf for error in errors]


def readouts(system: System, values: Sequence[float]) -> Iterator[Tensor]:
    """Yield W, of shape (features, values · out), for the next values of λ, the largest first.

    Values that are close to each other share a factorisation if it is expensive. It ends at values
    that are too small for the precision, with an error if all are.
    """
    first = True
    for piece in pieces(values, REACH):
        try:
            if len(piece) < 3 or len(system.right) <= DIRECT:
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


def _together(system: System, piece: Sequence[float]) -> Tensor:
    """Return the readouts of values within a decade from one factorisation."""
    middle = math.sqrt(piece[0] * piece[-1])
    try:
        solve = system.factorise(middle).solve
    except SingularError:  # the larger half may still work
        return torch.cat([system.solve(value) for value in piece], dim=1)
    path = Lanczos(solve, system.right, STEPS)
    return torch.cat([path.product(value - middle) for value in piece], dim=1)


def left_out_readouts(
    folds: Sequence[Moments], alpha: float, fit_intercept: bool, judged: Sequence[int]
) -> dict[int, tuple[Tensor, Tensor | None]]:
    """Return W and c of all rows but those of each fold, where the other folds have rows."""
    found = {}
    for k in judged:
        others = [fold for j, fold in enumerate(folds) if j != k and fold.rows > 0]
        if others:
            system = System(Moments.sum(others), fit_intercept)
            weight = system.solve(alpha)
            found[k] = weight, system.intercept(weight)
    return found


def _solution(system: System, alpha: float) -> Solution:
    weight = system.solve(alpha)
    return Solution(weight, alpha, intercept=system.intercept(weight))
