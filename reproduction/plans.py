"""Define the experiments of every table and figure at three scales.

smoke
    Everything once on the digits of scikit-learn, in a minute; too small to be meaningful.
small
    One pass over the grid and long runs of the best configurations, in hours on two cores.
full
    The whole grid of the paper.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import Any, NamedTuple

from reproduction.experiment import Experiment
from reproduction.published import EPOCHS
from reproduction.table1 import TITLES

SCALES = ("smoke", "small", "full")
COMPONENTS, DEPTHS, MLPS = (32, 64, 128, 256), (1, 2, 3), ("ss", "ts-lrc", "ts-ibp-lrc")
DIGITS: dict[str, Any] = {"data": "digits", "lr": 1e-2, "batch_size": 32}
# Depth and C. The depth is the paper's best; benchmarks/svm.py chose C on 20,000 rows (MNIST: 10).
SVMS = {
    ("mnist", "svm-ss"): (5, 10.0),
    ("mnist", "svm-ts"): (3, 10.0),
    ("cifar10", "svm-ss"): (7, 100.0),
    ("cifar10", "svm-ts"): (2, 100.0),
    ("svhn", "svm-ss"): (1, 100.0),
    ("svhn", "svm-ts"): (1, 100.0),
}
# Depth and components of the long runs: configurations that are good after one pass. At depth 2 the
# components are mostly limited, because the cost of an epoch grows with the weights of the first
# LRC layer, 256 · components · 256.
LONG = {
    ("mnist", "ss"): [(3, 256)],
    ("mnist", "ts-lrc"): [(1, 256), (2, 64)],
    ("mnist", "ts-ibp-lrc"): [(1, 256), (2, 64)],
    ("cifar10", "ss"): [(2, 256)],
    ("cifar10", "ts-lrc"): [(1, 256), (2, 64), (2, 128), (2, 256)],
    ("cifar10", "ts-ibp-lrc"): [(1, 256), (2, 128), (2, 256)],
    ("svhn", "ss"): [(3, 256)],
    ("svhn", "ts-lrc"): [(1, 256), (2, 128)],
    ("svhn", "ts-ibp-lrc"): [(1, 256), (2, 128)],
}
# Convolutions per block, layers above them, epochs, precision.
PAIRS: dict[str, list[tuple[tuple[int, ...], int, int, str | None]]] = {
    "mnist": [
        ((1, 1, 1), 1, 100, None),
        ((1, 1, 2), 2, 100, "bf16"),
        ((2, 2, 2), 2, 100, "bf16"),
        ((1, 2, 2), 3, 1, None),
    ],
    "cifar10": [
        ((1, 1, 1), 1, 100, None),
        ((1, 1, 1), 3, 100, "bf16"),
        ((1, 2, 2), 2, 100, "bf16"),
    ],
    "svhn": [((1, 1, 1), 1, 20, "bf16"), ((1, 1, 1), 2, 20, "bf16")],
}
SEEDS = {"mnist": 3, "cifar10": 3, "svhn": 1}  # of errors after one pass


class Plan(NamedTuple):
    """Experiments of a table or figure, and what the paper has beyond them."""

    experiments: list[Experiment]
    left_out: list[str]


def plan(what: str, scale: str) -> Plan:
    """Return the experiments of a table or figure, "table1", "figure4" or "figure5"."""
    plans = {"table1": _table1, "figure4": _figure4, "figure5": _figure5}
    if what not in plans:
        raise ValueError(f"experiments are defined for {', '.join(plans)}; got {what!r}")
    if scale not in SCALES:
        raise ValueError(f"scale must be one of {', '.join(SCALES)}; got {scale!r}")
    found = plans[what](scale)
    if scale != "small" or what == "figure5":
        return found
    # These have been run with 5,000 validation images at random, not the last ones.
    return found._replace(experiments=[replace(e, shuffle=True) for e in found.experiments])


def _table1(scale: str) -> Plan:
    """Return the experiments of table 1."""
    return {"smoke": _smoke_table1, "small": _small_table1, "full": _full_table1}[scale]()


def _smoke_table1() -> Plan:
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
            "the paper's data sets: these are the digits of scikit-learn, "
            "with networks of 32 units trained for 3 epochs"
        ],
    )


def _small_table1() -> Plan:
    experiments = _ridge() + _one_pass("mnist")
    experiments += [e for data in EPOCHS for e in _long(data, "ss")]
    experiments += _figure4("small").experiments
    experiments += _one_pass("cifar10") + _one_pass("svhn")
    experiments += [
        e for data, method in product(EPOCHS, ("ts-lrc", "ts-ibp-lrc")) for e in _long(data, method)
    ] + _svms()
    return Plan(
        experiments,
        [
            "SVHN's extra training images, on which the paper's networks were trained",
            "long runs of all but one to four configurations of each network",
            _other_cnns(),
            "all SVMs but those of the paper's best depth, with one C of 10 or 100 and C = 1,000",
        ],
    )


def _full_table1() -> Plan:
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


def _figure4(scale: str) -> Plan:
    """Return pairs of SS and TS CNNs with otherwise equal settings."""
    if scale == "smoke":
        return Plan(
            _digit_pairs(), ["all but two pairs of small networks, on the digits of scikit-learn"]
        )
    if scale == "small":
        experiments = [
            Experiment(data=d, method=m, convolutions=c, depth=n, epochs=e, seed=s, precision=p)
            for d, pairs in PAIRS.items()
            for c, n, epochs, p in pairs
            for s, e in ((0, epochs), *((s, 1) for s in range(1, SEEDS[d])))
            for m in ("cnn-ss", "cnn-ts-lrc")
        ]
        return Plan(experiments, [_other_cnns()])
    experiments = [
        Experiment(data=d, method=m, convolutions=c, depth=n, epochs=EPOCHS[d], extra=d == "svhn")
        for d, c, n, m in product(
            EPOCHS, product((1, 2, 3), repeat=3), DEPTHS, ("cnn-ss", "cnn-ts-lrc")
        )
    ]
    return Plan(experiments, [])


def _other_cnns() -> str:
    """Describe the CNNs of the paper that are not among the pairs."""
    pairs = [
        f"{TITLES[d]} {sum(c)}+{n}" + (f" ({epochs})" if epochs < EPOCHS[d] else "")
        for d, several in PAIRS.items()
        for c, n, epochs, _ in several
    ]
    return f"all CNNs but {', '.join(pairs)} (with the epochs if there are fewer than in the paper)"


def _figure5(scale: str) -> Plan:
    """Return networks of 16 hidden units on pixels, with and without inverted backpropagation."""
    if scale == "smoke":
        return Plan(
            [Experiment(method=m, width=16, epochs=10, **DIGITS) for m in ("ss", "ts-ibp")],
            ["the paper's data sets: these are the digits of scikit-learn"],
        )
    epochs = {"mnist": 200, "cifar10": 200, "svhn": 40}
    experiments = [
        Experiment(
            data=d,
            method=m,
            width=16,
            epochs=e,
            image_filters=True,
            extra=scale == "full" and d == "svhn",
        )
        for d, e in epochs.items()
        for m in ("ss", "ts-ibp")
    ]
    left_out = [] if scale == "full" else ["SVHN's extra training images"]
    return Plan(experiments, left_out)


def _ridge() -> list[Experiment]:
    """Return ridge regressions on all data sets."""
    return [
        Experiment(data=d, method="rr", components=c, seed=s)
        for d, count in SEEDS.items()
        for s, c in product(range(count), COMPONENTS)
    ]


def _one_pass(data: str) -> list[Experiment]:
    """Return the grid of MLPs for one epoch."""
    return [
        Experiment(data=data, method=m, depth=n, components=c, seed=s)
        for s, c, n, m in product(range(SEEDS[data]), COMPONENTS, DEPTHS, MLPS)
    ]


def _long(data: str, method: str) -> list[Experiment]:
    """Return the long runs of a method."""
    return [
        Experiment(data=data, method=method, depth=n, components=c, epochs=EPOCHS[data])
        for n, c in LONG[data, method]
    ]


def _svms() -> list[Experiment]:
    """Return SVMs of the paper's best depth and all inputs, with a chosen C and the largest."""
    return [
        Experiment(data=d, method=m, components=c, depths=(n,), Cs=(penalty,))
        for (d, m), (n, C) in SVMS.items()
        for penalty, c in product((C, 1000.0), (*COMPONENTS, None))
    ]


def _digit_pairs() -> list[Experiment]:
    """Return pairs of small CNNs on the digits."""
    shape: dict[str, Any] = {"convolutions": (1, 1), "channels": (8, 16), "width": 32, "epochs": 3}
    return [
        Experiment(method=m, depth=n, **shape, **DIGITS)
        for n, m in product((1, 2), ("cnn-ss", "cnn-ts-lrc"))
    ]
