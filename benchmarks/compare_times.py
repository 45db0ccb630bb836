"""Seconds of a fit of each learner of `compare`, from which its estimates are made.

python -m benchmarks.compare_times

Prints, for each learner, seconds at 1,000 rows of 20 inputs, and the exponents of rows and of
inputs, from tables of 4,000 rows and of 80 inputs (images of 16 and 28 pixels across): ``COSTS`` of
`tensorswitch.compare._learners`.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable

import numpy as np

from tensorswitch.compare import LEARNERS, Problem
from tensorswitch.compare._learners import build

SIZES = ((1_000, 20), (4_000, 20), (1_000, 80))
IMAGES = ((2_000, 784), (8_000, 784), (2_000, 256))


def problem(rows: int, inputs: int, images: bool, seed: int = 0) -> Problem:
    """Return two classes that depend on four columns or pixels, with noise."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(rows, inputs)).astype(np.float32)
    score = x[:, 0] * x[:, 1] + x[:, 2] + np.abs(x[:, 3]) + rng.normal(size=rows)
    if images:
        x = x.reshape(rows, 1, math.isqrt(inputs), -1)
    return Problem("made", x, (score > 1).astype(np.int64), ("no", "yes"))


def seconds(name: str, rows: int, inputs: int, repeats: int = 2) -> float:
    """Return the least time of a fit."""
    one, times = problem(rows, inputs, LEARNERS[name].images), []
    x = one.rows.transpose(0, 2, 3, 1) if one.is_image else one.rows
    for _ in range(repeats):
        model = build(LEARNERS[name], one, rows, {}, 0)
        start = time.perf_counter()
        model.fit(x, one.target)
        times.append(time.perf_counter() - start)
    return min(times)


def main(names: Iterable[str] = tuple(LEARNERS)) -> None:
    """Print the costs of all learners of tables."""
    seconds("linear", 100, 5)  # imports
    for name in names:
        if name != "mean":
            sizes = IMAGES if LEARNERS[name].images else SIZES
            base, tall, wide = (seconds(name, *size) for size in sizes)
            of_rows = max(0.0, math.log(tall / base, 4))
            of_inputs = max(0.0, math.log(wide / base, sizes[2][1] / sizes[0][1]))
            base *= (1_000 / sizes[0][0]) ** of_rows * (20 / sizes[0][1]) ** of_inputs
            print(f'    "{name}": ({base:.2g}, {of_rows:.1f}, {of_inputs:.1f}),', flush=True)


if __name__ == "__main__":
    main()
