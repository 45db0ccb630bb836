"""MNIST, CIFAR-10 and SVHN as the paper prepares them, read from ``$TENSORSWITCH_DATA``.

Expected there: ``mnist/*-ubyte.gz`` (IDX), ``cifar10/cifar-10-batches-bin/*.bin`` (the binary distribution), ``svhn/{train,test}_32x32.mat``.
"""

from __future__ import annotations

import gzip
import os
from pathlib import Path
from typing import NamedTuple

import numpy as np
import scipy.io

VALIDATION = 5000
FOLDER = Path(os.environ.get("TENSORSWITCH_DATA", "data"))


class Split(NamedTuple):
    """Rows of pixels in [0, 1] with the training mean subtracted, projected on the leading principal components if so asked."""

    train: np.ndarray
    train_labels: np.ndarray
    validation: np.ndarray
    validation_labels: np.ndarray
    test: np.ndarray
    test_labels: np.ndarray


def available() -> bool:
    return FOLDER.is_dir()


def load(name: str, components: int | None = None, seed: int = 0) -> Split:
    """Shuffle, keep the last 5,000 training images for validation, subtract the training mean, and project (PCA without whitening)."""
    folder = FOLDER / name
    if not folder.is_dir():
        raise SystemExit(f"{folder} is not there: put the data of {name} into it, or set TENSORSWITCH_DATA")
    images, labels, test, test_labels = {"mnist": _mnist, "cifar10": _cifar10, "svhn": _svhn}[name](folder)
    order = np.random.default_rng(seed).permutation(len(images))
    x = images[order].reshape(len(images), -1).astype(np.float32) / 255
    xt = test.reshape(len(test), -1).astype(np.float32) / 255
    y = labels[order]
    mean = x[:-VALIDATION].mean(0)
    x -= mean
    xt -= mean
    if components is not None:
        train = x[:-VALIDATION]
        _, vectors = np.linalg.eigh((train.T @ train).astype(np.float64))
        basis = np.ascontiguousarray(vectors[:, ::-1][:, :components].astype(np.float32))
        x, xt = x @ basis, xt @ basis
    return Split(x[:-VALIDATION], y[:-VALIDATION], x[-VALIDATION:], y[-VALIDATION:], xt, test_labels)


def _mnist(folder: Path) -> tuple[np.ndarray, ...]:
    def idx(name: str) -> np.ndarray:
        with gzip.open(folder / name) as file:
            raw = file.read()
        axes = raw[3]
        shape = np.frombuffer(raw, ">u4", axes, offset=4)
        return np.frombuffer(raw, np.uint8, offset=4 + 4 * axes).reshape(shape)

    images = [np.pad(idx(f"{part}-images-idx3-ubyte.gz"), ((0, 0), (2, 2), (2, 2))) for part in ("train", "t10k")]
    labels = [idx(f"{part}-labels-idx1-ubyte.gz") for part in ("train", "t10k")]
    return images[0], labels[0], images[1], labels[1]


def _cifar10(folder: Path) -> tuple[np.ndarray, ...]:
    def batches(*names: str) -> tuple[np.ndarray, np.ndarray]:
        raw = np.concatenate([np.fromfile(folder / "cifar-10-batches-bin" / f"{name}.bin", np.uint8) for name in names]).reshape(-1, 3073)
        return raw[:, 1:], raw[:, 0]

    return *batches(*(f"data_batch_{i}" for i in range(1, 6))), *batches("test_batch")


def _svhn(folder: Path) -> tuple[np.ndarray, ...]:
    parts = [scipy.io.loadmat(folder / f"{part}_32x32.mat") for part in ("train", "test")]
    images = [p["X"].transpose(3, 2, 0, 1) for p in parts]
    labels = [p["y"][:, 0] % 10 for p in parts]
    return images[0], labels[0], images[1], labels[1]
