"""Measure one-pass ridge regression: speed, memory and test errors.

    python -m benchmarks.ridge speed
    [TENSORSWITCH_DATA=DIR] python -m benchmarks.ridge preconditioners
    [TENSORSWITCH_DATA=DIR] python -m benchmarks.ridge [mnist cifar10 svhn]

Errors on MNIST, CIFAR-10 and SVHN (without ``extra``) are appended to
``benchmarks/results/ridge.md``, each from a separate process; rows that are already there are
skipped. Times are those of the solver, without principal components and prediction.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy.linalg import blas, lapack
from torch import Tensor

from benchmarks._measure import (
    describe,
    in_a_process_of_its_own,
    peak_extra_bytes,
    peak_resident_bytes,
    print_table,
    side_by_side,
)
from tensorswitch.datasets import Split, folders, load
from tensorswitch.linear import Copies, Solution, Sums, draw_gates, solve, solve_matrix_free

RESULTS = Path(__file__).parent / "results" / "ridge.md"
PAPER = {"mnist": 2.99, "cifar10": 47.71, "svhn": 27.11}
# λ as a fraction of the mean of the Gram matrix's diagonal, which is the λ of the paper.
SCALE = {"mnist": 0.1, "cifar10": 1.0, "svhn": 1.0}
TOLERANCE = {"mnist": 2e-2, "cifar10": 5e-3, "svhn": 5e-3}  # residuals of conjugate gradients
CASES: list[tuple[str, int, tuple[int, ...], int | None]] = [  # solver, PCA, gates, rows
    ("streaming", 64, (64,), None),
    ("matrix-free", 256, (256,), None),
    ("matrix-free", 64, (2048,), None),
    ("matrix-free", 64, (64, 64), None),
    ("dual", 64, (64, 64), 20_000),
    ("dual", 32, (32, 32, 32), 20_000),
]
MORE: list[tuple[str, int, tuple[int, ...], int | None]] = [  # on MNIST
    ("matrix-free", 64, (256,), None),
    ("matrix-free", 64, (1024,), None),
    ("matrix-free", 64, (4096,), None),
    ("matrix-free", 64, (8192,), None),
    ("dual", 64, (2048,), 20_000),
    ("matrix-free", 32, (32, 32, 32), None),
]
# PCA, gates, λ and residual
PRECONDITIONED = [
    (64, 256, "0.1 mean", 1e-4),
    (256, 256, "mean", 1e-4),
    (64, 4096, "0.1 mean", 2e-2),
]
HEADER = (
    "| data | solver | rows | PCA | gates | features | λ / mean | iterations "
    "| test error % | paper % | solve s | peak GB |\n" + "|---" * 12 + "|\n"
)


def main() -> None:
    if sys.argv[1:] == ["speed"]:
        speed()
        return
    if sys.argv[1:] == ["preconditioners"]:
        preconditioners()
        return
    if not RESULTS.exists():
        RESULTS.write_text(
            f"Made by `python -m benchmarks.ridge` (seed 0, residuals at most {TOLERANCE}); "
            f"{describe()}.\n\n{HEADER}"
        )
    for name in sys.argv[1:] or PAPER:
        for solver, components, gates, rows in CASES + (MORE if name == "mnist" else []):
            scale = 1.0 if components == 256 else SCALE[name]
            case = (solver, components, gates, scale, rows)
            start = _row_start(name, *case)
            if start not in RESULTS.read_text():
                row = start + in_a_process_of_its_own(run, name, *case)
                with RESULTS.open("a") as file:
                    file.write(row)
                print(row, end="", flush=True)


def _row_start(
    name: str, solver: str, components: int, gates: tuple[int, ...], scale: float, rows: int | None
) -> str:
    features = components * int(np.prod(gates))
    units = " · ".join(map(str, gates))
    cells = (name, solver, rows or "all", components, units, f"{features:,}", scale)
    return "".join(f"| {cell} " for cell in cells) + "| "


def run(
    name: str, solver: str, components: int, gates: tuple[int, ...], scale: float, rows: int | None
) -> str:
    data = load(name).protocol(components)
    x, y = (
        torch.from_numpy(data.train[:rows]),
        torch.from_numpy(data.train_labels[:rows].astype(np.int64)),
    )
    targets = 2 * torch.nn.functional.one_hot(y, 10).float() - 1
    copies = Copies(gate_weights(components, gates))
    before = time.perf_counter()
    options: dict[str, Any] = {"solver": solver, "tol": TOLERANCE[name], "memory_gb": 16}
    solution = solve(x, targets, copies, f"{scale} mean", **options)
    seconds = time.perf_counter() - before
    error = test_error(copies, solution, data)
    memory = peak_resident_bytes() / 1e9
    return (
        f"{solution.iterations or '–'} | {error:.2f} | {PAPER[name]} | {seconds:.1f} "
        f"| {memory:.1f} |\n"
    )


def test_error(copies: Copies, solution: Solution, data: Split) -> float:
    outputs = solution.outputs(copies, copies.rows(torch.from_numpy(data.test)))
    return 100 * float((outputs.argmax(1).numpy() != data.test_labels).mean())


def gate_weights(n_in: int, gates: tuple[int, ...]) -> list[Tensor]:
    return draw_gates(n_in, gates, torch.Generator().manual_seed(0))


def problem(n: int, rows: int = 55_000) -> tuple[Tensor, Tensor, list[Tensor]]:
    torch.manual_seed(0)
    return torch.randn(rows, n), torch.randn(rows, 10).sign(), gate_weights(n, (n,))


def speed() -> None:
    print(f"{describe()}, seed 0\n")
    x, targets, weights = problem(64)

    def ours() -> Tensor:
        return Sums(Copies(weights), 10).update(x, targets).solve().weight

    difference = (ours().flatten(0, 1).numpy() - by_blas(x, targets, weights[0])).__abs__().max()
    times = side_by_side(
        {"ours": ours, "ssyrk": lambda: by_blas(x, targets, weights[0])}, seconds=30, least=3
    )
    memory = peak_extra_bytes(streaming_128) / 1e9
    sums = Sums(Copies(weights), 10, folds=5).update(x, targets)
    path = [10.0**k for k in range(8)]
    paths = side_by_side(
        {
            "one": lambda: Sums(Copies(weights), 10).update(x, targets).solve(),
            "path": lambda: sums.solve(path),
        },
        seconds=10,
        least=3,
    )
    print_table(
        ["what", "measured"],
        [
            ["streaming, 64 × 64, 55,000 rows: seconds", f"{times['ours']:.2f}"],
            ["the same with ssyrk and sposv: seconds", f"{times['ssyrk']:.2f}"],
            ["ratio", f"{times['ssyrk'] / times['ours']:.1f}"],
            ["largest difference of the weights", f"{difference:.1e}"],
            ["streaming, 128 × 128, update and solve: GB", f"{memory:.2f}"],
            [
                "a path of 8 λ on the sums of folds, against sums and one solution",
                f"{(paths['one'] + paths['path']) / paths['one']:.2f}",
            ],
        ],
    )
    if folders("mnist")[0].exists():
        print(
            "\nMNIST, 256 × 256, matrix-free, residual 1e-2: "
            + in_a_process_of_its_own(matrix_free_256)
        )


def preconditioners() -> None:
    """Compare both preconditioners and the choice between them on MNIST, residual 1e-4."""
    print(f"{describe()}, seed 0\n")
    data = load("mnist").protocol(256)
    y = torch.from_numpy(data.train_labels.astype(np.int64))
    targets = 2 * torch.nn.functional.one_hot(y, 10).float() - 1
    print(
        "| features | λ | residual | Kronecker | sampled rows | auto | ratio |\n" + "|---" * 7 + "|"
    )
    for components, gates, alpha, tol in PRECONDITIONED:
        x = torch.from_numpy(data.train[:, :components]).contiguous()
        weights = gate_weights(components, (gates,))
        cells = [f"{components} × {gates}", alpha, f"{tol:g}"]
        seconds = {}
        for kind in ("kronecker", "sampled", "auto"):
            if kind == "sampled" and gates > 1000:
                cells.append("–")
                continue
            before = time.perf_counter()
            options: dict[str, Any] = {"tol": tol, "preconditioner": kind}
            solution = solve_matrix_free(x, targets, weights, alpha, **options)
            seconds[kind] = time.perf_counter() - before
            cells.append(f"{solution.iterations} / {seconds[kind]:.1f} s")
        ratio = seconds["kronecker"] / seconds["auto"]
        print(f"| {' | '.join(cells)} | {ratio:.1f} |", flush=True)


def by_blas(x: Tensor, targets: Tensor, gate_weight: Tensor) -> np.ndarray:
    """Solve as the original implementation does: expand batches, then ``ssyrk`` and ``sposv``."""
    features = x.shape[1] * len(gate_weight)
    gram = np.zeros((features, features), np.float32, order="F")
    cross = np.zeros((features, targets.shape[1]), np.float32, order="F")
    for start in range(0, len(x), 1000):
        part = x[start : start + 1000]
        z = ((part @ gate_weight.t() > 0).float()[:, :, None] * part[:, None]).flatten(1).numpy()
        gram = blas.ssyrk(1.0, z.T, beta=1.0, c=gram, overwrite_c=1)
        cross = blas.sgemm(
            1.0, z.T, targets[start : start + 1000].numpy(), beta=1.0, c=cross, overwrite_c=1
        )
    gram[np.diag_indices(features)] += gram.diagonal().mean()
    return lapack.sposv(gram, cross, overwrite_a=1, overwrite_b=1)[1]


def streaming_128() -> Callable[[], Any]:
    x, targets, weights = problem(128, 10_000)
    # A first call, so that one-time allocations of libraries do not count.
    Sums(Copies([weights[0][:2]]), 10).update(x[:100], targets[:100]).solve()
    return lambda: Sums(Copies(weights), 10).update(x, targets).solve()


def matrix_free_256() -> str:
    data = load("mnist").protocol(256)
    x, y = torch.from_numpy(data.train), torch.from_numpy(data.train_labels.astype(np.int64))
    copies = Copies(gate_weights(256, (256,)))
    before = time.perf_counter()
    solution = solve_matrix_free(
        x, 2 * torch.nn.functional.one_hot(y, 10).float() - 1, copies, tol=1e-2
    )
    seconds = time.perf_counter() - before
    error = test_error(copies, solution, data)
    memory = peak_resident_bytes() / 1e9
    return (
        f"{solution.iterations} iterations, {seconds:.0f} s, {memory:.1f} GB in total, "
        f"test error {error:.2f} %"
    )


if __name__ == "__main__":
    main()
