"""Compare the chosen strategy of the switched linear map with the fastest one on many sizes.

python -m benchmarks.strategies
"""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import product

import torch

from benchmarks._measure import describe, print_table, side_by_side
from tensorswitch import switched_linear
from tensorswitch.switched import MAX_GROUP, choose_group

SIZES = [
    (32, 32, 32),
    (64, 64, 64),
    (128, 128, 128),
    (64, 64, 10),
    (256, 256, 10),
    (64, 512, 10),
    (784, 16, 10),
    (288, 32, 32),
]
ROWS, OPEN, LARGEST = (32, 128, 512, 2048, 8192), (0.05, 0.5, 0.9), 3e9


def step(
    rows: int, n_in: int, gates: int, n_out: int, opened: float, backward: bool, group: int
) -> Callable[[], None]:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(rows, n_in, generator=generator).requires_grad_(backward)
    weight = torch.randn(gates, n_in, n_out, generator=generator).requires_grad_(backward)
    h = torch.rand(rows, gates, generator=generator) < opened
    error = torch.randn(rows, n_out, generator=generator)

    def run() -> None:
        x.grad = weight.grad = None
        y = switched_linear(x, h, weight, group=group)
        if backward:
            y.backward(error)

    return run


def main() -> None:
    torch.set_num_threads(2)
    print(describe(), "\n")
    losses: dict[float, list[float]] = {p: [] for p in OPEN}
    for (n_in, gates, n_out), rows, opened, backward in product(SIZES, ROWS, OPEN, (False, True)):
        if rows * n_in * gates * n_out > LARGEST:
            continue
        runs = {
            str(g): step(rows, n_in, gates, n_out, opened, backward, g)
            for g in range(MAX_GROUP + 1)
        }
        best = side_by_side(runs, seconds=0.1, least=3)
        chosen = choose_group(
            rows, n_in, gates, n_out, min(opened, 1 - opened), float(opened > 0.5), backward
        )
        losses[opened].append(math.log(best[str(chosen)] / min(best.values())))
    rows_out = []
    for opened, found in losses.items():
        rows_out.append(
            [
                f"{opened:.0%}",
                str(len(found)),
                f"{math.exp(sum(found) / len(found)):.2f}×",
                f"{math.exp(max(found)):.2f}×",
            ]
        )
    print_table(["open", "cases", "chosen / best, mean", "worst"], rows_out)


if __name__ == "__main__":
    main()
