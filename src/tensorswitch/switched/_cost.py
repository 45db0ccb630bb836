"""The cost rule, which predicts the fastest strategy for given sizes, and its tuned numbers."""

import math
from dataclasses import dataclass

MAX_GROUP = 6


@dataclass(frozen=True)
class Costs:
    """Costs in multiply-adds of a batched product; fitted by ``benchmarks/strategies.py``."""

    tiny: int = 8_000_000  # multiply-adds up to which the plain formula is fastest
    pattern_sum: int = 32  # per entry of the sum of a pattern's matrices
    move: int = 2  # per entry of a row that is moved
    route: int = 330  # per route that is sorted
    plan: float = 7e6  # per plan
    common: int = 16  # per weight of the sum over flipped units, and of its gradient
    flip_rows: int = 16  # units are flipped if it saves so many rows each: it reads all weights
    # Segments padded to the same length take one batched product. That is faster than a product per
    # segment unless the padding adds more than ``pad_share`` of the rows plus so many multiply-adds
    # per segment, the overhead of a separate product; in narrow types, more of them take the same
    # time. A number that is moved counts as ``pad_move`` of them.
    pad_share: float = 0.25
    pad_work: float = 1.3e6
    narrow_pad_work: float = 4e6
    pad_move: int = 16


@dataclass(frozen=True)
class Blocks:
    """Sizes that keep the work in cache; chosen by ``benchmarks/switched_linear.py``."""

    rows: int = 8192  # rows at a time, so that buffers are reused
    chunk_bytes: int = 1 << 23  # of gathered rows and matrices
    cache_bytes: int = 1 << 20  # of the slice of Z that the dense strategy holds
    device_bytes: int = 1 << 26  # the same on GPUs, which small products do not fill
    narrow_rows: int = 512  # rows at a time if the output side is expanded
    error_rows: int = 256  # rows of expanded errors
    lanes: int = 16  # units are taken in multiples of this, so that rows of a slice stay aligned
    few_rows: int = 256  # with fewer rows, and more weights than the next, narrow types do not pay
    many_weights: int = 1 << 23
    often: int = 8  # units open so many times more often than the mean are on their own,
    few_units: int = 4  # if there are at most so many of them


COSTS, BLOCKS = Costs(), Blocks()


def choose_group(
    rows: int, n_in: int, units: int, n_out: int, routed: float, flipped: float, backward: bool
) -> int:
    """Return the group size with the lowest estimated cost, 0 for the dense strategy.

    If a fraction p of the gates takes part in routing, a group of g units has a routed gate in
    ``1 − (1 − p)^g`` of the rows. These are spread over ``2^g − 1`` patterns, which are padded to
    the length of the most common one or multiplied one by one. The dense product is faster in the
    forward pass and if the output is narrow. ``benchmarks/strategies.py`` checks the choice.
    """
    if rows * units * n_in * n_out <= COSTS.tiny:
        return 0
    p, narrow = routed, 48 if n_out < n_in else 32
    dense = 1.4 if backward and n_out >= n_in else 0.6
    area, width = n_in * n_out, n_in + n_out
    cost = [units * rows * (dense * area + COSTS.move / 2 * width) + COSTS.plan / 3]
    common = COSTS.common * units * area if flipped else 0
    area = n_in * max(n_out, narrow)  # narrower products take equally long
    for g in range(1, MAX_GROUP + 1):
        groups, patterns, sort = math.ceil(units / g), 2**g - 1, 1 if g == 1 else 2
        used = rows * (1 - (1 - p) ** g)
        commonest = p**g if p >= 0.5 else p * (1 - p) ** (g - 1)
        slots = min(patterns * rows * commonest, used + patterns * COSTS.pad_work / area)
        sums = COSTS.pattern_sum * patterns * area if g > 1 else 0
        routes = sort * COSTS.route * (used + rows / 4)
        moves = slots * area + used * COSTS.move * width
        cost.append(groups * (moves + sums + routes) + sort * COSTS.plan + common)
    return cost.index(min(cost))
