"""Compare the switched linear map with naive code in speed and peak memory.

    python -m benchmarks.switched_linear [bfloat16]

Naive code builds the expanded tensor, flattens it and multiplies, with autograd. Inputs, gates and
outputs have the same number n; float32, two threads. Ratios above 1 are speed-ups. ``bfloat16``
compares float32 rows and weights under autocast, conversions included, with products in float32.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from itertools import product

import torch
from torch import Tensor

from benchmarks._measure import describe, peak_extra_bytes, print_table, side_by_side
from tensorswitch import switched_linear
from tensorswitch.switched import choose_group

SIZES = [
    (128, 32, True),
    (128, 64, True),
    (128, 128, True),
    (128, 256, True),
    (512, 256, True),
    (2048, 128, True),
]
SIZES += [(8192, 128, False), (4096, 256, False)]
OPEN = (0.05, 0.5, 0.9)


def naive(x: Tensor, gates: Tensor, weight: Tensor) -> Tensor:
    z = gates.to(x.dtype)[:, :, None] * x[:, None, :]
    return z.flatten(1) @ weight.flatten(0, 1)


def step(
    method: Callable[[Tensor, Tensor, Tensor], Tensor],
    rows: int,
    n: int,
    opened: float,
    backward: bool,
) -> Callable[[], None]:
    generator = torch.Generator().manual_seed(0)
    x, error = (torch.randn(rows, n, generator=generator) for _ in range(2))
    weight = torch.randn(n, n, n, generator=generator).requires_grad_(backward)
    gates = torch.rand(rows, n, generator=generator) < opened
    x.requires_grad_(backward)
    one = torch.ones(1, 1, requires_grad=True)  # a first call, not counted
    method(one, one > 0, torch.ones(1, 1, 1)).backward(torch.ones(1, 1))

    def run() -> None:
        x.grad = weight.grad = None
        y = method(x, gates, weight)
        if backward:
            y.backward(error)

    return run


def working_memory(
    method: Callable[[Tensor, Tensor, Tensor], Tensor], rows: int = 512, n: int = 256
) -> int:
    """Return the peak memory of forward + backward beyond the weight gradient."""
    return peak_extra_bytes(step, method, rows, n, 0.5, True) - 4 * n**3


def main() -> None:
    torch.set_num_threads(2)
    print(describe(), "\n")
    rows, absolute = [], []
    for size, n, backward in SIZES:
        cells, times = [], []
        for opened in OPEN:
            runs = {
                "naive": step(naive, size, n, opened, backward),
                "ours": step(switched_linear, size, n, opened, backward),
            }
            best = side_by_side(runs, seconds=10)
            group = choose_group(
                size, n, n, n, min(opened, 1 - opened), float(opened > 0.5), backward
            )
            cells.append(f"{best['naive'] / best['ours']:.2f}× (group {group})")
            times.append(f"{1e3 * best['ours']:.2f}")
        what = "forward + backward" if backward else "forward"
        rows.append([what, str(size), str(n), *cells])
        absolute.append([what, str(size), str(n), f"{1e3 * best['naive']:.2f}", *times])
    print("Speed-up over naive code:\n")
    print_table(["", "rows", "n", *(f"{p:.0%} open" for p in OPEN)], rows)
    print("\nMilliseconds:\n")
    print_table(["", "rows", "n", "naive", *(f"{p:.0%} open" for p in OPEN)], absolute)
    ours, theirs = (working_memory(method) / 1e6 for method in (switched_linear, naive))
    print(
        "\nPeak memory beyond the gradients, forward + backward, 512 rows, n = 256: "
        f"{ours:.0f} MB, naive {theirs:.0f} MB: 1/{theirs / ours:.0f}"
    )


def narrow(x: Tensor, gates: Tensor, weight: Tensor) -> Tensor:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return switched_linear(x, gates, weight).float()


def bfloat16() -> None:
    print(f"{describe()}; forward + backward, half of the gates open\n")
    table = []
    for threads, rows, n in product((1, 2), (16, 64, 128, 256, 512, 2048), (64, 128, 256)):
        torch.set_num_threads(threads)
        runs = {
            "float32": step(switched_linear, rows, n, 0.5, True),
            "bfloat16": step(narrow, rows, n, 0.5, True),
        }
        best = side_by_side(runs, seconds=2)
        ratio = f"{best['bfloat16'] / best['float32']:.2f}"
        table.append([str(threads), str(rows), str(n), f"{1e3 * best['float32']:.1f}", ratio])
    print_table(["threads", "rows", "n", "float32, ms", "bfloat16, of float32"], table)


if __name__ == "__main__":
    bfloat16() if sys.argv[1:] == ["bfloat16"] else main()
