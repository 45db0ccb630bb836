"""Write a file of each kind with this version, with the outputs that it must give for ever.

    python -m tests.files.write FOLDER

The files in this folder were written once, by version 1 of the format, and are not written again:
a new version of the format gets files of its own beside them.
"""

import sys
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from sklearn.datasets import load_iris

from tensorswitch import estimators, persistence
from tensorswitch.compare import load_problem, train
from tensorswitch.linear import Columns, Copies, Sums
from tensorswitch.models import mlp
from tensorswitch.ridge import RidgeStatistics

X, Y = load_iris(return_X_y=True)
TRAIN, TEST = slice(0, 150, 3), slice(1, 150, 15)
IMAGES = np.kron(X.reshape(-1, 2, 2), np.ones((3, 3)))


def fitted():
    """Yield the name, the fitted estimator and the test rows of each kind."""
    small = {"random_state": 0}
    classifiers = {
        "ridge-classifier": estimators.TSRidgeClassifier(4, **small),
        "streaming-ridge-classifier": estimators.StreamingRidgeClassifier(),
        "kernel-ridge-classifier": estimators.TSKernelRidgeClassifier(**small),
        "kernel-svc": estimators.TSKernelSVC(probability=True),
        "mlp-classifier": estimators.TSMLPClassifier((4,), max_iter=3, **small),
    }
    regressors = {
        "ridge-regressor": estimators.TSRidgeRegressor(4, **small),
        "streaming-ridge-regressor": estimators.StreamingRidgeRegressor(),
        "kernel-ridge-regressor": estimators.TSKernelRidgeRegressor(**small),
        "mlp-regressor": estimators.TSMLPRegressor((4,), max_iter=3, **small),
    }
    for name, model in classifiers.items():
        yield name, model.fit(X[TRAIN], Y[TRAIN]), X[TEST]
    for name, model in regressors.items():
        yield name, model.fit(X[TRAIN, :3], X[TRAIN, 3]), X[TEST, :3]
    images = estimators.TSConvRidgeClassifier(64, sizes=(2,), grid=2, flips=False)
    yield "conv-ridge-classifier", images.fit(IMAGES[TRAIN], Y[TRAIN]), IMAGES[TEST]


def outputs_of(model, rows):
    """Return what a loaded model must give."""
    method = "predict_proba" if hasattr(model, "predict_proba") else "predict"
    return getattr(model, method)(rows)


def objects():
    """Yield the name, an object that is not an estimator, and its output."""
    x, t = torch.from_numpy(X[TRAIN]), torch.from_numpy(X[TRAIN, :1])
    weights = [torch.eye(4, dtype=torch.float64)]
    for name, sums in {
        "sums-of-copies": Sums(Copies(weights), 1, dtype=torch.float64, folds=3),
        "sums-of-columns": Sums(Columns(4), 1, dtype=torch.float64),
        "ridge-statistics": RidgeStatistics(weights, 1, dtype=torch.float64),
    }.items():
        yield name, sums.update(x, t), sums.solve(0.1).weight.numpy()
    torch.manual_seed(0)
    network = mlp(4, 3, kind="ts-lrc", width=4, depth=2).eval()
    with torch.no_grad():
        yield "network", network, network(torch.from_numpy(X[TEST]).float()).numpy()


def frame():
    """Return a table with numbers, gaps, words and dates."""
    table = pd.DataFrame(X[TRAIN].round(1), columns=["a", "b", "size", "other"])
    table["size"] = table["size"].where(table["a"] > 4.7)
    table["word"] = np.where(table["b"] > 3, "wide", "narrow")
    table["day"] = pd.date_range("2026-01-01", periods=len(table), freq="11D")
    return table.assign(target=np.array(["x", "y", "z"])[Y[TRAIN]])


def predictor(folder):
    """Return what ``tensorswitch train`` keeps of a table."""
    path = folder / "table.csv"
    frame().to_csv(path, index=False)
    problem = load_problem(path, target="target")
    path.unlink()
    return train(problem, "rr", settings={"gates": 4})[0]


def main(folder):
    """Write all files."""
    folder.mkdir(parents=True, exist_ok=True)
    fitted_table = predictor(folder)
    outputs = fitted_table.predict(frame()).probabilities
    persistence.save(fitted_table, folder / "predictor.safetensors", outputs=outputs)
    for name, model, rows in fitted():
        estimators.save_estimator(
            model, folder / f"{name}.safetensors", rows=rows, outputs=outputs_of(model, rows)
        )
    for name, value, outputs in objects():
        persistence.save(value, folder / f"{name}.safetensors", outputs=outputs)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
