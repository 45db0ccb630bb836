"""Choice of the strategy: by the cost rule, or by timing the candidates on this machine.

The rule is a function of the sizes and of the fraction of open gates, so that equal calls have
equal results in every process. Calibration replaces it by measurement where a process keeps calling
the operator with similar sizes.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import torch
from torch import Tensor

from tensorswitch.switched import _calibration
from tensorswitch.switched._compute import Census, census
from tensorswitch.switched._cost import TINY, cheapest_group

VARIABLE = "TENSORSWITCH_STRATEGY"
METHODS = ("calibrate", "rule")

_method: ContextVar[str | None] = ContextVar("tensorswitch_strategy", default=None)


@contextmanager
def strategy_by(method: str) -> Iterator[None]:
    """Set how strategies are chosen in a ``with`` block: by the cost rule or by calibration.

    The strategies compute the same sums in a different order, so that their results agree up to
    rounding. The cost rule makes equal calls return equal bits in every process; calibration
    times the candidates on this machine, from the 16th call with similar sizes on, and keeps the
    fastest. Without this, the environment variable ``TENSORSWITCH_STRATEGY`` decides; the default
    is calibration, except after ``torch.use_deterministic_algorithms(True)``, in
    :class:`tensorswitch.training.Learner` and in ridge regression, whose results must not depend
    on timings.

    Parameters
    ----------
    method : {"calibrate", "rule"}
        The method.

    Yields
    ------
    None
        Nothing.

    Raises
    ------
    ValueError
        If the method is unknown.

    Examples
    --------
    >>> import torch
    >>> from tensorswitch import switched_linear
    >>> from tensorswitch.switched import strategy_by
    >>> with strategy_by("rule"):
    ...     y = switched_linear(torch.ones(2, 3), torch.ones(2, 4) > 0, torch.ones(4, 3, 5))
    """
    token = _method.set(_checked("method", method))
    try:
        yield
    finally:
        _method.reset(token)


def strategy_method() -> str:
    """Return how strategies are chosen here and now, "calibrate" or "rule".

    Returns
    -------
    {"calibrate", "rule"}
        The method.

    Examples
    --------
    >>> from tensorswitch.switched import strategy_by, strategy_method
    >>> with strategy_by("rule"):
    ...     strategy_method()
    'rule'
    """
    if (method := _method.get()) is not None:
        return method
    if torch.are_deterministic_algorithms_enabled():
        return "rule"
    name = os.environ.get(VARIABLE)
    return "calibrate" if not name else _checked(VARIABLE, name)


def choose(
    x: Tensor,
    gates: Tensor,
    n_out: int,
    group: int | None,
    training: bool,
    weight: Tensor | None = None,
    plain_allowed: bool = False,
) -> tuple[int, Census | None]:
    """Return the group size, 0 for dense, or ``PLAIN`` if that is allowed, and the census if made.

    A given ``group`` is returned as it is. Calibration needs the ``weight``; without it, only
    earlier results are used.
    """
    if group is not None:
        return group, None
    rows, n_in, units = len(x), x.shape[1], gates.shape[1]
    if rows * n_in * units * n_out <= TINY:
        return 0, None
    known = census(gates)
    prior = cheapest_group(rows, n_in, units, n_out, known.routed, known.share, training)
    if strategy_method() == "rule":
        return prior, known
    key = _calibration.shape_class(x, units, n_out, known.routed, known.share, training)
    if weight is None:
        return _calibration.recall(key, prior), known
    return _calibration.fastest(key, prior, x, gates, weight, training, plain_allowed), known


def _checked(name: str, method: str) -> str:
    if method not in METHODS:
        raise ValueError(f"{name} must be 'calibrate' or 'rule', got {method!r}")
    return method
