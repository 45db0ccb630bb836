"""A reduction tree whose workers die: that nothing changes, and what it costs.

A worker sums its rows and saves the sums from time to time. When it dies, another one takes its
place, starts from the last saved sums and repeats the rows since then. Sums are merged in a tree;
a merge that fails is repeated from sums that it has not changed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tensorswitch.linear import Columns, Sums


@dataclass
class Outcome:
    """Sums of all rows, and how often workers died on the way."""

    sums: Sums
    deaths: int
    tasks: int


class Mortal:
    """Runs tasks that die between any two of their steps, and repeats them until they live."""

    def __init__(self, death: float, seed: int) -> None:
        self.rng, self.death = np.random.default_rng(seed), death
        self.deaths = self.tasks = 0

    def run(self, task: Callable[..., Iterator[Sums]], *data: Any) -> Sums:
        """Return the last result of a task."""
        self.tasks += 1
        while True:
            for step in task(*data):
                result = step
                if self.rng.random() < self.death:
                    self.deaths += 1
                    break
            else:
                return result


def run_tree(
    z: Tensor, targets: Tensor, chunks: int, branches: int, death: float, seed: int
) -> Outcome:
    """Sum chunks of rows and merge them, while each step dies with a probability."""
    workers = Mortal(death, seed)
    pairs = zip(z.tensor_split(chunks), targets.tensor_split(chunks), strict=True)
    level = [workers.run(_add, *pair) for pair in pairs]
    while len(level) > 1:
        groups = [level[i : i + branches] for i in range(0, len(level), branches)]
        level = [workers.run(_merge, group) for group in groups]
    return Outcome(level[0], workers.deaths, workers.tasks)


def _add(rows: Tensor, goal: Tensor) -> Iterator[Sums]:
    sums = Sums(Columns(rows.shape[1]), goal.shape[1], dtype=torch.float64)
    for x, t in zip(rows.split(16), goal.split(16), strict=True):
        sums.update(x, t)
        yield sums


def _merge(parts: list[Sums]) -> Iterator[Sums]:
    total = parts[0].copy()  # the parts stay as they are, for the next attempt
    for part in parts[1:]:
        total.merge(part)
        yield total
    yield total


@dataclass
class Job:
    """What each of many workers has to do, in seconds."""

    workers: int
    work: float  # of features and sums
    save: float  # to write the sums
    merge: float  # one level of the tree
    restart: float  # until a new worker has taken the place of a dead one

    @property
    def levels(self) -> int:
        """Levels of a binary tree."""
        return int(np.ceil(np.log2(self.workers))) if self.workers > 1 else 0


def expected_seconds(job: Job, per_hour: float, interval: float, seed: int, trials: int) -> float:
    """Return the mean time of a job whose workers die with a probability per hour.

    Sums are saved after each ``interval`` seconds of work. The slowest worker decides; then come
    the levels of the tree, each of which waits for its slowest merge.
    """
    rng = np.random.default_rng(seed)
    rate = -np.log1p(-per_hour) / 3600
    pieces = max(1, round(job.work / interval))
    piece = job.work / pieces + (job.save if pieces > 1 else 0.0)
    totals = []
    for _ in range(trials):
        seconds = _attempts(rng, rate, piece, pieces, job.workers, job.restart).max()
        for level in range(job.levels):
            merges = -(-job.workers // 2 ** (level + 1))
            seconds += _attempts(rng, rate, job.merge, 1, merges, job.restart).max()
        totals.append(seconds)
    return float(np.mean(totals))


def _attempts(
    rng: np.random.Generator, rate: float, piece: float, pieces: int, workers: int, restart: float
) -> np.ndarray:
    """Return for each worker the time until all its pieces are done.

    A piece fails with probability ``1 − exp(−rate · piece)``; the time that a failure takes is that
    of an exponential distribution cut off at the length of the piece.
    """
    lives = np.exp(-rate * piece)
    failures = rng.negative_binomial(pieces, lives, workers) if rate > 0 else np.zeros(workers, int)
    seconds = np.full(workers, pieces * piece)
    if not failures.any():
        return seconds
    owner = np.repeat(np.arange(workers), failures)
    lost = -np.log1p(-rng.random(len(owner)) * (1 - lives)) / rate + restart
    return seconds + np.bincount(owner, lost, workers)
