"""
Train a network with checkpoints, on one process or several
===========================================================

Run it with::

    python examples/train_network.py FOLDER [EPOCHS]
    torchrun --standalone --nproc-per-node 2 examples/train_network.py FOLDER [EPOCHS]

Interrupt it and run it again: it continues after the last complete epoch. Each of N processes takes
its share of each batch, so that two processes with 16 rows each do what one does with 32.
"""

from __future__ import annotations

import os
import sys
from typing import Any

import torch
from torch import distributed

from tensorswitch.data import load
from tensorswitch.models import mlp
from tensorswitch.training import Learner, Rows, train


def main(folder: str, epochs: int) -> None:
    """Train in a folder, which has checkpoints, the history and events for TensorBoard."""
    ranks = int(os.environ.get("WORLD_SIZE", "1"))
    if ranks > 1:
        distributed.init_process_group("gloo")  # "nccl" on GPUs, with device=f"cuda:{rank}"
    torch.set_num_threads(1)
    torch.manual_seed(0)  # all processes start from the same weights
    split = load("digits").protocol()
    parts = zip(split[0:6:2], split[1:6:2], strict=True)
    rows, validation, test = (Rows.from_numpy(x, y) for x, y in parts)
    network = mlp(64, 10, kind="ts-ibp-lrc", depth=2, width=16)
    learner = Learner(network, lr=0.05, batch_size=32 // ranks)
    held: Any = {"validation": validation, "test": test}
    history = train(learner, rows, epochs=epochs, folder=folder, tensorboard=True, **held)
    if learner.rank == 0:
        best, first = history.best, history.epochs[0]
        print(f"{len(history.epochs)} epochs: {100 * first.test_error:.1f} % wrong after the first")
        print(f"{100 * best.test_error:.1f} % after epoch {best.epoch}, best by validation")
    if ranks > 1:
        distributed.barrier()  # none leaves while another still needs it
        distributed.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 5)
