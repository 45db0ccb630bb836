"""Compare the switched linear map on a GPU with naive code in speed and peak memory.

    python -m benchmarks.gpu

Naive code builds the expanded tensor, flattens it and multiplies, with autograd. Inputs, gates and
outputs have the same number n, half of the gates are open. The map is measured with the Triton
kernels, if Triton is installed, and with the dense fallback. Ratios above 1 are speed-ups.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

import torch
from torch import Tensor

from benchmarks._measure import describe, print_table
from benchmarks.switched_linear import naive
from tensorswitch import switched_linear
from tensorswitch.switched import _compute

SIZES = [(128, 64), (512, 128), (2048, 128), (2048, 256), (8192, 256)]
DTYPES = (torch.float32, torch.bfloat16, torch.float16)


def measure(
    method: Callable[[Tensor, Tensor, Tensor], Tensor], rows: int, n: int, dtype: torch.dtype
) -> tuple[float, float]:
    """Return milliseconds and peak megabytes of forward and backward."""
    x = torch.randn(rows, n, device="cuda", dtype=dtype, requires_grad=True)
    weight = torch.randn(n, n, n, device="cuda", dtype=dtype, requires_grad=True)
    gates, error = torch.rand(rows, n, device="cuda") < 0.5, torch.randn_like(x)

    def run() -> None:
        torch.autograd.grad(method(x, gates, weight), (x, weight), error)

    for _ in range(3):
        run()
    torch.cuda.reset_peak_memory_stats()
    before, times = torch.cuda.memory_allocated(), []
    for _ in range(20):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        run()
        end.record()
        torch.cuda.synchronize()
        times.append(start.elapsed_time(end))
    return min(times), (torch.cuda.max_memory_allocated() - before) / 1e6


def main() -> None:
    if not torch.cuda.is_available():
        print("This benchmark needs a CUDA device; torch finds none.")
        return
    print(f"{describe()}, {torch.cuda.get_device_name()}\n")
    kernels, table = _compute.triton_kernels(), []
    for (rows, n), dtype in product(SIZES, DTYPES):
        found = {"naive": measure(naive, rows, n, dtype)}
        if kernels is not None:
            found["triton"] = measure(switched_linear, rows, n, dtype)
        fallback = lambda x, gates, weight: switched_linear(x, gates, weight)  # noqa: E731
        _compute.triton_kernels = lambda: None  # type: ignore[assignment]
        found["dense"] = measure(fallback, rows, n, dtype)
        _compute.triton_kernels = lambda: kernels  # type: ignore[assignment]
        row = [str(rows), str(n), str(dtype).removeprefix("torch."), f"{found['naive'][0]:.2f}"]
        for name in ("triton", "dense"):
            time, memory = found.get(name, (float("nan"), float("nan")))
            row += [f"{found['naive'][0] / time:.2f}×", f"1/{found['naive'][1] / memory:.0f}"]
        table.append(row)
    header = ["rows", "n", "type", "naive ms", "Triton", "memory", "dense", "memory"]
    print_table(header, table)


if __name__ == "__main__":
    main()
