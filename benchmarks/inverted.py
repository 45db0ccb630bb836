"""Measure the overhead of inverted backpropagation in training steps of LRC networks.

    python -m benchmarks.inverted

A step is forward, cross entropy, backward and SGD with momentum, on a single square layer of width
n, and on two TS layers, the second of which is the readout of 10 classes; batch size 128, float32,
two threads.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn
from torch.nn import functional as F

from benchmarks._measure import describe, print_table, side_by_side
from tensorswitch import SwitchedLinear


def step(
    n: int, outputs: list[int], learn_gates: str | None, batch: int = 128
) -> Callable[[], None]:
    torch.manual_seed(0)
    model = nn.Sequential(
        *(SwitchedLinear(n, n, out, bias=False, learn_gates=learn_gates) for out in outputs)
    )
    optimiser = torch.optim.SGD(
        model.parameters(), lr=1e-3, momentum=0.9, weight_decay=1e-3, fused=True
    )
    x, labels = torch.randn(batch, n), torch.randint(0, 10, (batch,))

    def run() -> None:
        optimiser.zero_grad(set_to_none=True)
        F.cross_entropy(model(x), labels).backward()
        optimiser.step()

    return run


def main() -> None:
    torch.set_num_threads(2)
    print(describe(), "\n")
    rows = []
    for n in (64, 128, 256):
        for outputs in ([n], [n, 10]):
            best = side_by_side(
                {"lrc": step(n, outputs, None), "ibp": step(n, outputs, "ibp")}, seconds=8
            )
            name = f"{n} → {n}" + " → 10" * (len(outputs) - 1)
            rows.append(
                [
                    name,
                    f"{1e3 * best['lrc']:.2f}",
                    f"{1e3 * best['ibp']:.2f}",
                    f"{best['ibp'] / best['lrc']:.3f}",
                ]
            )
    print_table(["layers", "LRC ms", "IBP-LRC ms", "ratio"], rows)
    print("\nThe paper's implementation: about 1.5 (17.4 / 11.7 in its time column).")


if __name__ == "__main__":
    main()
