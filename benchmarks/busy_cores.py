"""The command line with all cores busy elsewhere.

python -m benchmarks.busy_cores

Runs the same comparison on an idle machine and beside one busy process for each core, in turns, and
prints the ratio of the times. With all cores shared by two, 2 is what is left of them.
"""

import multiprocessing
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

ROUNDS = 3
METHODS = ("boosting,rr", "kernel-ridge", "ss")


def spin() -> None:
    """Keep a core busy."""
    while True:
        sum(range(100_000))


@contextmanager
def busy(count: int) -> Iterator[None]:
    """Run so many busy processes."""
    others = [multiprocessing.Process(target=spin, daemon=True) for _ in range(count)]
    for other in others:
        other.start()
    try:
        yield
    finally:
        for other in others:
            other.kill()
            other.join()


def seconds(data: str, methods: str) -> float:
    """Return the time of a comparison."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "tensorswitch", "compare", "--data", data, "--out", folder]
        start = time.perf_counter()
        subprocess.run([*command, "--methods", methods], check=True, capture_output=True)
        return time.perf_counter() - start


def main() -> None:
    """Print a line for each set of learners."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(3_000, 12))
    y = x[:, 0] * x[:, 1] + np.abs(x[:, 2]) + 0.3 * rng.normal(size=3_000)
    cores = len(os.sched_getaffinity(0))
    print(f"{cores} cores; medians of {ROUNDS} rounds, in seconds")
    print("| learners | idle | all cores busy | ratio |\n|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        data = f"{folder}/table.csv"
        names = ",".join(f"x{i}" for i in range(12)) + ",y"
        np.savetxt(data, np.column_stack([x, y]), delimiter=",", header=names, comments="")
        for methods in METHODS:
            idle, shared = [], []
            for _ in range(ROUNDS):
                idle.append(seconds(data, methods))
                with busy(cores):
                    shared.append(seconds(data, methods))
            a, b = statistics.median(idle), statistics.median(shared)
            print(f"| {methods} | {a:.1f} | {b:.1f} | {b / a:.1f} |", flush=True)


if __name__ == "__main__":
    main()
