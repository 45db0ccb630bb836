"""Settings of patch features that are found on a sample: windows, mirror images, size."""

import timeit
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import product
from numbers import Integral
from typing import NamedTuple, TypeAlias

import torch
from torch import Tensor

from tensorswitch.estimators._base import State
from tensorswitch.features import PatchBank2d, default_patch_sizes, learn_patch_bank
from tensorswitch.linear import Columns, Sums

Shape: TypeAlias = tuple[int, tuple[int, ...]]  # grid and sizes of patches


@dataclass(frozen=True)
class Constants:
    """How settings are found, measured by ``benchmarks.images`` and ``benchmarks.second_layer``.

    Each of ``grids`` and sizes of patches is tried with ``tried_features`` on a ``sample`` of
    images, of which ``judged`` are left out, and with ``tried_penalty``; with fewer than ``fewest``
    none is. Mirror images double the time, so they must bring the error down to ``worth`` of it.
    Patches are learned from ``learned`` images.

    The number of features is one of the ``ladder``: ``usual``, as long as it fits into memory, and
    at most ``per_image`` for each image, since the time to solve grows with the cube.
    """

    grids: tuple[int, ...] = (2, 3)
    sample: int = 4_000
    judged: int = 1_500
    tried_features: int = 1_536
    tried_penalty: str = "0.1 mean"
    fewest: int = 60
    worth: float = 0.99
    learned: int = 5_000
    ladder: tuple[int, ...] = tuple(512 * n for n in (1, 2, 4, 8, 12, 16, 24, 32, 40, 48, 64))
    usual: int = 8_192
    per_image: int = 2


CONSTANTS = Constants()


class Settings(NamedTuple):
    """The chosen settings."""

    grid: int
    sizes: tuple[int, ...]
    flips: bool


def choose_settings(
    images: Tensor,
    targets: Tensor,
    grid: int | str,
    sizes: Sequence[int] | None,
    flips: bool | str,
    options: State,
    seed: int,
) -> Settings:
    """Return what is not fixed, by the error on images left out of a reduced, random sample."""
    height, width = images.shape[2:]
    scales = [default_patch_sizes(height, width, scale) for scale in ("small", "large")]
    all_sizes = scales if sizes is None else [tuple(sizes)]
    tried: list[Shape] = [(grid, s) for s in all_sizes] if isinstance(grid, Integral) else []
    if not tried:  # with at least one position of the largest patch in each window
        most = {s: max(1, min(height, width) - max(s) + 1) for s in all_sizes}
        both = product(CONSTANTS.grids, all_sizes)
        tried = list(dict.fromkeys((min(g, most[s]), s) for g, s in both))
    few = len(images) < CONSTANTS.fewest
    left_out = min(CONSTANTS.judged, len(images) // 3)
    banks: dict[Shape, PatchBank2d] = {}
    errors: dict[Shape, float] = {}

    def bank_of(shape: Shape) -> PatchBank2d:
        if shape not in banks:
            grid, sizes = shape
            own: State = {"grid": grid, "sizes": sizes, **options}
            own["generator"] = torch.Generator().manual_seed(seed)
            features = max(CONSTANTS.tried_features, 2 * grid**2 * 8 * len(sizes))
            banks[shape] = learn_patch_bank(images, features=features, **own)
        return banks[shape]

    for shape in tried if len(tried) > 1 and not few else []:
        with suppress(ValueError):  # too fine a grid for these patches
            errors[shape] = _error(bank_of(shape), images, targets, left_out, False)
    best = min(errors, key=errors.__getitem__) if errors else tried[0]
    if not isinstance(flips, str) or few:
        return Settings(*best, flips is True)
    plain = errors.get(best) or _error(bank_of(best), images, targets, left_out, False)
    mirrored = _error(bank_of(best), images, targets, left_out, True)
    return Settings(*best, mirrored < CONSTANTS.worth * plain)


@torch.no_grad()
def _error(bank: PatchBank2d, images: Tensor, targets: Tensor, left_out: int, flip: bool) -> float:
    """Return the mean squared error on the first images, of a readout of all others."""
    z = bank(images)
    centre, deviation = z.mean(0), z.std(0)
    deviation = torch.where(deviation > 1e-6 * deviation.mean(), deviation, 1)
    z = (z - centre) / deviation
    sums = Sums(Columns(bank.out_features), targets.shape[1], device=images.device)
    sums.update(z[left_out:], targets[left_out:])
    if flip:
        mirror = (bank(images[left_out:].flip(3)) - centre) / deviation
        sums.update(mirror, targets[left_out:])
    solution = sums.solve(CONSTANTS.tried_penalty, fit_intercept=True)
    assert solution.intercept is not None
    outputs = z[:left_out] @ solution.weight + solution.intercept.to(z)
    return float((outputs - targets[:left_out]).square().mean())


def choose_features(
    rows: int | None, bank: PatchBank2d, images: Tensor, memory: float, seconds: float | None
) -> int:
    """Return how many features fit into memory and, of so many rows, into the time in seconds."""
    ladder = CONSTANTS.ladder
    # Sums of two parts in float32, their total and a factor, and room for chunks of features.
    fitting = [n for n in ladder if 18 * Columns(n).gram_shape[0] + (1 << 29) <= memory]
    fitting = fitting or [ladder[0]]
    if seconds is None:
        most = CONSTANTS.usual
        if rows is not None:
            most = min(most, max(ladder[1], CONSTANTS.per_image * rows))
        return max([n for n in fitting if n <= most] or fitting[:1])
    if rows is None:
        raise ValueError("time_budget needs all images at once; for partial_fit, set features")
    per_feature, per_product = _speeds(bank, images)

    def estimate(n: int) -> float:
        products = rows * n**2 / 2 + n**3  # sums, and factorisations for a path of penalties
        return rows * n * per_feature + products * per_product

    return max([n for n in fitting if estimate(n) <= seconds] or fitting[:1])


@torch.no_grad()
def _speeds(bank: PatchBank2d, images: Tensor) -> tuple[float, float]:
    """Return seconds per image and feature, and per multiply-add of a symmetric product."""
    some, rows, width = images[:64], 512, 2048
    generator = torch.Generator().manual_seed(0)
    z = torch.randn(rows, width, generator=generator, device="cpu")
    sums = Sums(Columns(width), 1, device="cpu")
    per_feature = _fastest(lambda: bank(some)) / (len(some) * bank.out_features)
    per_product = _fastest(lambda: sums.update(z, z[:, :1])) / (rows * width**2 / 2)
    return per_feature, per_product


def _fastest(work: Callable[[], object]) -> float:
    return min(timeit.repeat(work, number=1, repeat=3))
