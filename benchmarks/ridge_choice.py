"""How one-pass ridge regression chooses its penalty and its solver.

    python -m benchmarks.ridge_choice

The first table shows which penalty cross-validation chooses on river's ImageSegments, many of whose
rows are repeated, with each row once and twice: accuracy on a quarter of the rows, five splits. The
second times the solvers on few rows with seven penalties, and says what ``solver="auto"`` takes,
also for skewed columns (exp 2x), with which conjugate gradients need more iterations.
"""

from __future__ import annotations

import time
import warnings
from itertools import product

import numpy as np
from sklearn.datasets import make_regression

from benchmarks._measure import describe, print_table
from benchmarks._tables import TABLES, divided
from tensorswitch.estimators import TSRidgeClassifier, TSRidgeRegressor

SOLVERS = ("streaming", "matrix-free", "dual")
SPLITS = 5
ALPHAS = [f"{m} mean" for m in (10, 1, 0.1, 0.01, 0.001, 0.0001, 0.00001)]


def penalties() -> None:
    """Print accuracy and penalty, rows twice over as well."""
    rows = []
    for solver in ("dual", "streaming"):
        for repeats in (1, 2):
            scores, chosen = [], []
            for split in range(SPLITS):
                X, y, X_test, y_test = divided(TABLES["segments"], split)
                X, y = np.repeat(X, repeats, axis=0), np.repeat(y, repeats)
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    model = TSRidgeClassifier(64, ALPHAS, solver=solver, random_state=split)
                    model.fit(X, y)
                scores.append(model.score(X_test, y_test))
                chosen.append(model.alpha_)
            found = [f"{np.mean(scores):.3f}", f"{np.median(chosen):.2g}"]
            rows.append([solver, str(repeats), *found])
    print_table(["solver", "copies of rows", "accuracy", "median λ"], rows)


def solvers(gates: int = 256) -> None:
    """Print the seconds of each solver on few rows."""
    lines = []
    for rows, skewed in product((245, 1000, 2000), (False, True)):
        X, y = make_regression(rows, 20, noise=10.0, random_state=0)
        X = np.exp(2 * X) if skewed else X
        for solver in (*SOLVERS, "auto"):
            model = TSRidgeRegressor(gates, ALPHAS, solver=solver, random_state=0)
            start = time.process_time()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                model.fit(X, y)
            taken = f"{time.process_time() - start:.2f}"
            columns = "skewed" if skewed else "normal"
            lines.append([str(rows), columns, solver, model.solver_, taken])
    print_table(["rows", "columns", "solver", "used", "CPU s"], lines)


def main() -> None:
    """Print both tables."""
    print(describe(), "\n")
    penalties()
    print()
    solvers()


if __name__ == "__main__":
    main()
