"""One solution from the sums of folds: choose λ, then solve the system of all rows."""

from __future__ import annotations

import math
from collections.abc import Sequence

from torch import Tensor

from tensorswitch.ridge._cholesky import SingularError
from tensorswitch.ridge._solution import Solution
from tensorswitch.ridge.folds import fold_errors, judged_folds
from tensorswitch.ridge.gcv import gcv_errors
from tensorswitch.ridge.moments import Moments, System
from tensorswitch.ridge.penalty import Alpha, effective_rows, least_error, log, penalties

__all__ = ["left_out_readouts", "solve_moments"]


def solve_moments(
    folds: Sequence[Moments],
    alpha: Alpha = "cv",
    fit_intercept: bool = True,
    selection: str = "cv",
    *,
    first_only: bool = False,
) -> Solution:
    """Choose λ and solve.

    Parameters
    ----------
    folds : sequence of Moments
        The sums of each fold, at least one of which has rows.
    alpha : float, str or a sequence of these, default="cv"
        The penalty; see :func:`tensorswitch.ridge.penalty.penalties`.
    fit_intercept : bool, default=True
        Whether there is an unpenalised intercept.
    selection : {"cv", "gcv"}, default="cv"
        How one of several λ is chosen.
    first_only : bool, default=False
        Whether only the first fold may be left out, because it is smaller than the other.

    Returns
    -------
    Solution
        With ``weight`` of shape (features, out).

    Raises
    ------
    SingularError
        If the system is singular to working precision, for all values of λ.
    """
    system = System(Moments.sum(folds), fit_intercept)
    values, selection = penalties(alpha, system.mean_diagonal(), selection)
    if len(values) == 1:
        return _solution(system, values[0])
    if selection == "cv" and len(folds) == 1:
        log.warning(
            "without folds, alpha is chosen by generalised cross-validation, which repeated rows "
            "mislead"
        )
        selection = "gcv"
    if selection == "gcv":
        errors = gcv_errors(system, values)
    else:
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


def left_out_readouts(
    folds: Sequence[Moments], alpha: float, fit_intercept: bool, judged: Sequence[int]
) -> dict[int, tuple[Tensor, Tensor | None]]:
    """Return the readout of all rows but those of a fold, for outputs on rows it has not seen.

    Parameters
    ----------
    folds : sequence of Moments
        The sums of each fold.
    alpha : float
        The penalty λ.
    fit_intercept : bool
        Whether there is an unpenalised intercept.
    judged : sequence of int
        The folds to leave out.

    Returns
    -------
    dict of int to (Tensor, Tensor or None)
        W, of shape (features, out), and c, where the other folds have rows.
    """
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
