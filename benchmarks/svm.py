"""Measure SVMs with the equivalent kernels: test error, time and peak memory.

    [TENSORSWITCH_DATA=DIR] python -m benchmarks.svm [mnist cifar10 svhn]

Kernels have the best depths of the paper. If several PCA dimensions and penalties are listed, the
best by validation error on the first ``TRIAL`` training rows is used; the final fit is on all rows,
in a separate process. Results are appended to ``benchmarks/results/svm.md``; rows that are already
there are skipped. SVHN is used without ``extra``.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

from benchmarks._measure import describe, in_a_process_of_its_own, peak_resident_bytes
from tensorswitch.data import load
from tensorswitch.estimators import TSKernelSVC, kernel_svc_grid

RESULTS = Path(__file__).parent / "results" / "svm.md"
CASES = [  # data, kernel, depth, the paper's error %, PCA dimensions and penalties to choose from
    ("mnist", "ts", 3, 1.40, [(64, 10)]),
    ("mnist", "ss", 5, 1.40, [(64, 10)]),
    ("svhn", "ts", 1, 20.38, [(p, c) for p in (64, 128) for c in (1, 10, 100)]),
    ("svhn", "ss", 1, 21.60, [(p, c) for p in (64, 128) for c in (1, 10, 100)]),
    ("cifar10", "ts", 2, 43.60, [(p, c) for p in (64, 128) for c in (1, 10, 100)]),
    ("cifar10", "ss", 7, 43.18, [(p, c) for p in (64, 128) for c in (1, 10, 100)]),
]
TRIAL = 20_000
# Gigabytes; the two largest classes of SVHN have 23,000 rows.
MEMORY = {"mnist": 3, "cifar10": 3, "svhn": 6}
HEADER = (
    "| data | kernel | depth | PCA | C | test error % | paper % | fit s | predict s "
    "| peak GB | support vectors |\n" + "|---" * 11 + "|\n"
)


def main() -> None:
    if not RESULTS.exists():
        RESULTS.write_text(
            f"Made by `python -m benchmarks.svm` (seed 0); {describe()}.\n\n{HEADER}"
        )
    for case in CASES:
        if (
            case[0] in (sys.argv[1:] or case[0])
            and f"| {case[0]} | {case[1].upper()} |" not in RESULTS.read_text()
        ):
            row = in_a_process_of_its_own(run, *case)
            with RESULTS.open("a") as file:
                file.write(row)
            print(row, flush=True)


def run(name: str, kind: str, depth: int, paper: float, candidates: list[tuple[int, float]]) -> str:
    components, penalty = (
        candidates[0] if len(candidates) == 1 else choose(name, kind, depth, candidates)
    )
    data = load(name).protocol(components)
    start = time.perf_counter()
    options: dict[str, Any] = {
        "normalize": True,
        "bias": False,
        "n_jobs": 2,
        "memory_gb": MEMORY[name],
    }
    model = TSKernelSVC(kind, depth, penalty, **options).fit(data.train, data.train_labels)
    fitted = time.perf_counter()
    error = 100 * (model.predict(data.test) != data.test_labels).mean()
    done = time.perf_counter()
    cells = [
        name,
        kind.upper(),
        depth,
        components,
        penalty,
        f"{error:.2f}",
        f"{paper:.2f}",
        f"{fitted - start:.0f}",
        f"{done - fitted:.0f}",
    ]
    return (
        "| "
        + " | ".join(map(str, [*cells, f"{peak_resident_bytes() / 1e9:.1f}", len(model.support_)]))
        + " |\n"
    )


def choose(
    name: str, kind: str, depth: int, candidates: list[tuple[int, float]]
) -> tuple[int, float]:
    errors = {}
    for components in dict.fromkeys(p for p, _ in candidates):
        data = load(name).protocol(components)
        rows = (
            data.train[:TRIAL],
            data.train_labels[:TRIAL],
            data.validation,
            data.validation_labels,
        )
        penalties = [c for p, c in candidates if p == components]
        found = kernel_svc_grid(
            *rows, kinds=[kind], depths=[depth], Cs=penalties, n_jobs=2, memory_gb=3
        )
        errors.update({(components, key[2]): error for key, error in found.items()})
    print(
        name, kind, depth, {key: f"{100 * error:.2f}" for key, error in errors.items()}, flush=True
    )
    return min(errors, key=lambda key: errors[key])


if __name__ == "__main__":
    main()
