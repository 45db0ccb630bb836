"""Images in one pass: errors, seconds and memory, and other codes of the same patches.

    TENSORSWITCH_DATA=DIR python -m benchmarks.images [accuracy] [codes] [rows]
                          [--data cifar10,mnist,svhn] [--features 2048,8192] [--seeds 0,1,2]

`accuracy` fits TSConvRidgeClassifier to all training images, with nothing set but the number of
features and the seed, and counts errors on the test images. `codes` compares what is copied, at
equal numbers of features, with ReLU and k-means "triangle" codes of the same patches, on 10,000
training and 5,000 validation images. `rows` adds images in chunks. Each row of the results is
measured in a process of its own and added to `results/images.csv`, and what stands there is not
done again; the summary is `results/images.md` with `images.png`.
"""

from __future__ import annotations

import argparse
import csv
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from benchmarks._measure import describe, in_a_process_of_its_own, peak_resident_bytes
from tensorswitch.data import load
from tensorswitch.estimators import StreamingRidgeClassifier, TSConvRidgeClassifier
from tensorswitch.features import PatchBank2d, PatchFeatures2d, as_images, learn_patch_bank

RESULTS = Path(__file__).parent / "results"
FIELDS = ("part", "data", "code", "features", "rows", "seed", "error", "seconds", "gigabytes")
DATA = ("cifar10", "mnist", "svhn")
VALIDATION, CODED = 5_000, 10_000
CODES = ("score and constant", "15 components and constant", "ReLU", "triangle")
CHUNKS = (1_000, 2_000, 5_000, 10_000, 20_000, 50_000)


def accuracy(data: str, features: int, seed: int) -> tuple[float, float, float, int]:
    """Fit all training images; return test error, seconds, gigabytes and rows."""
    content = load(data)
    start = time.perf_counter()
    model = TSConvRidgeClassifier(features, random_state=seed)
    model.fit(content.train_images, content.train_labels)
    seconds = time.perf_counter() - start
    error = 100 * float(np.mean(model.predict(content.test_images) != content.test_labels))
    return error, seconds, peak_resident_bytes() / 1e9, len(content.train_labels)


def code(data: str, name: str, features: int, seed: int) -> tuple[float, float, float, int]:
    """Fit one code of 10,000 training images; return validation error, seconds, gigabytes, rows."""
    content = load(data)
    images = as_images(content.train_images[:CODED])
    held = as_images(content.train_images[-VALIDATION:])
    labels = np.asarray(content.train_labels)
    start = time.perf_counter()
    generator = torch.Generator().manual_seed(seed)
    copies: Any = 15 if name.startswith("15") else "score"
    doubled = 2 if name in ("ReLU", "triangle") else 1  # one feature per gate and window
    bank = learn_patch_bank(
        images[:5_000], features=doubled * features, copies=copies, generator=generator
    )
    z, z_held = (encoded(bank, name, x) for x in (images, held))
    model = StreamingRidgeClassifier().fit(z, labels[:CODED])
    seconds = time.perf_counter() - start
    error = 100 * float(np.mean(model.predict(z_held) != labels[-VALIDATION:]))
    return error, seconds, peak_resident_bytes() / 1e9, CODED


@torch.no_grad()
def encoded(bank: PatchBank2d, name: str, images: Tensor) -> np.ndarray:
    """Return the features of a code."""
    if name not in ("ReLU", "triangle"):
        return torch.cat([bank(x) for x in images.split(256)]).numpy()
    parts = [part for part in bank.parts if isinstance(part, PatchFeatures2d)]
    single = relu if name == "ReLU" else triangle
    rows = [torch.cat([single(part, x) for part in parts], dim=1) for x in images.split(64)]
    return torch.cat(rows).sqrt_().numpy()


def relu(part: PatchFeatures2d, images: Tensor) -> Tensor:
    """Return ``max(0, w_j · p − θ_j)``, averaged over windows."""
    return part.pooled(images)[..., 0].flatten(1)


def triangle(part: PatchFeatures2d, images: Tensor) -> Tensor:
    """Return ``max(0, mean distance − distance to w_j)``, averaged over windows."""
    p = part.project(images)[..., :-1]
    distance = torch.cdist(p, part.gate_weight.expand(len(p), -1, -1))
    code = (distance.mean(2, keepdim=True) - distance).relu_()
    return (part.windows @ code).flatten(1)


def curve(data: str, features: int, seed: int) -> list[tuple[int, float, float]]:
    """Add images in chunks; return rows, test error and seconds so far."""
    content = load(data)
    model = TSConvRidgeClassifier(features, random_state=seed)
    done, seconds, found = 0, 0.0, []
    for rows in CHUNKS:
        part = slice(done, min(rows, len(content.train_labels)))
        start = time.perf_counter()
        model.partial_fit(content.train_images[part], content.train_labels[part], classes=range(10))
        outputs = model.predict(content.test_images)
        seconds += time.perf_counter() - start
        found.append((part.stop, 100 * float(np.mean(outputs != content.test_labels)), seconds))
        done = part.stop
    return found


def known() -> set[tuple[str, ...]]:
    """Return what has been measured."""
    path = RESULTS / "images.csv"
    if not path.exists():
        return set()
    with path.open() as file:
        return {(*row[:4], row[5]) for row in csv.reader(file)}


def keep(part: str, data: str, name: str, features: int, seed: int, *rest: Any) -> None:
    """Add a row of results."""
    error, seconds, memory, rows = rest
    row = [part, data, name, features, rows, seed]
    row += [f"{error:.2f}", f"{seconds:.0f}", f"{memory:.1f}"]
    with (RESULTS / "images.csv").open("a", newline="") as file:
        csv.writer(file).writerow(row)
    print(*row, flush=True)


def summarise() -> str:
    """Return the tables, and draw the figure."""
    with (RESULTS / "images.csv").open() as file:
        rows = [dict(zip(FIELDS, row, strict=True)) for row in csv.reader(file)]
    lines = [f"Made by `python -m benchmarks.images`; {describe()}.", ""]
    lines += ["| data | features | rows | test error, % | seconds | peak GB |", "|---" * 6 + "|"]
    for key, same in _grouped(rows, "accuracy", "data", "features"):
        lines.append(f"| {key[0]} | {int(key[1]):,} | {int(same[0]['rows']):,} | {_mean(same)} |")
    codes = _grouped(rows, "codes", "data", "code", "features")
    if codes:
        lines += ["", "| data | code | features | validation error, % | seconds | peak GB |"]
        lines.append("|---" * 6 + "|")
    for key, same in codes:
        lines.append(f"| {key[0]} | {key[1]} | {int(key[2]):,} | {_mean(same)} |")
    if any(row["part"] == "rows" for row in rows):
        _draw(rows)
    return "\n".join(lines) + "\n"


def _grouped(rows: list[dict[str, str]], part: str, *names: str) -> list[tuple[Any, Any]]:
    found: dict[tuple[str, ...], list[dict[str, str]]] = {}
    for row in rows:
        if row["part"] == part:
            found.setdefault(tuple(row[name] for name in names), []).append(row)
    return list(found.items())


def _mean(rows: list[dict[str, str]]) -> str:
    error, seconds, memory = (
        np.mean([float(row[name]) for row in rows]) for name in ("error", "seconds", "gigabytes")
    )
    seeds = f" ({len(rows)} seeds)" if len(rows) > 1 else ""
    return f"{error:.2f}{seeds} | {seconds:.0f} | {memory:.1f}"


def _draw(rows: list[dict[str, str]]) -> None:
    """Draw error against time, features and rows seen, as means over seeds."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import EngFormatter, LogLocator, NullFormatter

    figure = Figure(figsize=(10, 3.2), layout="constrained")
    axes = figure.subplots(1, 3, sharey=True)
    colours = {data: f"C{number}" for number, data in enumerate(DATA)}
    for place, title in zip(axes, ("seconds", "features", "rows"), strict=True):
        part, vary = ("rows", "rows") if title == "rows" else ("accuracy", "features")
        points: dict[str, list[tuple[float, float]]] = {}
        for (data, _), same in _grouped(rows, part, "data", vary):
            mean = [float(np.mean([float(r[name]) for r in same])) for name in (title, "error")]
            points.setdefault(data, []).append((mean[0], mean[1]))
        for data, found in points.items():
            place.plot(*zip(*sorted(found), strict=True), "o-", c=colours[data], label=data, ms=4)
        place.set(xscale="log", yscale="log", xlabel=title)
        for axis in (place.xaxis, place.yaxis):
            axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
            axis.set_major_formatter(EngFormatter(sep="") if axis is place.xaxis else "{x:g}")
            axis.set_minor_formatter(NullFormatter())
        place.grid(alpha=0.3)
    axes[0].set_ylabel("test error, %")
    axes[0].legend(frameon=False)
    seen = next(int(row["features"]) for row in rows if row["part"] == "rows")
    axes[2].set_title(f"{seen:,} features", size=9)
    figure.savefig(RESULTS / "images.png", dpi=150)


def main() -> None:
    """Measure what is missing, then write the summary."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("parts", nargs="*", default=["accuracy", "codes", "rows"])
    parser.add_argument("--data", default=",".join(DATA))
    parser.add_argument("--features", default="8192")
    parser.add_argument("--seeds", default="0")
    arguments = parser.parse_args()
    done = known()
    for data in arguments.data.split(","):
        for features in map(int, arguments.features.split(",")):
            for seed in map(int, arguments.seeds.split(",")):
                key = (data, str(features), str(seed))
                if "accuracy" in arguments.parts and ("accuracy", data, "", *key[1:]) not in done:
                    found = in_a_process_of_its_own(accuracy, data, features, seed)
                    keep("accuracy", data, "", features, seed, *found)
                if "rows" in arguments.parts and ("rows", data, "", *key[1:]) not in done:
                    for rows, error, seconds in in_a_process_of_its_own(
                        curve, data, features, seed
                    ):
                        keep("rows", data, "", features, seed, error, seconds, 0.0, rows)
                for name in CODES if "codes" in arguments.parts else ():
                    if ("codes", data, name, *key[1:]) not in done:
                        found = in_a_process_of_its_own(code, data, name, features, seed)
                        keep("codes", data, name, features, seed, *found)
    text = summarise()
    (RESULTS / "images.md").write_text(text, encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
