"""Compare the equivalent kernels with whole-array torch and NumPy code and neural-tangents.

    python -m benchmarks.kernels [--neural-tangents PYTHON]

k(X, X) of depth 3 on 6,000 rows, float32, two threads. ``--neural-tangents`` is the interpreter of
an environment with neural-tangents, whose kernel is that of ReLU layers (SS). Create it by

    python -m venv /tmp/nt
    /tmp/nt/bin/pip install 'jax[cpu]==0.4.30' 'neural-tangents==0.6.5' 'scipy<1.13' 'numpy<2'
"""

from __future__ import annotations

import argparse
import math
import subprocess
import sys
from collections.abc import Callable
from functools import partial

import numpy as np
import torch

from benchmarks._measure import describe, peak_extra_bytes, print_table, side_by_side
from tensorswitch.kernels import ts_kernel

ROWS, DEPTH = 6000, 3

NEURAL_TANGENTS = """
import sys, time
import numpy as np
import jax
from neural_tangents import stax
rows, features, depth = map(int, sys.argv[1:])
x = np.random.default_rng(0).standard_normal((rows, features)).astype(np.float32)
layers = [stax.Dense(1), stax.Relu()] * depth + [stax.Dense(1)]
kernel = jax.jit(lambda a: stax.serial(*layers)[2](a, None, "nngp"))
kernel(x).block_until_ready()
best = float("inf")
for _ in range(5):
    start = time.perf_counter()
    kernel(x).block_until_ready()
    best = min(best, time.perf_counter() - start)
print(best)
"""


def data(features: int, rows: int = ROWS) -> np.ndarray:
    return np.random.default_rng(0).standard_normal((rows, features)).astype(np.float32)


def whole_torch(x: torch.Tensor) -> torch.Tensor:
    linear = x @ x.t()
    norm = linear.diagonal().sqrt()
    cosine = linear / (norm[:, None] * norm)
    result = linear
    for _ in range(DEPTH):
        theta = torch.acos(cosine.clamp(-1, 1))
        result = result * (1 - theta / math.pi)
        cosine = (torch.sin(theta) + (math.pi - theta) * torch.cos(theta)) / math.pi
    return result


def whole_numpy(x: np.ndarray) -> np.ndarray:
    linear = x @ x.T
    norm = np.sqrt(np.diagonal(linear))
    cosine = linear / (norm[:, None] * norm)
    result = linear
    for _ in range(DEPTH):
        theta = np.arccos(np.clip(cosine, -1, 1))
        result = result * (1 - theta / np.float32(np.pi))
        cosine = (np.sin(theta) + (np.float32(np.pi) - theta) * np.cos(theta)) / np.float32(np.pi)
    return np.asarray(result)


def prepared(features: int) -> Callable[[], np.ndarray]:
    x = data(features)
    ts_kernel(x[:500], depth=DEPTH)
    return lambda: ts_kernel(x, depth=DEPTH)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--neural-tangents", metavar="PYTHON", default=sys.executable)
    python = parser.parse_args().neural_tangents
    torch.set_num_threads(2)
    print(describe(), "\n")
    rows = []
    for features in (64, 784):
        x = data(features)
        tensor = torch.from_numpy(x)
        runs: dict[str, Callable[[], object]] = {
            "ours": partial(ts_kernel, x, depth=DEPTH),
            "torch": partial(whole_torch, tensor),
            "numpy": partial(whole_numpy, x),
        }
        best = side_by_side(runs, seconds=10, least=3)
        command = [python, "-c", NEURAL_TANGENTS, str(ROWS), str(features), str(DEPTH)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        tangents = float(done.stdout) / best["ours"] if done.returncode == 0 else None
        if tangents is None:
            print(
                "neural-tangents is not available:",
                (done.stderr.strip().splitlines() or ["no output"])[-1],
            )
        memory = peak_extra_bytes(prepared, features) - 4 * ROWS**2
        row = [
            str(features),
            f"{1e3 * best['ours']:.0f}",
            f"{best['torch'] / best['ours']:.1f}×",
            f"{best['numpy'] / best['ours']:.1f}×",
        ]
        rows.append(
            [
                *row,
                "not measured" if tangents is None else f"{tangents:.1f}×",
                f"{memory / 1e6:.0f}",
            ]
        )
    print_table(
        [
            "features",
            "ours, ms",
            "speed-up over torch",
            "over NumPy",
            "over neural-tangents",
            "memory beyond the result, MB",
        ],
        rows,
    )


if __name__ == "__main__":
    main()
