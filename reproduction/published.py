"""Table 1 of the paper (Tsai, Saxe and Cox, NIPS 2016).

Errors are in percent, with the depth of the best model. Times are relative to the SS model.
"""

from __future__ import annotations

from typing import NamedTuple


class Cell(NamedTuple):
    """A published error, and the depth of the model (of a CNN: convolutions + layers above)."""

    error: float
    depth: str


DATA = ("mnist", "cifar10", "svhn")
ROWS = ("svm-ss", "svm-ts", "ss", "rr", "ts-lrc", "ts-ibp-lrc", "cnn-ss", "cnn-ts-lrc")
ONE_PASS = {
    "ss": {"mnist": Cell(16.34, "2"), "cifar10": Cell(66.41, "1"), "svhn": Cell(30.24, "3")},
    "rr": {"mnist": Cell(2.99, "1"), "cifar10": Cell(47.71, "1"), "svhn": Cell(27.11, "1")},
    "ts-lrc": {"mnist": Cell(3.33, "2"), "cifar10": Cell(55.69, "1"), "svhn": Cell(20.42, "2")},
    "ts-ibp-lrc": {"mnist": Cell(3.33, "1"), "cifar10": Cell(55.69, "1"), "svhn": Cell(20.20, "2")},
    "cnn-ss": {
        "mnist": Cell(43.74, "3+1"),
        "cifar10": Cell(74.84, "3+3"),
        "svhn": Cell(13.69, "7+1"),
    },
    "cnn-ts-lrc": {
        "mnist": Cell(3.85, "5+3"),
        "cifar10": Cell(54.40, "3+3"),
        "svhn": Cell(9.13, "7+3"),
    },
}
ASYMPTOTIC = {
    "svm-ss": {"mnist": Cell(1.40, "5"), "cifar10": Cell(43.18, "7"), "svhn": Cell(21.60, "1")},
    "svm-ts": {"mnist": Cell(1.40, "3"), "cifar10": Cell(43.60, "2"), "svhn": Cell(20.38, "1")},
    "ss": {"mnist": Cell(2.36, "3"), "cifar10": Cell(46.91, "2"), "svhn": Cell(12.20, "3")},
    "ts-lrc": {"mnist": Cell(2.06, "2"), "cifar10": Cell(46.87, "2"), "svhn": Cell(12.58, "3")},
    "ts-ibp-lrc": {"mnist": Cell(2.33, "1"), "cifar10": Cell(45.86, "2"), "svhn": Cell(12.63, "3")},
    "cnn-ss": {
        "mnist": Cell(1.08, "4+2"),
        "cifar10": Cell(26.73, "5+2"),
        "svhn": Cell(4.96, "6+1"),
    },
    "cnn-ts-lrc": {
        "mnist": Cell(0.86, "6+2"),
        "cifar10": Cell(25.74, "8+3"),
        "svhn": Cell(5.06, "6+3"),
    },
}
TIME = {
    "svm-ss": 1.0,
    "svm-ts": 2.1,
    "ss": 1.0,
    "rr": 156.2,
    "ts-lrc": 11.7,
    "ts-ibp-lrc": 17.4,
    "cnn-ss": 1.0,
    "cnn-ts-lrc": 2.0,
}
EPOCHS = {"mnist": 100, "cifar10": 100, "svhn": 20}
SEEN_WITH_EXTRA = "svhn"  # the paper's networks were trained on its extra images, too
