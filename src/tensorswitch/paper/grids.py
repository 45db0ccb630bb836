"""Which experiments a table or figure is made of, at three scales.

smoke   a minute on the embedded digits: everything once, too small to mean anything
small   what two cores can do in a few hours: one pass over the grid, and long runs of the best configurations
full    the paper's whole grid
"""

from __future__ import annotations

from itertools import product
from typing import Any, NamedTuple

from tensorswitch.experiments.experiment import Experiment
from tensorswitch.paper.published import EPOCHS

__all__ = ["SCALES", "Plan", "plan"]

SCALES = ("smoke", "small", "full")
COMPONENTS, DEPTHS, MLPS = (32, 64, 128, 256), (1, 2, 3), ("ss", "ts-lrc", "ts-ibp-lrc")
DIGITS: dict[str, Any] = {
    "data": "digits",
    "lr": 1e-2,
    "batch_size": 32,
}  # few rows need larger steps
# Components, depth and C: the paper's best depth, the others found by `benchmarks/svm.py` on 20,000 rows.
SVMS = {
    ("mnist", "svm-ss"): (64, 5, 10.0),
    ("mnist", "svm-ts"): (64, 3, 10.0),
    ("cifar10", "svm-ss"): (128, 7, 100.0),
    ("cifar10", "svm-ts"): (128, 2, 100.0),
    ("svhn", "svm-ss"): (64, 1, 100.0),
    ("svhn", "svm-ts"): (64, 1, 100.0),
}
# Depth and components of the long runs: good ones after one pass at depths 1 and 2, and at depth 2 no more components than two cores can afford,
# because the weights of a second LRC layer, 256 · components · 256, are what an epoch costs.
LONG = {
    ("mnist", "ss"): [(3, 256)],
    ("mnist", "ts-lrc"): [(1, 256), (2, 64)],
    ("mnist", "ts-ibp-lrc"): [(1, 256), (2, 64)],
    ("cifar10", "ss"): [(2, 256)],
    ("cifar10", "ts-lrc"): [(1, 256), (2, 64), (2, 128)],
    ("cifar10", "ts-ibp-lrc"): [(1, 256), (2, 128)],
    ("svhn", "ss"): [(3, 256)],
    ("svhn", "ts-lrc"): [(1, 256), (2, 128)],
    ("svhn", "ts-ibp-lrc"): [(1, 256), (2, 128)],
}
# Convolutions in each block, layers above, epochs.
PAIRS = {"mnist": [((1, 1, 1), 1, 5), ((1, 2, 2), 3, 1)], "cifar10": [((1, 1, 1), 3, 5)]}


class Plan(NamedTuple):
    experiments: list[Experiment]
    left_out: list[str]  # of what the paper has, in words


def plan(what: str, scale: str) -> Plan:
    """The experiments of "table1", "figure4" or "figure5"."""
    plans = {"table1": _table1, "figure4": _figure4, "figure5": _figure5}
    if what not in plans:
        raise ValueError(f"there are experiments for {', '.join(plans)}; got {what!r}")
    if scale not in SCALES:
        raise ValueError(f"scale must be one of {', '.join(SCALES)}; got {scale!r}")
    return plans[what](scale)


def _table1(scale: str) -> Plan:
    if scale == "smoke":
        experiments = [
            Experiment(data="digits", method=m, depths=(1, 2), Cs=(10.0, 100.0))
            for m in ("svm-ss", "svm-ts")
        ]
        experiments += [Experiment(data="digits", method="rr", width=32)]
        experiments += [
            Experiment(method=m, depth=d, width=32, epochs=3, **DIGITS)
            for m, d in product(MLPS, (1, 2))
        ]
        return Plan(
            experiments + _digit_pairs(),
            [
                "the paper's data sets: this is the embedded digits, with networks of 32 units and 3 epochs"
            ],
        )
    if scale == "small":
        experiments = _ridge() + _one_pass("mnist", seeds=3)
        experiments += [e for data in EPOCHS for e in _long(data, "ss")]
        experiments += (
            _figure4("small", with_one_pass=True).experiments
            + _one_pass("cifar10", seeds=1)
            + _one_pass("svhn", seeds=1)
        )
        experiments += [
            e
            for data, method in product(EPOCHS, ("ts-lrc", "ts-ibp-lrc"))
            for e in _long(data, method)
        ] + _svms()
        return Plan(
            experiments,
            [
                "SVHN's extra training images, which the paper's networks learned from",
                "long runs of all but one to three configurations of each network",
                "CNNs but for three pairs, two of them on MNIST, trained for 5 epochs and for 1 instead of 100, and one on CIFAR-10, for 5",
                "SVMs but for one setting of each kernel: the paper's best depth, components and C found on 20,000 rows",
            ],
        )
    svms = [
        Experiment(
            data=d,
            method=m,
            components=c,
            depths=tuple(range(1, 11)),
            Cs=(1.0, 10.0, 100.0, 1000.0),
        )
        for d, m, c in product(EPOCHS, ("svm-ss", "svm-ts"), (*COMPONENTS, None))
    ]
    ridge = [
        Experiment(data=d, method="rr", components=c, extra=d == "svhn")
        for d, c in product(EPOCHS, COMPONENTS)
    ]
    mlps = [
        Experiment(data=d, method=m, depth=n, components=c, epochs=EPOCHS[d], extra=d == "svhn")
        for d, m, n, c in product(EPOCHS, MLPS, DEPTHS, COMPONENTS)
    ]
    return Plan(svms + ridge + mlps + _figure4("full").experiments, [])


def _figure4(scale: str, with_one_pass: bool = False) -> Plan:
    """Pairs of SS and TS CNNs that differ in nothing else."""
    if scale == "smoke":
        return Plan(_digit_pairs(), ["all but two pairs of small networks on the embedded digits"])
    if scale == "small":
        experiments = [
            Experiment(data=d, method=m, convolutions=c, depth=n, epochs=e)
            for d, pairs in PAIRS.items()
            for (c, n, e), m in product(pairs, ("cnn-ss", "cnn-ts-lrc"))
            if e > 1 or with_one_pass
        ]
        return Plan(
            experiments, ["all but two pairs, which are trained for 5 epochs instead of 100; SVHN"]
        )
    experiments = [
        Experiment(data=d, method=m, convolutions=c, depth=n, epochs=EPOCHS[d], extra=d == "svhn")
        for d, c, n, m in product(
            EPOCHS, product((1, 2, 3), repeat=3), DEPTHS, ("cnn-ss", "cnn-ts-lrc")
        )
    ]
    return Plan(experiments, [])


def _figure5(scale: str) -> Plan:
    """One hidden layer of 16 units on pixels, by backpropagation and by inverted backpropagation."""
    if scale == "smoke":
        return Plan(
            [Experiment(method=m, width=16, epochs=10, **DIGITS) for m in ("ss", "ts-ibp")],
            ["the paper's data sets: this is the digits"],
        )
    epochs = {"mnist": 200, "cifar10": 200, "svhn": 40}
    experiments = [
        Experiment(data=d, method=m, width=16, epochs=e, extra=scale == "full" and d == "svhn")
        for d, e in epochs.items()
        for m in ("ss", "ts-ibp")
    ]
    left_out = [] if scale == "full" else ["SVHN's extra training images"]
    return Plan(experiments, left_out)


def _ridge() -> list[Experiment]:
    return [Experiment(data=d, method="rr", components=c) for d, c in product(EPOCHS, COMPONENTS)]


def _one_pass(data: str, seeds: int) -> list[Experiment]:
    return [
        Experiment(data=data, method=m, depth=n, components=c, seed=s)
        for s, c, n, m in product(range(seeds), COMPONENTS, DEPTHS, MLPS)
    ]


def _long(data: str, method: str) -> list[Experiment]:
    return [
        Experiment(data=data, method=method, depth=n, components=c, epochs=EPOCHS[data])
        for n, c in LONG[data, method]
    ]


def _svms() -> list[Experiment]:
    return [
        Experiment(data=d, method=m, components=c, depths=(n,), Cs=(penalty,))
        for (d, m), (c, n, penalty) in SVMS.items()
    ]


def _digit_pairs() -> list[Experiment]:
    shape: dict[str, Any] = {"convolutions": (1, 1), "channels": (8, 16), "width": 32, "epochs": 3}
    return [
        Experiment(method=m, depth=n, **shape, **DIGITS)
        for n, m in product((1, 2), ("cnn-ss", "cnn-ts-lrc"))
    ]
