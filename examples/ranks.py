"""
Learn on several processes with torchrun
========================================

Run it with::

    torchrun --standalone --nproc-per-node 2 examples/ranks.py

Each rank sums the features of its own images, ``all_reduce`` adds the sums, and all ranks solve the
same system. With more machines, pass the addresses to ``torchrun``; the program is the same.
"""

from __future__ import annotations

import torch
from sklearn.datasets import load_digits
from torch import distributed

from tensorswitch.estimators import TSConvRidgeClassifier


def main() -> None:
    """Learn digits, of which each rank sees its share."""
    torch.set_num_threads(1)
    distributed.init_process_group("gloo")
    rank, ranks = distributed.get_rank(), distributed.get_world_size()
    digits = load_digits()
    images, labels = digits.images[:1500], digits.target[:1500]
    # All ranks learn the same features, from the same sample.
    model = TSConvRidgeClassifier(256, grid=2, flips=False).fit(images[:300], labels[:300])
    model = model.without_rows().partial_fit(images[rank::ranks], labels[rank::ranks])
    model.all_reduce()
    if rank == 0:
        accuracy = model.score(digits.images[1500:], digits.target[1500:])
        print(f"{ranks} ranks: {100 * accuracy:.1f} % right")
    distributed.barrier()  # none leaves while another still needs it
    distributed.destroy_process_group()


if __name__ == "__main__":
    main()
