"""Convolutions in channels-last format, which take a quarter less time to train, half to evaluate.

Weights are in that format during an epoch and as they were outside it. For evaluation, which
several threads may do at a time, it is the images that are converted. Networks of users are left
alone: their own code may rely on the order of numbers in memory, for example by
``x.view(len(x), -1)``.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from tensorswitch.models import Network


@contextmanager
def channels_last(network: nn.Module, optimizer: torch.optim.Optimizer) -> Iterator[None]:
    """Convert convolutions and their momenta, which fused optimisers need in the same format."""
    convolutions: list[Tensor] = []
    if type(network) is Network:
        convolutions = [m.weight for m in network.modules() if type(m) is nn.Conv2d]
    originals = [weight.data for weight in convolutions]
    for weight in convolutions:
        for tensor in (weight, *_momenta(weight, optimizer)):
            tensor.data = _copy(tensor.data, torch.channels_last)
    try:
        yield
    finally:
        for weight, original in zip(convolutions, originals, strict=True):
            weight.data = original.copy_(weight.data)  # the same memory, which others may share
            for tensor in _momenta(weight, optimizer):
                tensor.data = _copy(tensor.data, torch.contiguous_format)


def suited_images(network: nn.Module, x: Tensor) -> Tensor:
    """Return images in the format that a network of this package evaluates fastest."""
    return _copy(x, torch.channels_last) if type(network) is Network and x.ndim == 4 else x


def _copy(tensor: Tensor, memory_format: torch.memory_format) -> Tensor:
    """Return a copy in a format, with its strides even if there is only one channel."""
    # ``contiguous`` returns a tensor of one channel as it is, since it is in both formats, and a
    # convolution takes such a weight to be in the default one.
    return torch.empty_like(tensor, memory_format=memory_format).copy_(tensor)


def _momenta(weight: Tensor, optimizer: torch.optim.Optimizer) -> list[Tensor]:
    state = optimizer.state.get(weight, {})
    return [t for t in state.values() if isinstance(t, Tensor) and t.shape == weight.shape]
