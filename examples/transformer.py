"""
A transformer with compressed TS layers
=======================================

Run it with::

    python examples/transformer.py [STEPS]

The task is to add two numbers modulo ten that are marked in a sequence of digits. The feed-forward
block ``Linear – ReLU – Linear`` of each layer becomes a ``CompressedSwitching`` layer, which adds a
small TS term to it. Compiles in one graph: ``torch.compile(Transformer(), fullgraph=True)``.
"""

from __future__ import annotations

import sys

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tensorswitch import CompressedSwitching

LENGTH, WIDTH = 6, 32


class Layer(nn.Module):
    """Attention and a feed-forward block, each with a normalised input and a skip connection."""

    def __init__(self, width: int, units: int, rank: int) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2))
        self.attention = nn.MultiheadAttention(width, 4, batch_first=True)
        hidden, output = nn.Linear(width, units), nn.Linear(units, width)
        self.feed_forward = CompressedSwitching(hidden, output, rank)

    def forward(self, x: Tensor) -> Tensor:
        h = self.norms[0](x)
        x = x + self.attention(h, h, h, need_weights=False)[0]
        y: Tensor = x + self.feed_forward(self.norms[1](x))
        return y


class Transformer(nn.Module):
    """From digits and marks to the last digit of the sum of the marked ones."""

    def __init__(self, layers: int = 2, units: int = 64, rank: int = 4) -> None:
        super().__init__()
        self.digits, self.marks = nn.Embedding(10, WIDTH), nn.Embedding(2, WIDTH)
        self.place = nn.Parameter(torch.zeros(LENGTH, WIDTH))
        self.layers = nn.Sequential(*(Layer(WIDTH, units, rank) for _ in range(layers)))
        self.output = nn.Linear(WIDTH, 10)

    def forward(self, digits: Tensor, marks: Tensor) -> Tensor:
        x = self.layers(self.digits(digits) + self.marks(marks) + self.place)
        y: Tensor = self.output(x.mean(1))
        return y


def task(rows: int) -> tuple[Tensor, Tensor, Tensor]:
    digits = torch.randint(0, 10, (rows, LENGTH))
    chosen = torch.rand(rows, LENGTH).topk(2, 1).indices
    marks = torch.zeros(rows, LENGTH, dtype=torch.int64).scatter_(1, chosen, 1)
    return digits, marks, (digits * marks).sum(1) % 10


def main(steps: int = 1500) -> None:
    torch.manual_seed(0)
    network = Transformer()
    optimizer = torch.optim.Adam(network.parameters(), lr=2e-3)
    digits, marks, sums = task(1000)
    for step in range(1, steps + 1):
        batch = task(128)
        optimizer.zero_grad()
        F.cross_entropy(network(*batch[:2]), batch[2]).backward()
        optimizer.step()
        if step % max(1, steps // 5) == 0:
            with torch.no_grad():
                wrong = (network(digits, marks).argmax(1) != sums).float().mean()
            print(f"step {step}: test error {100 * wrong:.1f} %")


if __name__ == "__main__":
    main(*(int(argument) for argument in sys.argv[1:]))
