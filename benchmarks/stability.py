"""Measure which TS networks are stable at the learning rate of the paper.

    [TENSORSWITCH_DATA=DIR] python -m benchmarks.stability [--components 32 64 128 256]

Gradient descent with rate η and momentum β is stable on a quadratic only if its largest curvature
is below 2 (1 + β) / η: 3,800 for the paper's η = 1e-3 and β = 0.9. The first table has the largest
curvature of the Gauss-Newton matrix ``Jᵀ H J / B`` at the initial weights, in three batches of 128
rows; the second one the training loss at the end of the first 150 batches.
"""

from __future__ import annotations

import argparse
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from benchmarks._measure import describe, print_table
from tensorswitch.data import load
from tensorswitch.models import mlp

RATE, MOMENTUM, BATCH, BATCHES, STEPS = 1e-3, 0.9, 128, 3, 150
NETWORKS = [("ss", 3), ("ts-lrc", 1), ("ts-lrc", 2), ("ts-lrc", 3)]
WARMUPS = [(1e-3, 0), (5e-4, 0), (2.5e-4, 0), (1e-3, STEPS)]  # rates and steps until they are used


def curvature(network: nn.Module, x: Tensor, steps: int = 20) -> float:
    """Return the largest eigenvalue of the Gauss-Newton matrix of cross-entropy, by power steps."""
    trained = {k: p.detach() for k, p in network.named_parameters() if p.requires_grad}

    def outputs(parameters: dict[str, Tensor]) -> Any:
        return torch.func.functional_call(network, parameters, (x,))

    def norm(v: dict[str, Tensor]) -> Tensor:
        return torch.stack([part.square().sum() for part in v.values()]).sum().sqrt()

    linearised: Any = torch.func.vjp(outputs, trained)
    y, pull = linearised
    p = y.softmax(1)
    generator = torch.Generator().manual_seed(0)
    v = {k: torch.randn(t.shape, generator=generator) for k, t in trained.items()}
    value = torch.tensor(0.0)
    for _ in range(steps):
        length = norm(v)
        pushed: Any = torch.func.jvp(outputs, (trained,), ({k: t / length for k, t in v.items()},))
        change = pushed[1]
        (v,) = pull(p * (change - (p * change).sum(1, keepdim=True)) / len(x))
        value = norm(v)
    return float(value)


def last_loss(network: nn.Module, x: Tensor, y: Tensor, rate: float, warmup: int) -> float:
    """Return the mean loss of the last 20 of ``STEPS`` steps, with the other settings of SGD."""
    trained = [p for p in network.parameters() if p.requires_grad]
    optimizer = torch.optim.SGD(trained, rate, momentum=MOMENTUM, weight_decay=1e-3, fused=True)
    losses = []
    for step, batch in enumerate(torch.randperm(len(x)).split(BATCH)[:STEPS], 1):
        optimizer.param_groups[0]["lr"] = rate * min(1.0, step / max(1, warmup))
        optimizer.zero_grad()
        loss = F.cross_entropy(network(x[batch]), y[batch])
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return sum(losses[-20:]) / 20


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--components", nargs="*", type=int, default=[32])
    components = parser.parse_args().components
    limit = 2 * (1 + MOMENTUM) / RATE
    print(f"{describe()}; stable below a curvature of {limit:,.0f}\n")
    rows, losses = [], []
    for data in ("mnist", "cifar10", "svhn"):
        dataset = load(data)
        for n in components:
            split = dataset.protocol(n)
            x, y = torch.from_numpy(split.train), torch.from_numpy(split.train_labels)
            where = [data, str(n)]
            for kind, depth in NETWORKS:
                torch.manual_seed(0)
                network = mlp(n, 10, kind=kind, depth=depth)
                found = max(curvature(network, part) for part in x[: BATCHES * BATCH].split(BATCH))
                rows.append([*where, f"{x.square().sum(1).mean():.0f}", kind, str(depth)])
                rows[-1] += [f"{found:,.0f}", f"{RATE * limit / found:.1e}"]
            for depth in (2, 3):
                cells = []
                for rate, warmup in WARMUPS:
                    torch.manual_seed(0)
                    network = mlp(n, 10, kind="ts-lrc", depth=depth)
                    cells.append(f"{last_loss(network, x, y, rate, warmup):.2f}")
                losses.append([*where, "ts-lrc", str(depth), *cells])
    print_table(
        ["data", "components", "mean ‖x‖²", "kind", "depth", "curvature", "largest rate"], rows
    )
    print(f"\nLoss after {STEPS} steps, by rate (chance: {torch.tensor(10.0).log():.2f}):\n")
    rates = [f"{rate:g}" + f", warm-up of {w}" * bool(w) for rate, w in WARMUPS]
    print_table(["data", "components", "kind", "depth", *rates], losses)


if __name__ == "__main__":
    main()
