"""Many features: sums and a factorisation, or rows in half precision and conjugate gradients.

    TENSORSWITCH_DATA=DIR python -m benchmarks.many_features [--data cifar10] [--rows 10000]
                                                             [--features 4096,8192,16384,49152]

Patch features of the first images of the training set are read out with a path of four penalties,
of which one is chosen on images left out. Seconds are those of the sums or of the rows and of the
solution, without the features. The error is that on the last 5,000 training images. Beyond 20,000
features only conjugate gradients are run. Each row is measured in a process of its own.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from benchmarks._measure import describe, in_a_process_of_its_own, peak_resident_bytes, print_table
from tensorswitch.data import load
from tensorswitch.features import as_images, learn_patch_bank
from tensorswitch.linear import Columns, Solution, StoredRows, Sums, fold_of_rows

ALPHAS = ("0.3 mean", "0.1 mean", "0.03 mean", "0.01 mean")
FOLDS = 5
HELD, CHUNK, LEARNED, MOST_SUMMED = 5_000, 256, 5_000, 20_000
HEADER = ["features", "solver", "iterations", "λ / mean", "error, %", "s", "s with features", "GB"]


def measure(data: str, count: int, features: int, solver: str) -> list[str]:
    """Return a row of the table."""
    start = time.perf_counter()
    content = load(data)
    images, labels = as_images(content.train_images), np.asarray(content.train_labels)
    generator = torch.Generator().manual_seed(0)
    bank = learn_patch_bank(images[:LEARNED], features=features, generator=generator)
    with torch.no_grad():
        sample = bank(images[:2_000])
    centre, factor = sample.mean(0), 1 / (sample.std(0) + 0.01 * sample.std())
    targets = 2 * torch.nn.functional.one_hot(torch.from_numpy(labels.astype(np.int64))).float() - 1

    def chunks(first: int, last: int) -> Iterator[tuple[slice, Tensor]]:
        for begin in range(first, last, CHUNK):
            part = slice(begin, min(begin + CHUNK, last))
            with torch.no_grad():
                yield part, (bank(images[part]) - centre) * factor

    spent = 0.0
    out, width = targets.shape[1], bank.out_features
    sums = Sums(Columns(width), out, folds=FOLDS, held_out=True) if solver == "sums" else None
    rows = StoredRows(count, width, out) if solver == "rows" else None
    for part, z in chunks(0, count):
        before = time.perf_counter()
        pixels = images[part].flatten(1)
        if sums is not None:
            sums.update(z, targets[part], None, fold_of_rows(pixels, FOLDS))
        elif rows is not None:
            hashed = Columns(pixels.shape[1])
            rows.append(z, targets[part], None, hashed.hashes(hashed.rows(pixels)))
        spent += time.perf_counter() - before
    before = time.perf_counter()
    if sums is not None:
        solution = sums.solve(ALPHAS, fit_intercept=True)
    elif rows is not None:
        solution, _ = rows.solve(ALPHAS, fit_intercept=True)
    spent += time.perf_counter() - before
    total = time.perf_counter() - start
    wrong = _wrong(chunks(len(images) - HELD, len(images)), solution, labels)
    ratio = solution.alpha / max(value for value, _ in solution.path) * 0.3
    cells = [f"{width:,}", solver, str(solution.iterations), f"{ratio:.2g}"]
    cells += [f"{100 * wrong / HELD:.2f}", f"{spent:.0f}", f"{total:.0f}"]
    return [*cells, f"{peak_resident_bytes() / 1e9:.1f}"]


def _wrong(chunks: Iterator[tuple[slice, Tensor]], solution: Solution, labels: np.ndarray) -> int:
    assert solution.intercept is not None
    wrong = 0
    for part, z in chunks:
        outputs = z @ solution.weight + solution.intercept.to(z)
        wrong += int((outputs.argmax(1).numpy() != labels[part]).sum())
    return wrong


def main() -> None:
    """Print a row for each number of features and solver."""
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--data", default="cifar10")
    parser.add_argument("--rows", type=int, default=10_000)
    parser.add_argument("--features", default="4096,8192,16384,49152")
    arguments = parser.parse_args()
    print(f"{describe()}; {arguments.data}, {arguments.rows:,} images, seed 0\n")
    table = []
    for features in map(int, arguments.features.split(",")):
        for solver in ("sums", "rows") if features <= MOST_SUMMED else ("rows",):
            table.append(
                in_a_process_of_its_own(measure, arguments.data, arguments.rows, features, solver)
            )
            print(*table[-1], flush=True)
    print()
    print_table(HEADER, table)


if __name__ == "__main__":
    main()
