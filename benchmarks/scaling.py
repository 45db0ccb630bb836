"""One pass past one machine: what images, features and workers cost, measured and extrapolated.

    TENSORSWITCH_DATA=DIR python -m benchmarks.scaling [--images 2000] [--gigabits 10] [--quick]

Measures seconds of features, sums and solution on one core as functions of the number of features
p, fits ``(a₀ + a₁ p) n + b n p² + c p³``, and checks it by runs of one and of two processes. Checks
that workers that die change nothing, and simulates what they cost. Writes the planning tables to
`results/scaling.md`. Images are those of CIFAR-10, or random ones of the same size without it.
"""

from __future__ import annotations

import argparse
import multiprocessing
import tempfile
import time
import timeit
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, distributed

from benchmarks._failures import run_tree
from benchmarks._measure import describe
from benchmarks._planning import OUTPUTS, Model, crossings, markdown, planned, sum_bytes
from tensorswitch.data import load
from tensorswitch.datasets import DataError
from tensorswitch.estimators import TSConvRidgeClassifier
from tensorswitch.estimators._conv_ridge import ALPHAS
from tensorswitch.features import as_images, learn_patch_bank
from tensorswitch.linear import Columns, Sums

RESULTS = Path(__file__).parent / "results" / "scaling.md"
SIZES = (1024, 2048, 4096, 8192)
KEPT = {"folds": 5, "held_out": True}  # two sums, as TSConvRidgeClassifier keeps them
CHECKED = 2048  # features of the run with processes
HELD = 2_000  # rows of a worker whose features are made twice: they calibrate probabilities


def pictures(count: int) -> tuple[np.ndarray, np.ndarray, str]:
    """Return images, labels and where they come from."""
    try:
        data = load("cifar10")
        return data.train_images[:count], data.train_labels[:count], "CIFAR-10"
    except DataError:
        rng = np.random.default_rng(0)
        images = rng.integers(0, 256, (count, 3, 32, 32), dtype=np.uint8)
        return images, rng.integers(0, OUTPUTS, count), "random images of 32 × 32"


def seconds(work: Callable[[], Any], turns: int = 3) -> float:
    """Return the least time of a few turns, of the processor: other jobs do not count."""
    return min(timeit.repeat(work, timer=time.process_time, number=1, repeat=turns))


def measure(p: int, images: Tensor, labels: np.ndarray) -> dict[str, float]:
    """Return seconds per image of features and sums, and seconds of solutions and of a merge."""
    bank = learn_patch_bank(images[:1000], features=p)
    with torch.no_grad():
        z = torch.cat([bank(part) for part in images.split(256)])
        first = images[:256]
        features = seconds(lambda: bank(first)) / len(first)
    found = z.shape[1]
    z = (z - z.mean(0)) / z.std(0).clamp(min=1e-6)
    targets = torch.eye(OUTPUTS)[torch.from_numpy(np.asarray(labels, dtype=np.int64))]
    fold = torch.arange(len(z)) % 5
    sums = Sums(Columns(found), OUTPUTS, **KEPT)  # type: ignore[arg-type]
    update = seconds(lambda: sums.update(z, targets, None, fold)) / len(z)
    one = seconds(lambda: sums.solve("0.1 mean", fit_intercept=True))
    path = seconds(lambda: sums.solve(ALPHAS, fit_intercept=True), 2)
    v = torch.randn(found, OUTPUTS)
    other = sums.copy()
    return {
        "p": found,
        "features": features,
        "sums": update,
        "solve": one,
        "path": path,
        "iteration": seconds(lambda: z.t() @ (z @ v)) / z.numel(),
        "merge": seconds(lambda: sums.merge(other)) / sum_bytes(found),
    }


def fitted(rows: list[dict[str, float]]) -> Model:
    """Fit the model by least squares, in which large numbers of features count most."""
    p = np.array([row["p"] for row in rows])

    def fit(name: str, *columns: np.ndarray) -> np.ndarray:
        y = np.array([row[name] for row in rows])
        return np.linalg.lstsq(np.stack(columns, 1), y)[0]

    fixed, per_feature = fit("features", np.ones_like(p), p)
    (product,), (cube,) = fit("sums", p**2), fit("path", p**3)
    medians = (float(np.median([r[name] for r in rows])) for name in ("iteration", "merge"))
    return Model(fixed, per_feature, product, cube, *medians)


class Turn(NamedTuple):
    """What a rank did: seconds of the processor and of the clock for its rows, and to merge."""

    busy: float
    summing: float
    merging: float
    outputs: np.ndarray


def of_rank(rank: int, ranks: int, folder: str, count: int) -> Turn:
    """Learn a share of the images in a process, and merge."""
    torch.set_num_threads(1)
    images, labels, _ = pictures(count)
    model = TSConvRidgeClassifier(CHECKED, grid=2, flips=False, sizes=(4, 6, 10))
    model.fit(images[:500], labels[:500])
    model = model.without_rows()
    distributed.init_process_group("gloo", f"file://{folder}/ranks", rank=rank, world_size=ranks)
    try:
        distributed.barrier()
        start, before = time.perf_counter(), time.process_time()
        model.partial_fit(images[rank::ranks], labels[rank::ranks])
        middle, busy = time.perf_counter(), time.process_time() - before
        distributed.barrier()
        together = time.perf_counter()
        model.all_reduce()
        end = time.perf_counter()
    finally:
        distributed.destroy_process_group()
    return Turn(busy, middle - start, end - together, model.decision_function(images[:200]))


def check_processes(count: int, model: Model) -> str:
    """Run one and two processes; return their times beside those of the model."""
    spawn = multiprocessing.get_context("spawn")
    cells, outputs = [], []
    for ranks in (1, 2):
        each = count // ranks
        twice = min(each, HELD)
        expected = (each + twice) * model.features(CHECKED) + each * model.sums(CHECKED)
        with (
            tempfile.TemporaryDirectory() as folder,
            ProcessPoolExecutor(ranks, mp_context=spawn) as executor,
        ):
            jobs = [executor.submit(of_rank, r, ranks, folder, count) for r in range(ranks)]
            turns = [job.result() for job in jobs]
        outputs.append(turns[0].outputs)
        slowest = (max(t.busy for t in turns), expected, max(t.summing for t in turns))
        times = [f"{value:.2f}" for value in slowest]
        cells.append([str(ranks), *times, f"{max(t.merging for t in turns):.3f}"])
    far = float(np.abs(outputs[0] - outputs[1]).max())
    header = ["processes", "features and sums, s", "model, s", "by the clock, s", "all_reduce, s"]
    text = f"{count:,} images, {CHECKED:,} features, one thread each; seconds of the slower one. "
    return text + f"Outputs differ by {far:.0e}.\n\n" + markdown(header, cells)


def same_after_deaths() -> list[list[str]]:
    """Compare sums of a tree with deaths to those without: integers, so that they must be equal."""
    generator = torch.Generator().manual_seed(0)
    z = torch.randint(-9, 10, (2000, 48), generator=generator).double()
    targets = torch.randint(-9, 10, (2000, 2), generator=generator).double()
    whole = Sums(Columns(48), 2, dtype=torch.float64).update(z, targets)
    rows = []
    for death in (0.0, 0.01, 0.1, 0.3):
        for branches in (2, 4):
            done = run_tree(z, targets, 64, branches, death, seed=1)
            weight, expected = (s.solve("mean").weight for s in (done.sums, whole))
            same = torch.equal(weight, expected) and done.sums.rows == whole.rows
            cells = [f"{100 * death:g} %", str(branches), str(done.tasks), str(done.deaths)]
            rows.append([*cells, "equal" if same else "DIFFERENT"])
    return rows


def measured_table(rows: list[dict[str, float]], model: Model) -> str:
    """Return what was measured, and in parentheses what the model says."""
    cells = []
    for row in rows:
        p = int(row["p"])
        pairs = (
            (1e3 * row["features"], 1e3 * model.features(p)),
            (1e3 * row["sums"], 1e3 * model.sums(p)),
            (row["path"], model.solve(p)),
        )
        told = [f"{found:.3g} ({said:.3g})" for found, said in pairs]
        cells.append([f"{p:,}", *told, f"{row['solve']:.3g}", f"{sum_bytes(p) / 1e6:,.0f}"])
    header = ["features p", "features, ms per image", "sums, ms per image"]
    return markdown([*header, "path of solutions, s", "one solution, s", "sums, MB"], cells)


def report(arguments: argparse.Namespace) -> str:
    """Measure everything; return the page."""
    torch.set_num_threads(1)
    images, labels, source = pictures(arguments.images)
    pixels = as_images(images)
    sizes = SIZES[:2] if arguments.quick else SIZES
    rows = [measure(p, pixels, labels) for p in sizes]
    model = fitted(rows)
    count = arguments.images if arguments.quick else 4 * arguments.images
    header = ["dies at each step with", "branches", "tasks", "deaths", "sums and readout"]
    return "".join(
        (
            f"Made by `python -m benchmarks.scaling`; {describe()}; {len(images):,} images, ",
            f"{source}.\n\n## Measured on one core\n\nSeconds of the processor, and in ",
            "parentheses those of the model.\n\n",
            measured_table(rows, model),
            str(model),
            crossings(model),
            "\n## One and two processes\n\n",
            check_processes(count, model),
            "## Workers that die\n\nReal sums of 64 chunks of rows, merged in a tree, against ",
            "those of all rows at once:\n\n",
            markdown(header, same_after_deaths()),
            planned(model, arguments.gigabits, 20 if arguments.quick else 200).rstrip("\n"),
            "\n",
        )
    )


def main() -> None:
    """Write and print the page."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--images", type=int, default=2000)
    parser.add_argument("--gigabits", type=float, default=10.0)
    parser.add_argument("--quick", action="store_true", help="two sizes, and nothing is written")
    arguments = parser.parse_args()
    text = report(arguments)
    print(text)
    if not arguments.quick:
        RESULTS.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
