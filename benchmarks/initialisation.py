"""Measure how much the first epoch of CNNs depends on the fans of Glorot's initialisation.

    [TENSORSWITCH_DATA=DIR] python -m benchmarks.initialisation

Glorot's uniform distribution has the limit ``√(6 / (fan_in + fan_out))``. For a convolution of n
channels to m with kernels of k × k, both fans count the kernel in PyTorch and in Keras from 1.0.4
on: ``k²n + k²m``. Up to Keras 1.0.3 only the first one does: ``k²n + m``, for larger weights. The
program of the paper uses the default of a version of Keras that it does not name.
"""

from __future__ import annotations

from math import sqrt

import torch
from torch import nn

from benchmarks._measure import describe, print_table
from reproduction import published
from tensorswitch.data import load
from tensorswitch.models import cnn
from tensorswitch.training import Learner, Rows, train

CASES = [("mnist", "ss", (1, 1, 1), 1), ("cifar10", "ss", (1, 1, 1), 1)]


@torch.no_grad()
def without_kernel_in_fan_out(network: nn.Module) -> nn.Module:
    """Multiply the initial weights of convolutions for fans as in Keras up to 1.0.3."""
    for layer in network.modules():
        if isinstance(layer, nn.Conv2d):
            outputs, inputs, *kernel = layer.weight.shape
            area = kernel[0] * kernel[1]
            layer.weight.mul_(sqrt(area * (inputs + outputs) / (area * inputs + outputs)))
    return network


def main() -> None:
    print(f"{describe()}; seed 0; test error after one epoch in percent\n")
    rows = []
    for data, kind, convolutions, depth in CASES:
        split = load(data).protocol(flat=False)
        train_rows = Rows.from_numpy(split.train, split.train_labels)
        test_rows = Rows.from_numpy(split.test, split.test_labels)
        errors = []
        for change in (nn.Identity(), without_kernel_in_fan_out):
            torch.manual_seed(0)
            channels, size = train_rows.x.shape[1], tuple(train_rows.x.shape[2:])
            network = cnn(channels, size, 10, kind=kind, convolutions=convolutions, depth=depth)
            history = train(Learner(change(network), seed=0), train_rows, epochs=1, test=test_rows)
            errors.append(f"{100 * history.epochs[0].test_error:.2f}")
        best = published.ONE_PASS[f"cnn-{kind}"][data]
        shape = f"{sum(convolutions)}+{depth}"
        rows.append([data, kind, shape, *errors, f"{best.error} ({best.depth})"])
    print_table(
        ["data", "kind", "depth", "k²n + k²m", "k²n + m", "paper, best of 81 (its depth)"], rows
    )


if __name__ == "__main__":
    main()
