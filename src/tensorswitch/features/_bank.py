"""Patch features of several sizes side by side."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Self

import torch
from torch import Tensor, nn

from tensorswitch._checks import check_positive
from tensorswitch.features._images import check_images, reduced
from tensorswitch.features._learning import default_patch_sizes, learn_patch_features
from tensorswitch.features._module import PatchFeatures2d
from tensorswitch.persistence import State, saved_as


@saved_as("patch-bank")
class PatchBank2d(nn.Module):
    """Compute patch features of several sizes, one after another.

    Parameters
    ----------
    parts : sequence of PatchFeatures2d
        The features of each size, for images of at most 48 pixels along an axis.
    image_shape : tuple of (int, int, int)
        Channels, height and width of the images, before they are reduced.

    Attributes
    ----------
    out_features : int
        Number of features.

    Examples
    --------
    >>> import torch
    >>> from tensorswitch.features import learn_patch_bank
    >>> images = torch.rand(50, 1, 12, 12, generator=torch.Generator().manual_seed(0))
    >>> bank = learn_patch_bank(images, features=400, sizes=(3, 5))
    >>> bank(images).shape
    torch.Size([50, 400])
    """

    def __init__(self, parts: Sequence[PatchFeatures2d], image_shape: tuple[int, int, int]) -> None:
        super().__init__()
        self.parts = nn.ModuleList(parts)
        self.image_shape = image_shape
        self.out_features = sum(part.out_features for part in parts)

    def _reduced(self, images: Tensor) -> Tensor:
        """Return the images as the parts see them: averages over squares."""
        check_images(images, self.image_shape)
        return reduced(images)

    def forward(self, images: Tensor) -> Tensor:
        """Return the features of all sizes, (images, out_features)."""
        images = self._reduced(images)
        return torch.cat([part(images) for part in self.parts], dim=1)

    def state(self) -> State:
        """Return the parts and the shape of the images."""
        return {"parts": list(self.parts), "image_shape": self.image_shape}

    @classmethod
    def from_state(cls, state: State) -> Self:
        """Return the bank of a state."""
        return cls(**state)


def learn_patch_bank(
    images: Tensor,
    *,
    features: int = 8192,
    sizes: Sequence[int] | None = None,
    grid: int = 2,
    copies: int | str = "score",
    generator: torch.Generator | None = None,
    **settings: Any,
) -> PatchBank2d:
    """Learn patch features of several sizes.

    Parameters
    ----------
    images : Tensor of shape (images, channels, height, width)
        Images to learn from. Labels are not used.
    features, sizes, grid, copies, **settings : optional
        As in :class:`PatchFeatures`.
    generator : torch.Generator, optional
        Source of randomness. By default seeded with 0.
    """
    check_images(images)
    check_positive(features=features, grid=grid)
    image_shape = (images.shape[1], images.shape[2], images.shape[3])
    images = reduced(images)
    sizes = default_patch_sizes(*images.shape[2:]) if sizes is None else tuple(sizes)
    if not sizes:
        raise ValueError("sizes is empty: give at least one patch size")
    per_gate = grid**2 * (2 if isinstance(copies, str) else copies + 1)
    gates = features // per_gate
    if gates < len(sizes):
        what = f"one gate for each of {len(sizes)} sizes needs {per_gate * len(sizes)}"
        raise ValueError(f"{features} features are too few: {what}")
    generator = torch.Generator().manual_seed(0) if generator is None else generator
    options: dict[str, Any] = {"grid": grid, "copies": copies, "generator": generator, **settings}
    ends = [gates * i // len(sizes) for i in range(len(sizes) + 1)]
    pairs = zip((end - start for start, end in pairwise(ends)), sizes, strict=True)
    parts = [learn_patch_features(images, gates=n, size=size, **options) for n, size in pairs]
    return PatchBank2d(parts, image_shape)
