"""Measure the time column of table 1: how long methods take, relative to SS.

    [TENSORSWITCH_DATA=DIR] python -m benchmarks.paper_times

As in the experiments of the authors' program, networks of width 256 are averaged over depths 1 to 3
and 32 to 256 principal components, CNNs over layers above the convolutions, and SVMs over depths.
The methods of a configuration take turns on the same batches, and the best time of each counts; for
ridge regression, which is not made in batches, it is that of the whole fit against an epoch of SS
of depth 1. SVMs are fitted to ``SVM_ROWS`` rows. To be run alone on the machine. The averages are
written to ``docs/results/times.json``, from which ``make results`` takes them.
"""

from __future__ import annotations

import json
from collections import defaultdict
from functools import partial
from pathlib import Path
from statistics import mean
from typing import Any

import torch

from benchmarks._measure import describe, print_table, side_by_side
from reproduction import METHODS, Experiment, published, run
from reproduction.plans import COMPONENTS, DEPTHS, MLPS
from tensorswitch.datasets import Split, load
from tensorswitch.estimators import TSKernelSVC
from tensorswitch.models import cnn, mlp
from tensorswitch.training import Learner, Rows

RESULTS = Path(__file__).parents[1] / "docs" / "results" / "times.json"
DATA = ("mnist", "cifar10")
BATCH, BATCHES, SVM_ROWS, C = 128, 8, 5_000, 10.0
CNNS = ("cnn-ss", "cnn-ts-lrc")
SS = {**dict.fromkeys((*MLPS, "rr"), "ss"), **dict.fromkeys(CNNS, "cnn-ss")}
SS.update(dict.fromkeys(("svm-ss", "svm-ts"), "svm-ss"))

Times = dict[str, list[float]]  # of each method relative to SS, one number per configuration


def learners(names: tuple[str, ...], split: Split, **shape: Any) -> dict[str, Any]:
    """Return an epoch of ``BATCHES`` batches for each method."""
    rows = Rows.from_numpy(*(part[: BATCH * BATCHES] for part in (split.train, split.train_labels)))
    runs = {}
    for name in names:
        torch.manual_seed(0)
        kind = name.removeprefix("cnn-")
        if name in CNNS:
            network = cnn(split.train.shape[1], split.train.shape[2:], 10, kind=kind, **shape)
        else:
            network = mlp(split.train.shape[1], 10, kind=kind, **shape)
        runs[name] = partial(Learner(network, batch_size=BATCH).epoch, rows)
    return runs


def record(times: Times, seconds: dict[str, float]) -> None:
    for name, value in seconds.items():
        times[name].append(value / seconds[SS[name]])


def measure(data: str) -> Times:
    """Return the relative times of all methods on a data set."""
    times: Times = defaultdict(list)
    dataset = load(data)
    for components in COMPONENTS:
        split = dataset.protocol(components)
        for depth in DEPTHS:
            seconds = side_by_side(learners(MLPS, split, depth=depth), seconds=5)
            record(times, seconds)
            if depth == 1:
                epoch = seconds["ss"] * len(split.train) / (BATCH * BATCHES)
                ridge = run(Experiment(data=data, method="rr", components=components)).seconds
                record(times, {"ss": epoch, "rr": ridge})
            rows = slice(SVM_ROWS)
            svms: dict[str, Any] = {
                f"svm-{kind}": partial(
                    TSKernelSVC(kind, depth, C, normalize=True, bias=False).fit,
                    split.train[rows],
                    split.train_labels[rows],
                )
                for kind in ("ss", "ts")
            }
            record(times, side_by_side(svms, seconds=0, least=2))
        print(data, components, flush=True)
    images = dataset.protocol(None, flat=False)
    for depth in DEPTHS:
        record(times, side_by_side(learners(CNNS, images, depth=depth), seconds=10))
    return times


def main() -> None:
    found = {data: measure(data) for data in DATA}
    averages = {m: mean(t for data in DATA for t in found[data][m]) for m in published.ROWS}
    print(f"\n{describe()}, {torch.get_num_threads()} threads\n")
    table = [
        [
            METHODS[name],
            *(
                f"{mean(found[data][name]):.2f} ({min(found[data][name]):.2f}–"
                f"{max(found[data][name]):.2f})"
                for data in DATA
            ),
            f"{average:.1f}",
            f"{published.TIME[name]:.1f}",
        ]
        for name, average in averages.items()
    ]
    print_table(["method", *(f"{data} (range)" for data in DATA), "mean", "paper"], table)
    content = {"measured": describe(), "times": {m: round(t, 3) for m, t in averages.items()}}
    RESULTS.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
