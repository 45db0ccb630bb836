"""Learning whitening, gates and thresholds of patch features from images."""

from __future__ import annotations

import torch
from torch import Tensor

from tensorswitch._checks import check_floating, check_positive, check_shape
from tensorswitch.features._module import Copies, PatchFeatures2d, positions

SAMPLED_PATCHES = 60_000
QUANTILE_PATCHES = 5_000
MOST_POSITIONS = 32  # along an axis; larger images take patches at a distance


def default_patch_size(height: int, width: int) -> int:
    """Return a patch size for images: a fifth of the shorter side, from 3 to 8.

    Parameters
    ----------
    height, width : int
        Size of the images.

    Returns
    -------
    int
        Height and width of the patches.

    Examples
    --------
    >>> default_patch_size(32, 32)
    6
    """
    return min(max(3, round(min(height, width) / 5)), 8, height, width)


def default_stride(height: int, width: int, size: int) -> int:
    """Return the distance between patches that leaves at most 32 along an axis."""
    return max(1, -(-(max(height, width) - size + 1) // MOST_POSITIONS))


@torch.no_grad()
def learn_patch_features(
    images: Tensor,
    *,
    gates: int = 1024,
    size: int | None = None,
    stride: int | None = None,
    components: int = 48,
    open_fraction: float = 0.2,
    floor: float = 0.3,
    shrinkage: float = 0.05,
    gates_from: str = "patches",
    grid: int = 2,
    copies: Copies = "score",
    pool: str = "mean",
    power: float = 0.5,
    generator: torch.Generator | None = None,
) -> PatchFeatures2d:
    """Learn patch features: whitening, gates and thresholds.

    Parameters
    ----------
    images : Tensor of shape (images, channels, height, width)
        Images to learn from. Labels are not used.
    gates : int, default=1024
        Number of gates.
    size : int, optional
        Height and width of the patches. By default a fifth of the image, from 3 to 8.
    stride : int, optional
        Distance between patches. By default 1, and more for images larger than about 40 pixels.
    components : int, default=48
        Number of principal components of the patches that are kept.
    open_fraction : float, default=0.2
        Share of the patches for which each gate is open.
    floor : float, default=0.3
        Deviation that is added to that of each patch when it is normalised, in units of the root
        mean square deviation, so that flat patches stay flat.
    shrinkage : float, default=0.05
        Added to the variances of the components when they are whitened, in units of their mean.
    gates_from : {"patches", "random"}, default="patches"
        Gate weights are whitened patches of the images, or drawn from a normal distribution; both
        have unit length.
    grid, copies, pool, power
        As in :class:`PatchFeatures2d`.
    generator : torch.Generator, optional
        Source of randomness. By default seeded with 0.

    Returns
    -------
    PatchFeatures2d
        The module that computes the features.

    Raises
    ------
    ValueError
        If all patches are flat, or the images are smaller than the patches.
    """
    check_floating("images", images)
    check_shape("images", images, (None,) * 4, "(images, channels, height, width)")
    check_positive(gates=gates, components=components)
    if not 0 < open_fraction < 1:
        raise ValueError(f"open_fraction must be between 0 and 1, got {open_fraction!r}")
    if gates_from not in ("patches", "random"):
        raise ValueError(f"gates_from must be 'patches' or 'random', got {gates_from!r}")
    channels, height, width = images.shape[1:]
    size = default_patch_size(height, width) if size is None else size
    check_positive(size=size)
    stride = default_stride(height, width, size) if stride is None else stride
    check_positive(stride=stride)
    if not len(images):
        raise ValueError("there are no images to learn patches from")
    generator = torch.Generator().manual_seed(0) if generator is None else generator
    patches = _sampled(images, size, stride, generator)
    patches = patches - patches.mean(1, keepdim=True)
    variance = patches.square().mean(1)
    scale = float(variance.mean())
    if not scale > 0:
        raise ValueError(
            f"all patches of {size} × {size} are flat: the images show nothing to learn from"
        )
    added = floor**2 * scale
    contrast = variance / (variance + added)
    patches /= (variance + added).sqrt()[:, None]
    mean = patches.mean(0)
    kept = min(components, patches.shape[1] - 1, len(patches))
    whitening = _whitening(patches - mean, max(1, kept), shrinkage)
    whitened = (patches - mean) @ whitening
    gate_weight = _gates(whitened, contrast, gates, gates_from, generator)
    scores = whitened[:QUANTILE_PATCHES] @ gate_weight.t()
    threshold = torch.quantile(scores, 1 - open_fraction, dim=0)
    return PatchFeatures2d(
        (whitening - whitening.mean(0)).t().reshape(-1, channels, size, size),
        mean @ whitening,
        gate_weight,
        threshold,
        (channels, height, width),
        stride=stride,
        floor=added,
        grid=grid,
        copies=copies,
        pool=pool,
        power=power,
    )


def _sampled(images: Tensor, size: int, stride: int, generator: torch.Generator) -> Tensor:
    """Return patches from random places, a row each."""
    rows, columns = positions(*images.shape[2:], size, stride)
    count = min(SAMPLED_PATCHES, len(images) * rows * columns)
    view = images.unfold(2, size, stride).unfold(3, size, stride)
    image, row, column = (
        torch.randint(limit, (count,), generator=generator) for limit in (len(images), rows, columns)
    )
    return view[image, :, row, column].flatten(1)


def _whitening(patches: Tensor, components: int, shrinkage: float) -> Tensor:
    """Return the leading principal components, scaled to unit variance."""
    covariance = patches.t().double() @ patches.double() / len(patches)
    values, vectors = torch.linalg.eigh(covariance)
    values, vectors = values.flip(0).clamp(min=0), vectors.flip(1)
    added = shrinkage * float(values.mean())
    # Directions without any variance, such as that of the mean, stay at zero.
    scales = (values + added).rsqrt() * (values > 1e-9 * values[0])
    return (vectors * scales)[:, :components].to(patches)


def _gates(
    whitened: Tensor, contrast: Tensor, gates: int, gates_from: str, generator: torch.Generator
) -> Tensor:
    """Return gate weights of unit length; flat patches are not chosen."""
    if gates_from == "random":
        found = torch.randn(gates, whitened.shape[1], generator=generator).to(whitened)
    else:
        place = torch.multinomial(
            contrast.clamp(min=1e-12), gates, gates > len(whitened), generator=generator
        )
        found = whitened[place]
    return found / found.norm(dim=1, keepdim=True).clamp(min=1e-12)
