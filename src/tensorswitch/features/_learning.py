"""Learning whitening, gates and thresholds of patch features from images.

L = V (Λ + ε I)^−½ of the patches' covariance V Λ Vᵀ,    θ_j a quantile of w_j · p
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from tensorswitch._checks import check_positive
from tensorswitch.features._images import check_images
from tensorswitch.features._module import PatchFeatures2d, positions, positive

SOURCES = ("clusters", "patches", "random")


@dataclass(frozen=True)
class Learning:
    """How patch features are learned; chosen by ``benchmarks.images``."""

    sampled: int = 60_000  # patches that are whitened and clustered
    quantile: int = 5_000  # patches that decide on the thresholds
    lloyd_steps: int = 3
    assigned: int = 4096  # patches assigned to clusters at a time
    # Least size and share of the image of each of the three sizes of patches.
    small: tuple[tuple[int, float], ...] = ((2, 0.125), (3, 0.2), (4, 0.32))
    large: tuple[tuple[int, float], ...] = ((3, 0.25), (4, 0.4), (5, 0.5))


LEARNING = Learning()


def default_patch_sizes(height: int, width: int, scale: str = "small") -> tuple[int, ...]:
    """Return three patch sizes for details anywhere, "small", or objects in the centre, "large"."""
    side = min(height, width)
    shares = LEARNING.large if scale == "large" else LEARNING.small
    sizes = (max(least, round(side * share)) for least, share in shares)
    return tuple(sorted({min(size, side) for size in sizes}))


@torch.no_grad()
def learn_patch_features(
    images: Tensor,
    *,
    gates: int = 1024,
    size: int,
    stride: int = 1,
    components: int = 48,
    open_fraction: float = 0.3,
    floor: float = 0.3,
    shrinkage: float = 0.05,
    gates_from: str = "clusters",
    generator: torch.Generator | None = None,
    **settings: Any,
) -> PatchFeatures2d:
    """Learn whitening, gates and thresholds; :class:`PatchFeatures` describes the settings."""
    check_images(images)
    check_positive(gates=gates, components=components, size=size, stride=stride)
    if not 0 < open_fraction < 1:
        raise ValueError(f"open_fraction must be between 0 and 1, got {open_fraction!r}")
    if gates_from not in SOURCES:
        known = ", ".join(map(repr, SOURCES))
        raise ValueError(f"gates_from must be one of {known}, got {gates_from!r}")
    channels, height, width = images.shape[1:]
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
    floored = positive(variance + added)
    patches /= floored.sqrt()[:, None]
    mean = patches.mean(0)
    kept = min(components, patches.shape[1] - 1, len(patches))
    whitening = _whitening(patches - mean, max(1, kept), shrinkage)
    whitened = (patches - mean) @ whitening
    # Flat patches are neither gates nor do they decide on thresholds, which noise on a plain
    # background would then cross.
    count = max(gates, min(LEARNING.quantile, len(patches)))
    chosen = torch.multinomial(
        variance / floored + 1e-12, count, count > len(patches), generator=generator
    )
    gate_weight = _gates(whitened, whitened[chosen[:gates]], gates_from, generator)
    scores = whitened[chosen[: LEARNING.quantile]] @ gate_weight.t()
    threshold = torch.quantile(scores, 1 - open_fraction, dim=0)
    filters = (whitening - whitening.mean(0)).t().reshape(-1, channels, size, size)
    tensors = filters, mean @ whitening, gate_weight, threshold
    settings |= {"stride": stride, "floor": added}
    return PatchFeatures2d(*tensors, (channels, height, width), **settings)


def _sampled(images: Tensor, size: int, stride: int, generator: torch.Generator) -> Tensor:
    """Return patches from random places, a row each."""
    rows, columns = positions(images.shape[2], images.shape[3], size, stride)
    count = min(LEARNING.sampled, len(images) * rows * columns)
    view = images.unfold(2, size, stride).unfold(3, size, stride)
    image, row, column = (
        torch.randint(limit, (count,), generator=generator, device=generator.device)
        for limit in (len(images), rows, columns)
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
    whitening: Tensor = (vectors * scales)[:, :components]
    return whitening.to(patches)


def _gates(patches: Tensor, first: Tensor, gates_from: str, generator: torch.Generator) -> Tensor:
    """Return gate weights of unit length; ``first`` are the patches to start from."""
    if gates_from == "random":
        drawn = torch.randn(first.shape, generator=generator, device=generator.device)
        return _unit(drawn.to(first))
    found = _unit(first)
    for _ in range(LEARNING.lloyd_steps if gates_from == "clusters" else 0):
        blocks = patches.split(LEARNING.assigned)
        nearest = torch.cat([(block @ found.t()).argmax(1) for block in blocks])
        total = torch.zeros_like(found).index_add_(0, nearest, patches)
        # A cluster that no patch belongs to keeps its direction.
        found = torch.where(total.square().sum(1, keepdim=True) > 0, _unit(total), found)
    return found


def _unit(rows: Tensor) -> Tensor:
    return rows / rows.norm(dim=1, keepdim=True).clamp(min=torch.finfo(rows.dtype).tiny)
