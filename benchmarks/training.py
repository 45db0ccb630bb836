"""Compare training with a plain loop and naive layers, and measure errors after one pass.

    python -m benchmarks.training speed
    python -m benchmarks.training cnn
    [TENSORSWITCH_DATA=DIR] python -m benchmarks.training precision
    [TENSORSWITCH_DATA=DIR] python -m benchmarks.training errors

Naive layers build the expanded tensor and multiply; the plain loop indexes batches and calls an
unfused optimiser. For CNNs, the memory format that a learner chooses is compared with the default
one, and bfloat16 with float32, on one thread and on two. ``precision`` compares
validation errors on CIFAR-10 in bfloat16 with those of the records in float32. Errors on MNIST are
means over three seeds at width 256 on 256 principal components with the settings of the paper,
appended to ``benchmarks/results/training.md``.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from contextlib import suppress
from copy import deepcopy
from dataclasses import replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from benchmarks._measure import describe, print_table, side_by_side
from reproduction import METHODS, Experiment, published, records_in, run, with_fingerprints
from tensorswitch.datasets import load
from tensorswitch.models import cnn, mlp
from tensorswitch.training import Learner, Rows, train

RESULTS = Path(__file__).parent / "results" / "training.md"
RECORDS = Path(__file__).parent.parent / "docs" / "results" / "runs"
BATCH, STEPS = 128, 20
EPOCHS = 5  # of the comparison of precisions
SEEDS = (0, 1, 2)
CASES = [
    ("ss", 1),
    ("ss", 2),
    ("ss", 3),
    ("ts-lrc", 1),
    ("ts-lrc", 2),
    ("ts-ibp-lrc", 1),
    ("ts-ibp-lrc", 2),
]
HEADER = (
    "| method | depth | test error after one epoch, % (mean of 3, each) "
    "| paper's best of its grid, % | epoch s |\n" + "|---" * 5 + "|\n"
)


class NaiveLayer(nn.Module):
    """``flatten(h ⊗ x) W`` with autograd."""

    def __init__(self, n_in: int, gates: int, out: int) -> None:
        super().__init__()
        self.gate_weight = nn.Parameter(
            nn.init.xavier_uniform_(torch.empty(gates, n_in)), requires_grad=False
        )
        self.weight = nn.Parameter(nn.init.xavier_uniform_(torch.empty(gates * n_in, out)))

    def forward(self, x: Tensor) -> Tensor:
        h = (F.linear(x.detach(), self.gate_weight) > 0).to(x.dtype)
        return (h.unsqueeze(2) * x.unsqueeze(1)).flatten(1) @ self.weight


def plain_epoch(network: nn.Module, rows: Rows) -> Callable[[], None]:
    optimizer = torch.optim.SGD(
        [p for p in network.parameters() if p.requires_grad],
        lr=1e-3,
        momentum=0.9,
        weight_decay=1e-3,
    )

    def run() -> None:
        for batch in torch.randperm(len(rows.x)).split(BATCH):
            optimizer.zero_grad()
            F.cross_entropy(network(rows.x[batch]), rows.y[batch]).backward()
            optimizer.step()

    return run


def bare_steps(learner: Learner, rows: Rows) -> Callable[[], None]:
    """Return the same steps without shuffling, metrics and progress: the minimum of any loop."""

    def run() -> None:
        for start in range(0, len(rows.x), BATCH):
            learner.optimizer.zero_grad(set_to_none=True)
            F.cross_entropy(
                learner.network(rows.x[start : start + BATCH]), rows.y[start : start + BATCH]
            ).backward()
            learner.optimizer.step()

    return run


def speed() -> None:
    print(
        f"{describe()}; LRC, depth 2, n inputs, gates and outputs, batch {BATCH}, {STEPS} batches\n"
    )
    table = []
    for n in (64, 128, 256):
        torch.manual_seed(0)
        rows = Rows(torch.randn(STEPS * BATCH, n), torch.randint(0, 10, (STEPS * BATCH,)))
        learner = Learner(mlp(n, 10, kind="ts-lrc", depth=2, width=n), batch_size=BATCH)
        naive = nn.Sequential(NaiveLayer(n, n, n), NaiveLayer(n, n, 10))
        runs: dict[str, Callable[[], Any]] = {
            "ours": partial(learner.epoch, rows),
            "bare": bare_steps(learner, rows),
        }
        runs["plain"] = plain_epoch(naive, rows)
        times = side_by_side(runs, seconds=15, least=5)
        ours, plain = (f"{1000 * times[name] / STEPS:.2f}" for name in ("ours", "plain"))
        overhead, ratio = (
            f"{100 * (times['ours'] / times['bare'] - 1):.0f} %",
            f"{times['ours'] / times['plain']:.2f}",
        )
        table.append([str(n), ours, plain, ratio, overhead])
    print_table(
        ["n", "ours, ms per batch", "plain loop, naive layer, ms", "ratio", "overhead of the loop"],
        table,
    )


def convolutional() -> None:
    """Time two CNNs of the paper on images of CIFAR-10's size."""
    batches = -(-45_000 // BATCH)
    print(f"{describe()}; 32 × 32 × 3 images, batch {BATCH}; epochs of {batches} batches\n")
    torch.manual_seed(0)
    rows = Rows(torch.randn(2 * BATCH, 3, 32, 32), torch.randint(0, 10, (2 * BATCH,)))
    table = []
    shapes = [((1, 1, 1), 3), ((1, 2, 2), 2)]
    for (convolutions, depth), threads, kind in product(shapes, (1, 2), ("ss", "ts-lrc")):
        torch.set_num_threads(threads)
        network = cnn(3, 32, 10, kind=kind, convolutions=convolutions, depth=depth)
        # A learner leaves the format of networks alone that this package has not built.
        learners = {
            "ours": Learner(network),
            "default": Learner(nn.Sequential(*deepcopy(network).children())),
        }
        with suppress(ValueError):  # not all machines multiply in bfloat16
            learners["bf16"] = Learner(deepcopy(network), precision="bf16")
        runs: dict[str, Callable[[], Any]] = {
            name: partial(learner.epoch, rows) for name, learner in learners.items()
        }
        steps = {
            name: 1000 * best / 2
            for name, best in side_by_side(runs, seconds=15).items()  # two batches
        }
        table.append(
            [
                f"{sum(convolutions)}+{depth}",
                str(threads),
                kind,
                f"{steps['ours']:.0f}",
                f"{batches * steps['ours'] / 1000:.0f}",
                f"{steps['ours'] / steps['default']:.2f}",
                f"{steps['bf16'] / steps['ours']:.2f}" if "bf16" in steps else "",
            ]
        )
    header = ["depth", "threads", "kind", "ms per batch", "epoch, s"]
    print_table([*header, "of the default format", "bfloat16, of float32"], table)


def precision() -> None:
    """Train the smallest CNNs of the paper in bfloat16, as the records in docs/results."""
    print(f"{describe()}; CIFAR-10, CNN 3+1, seed 0; validation error in percent\n")
    records = {r.experiment.name: r for r in records_in(RECORDS)}
    header, curves = ["epoch"], []
    for method in ("cnn-ss", "cnn-ts-lrc"):
        (long,) = with_fingerprints([Experiment(data="cifar10", method=method, epochs=100)])
        full = records[long.name].result
        assert full is not None
        half = run(replace(long, epochs=EPOCHS, precision="bf16"))
        header += [f"{METHODS[method]}, float32", "bfloat16"]
        curves += [full.epochs[:EPOCHS], half.epochs]
    rows = zip(*([f"{100 * e['validation_error']:.1f}" for e in c] for c in curves), strict=True)
    print_table(header, [[str(n), *row] for n, row in enumerate(rows, 1)])


def errors() -> None:
    split = load("mnist").protocol(256)
    rows, test = (
        Rows.from_numpy(x, y)
        for x, y in ((split.train, split.train_labels), (split.test, split.test_labels))
    )
    if not RESULTS.exists():
        RESULTS.write_text(
            "Made by `python -m benchmarks.training errors` on MNIST, 256 principal components, "
            f"width 256; {describe()}.\n\n{HEADER}"
        )
    for kind, depth in CASES:
        start = f"| {kind} | {depth} |"
        if start in RESULTS.read_text():
            continue
        found, seconds = [], []
        for seed in SEEDS:
            torch.manual_seed(seed)
            learner = Learner(mlp(256, 10, kind=kind, depth=depth, width=256), seed=seed)
            before = time.perf_counter()
            found.append(100 * train(learner, rows, epochs=1, test=test).epochs[0].test_error)
            seconds.append(time.perf_counter() - before)
        each = ", ".join(f"{e:.2f}" for e in found)
        paper = published.ONE_PASS[kind]["mnist"].error
        row = f"{start} {np.mean(found):.2f} ({each}) | {paper:.1f} | {min(seconds):.1f} |\n"
        with RESULTS.open("a") as file:
            file.write(row)
        print(row, end="", flush=True)


if __name__ == "__main__":
    {"speed": speed, "cnn": convolutional, "precision": precision, "errors": errors}[
        sys.argv[1] if len(sys.argv) > 1 else "speed"
    ]()
