"""Exact cross-validation of λ from the sums of each fold, without the rows.

The readout of a λ is fitted to the sums of all other folds, and its error on the fold left out
follows from the sums of that fold (:meth:`Moments.squared_error`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from tensorswitch.ridge._cholesky import SingularError
from tensorswitch.ridge._quadrature import Quadrature, pieces
from tensorswitch.ridge.moments import Moments, System
from tensorswitch.ridge.penalty import log

__all__ = ["FOLDS", "fold_errors", "judged_folds", "readouts"]

FOLDS = 5
MANY_ROWS = 20_000  # from which one fold is large enough to choose λ
DIRECT = 500  # features up to which each λ is factorised
REACH, STEPS = 10.0, 14  # of vectors by Lanczos' algorithm: good to about 1e-4


def judged_folds(folds: int, rows: float) -> range:
    """Return the folds that are left out in turn: all, or the first one if it has many rows.

    Parameters
    ----------
    folds : int
        Number of folds.
    rows : float
        Effective number of rows of all folds.

    Returns
    -------
    range
    """
    return range(1 if rows > MANY_ROWS else folds)


def fold_errors(
    folds: Sequence[Moments],
    values: Sequence[float],
    fit_intercept: bool,
    judged: Sequence[int] | None = None,
) -> list[float]:
    """Return the mean squared error of each λ on folds that were left out.

    Parameters
    ----------
    folds : sequence of Moments
        The sums of each fold. Some may have no rows.
    values : sequence of float
        Values of λ, the largest first.
    fit_intercept : bool
        Whether there is an unpenalised intercept.
    judged : sequence of int, optional
        The folds to leave out in turn, by default all.

    Returns
    -------
    list of float
        ``Σ s ‖t − Wᵀz − c‖² / Σ s`` over the rows of these folds. It is infinite for values that
        are too small for the precision, and for all values if the rows are in a single fold.

    Examples
    --------
    >>> import torch
    >>> from tensorswitch.ridge.folds import fold_errors
    >>> from tensorswitch.ridge.moments import Moments
    >>> generator = torch.Generator().manual_seed(0)
    >>> z = torch.randn(60, 4, generator=generator, dtype=torch.float64)
    >>> t = z[:, :1] + 3
    >>> folds = [Moments.of(z[k::3], t[k::3]) for k in range(3)]
    >>> large, small = fold_errors(folds, [100.0, 0.01], fit_intercept=True)
    >>> small < 1e-4 < large
    True
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
    """Yield W for values of λ, the largest first, one or several at a time.

    Values that are close to each other share a factorisation if it is expensive. It ends at values
    that are too small for the precision, with an error if all are.

    Parameters
    ----------
    system : System
        The normal equations.
    values : sequence of float
        Values of λ, the largest first.

    Yields
    ------
    Tensor of shape (features, values · out)
        The readouts of the next values.
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
    middle = math.sqrt(piece[0] * piece[-1])
    try:
        solve = system.factorise(middle).solve
    except SingularError:  # the larger half may still work
        return torch.cat([system.solve(value) for value in piece], dim=1)
    path = Quadrature(solve, system.right, STEPS, keep_basis=True)
    return torch.cat([path.product(value - middle) for value in piece], dim=1)
