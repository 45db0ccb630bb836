"""TS kernel ridge: seconds against boosting, growth with rows, calibration, MNIST.

    python -m benchmarks.kernel_ridge [speed] [rows] [calibration] [mnist]

`speed` fits 2,000 × 40 side by side with `HistGradientBoostingClassifier`. `rows` shows how time
and memory grow, in child processes. `calibration` shows the reliability of probabilities and how
often intervals cover the truth. `mnist` fits all 60,000 images without any setting (data:
`tensorswitch data list`). Seconds are wall time; those of the processor stand beside them, as they
tell more on a machine with other work to do.
"""

from __future__ import annotations

import sys
import time
from functools import partial
from typing import Any

import numpy as np
from scipy.stats import norm
from sklearn.datasets import make_classification
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.metrics import log_loss

from benchmarks._measure import (
    describe,
    in_a_process_of_its_own,
    peak_resident_bytes,
    print_table,
    side_by_side,
)
from benchmarks._tables import TABLES, Table, divided
from tensorswitch.data import load
from tensorswitch.estimators import TSKernelRidgeClassifier, TSKernelRidgeRegressor

SHARES = (0.5, 0.8, 0.95)
CALIBRATED = ("digits", "breast cancer", "glass", "attrition", "diabetes", "boston", "friedman1")


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


def fitted(rows: int) -> tuple[float, float, float]:
    """Return seconds, those of the processor, and peak memory of one fit."""
    X, y = table(rows)
    start, busy = time.perf_counter(), time.process_time()
    TSKernelRidgeClassifier().fit(X, y)
    seconds = time.perf_counter() - start
    return seconds, time.process_time() - busy, peak_resident_bytes() / 1e9


def growth() -> None:
    """Print seconds and memory against rows."""
    rows = []
    for count in (500, 1000, 2000, 4000, 6000, 10_000, 20_000):
        seconds, busy, memory = in_a_process_of_its_own(fitted, count)
        rows.append([f"{count:,}", f"{seconds:.1f}", f"{busy:.1f}", f"{memory:.1f}"])
    print_table(["rows", "seconds", "of the processor", "peak GB of the process"], rows)


def reliability(p: np.ndarray, right: np.ndarray, bins: int = 10) -> float:
    """Return the mean distance of confidence and accuracy, in bins of equal size."""
    order = np.argsort(p)
    gaps = [
        len(part) * abs(p[part].mean() - right[part].mean()) for part in np.array_split(order, bins)
    ]
    return float(np.sum(gaps) / len(p))


def calibration(splits: int = 2) -> None:
    """Print log-loss and reliability of classes, and coverage of 50, 80 and 95 % intervals."""
    of_classes: list[list[str]] = []
    of_numbers: list[list[str]] = []
    for name in CALIBRATED:
        found = [_calibrated(TABLES[name], split) for split in range(splits)]
        cells = [name, *(f"{value:.3f}" for value in np.mean(found, axis=0))]
        (of_classes if TABLES[name].classes else of_numbers).append(cells)
    print_table(["table", "log-loss", "reliability gap"], of_classes)
    print()
    print_table(["table", *(f"in {share:.0%} interval" for share in SHARES)], of_numbers)


def _calibrated(table: Table, split: int) -> list[float]:
    X, y, X_test, y_test = divided(table, split)
    if table.classes:
        p = TSKernelRidgeClassifier().fit(X, y).predict_proba(X_test)
        loss = log_loss(y_test, p, labels=np.arange(p.shape[1]))
        return [loss, reliability(p.max(1), p.argmax(1) == y_test)]
    mean, deviation = TSKernelRidgeRegressor().fit(X, y).predict(X_test, return_std=True)
    distance = np.abs(y_test - mean) / deviation
    return [float(np.mean(distance < norm.ppf((1 + share) / 2))) for share in SHARES]


def mnist() -> dict[str, Any]:
    """Fit all of MNIST without any setting."""
    data = load("mnist")
    X, X_test = (x.reshape(len(x), -1) for x in (data.train_images, data.test_images))
    start, busy = time.perf_counter(), time.process_time()
    model = TSKernelRidgeClassifier().fit(X, data.train_labels)
    fit, busy = time.perf_counter() - start, time.process_time() - busy
    error = 100 * float(np.mean(model.predict(X_test) != data.test_labels))
    chosen = f"{model.kernel_}, depth {model.depth_}, {model.scaling_}, λ {model.alpha_:.2g}"
    memory = peak_resident_bytes() / 1e9
    times = {"fit s": fit, "of the processor": busy}
    return {"chosen": chosen, "error %": error, **times, "peak GB": memory}


def main() -> None:
    """Run the parts that are named, by default all but the last."""
    parts = sys.argv[1:] or ["speed", "rows", "calibration"]
    print(describe(), "\n")
    if "speed" in parts:
        speed()
        print()
    if "rows" in parts:
        growth()
        print()
    if "calibration" in parts:
        calibration()
        print()
    if "mnist" in parts:
        found = in_a_process_of_its_own(mnist)
        cells = [v if isinstance(v, str) else f"{v:.2f}" for v in found.values()]
        print_table(list(found), [cells])


if __name__ == "__main__":
    main()
