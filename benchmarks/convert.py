"""Measure whether it is worth converting a trained ReLU network to a TS network.

    [TENSORSWITCH_DATA=DIR] python -m benchmarks.convert [ROWS]

A ReLU network, an MLP or a small CNN, is trained for a few epochs on part of MNIST and CIFAR-10.
Its last hidden layer is then converted, exactly or compressed, and the network is trained for one
more epoch. The alternatives get the same time: the ReLU network goes on, or first gets more hidden
units, as many as give the number of parameters of the compressed layer, with zero weights in the
readout. The readout of the converted layer is also refitted by ridge regression. All start from the
same network; the table is appended to ``benchmarks/results/convert.md``.
"""

from __future__ import annotations

import copy
import sys
import time
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from benchmarks._measure import describe, print_table
from tensorswitch import convert
from tensorswitch.data import load
from tensorswitch.linear import Copies, solve_matrix_free
from tensorswitch.training import Rows

BATCH, EPOCHS, UNITS, RANK = 64, 5, 64, 6
ALPHAS = (0.01, 0.1, 1.0, 10.0)  # times the mean diagonal
RESULTS = Path(__file__).parent / "results" / "convert.md"


class Network(nn.Module):
    """Features, a hidden layer and a readout."""

    def __init__(self, features: nn.Module, count: int, units: int = UNITS) -> None:
        super().__init__()
        self.features = features
        self.hidden, self.relu, self.output = (
            nn.Linear(count, units),
            nn.ReLU(),
            nn.Linear(units, 10),
        )

    def forward(self, x: Tensor) -> Tensor:
        return self.output(self.relu(self.hidden(self.features(x))))


def build(kind: str, shape: tuple[int, ...]) -> Network:
    channels, height, width = shape
    if kind == "MLP":
        count = channels * height * width
        return Network(nn.Sequential(nn.Flatten(), nn.Linear(count, UNITS), nn.ReLU()), UNITS)
    blocks = [nn.Conv2d(channels, 16, 5, padding=2), nn.ReLU(), nn.MaxPool2d(4)]
    blocks += [nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()]
    return Network(nn.Sequential(*blocks), 32 * (height // 8) * (width // 8))


def train(network: nn.Module, rows: Rows, epochs: float, seconds: float | None = None) -> float:
    """Train for some epochs, or for some seconds; return the seconds it took."""
    parameters = [p for p in network.parameters() if p.requires_grad]
    optimizer = torch.optim.Adam(parameters, lr=5e-4)
    generator = torch.Generator().manual_seed(1)
    start, done = time.process_time(), 0.0
    while done < epochs:
        for batch in torch.randperm(len(rows.x), generator=generator).split(BATCH):
            optimizer.zero_grad(set_to_none=True)
            F.cross_entropy(network(rows.x[batch]), rows.y[batch]).backward()
            optimizer.step()
            if seconds is not None and time.process_time() - start >= seconds:
                return seconds
        done += 1
    return time.process_time() - start


@torch.no_grad()
def error(network: nn.Module, rows: Rows) -> float:
    network.eval()
    found = torch.cat([network(x).argmax(1) for x in rows.x.split(1000)])
    network.train()
    return 100 * float((found != rows.y).float().mean())


@torch.no_grad()
def widened(network: Network, units: int) -> Network:
    """Return the network with more hidden units, which start without effect."""
    wide = Network(copy.deepcopy(network.features), network.hidden.in_features, UNITS + units)
    wide.hidden.weight[:UNITS], wide.hidden.bias[:UNITS] = (
        network.hidden.weight,
        network.hidden.bias,
    )
    wide.output.weight.zero_()
    wide.output.weight[:, :UNITS] = network.output.weight
    wide.output.bias.copy_(network.output.bias)
    return wide


@torch.no_grad()
def refitted(network: Network, train_rows: Rows, test_rows: Rows) -> tuple[float, float]:
    """Return the test error of a ridge readout of the converted layer, and the seconds it took."""
    start = time.process_time()
    copies = Copies([torch.cat([network.hidden.weight, network.hidden.bias[:, None]], 1)])

    def inputs(rows: Rows) -> Tensor:
        parts = [network.features(x) for x in rows.x.split(1000)]
        return F.pad(torch.cat(parts), (0, 1), value=1.0)

    targets = 2 * F.one_hot(train_rows.y, 10).float() - 1
    x = inputs(train_rows)
    mean = copies.mean_square(copies.rows(x))
    part = len(x) * 9 // 10  # the penalty is chosen on the rest
    held, scores = Rows(train_rows.x[part:], train_rows.y[part:]), {}
    for alpha in ALPHAS:
        solution = solve_matrix_free(x[:part], targets[:part], copies, alpha * mean, tol=1e-2)
        found = solution.outputs(copies, copies.rows(inputs(held))).argmax(1)
        scores[alpha] = float((found != held.y).float().mean())
    best = min(scores, key=lambda a: scores[a])
    solution = solve_matrix_free(x, targets, copies, best * mean, tol=1e-2)
    found = solution.outputs(copies, copies.rows(inputs(test_rows))).argmax(1)
    wrong = 100 * float((found != test_rows.y).float().mean())
    return wrong, time.process_time() - start


def count(network: nn.Module) -> int:
    return sum(p.numel() for p in network.parameters())


def measure(name: str, kind: str, limit: int) -> list[list[str]]:
    split = load(name).protocol(flat=False)
    rows, test = (
        Rows.from_numpy(x[:limit], y[:limit])
        for x, y in ((split.train, split.train_labels), (split.test, split.test_labels))
    )
    torch.manual_seed(0)
    network = build(kind, tuple(rows.x.shape[1:]))
    train(network, rows, EPOCHS)
    start = error(network, test)
    exact = convert(network, ["hidden"]).train()
    small = convert(network, ["hidden"], rank=RANK).train()
    extra = (count(small) - count(network)) // (network.hidden.in_features + 11)
    table = [[name, kind, "ReLU, as trained", str(count(network)), "–", f"{start:.2f}"]]

    def add(what: str, net: nn.Module, seconds: float) -> None:
        row = [name, kind, what, str(count(net)), f"{seconds:.1f}", f"{error(net, test):.2f}"]
        table.append(row)

    seconds = train(exact, rows, 1)
    add("TS, one epoch", exact, seconds)
    more = copy.deepcopy(network)
    add("ReLU, the same time", more, train(more, rows, 1e9, seconds))
    seconds = train(small, rows, 1)
    add(f"compressed TS, rank {RANK}, one epoch", small, seconds)
    wide = widened(network, max(1, extra))
    add(f"{max(1, extra)} more ReLU units, the same time", wide, train(wide, rows, 1e9, seconds))
    more = copy.deepcopy(network)
    add("ReLU, the same time", more, train(more, rows, 1e9, seconds))
    wrong, seconds = refitted(network, rows, test)
    parameters = str(count(exact))
    row = [name, kind, "TS, readout by ridge", parameters, f"{seconds:.1f}", f"{wrong:.2f}"]
    table.append(row)
    more = copy.deepcopy(network)
    add("ReLU, the same time", more, train(more, rows, 1e9, seconds))
    return table


def main() -> None:
    torch.set_num_threads(2)
    limit = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000
    header = ["data", "network", "then", "parameters", "CPU s", "test error, %"]
    table = []
    for name in ("mnist", "cifar10"):
        for kind in ("MLP", "CNN"):
            table += measure(name, kind, limit)
            print(f"{name} {kind} done", file=sys.stderr, flush=True)
    print(f"{describe()}; {limit} training rows, {EPOCHS} epochs before the conversion\n")
    print_table(header, table)
    with RESULTS.open("a") as file:
        lines = ["| " + " | ".join(row) + " |" for row in (header, ["---"] * len(header), *table)]
        file.write(f"{describe()}; {limit} training rows, {EPOCHS} epochs before\n\n")
        file.write("\n".join(lines) + "\n\n")


if __name__ == "__main__":
    main()
