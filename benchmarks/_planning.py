"""What one pass over many images costs on many machines, from what was measured on one core."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks._failures import Job, expected_seconds
from tensorswitch.linear import Columns

OUTPUTS = 10
IMAGES = (10**6, 10**8, 10**9)
FEATURES = (8192, 32768)
MACHINES = (1, 10, 100, 1000)
CORES = 2  # of a machine, as measured here
ITERATIONS = 50  # of conjugate gradients
DISK = 0.5e9  # bytes per second
RESTART = 60.0  # seconds until a worker that died is replaced
DEATHS = (0.001, 0.01, 0.1)  # probabilities of a worker per hour


@dataclass
class Model:
    """Seconds on one core."""

    fixed: float  # a₀, of an image
    per_feature: float  # a₁, of an image
    product: float  # b, of an image and a pair of features
    cube: float  # c, of a path of penalties
    iteration: float  # of conjugate gradients, of an image and a feature
    merge: float  # of a byte

    def features(self, p: Any) -> Any:
        """Return the seconds of an image's features."""
        return self.fixed + self.per_feature * p

    def sums(self, p: Any) -> Any:
        """Return the seconds of an image's products."""
        return self.product * p**2

    def solve(self, p: Any) -> Any:
        """Return the seconds of a path of solutions."""
        return self.cube * p**3

    def __str__(self) -> str:
        return (
            f"Model, in seconds of one core: features of an image {1e3 * self.fixed:.2f} ms + "
            f"{1e6 * self.per_feature:.3f} µs · p; its sums {1e12 * self.product:.1f} ps · p²;\n"
            f"a path of solutions {1e12 * self.cube:.1f} ps · p³; merging "
            f"{1e9 * self.merge:.2f} ns a byte; an iteration of conjugate gradients "
            f"{1e9 * self.iteration:.2f} ns · p an image.\n\n"
        )


def sum_bytes(p: int) -> int:
    """Return the bytes of a worker's sums: two Gram matrices, and their targets."""
    return 2 * (4 * Columns(p).gram_shape[0] + 4 * p * OUTPUTS)


def crossings(model: Model) -> str:
    """Return in words where which part takes longest."""
    p = np.arange(256, 1 << 18)
    kept = ITERATIONS * p * (model.iteration + 2 / DISK)  # half precision
    sums = _first(p, model.sums(p) > model.features(p))
    anew = _first(p, model.sums(p) > ITERATIONS * model.features(p))
    stored = _first(p, model.sums(p) > kept)
    rows = 8192 * model.cube / (model.product + model.features(8192) / 8192**2)
    return (
        f"- The sums of an image take longer than its features {sums}.\n"
        "- With 8,192 features, the solution takes longer than the rows if a core has fewer than "
        f"{rows:,.0f} images.\n"
        f"- {ITERATIONS} iterations of conjugate gradients take less time than sums {stored} if\n"
        f"  the features are kept in half precision on a disk that reads {DISK / 1e9:g} GB/s, and "
        f"{anew}\n  if they are computed anew each time.\n"
    )


def _first(p: np.ndarray, where: np.ndarray) -> str:
    return f"above {p[where][0]:,} features" if where.any() else f"nowhere below {p[-1]:,} features"


def planned(model: Model, gigabits: float, trials: int) -> str:
    """Return the tables that are simulated and extrapolated."""
    job = 10**9, FEATURES[0], 100
    held = " and ".join(f"{sum_bytes(p) / 1e9:.1f} GB with {p:,}" for p in FEATURES)
    died = ["die per hour", "never saved", "saved hourly", "saved at the best interval", "which is"]
    header = ["images", "features", "machines", "rows", "merging", "solution", "in all", "longest"]
    every = [(images, p, count) for images in IMAGES for p in FEATURES for count in MACHINES]
    return (
        f"Simulated: {in_tens(job[0])} images, {job[1]:,} features, {job[2]} machines; time as a "
        "multiple of that without deaths. A worker repeats\nwhat it had done since it last saved "
        f"its sums, at {DISK / 1e9:g} GB/s, and is replaced after {RESTART:.0f} s.\n\n"
        + markdown(died, failures(model, job, gigabits, trials))
        + f"## Plan\n\nMachines have {CORES} cores like the one measured and {gigabits:g} Gbit/s "
        "between them. Sums are merged on each machine,\nthen in a binary tree; one machine solves "
        "a path of penalties. Without mirror images, reading and decoding.\nA worker holds sums of "
        f"{held} features, and 4 p bytes of features for each image of a chunk.\n\n"
        + markdown(header, [plan(model, *case, gigabits) for case in every])
    )


def in_tens(count: int) -> str:
    """Return a power of ten as 1e6."""
    return f"{count:.0e}".replace("e+0", "e")


def plan(model: Model, images: int, p: int, machines: int, gigabits: float) -> list[str]:
    """Return a row of the planning table."""
    learning = images * (model.features(p) + model.sums(p)) / (CORES * machines)
    levels = int(np.ceil(np.log2(machines)))
    added = sum_bytes(p) * model.merge
    reducing = (CORES - 1) * added + levels * (added + sent(p, gigabits))
    solving = model.solve(p) / CORES
    parts = {"rows": learning, "merging": reducing, "solution": solving}
    cells = [in_tens(images), f"{p:,}", f"{machines:,}"]
    times = [of_time(t) for t in (*parts.values(), sum(parts.values()))]
    return [*cells, *times, max(parts, key=lambda name: parts[name])]


def sent(p: int, gigabits: float) -> float:
    """Return the seconds in which sums pass the network."""
    return sum_bytes(p) / (gigabits / 8 * 1e9)


def failures(
    model: Model, job_of: tuple[int, int, int], gigabits: float, trials: int
) -> list[list[str]]:
    """Simulate a job with workers that die; return how much longer it takes."""
    images, p, machines = job_of
    work = images * (model.features(p) + model.sums(p)) / (CORES * machines)
    save, merge = sum_bytes(p) / DISK, sum_bytes(p) * model.merge + sent(p, gigabits)
    job = Job(CORES * machines, work, save, merge, RESTART)
    plain = expected_seconds(job, 0.0, work, 0, 1)
    rows = []
    for death in DEATHS:
        best = min(work, float(np.sqrt(-2 * save * 3600 / np.log1p(-death))))
        took = (
            expected_seconds(job, death, min(interval, work), 1, trials)
            for interval in (work, 3600.0, best)
        )
        rows.append([f"{100 * death:g} %", *(f"{t / plain:.2f}" for t in took), of_time(best)])
    return rows


def of_time(value: float) -> str:
    """Return seconds as people say them."""
    for unit, length in (("days", 86400), ("h", 3600), ("min", 60)):
        if value >= 1.5 * length:
            return f"{value / length:,.1f} {unit}"
    return f"{value:.1f} s"


def markdown(header: list[str], rows: list[list[str]]) -> str:
    """Return a table, and an empty line."""
    lines = [header, ["---"] * len(header), *rows]
    return "".join("| " + " | ".join(line) + " |\n" for line in lines) + "\n"
