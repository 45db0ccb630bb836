"""The tuned numbers of the switched map, and the scripts that chose them."""

from __future__ import annotations

from dataclasses import dataclass


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
