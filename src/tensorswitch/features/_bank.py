"""Patch features of several sizes side by side."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Self

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tensorswitch._checks import check_floating, check_positive, check_shape
from tensorswitch.features._learning import default_patch_sizes, learn_patch_features
from tensorswitch.features._module import PatchFeatures2d, positions
from tensorswitch.persistence import saved_as

MOST_PIXELS = 48  # along an axis; larger images are reduced
FEWEST_PIXELS = 12  # that squares must leave of the shorter side


@saved_as("patch-bank")
class PatchBank2d(nn.Module):
    """Compute patch features of several sizes, one after another.

    Parameters
    ----------
    parts : sequence of PatchFeatures2d
        The features of each size, for images that have been :func:`reduced`.
    image_shape : tuple of (int, int, int)
        Channels, height and width of the images.

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

    def __init__(
        self,
        parts: Sequence[PatchFeatures2d],
        image_shape: tuple[int, int, int],
    ) -> None:
        super().__init__()
        self.parts = nn.ModuleList(parts)
        self.image_shape = image_shape
        self.out_features = sum(part.out_features for part in parts)

    def reduced(self, images: Tensor) -> Tensor:
        """Return the images as the parts see them.

        Parameters
        ----------
        images : Tensor of shape (images, channels, height, width)
            The images.

        Returns
        -------
        Tensor of shape (images, channels, height / factor, width / factor)
            Averages over squares.
        """
        check_floating("images", images)
        axes = "(images, channels, height, width)"
        check_shape("images", images, (None, *self.image_shape), axes)
        return reduced(images)

    def forward(self, images: Tensor) -> Tensor:
        """Compute the features.

        Parameters
        ----------
        images : Tensor of shape (images, channels, height, width)
            The images.

        Returns
        -------
        Tensor of shape (images, out_features)
            The features of all sizes.
        """
        images = self.reduced(images)
        return torch.cat([part(images) for part in self.parts], dim=1)

    def state(self) -> dict[str, Any]:
        """Return the settings of the parts and all tensors.

        Returns
        -------
        dict
            Plain values and arrays; see :meth:`from_state`.
        """
        names = ("image_shape", "stride", "floor", "grid", "copies", "pool", "power")
        parts = [{name: getattr(part, name) for name in names} for part in self.parts]
        return {"image_shape": self.image_shape, "parts": parts, "tensors": self.state_dict()}

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> Self:
        """Return the bank of a state.

        Parameters
        ----------
        state : dict
            What :meth:`state` returned.

        Returns
        -------
        PatchBank2d
            The bank.

        Raises
        ------
        KeyError, TypeError, ValueError
            If settings and tensors do not fit together.
        """
        tensors = state["tensors"]
        parts = []
        for number, settings in enumerate(state["parts"]):
            settings = dict(settings)
            channels, height, width = settings.pop("image_shape")
            names = ("filters", "offset", "gate_weight", "threshold")
            held: dict[str, Any] = {name: tensors[f"parts.{number}.{name}"] for name in names}
            shape = (channels, height, width)
            # A damaged shape must not allocate more than the file holds.
            across = positions(height, width, held["filters"].shape[-1], settings["stride"])
            expected = (settings["grid"] ** 2, math.prod(across))
            check_shape(
                "windows", tensors[f"parts.{number}.windows"], expected, "(windows, positions)"
            )
            parts.append(PatchFeatures2d(**held, image_shape=shape, **settings))
        channels, height, width = state["image_shape"]
        return cls(parts, (channels, height, width))

    def extra_repr(self) -> str:
        """Return the settings shown by ``repr``."""
        return f"image_shape={self.image_shape}"


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
    features : int, default=8192
        Number of features to aim at; the number of gates follows from it.
    sizes : sequence of int, optional
        Sizes of the patches. By default an eighth, a fifth and a third of the image.
    grid : int, default=2
        There are ``grid × grid`` windows.
    copies : "score" or int, default="score"
        What is copied; see :class:`PatchFeatures2d`.
    generator : torch.Generator, optional
        Source of randomness. By default seeded with 0.
    **settings
        Passed to :func:`learn_patch_features`.

    Returns
    -------
    PatchBank2d
        The module that computes the features.

    Raises
    ------
    ValueError
        If the images are smaller than the patches or show nothing, or there are too few features
        for one gate of each size.
    """
    check_floating("images", images)
    check_shape("images", images, (None,) * 4, "(images, channels, height, width)")
    check_positive(features=features, grid=grid)
    image_shape = (images.shape[1], images.shape[2], images.shape[3])
    images = reduced(images)
    sizes = default_patch_sizes(*images.shape[2:]) if sizes is None else tuple(sizes)
    if not sizes:
        raise ValueError("sizes is empty: give at least one patch size")
    per_gate = grid**2 * (2 if isinstance(copies, str) else copies + 1)
    gates = features // per_gate
    if gates < len(sizes):
        raise ValueError(
            f"{features} features are too few: one gate for each of {len(sizes)} sizes needs "
            f"{per_gate * len(sizes)}"
        )
    generator = torch.Generator().manual_seed(0) if generator is None else generator
    ends = [gates * i // len(sizes) for i in range(len(sizes) + 1)]
    options: dict[str, Any] = {"grid": grid, "copies": copies, "generator": generator, **settings}
    parts = [
        learn_patch_features(images, gates=end - start, size=size, **options)
        for start, end, size in zip(ends, ends[1:], sizes, strict=False)
    ]
    return PatchBank2d(parts, image_shape)


def reduced(images: Tensor) -> Tensor:
    """Average large images over squares, so that they have at most 48 pixels along an axis.

    Images so long that little would be left of their shorter side are reduced along the other only.

    Parameters
    ----------
    images : Tensor of shape (images, channels, height, width)
        The images.

    Returns
    -------
    Tensor of shape (images, channels, height / factor, width / factor)
        The same images if they are small.
    """
    factors = reduction(*images.shape[2:])
    return images if max(factors) <= 1 else F.avg_pool2d(images, factors)


def reduction(height: int, width: int) -> tuple[int, int]:
    """Return how many pixels of each axis :func:`reduced` averages.

    Parameters
    ----------
    height, width : int
        Size of the images.

    Returns
    -------
    tuple of int
        The factors of both axes.
    """
    down, across = (max(1, -(-side // MOST_PIXELS)) for side in (height, width))
    both = max(down, across)
    return (both, both) if min(height, width) // both >= FEWEST_PIXELS else (down, across)
