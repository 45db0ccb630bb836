"""Measure which TS networks are stable at the learning rate of the paper.

    python -m benchmarks.stability

Gradient descent with rate η and momentum β is stable on a quadratic only if its largest curvature
is below 2 (1 + β) / η: 3,800 for the paper's η = 1e-3 and β = 0.9. The curvature is that of the
Gauss-Newton matrix ``Jᵀ H J / B`` at the initial weights, of batches of 128 rows. The largest rate
is the one at which the curvature reaches the limit.
"""

from __future__ import annotations

import argparse
from typing import Any

import torch
from torch import Tensor

from benchmarks._measure import describe, print_table
from tensorswitch.data import load
from tensorswitch.models import mlp

RATE, MOMENTUM, BATCH = 1e-3, 0.9, 128


def curvature(network: torch.nn.Module, x: Tensor, steps: int = 20) -> float:
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
        unit = {k: t / length for k, t in v.items()}
        pushed: Any = torch.func.jvp(outputs, (trained,), (unit,))
        change = pushed[1]
        weighted = p * (change - (p * change).sum(1, keepdim=True)) / len(x)
        (v,) = pull(weighted)
        value = norm(v)
    return float(value)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--data", nargs="*", default=["mnist", "cifar10", "svhn"])
    parser.add_argument("--components", nargs="*", type=int, default=[32, 64, 128, 256])
    parser.add_argument("--batches", type=int, default=3)
    options = parser.parse_args()
    limit = 2 * (1 + MOMENTUM) / RATE
    print(describe(), "\n")
    rows = []
    for data in options.data:
        dataset = load(data)
        for components in options.components:
            train = torch.from_numpy(dataset.protocol(components).train)
            for kind, depth in (("ss", 3), ("ts-lrc", 1), ("ts-lrc", 2), ("ts-lrc", 3)):
                torch.manual_seed(0)
                network = mlp(components, 10, kind=kind, depth=depth)
                parts = train[: options.batches * BATCH].split(BATCH)
                found = max(curvature(network, x) for x in parts)
                rows.append(
                    [
                        data,
                        str(components),
                        f"{train.square().sum(1).mean():.0f}",
                        f"{kind}, depth {depth}",
                        f"{found:,.0f}",
                        "yes" if found < limit else "no",
                        f"{RATE * limit / found:.1e}",
                    ]
                )
                print(*rows[-1], sep=" | ", flush=True)
    print(f"\nLimit: {limit:,.0f}\n")
    header = ["data", "components", "mean ‖x‖²", "network", "curvature", "stable", "largest rate"]
    print_table(header, rows)


if __name__ == "__main__":
    main()
