"""What does not pay on images: shifted copies as further rows, and a second TS layer.

    TENSORSWITCH_DATA=DIR python -m benchmarks.second_layer [ROWS]

Validation errors on 5,000 images of CIFAR-10, with a readout of 2,048 patch features of the first
training images. Rows are added by mirror images, and by images that are shifted by one or two
pixels. A second layer takes the pooled copies of a first one, with windows on a finer grid, for
an image with many channels; its features are read out alone and joined to those of one layer.
"""

from __future__ import annotations

import sys

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from benchmarks._measure import describe, print_table
from tensorswitch.data import load
from tensorswitch.estimators import StreamingRidgeClassifier
from tensorswitch.features import (
    PatchBank2d,
    PatchFeatures2d,
    as_images,
    learn_patch_bank,
    learn_patch_features,
)

FEATURES, HELD = 2_048, 5_000
SHIFTS = {1: ((1, 1), (-1, -1), (1, -1), (-1, 1)), 2: ((2, 0), (0, 2), (-2, 0), (0, -2))}
FIRST = ((8, 64), (8, 160))  # grid and gates of the first of two layers


def generator() -> torch.Generator:
    return torch.Generator().manual_seed(0)


@torch.no_grad()
def features(bank: PatchBank2d, images: Tensor) -> Tensor:
    """Return the features of images."""
    return torch.cat([bank(part) for part in images.split(256)])


@torch.no_grad()
def maps(part: PatchFeatures2d, images: Tensor, grid: int) -> Tensor:
    """Return the pooled copies as images with a pixel for each window."""
    found = []
    for some in images.split(256):
        pooled = part.pooled(some)
        signed = pooled.sign() * pooled.abs().sqrt()
        found.append(signed.flatten(2).view(len(some), grid, grid, -1).permute(0, 3, 1, 2))
    return torch.cat(found).contiguous()


def shifted(images: Tensor, down: int, right: int) -> Tensor:
    """Return images moved by a few pixels, reflected at the border."""
    side = images.shape[2]
    padded = F.pad(images, (2, 2, 2, 2), mode="reflect")
    return padded[:, :, 2 + down : 2 + side + down, 2 + right : 2 + side + right]


def main() -> None:
    """Print a table of validation errors."""
    rows = int(sys.argv[1]) if len(sys.argv) > 1 else 3_000
    content = load("cifar10")
    labels = np.asarray(content.train_labels)
    images, held = (as_images(content.train_images[p]) for p in (slice(rows), slice(-HELD, None)))
    y, y_held = labels[:rows], labels[-HELD:]

    def error(z: Tensor, z_held: Tensor) -> str:
        model = StreamingRidgeClassifier().fit(z.numpy(), np.tile(y, len(z) // rows))
        return f"{100 * np.mean(model.predict(z_held.numpy()) != y_held):.1f}"

    print(f"{describe()}, seed 0; {rows:,} images of CIFAR-10\n")
    bank = learn_patch_bank(images, features=FEATURES, generator=generator())
    z, z_held = features(bank, images), features(bank, held)
    mirrored = torch.cat([z, features(bank, images.flip(3))])
    table = [["one layer", error(z, z_held)], ["and mirror images", error(mirrored, z_held)]]
    for pixels, moves in SHIFTS.items():
        more = [
            features(bank, shifted(images.flip(3) if sum(move) < 0 else images, *move))
            for move in moves
        ]
        name = f"and mirror images and four shifted by {pixels}"
        table.append([name, error(torch.cat([mirrored, *more]), z_held)])
    for grid, gates in FIRST:
        first = learn_patch_features(images, gates=gates, size=6, grid=grid, generator=generator())
        below, below_held = maps(first, images, grid), maps(first, held, grid)
        mean, deviation = below.mean((0, 2, 3), keepdim=True), below.std((0, 2, 3), keepdim=True)
        below, below_held = ((x - mean) / (deviation + 1e-6) for x in (below, below_held))
        second = learn_patch_bank(
            below, features=FEATURES, grid=2, sizes=(2, 3), components=128, generator=generator()
        )
        z2, z2_held = features(second, below), features(second, below_held)
        name = f"two layers, {gates} gates on {grid} × {grid} windows below"
        table.append([name, error(z2, z2_held)])
        half, half_held = (
            torch.cat([a[:, ::2], b[:, ::2]], 1) for a, b in ((z, z2), (z_held, z2_held))
        )
        table.append(["half of these and half of one layer", error(half, half_held)])
    print_table(["features", "validation error, %"], table)


if __name__ == "__main__":
    main()
