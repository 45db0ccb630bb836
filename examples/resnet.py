"""
A residual network with switched convolutions
=============================================

Run it with::

    python examples/resnet.py [EPOCHS]

Trains on the 8×8 digits that come with scikit-learn, with gates learned by inverted
backpropagation. A switched convolution takes the place of ``Conv – ReLU – Conv`` in each block.
"""

from __future__ import annotations

import sys

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tensorswitch import SwitchedConv2d
from tensorswitch.data import load


class Block(nn.Module):
    """``x + TS(norm(x))``."""

    def __init__(self, channels: int, gates: int) -> None:
        super().__init__()
        self.norm = nn.BatchNorm2d(channels)
        self.switched = SwitchedConv2d(
            channels, gates, channels, 3, padding=1, gate_bias=True, learn_gates="ibp"
        )

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.switched(self.norm(x))
        return x + y


class ResNet(nn.Sequential):
    """A stem, blocks, and the mean over positions."""

    def __init__(self, channels: int = 12, gates: int = 8, blocks: int = 2) -> None:
        super().__init__(
            nn.Conv2d(1, channels, 3, padding=1),
            *(Block(channels, gates) for _ in range(blocks)),
            nn.BatchNorm2d(channels),
            nn.AdaptiveMaxPool2d(2),
            nn.Flatten(),
            nn.Linear(4 * channels, 10),
        )


def main(epochs: int = 6) -> None:
    torch.manual_seed(0)
    split = load("digits").protocol(flat=False, validation=200)
    x, y = torch.from_numpy(split.train), torch.from_numpy(split.train_labels)
    test_x, test_y = torch.from_numpy(split.test), torch.from_numpy(split.test_labels)
    network = ResNet()
    optimizer = torch.optim.Adam(network.parameters(), lr=5e-3)
    for epoch in range(1, epochs + 1):
        network.train()
        for batch in torch.randperm(len(x)).split(32):
            optimizer.zero_grad()
            F.cross_entropy(network(x[batch]), y[batch]).backward()
            optimizer.step()
        network.eval()
        with torch.no_grad():
            wrong = (network(test_x).argmax(1) != test_y).float().mean()
        print(f"epoch {epoch}: test error {100 * wrong:.1f} %")


if __name__ == "__main__":
    main(*(int(argument) for argument in sys.argv[1:]))
