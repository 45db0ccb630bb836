"""Random numbers of layers that depend on a seed alone."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def seeded(seed: int, device: torch.device | None = None) -> Iterator[None]:
    """Let torch's global generators start from a seed, and restore them after the block.

    These are the generator of the CPU and, if ``device`` is a GPU, its own; generators of other
    devices are left alone, whereas ``torch.manual_seed`` would seed all of them.
    """
    gpu = [device] if device is not None and device.type == "cuda" else []
    with torch.random.fork_rng(devices=gpu):
        torch.default_generator.manual_seed(seed)
        if gpu:
            with torch.cuda.device(device):
                torch.cuda.manual_seed(seed)
        yield
