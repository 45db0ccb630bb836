"""TS kernel ridge: seconds against boosting, growth with rows, MNIST; memory in child processes.

    python -m benchmarks.kernel_ridge [speed] [rows] [mnist]

`speed` fits 2,000 × 40 side by side with `HistGradientBoostingClassifier`. `rows` shows how the
time grows. `mnist` fits all 60,000 images without any setting (data: `tensorswitch data list`).
"""

from __future__ import annotations

import sys
import time
from functools import partial
from typing import Any

import numpy as np
from sklearn.datasets import make_classification
from sklearn.ensemble import HistGradientBoostingClassifier

from benchmarks._measure import (
    describe,
    in_a_process_of_its_own,
    peak_resident_bytes,
    print_table,
    side_by_side,
)
from tensorswitch.data import load
from tensorswitch.estimators import TSKernelRidgeClassifier


def table(rows: int, classes: int = 2) -> tuple[np.ndarray, np.ndarray]:
    """Return a table of 40 columns."""
    X, y = make_classification(rows, 40, n_informative=15, n_classes=classes, random_state=0)
    return X, y


def speed() -> None:
    """Print the ratio to boosting."""
    rows = []
    for classes in (2, 5):
        X, y = table(2000, classes)
        times = side_by_side(
            {
                "ours": partial(TSKernelRidgeClassifier().fit, X, y),
                "boosting": partial(HistGradientBoostingClassifier().fit, X, y),
            },
            seconds=20,
            least=3,
        )
        ratio = times["ours"] / times["boosting"]
        row = [str(classes), f"{times['ours']:.2f}", f"{times['boosting']:.2f}", f"{ratio:.1f}"]
        rows.append(row)
    print_table(["classes", "TS kernel ridge, s", "boosting, s", "ratio"], rows)


def fitted(rows: int) -> tuple[float, float]:
    """Return seconds and peak memory of one fit, in a process of its own."""
    X, y = table(rows)
    start = time.perf_counter()
    TSKernelRidgeClassifier().fit(X, y)
    return time.perf_counter() - start, peak_resident_bytes() / 1e9


def growth() -> None:
    """Print seconds and memory against rows."""
    rows = []
    for count in (500, 1000, 2000, 4000, 6000, 10_000, 20_000):
        seconds, memory = in_a_process_of_its_own(fitted, count)
        rows.append([f"{count:,}", f"{seconds:.1f}", f"{memory:.1f}"])
    print_table(["rows", "seconds", "peak GB of the process"], rows)


def mnist() -> dict[str, Any]:
    """Fit all of MNIST without any setting."""
    data = load("mnist")
    X, X_test = (x.reshape(len(x), -1) for x in (data.train_images, data.test_images))
    start = time.perf_counter()
    model = TSKernelRidgeClassifier().fit(X, data.train_labels)
    fit = time.perf_counter() - start
    error = 100 * float(np.mean(model.predict(X_test) != data.test_labels))
    chosen = f"{model.kernel_}, depth {model.depth_}, {model.scaling_}, λ {model.alpha_:.2g}"
    memory = peak_resident_bytes() / 1e9
    return {"chosen": chosen, "error %": error, "fit s": fit, "peak GB": memory}


def main() -> None:
    """Run the parts that are named, by default the first two."""
    parts = sys.argv[1:] or ["speed", "rows"]
    print(describe(), "\n")
    if "speed" in parts:
        speed()
    if "rows" in parts:
        growth()
    if "mnist" in parts:
        found = in_a_process_of_its_own(mnist)
        cells = [v if isinstance(v, str) else f"{v:.2f}" for v in found.values()]
        print_table(list(found), [cells])


if __name__ == "__main__":
    main()
