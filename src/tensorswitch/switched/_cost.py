"""The cost rule, which predicts the fastest strategy for given sizes."""

from __future__ import annotations

import math

from tensorswitch.switched._tuning import COSTS

MAX_GROUP = 6


def choose_group(
    rows: int,
    in_features: int,
    gates: int,
    out_features: int,
    open_fraction: float,
    backward: bool = True,
) -> int:
    """Return the group size with the lowest estimated cost, 0 for the dense strategy.

    If a fraction p of the gates is open, a group of g units has an open gate in
    ``1 − (1 − p)^g`` of the rows. These are spread over ``2^g − 1`` patterns, which are padded to
    the length of the most common one or multiplied one by one. The cost of these products, of the
    pattern sums, of moving rows and of sorting routes is compared to the cost of the dense product,
    which is faster in the forward pass and if the output is narrow. If most gates are open, the
    closed ones are processed instead. ``benchmarks/strategies.py`` compares the choice to the
    fastest strategy.

    Parameters
    ----------
    rows : int
        Number of input rows.
    in_features : int
        Number of input features.
    gates : int
        Number of gates.
    out_features : int
        Number of output features.
    open_fraction : float
        Fraction of the gates that are open.
    backward : bool, default=True
        Whether both gradients will be computed as well.

    Returns
    -------
    int
        0 for dense, or a group size from 1 to ``MAX_GROUP``.

    Examples
    --------
    >>> from tensorswitch.switched import choose_group
    >>> choose_group(rows=16, in_features=8, gates=8, out_features=8, open_fraction=0.5)
    0
    """
    flipped = (2 * open_fraction - 1) * rows > COSTS.flip_rows
    routed = 1 - open_fraction if flipped else open_fraction
    return cheapest_group(rows, in_features, gates, out_features, routed, float(flipped), backward)


def cheapest_group(
    rows: int, n_in: int, units: int, n_out: int, routed: float, flipped: float, backward: bool
) -> int:
    """Choose by the fractions of routed gates and of flipped units, which plans know exactly."""
    if rows * units * n_in * n_out <= COSTS.tiny:
        return 0
    if n_out < n_in:
        dense, narrow = 0.6, 48
    else:
        dense, narrow = (1.4 if backward else 0.6), 32
    area, width = n_in * n_out, n_in + n_out
    cost = [units * rows * (dense * area + COSTS.move / 2 * width) + COSTS.plan / 3]
    common = COSTS.common * units * area if flipped else 0
    area = n_in * max(n_out, narrow)  # narrower products take equally long
    for g in range(1, MAX_GROUP + 1):
        groups, patterns, sort = math.ceil(units / g), 2**g - 1, 1 if g == 1 else 2
        p = routed
        used = rows * (1 - (1 - p) ** g)
        commonest = p**g if p >= 0.5 else p * (1 - p) ** (g - 1)
        slots = min(patterns * rows * commonest, used + patterns * COSTS.pad_work / area)
        sums = COSTS.pattern_sum * patterns * area if g > 1 else 0
        routes = sort * COSTS.route * (used + rows / 4)
        moves = slots * area + used * COSTS.move * width
        cost.append(groups * (moves + sums + routes) + sort * COSTS.plan + common)
    return cost.index(min(cost))
