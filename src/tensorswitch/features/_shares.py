"""What each pixel contributes to a linear readout of patch features.

φ_wj = (φ / f)_wj Σ_{u ∈ w} h_j(u) c_j(u) / |w|
"""

import torch
from torch import Tensor
from torch.nn import functional as F

from tensorswitch.features._bank import PatchBank2d
from tensorswitch.features._images import reduction
from tensorswitch.features._module import PatchFeatures2d

IMAGES = 16  # at a time: the gates of all positions are held


@torch.no_grad()
def pixel_shares(bank: PatchBank2d, images: Tensor, weight: Tensor) -> Tensor:
    """Divide the outputs of a readout among the pixels: (images, outputs, height, width).

    A feature's share is divided among the positions in proportion to what they add to its sum, and
    that of a position evenly among the pixels of its patch, so that all add up to the output.
    """
    height, width = images.shape[2:]
    down, across = reduction(height, width)
    found = []
    for part in images.split(IMAGES):
        small = bank._reduced(part)
        total = small.new_zeros(len(part), weight.shape[1], *small.shape[2:])
        start = 0
        for features in bank.parts:
            assert isinstance(features, PatchFeatures2d)
            stop = start + features.out_features
            total += _shares(features, small, weight[start:stop])
            start = stop
        if max(down, across) > 1:
            scale = float(down), float(across)
            total = F.interpolate(total, scale_factor=scale) / (down * across)
            total = F.pad(total, (0, width - total.shape[3], 0, height - total.shape[2]))
        found.append(total)
    return torch.cat(found)


def _shares(part: PatchFeatures2d, images: Tensor, weight: Tensor) -> Tensor:
    f = part.pooled(images)
    windows, gates, copies = f.shape[1:]
    slope = torch.where(f == 0, 0, f.abs().pow(part.power - 1))  # φ / f
    p = part.project(images)
    scores = p @ part._scoring()
    outputs = weight.shape[1]
    shares = p.new_zeros(len(images), outputs, p.shape[1])
    by_window = weight.view(windows, gates, copies, outputs)
    for w, rows in enumerate(part._windows()):
        taken = _taken(part, scores[:, rows])  # (images, positions, gates)
        for o in range(outputs):
            v = slope[:, w] * by_window[w, :, :, o]  # (images, gates, copies)
            if isinstance(part.copies, str):
                values = scores[:, rows] * v[:, None, :, 0] + v[:, None, :, 1]
                shares[:, o, rows] = (taken * values).sum(2)
            else:
                shares[:, o, rows] = ((taken @ v) * part.copied(p[:, rows])).sum(2)
    maps = shares.flatten(0, 1).view(-1, 1, *part.positions)
    square = maps.new_full((1, 1, part.size, part.size), 1 / part.size**2)
    spread = F.conv_transpose2d(maps, square, stride=part.stride)
    spread = spread.view(len(images), outputs, *spread.shape[2:])
    missing = (images.shape[3] - spread.shape[3], images.shape[2] - spread.shape[2])
    return F.pad(spread, (0, missing[0], 0, missing[1]))


def _taken(part: PatchFeatures2d, scores: Tensor) -> Tensor:
    """Return the weight with which each position enters the copies of each gate."""
    if part.pool == "mean":
        return (scores > 0).to(scores) / scores.shape[1]
    best, place = scores.max(1, keepdim=True)
    return torch.zeros_like(scores).scatter_(1, place, (best > 0).to(scores))
