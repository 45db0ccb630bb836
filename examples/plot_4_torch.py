"""
A torch layer, and converting trained networks
==============================================

``SwitchedLinear(in, gates, out)`` takes the place of ``Linear – ReLU – Linear``: its gates decide,
and its analysis weights are applied to copies of the input. It is an ordinary module.
"""

from __future__ import annotations

import matplotlib.pyplot as plt
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tensorswitch import SwitchedLinear, convert
from tensorswitch.data import load
from tensorswitch.explain import explain

torch.manual_seed(0)
split = load("digits").protocol(validation=200)
x, y = torch.from_numpy(split.train), torch.from_numpy(split.train_labels)
test_x, test_y = torch.from_numpy(split.test), torch.from_numpy(split.test_labels)


def error(network: nn.Module) -> float:
    """Return the test error in percent."""
    with torch.no_grad():
        wrong: Tensor = (network(test_x).argmax(1) != test_y).float().mean()
    return 100 * float(wrong)


def train(network: nn.Module, epochs: int = 8) -> list[float]:
    """Train with Adam; return the test error after each epoch."""
    optimizer = torch.optim.Adam(network.parameters(), lr=2e-3)
    errors = []
    for _ in range(epochs):
        for batch in torch.randperm(len(x)).split(32):
            optimizer.zero_grad()
            F.cross_entropy(network(x[batch]), y[batch]).backward()
            optimizer.step()
        errors.append(error(network))
    return errors


# %%
# Train
# -----
# With ``learn_gates="ibp"`` the backward pass also gives the gates a pseudo-gradient, by inverted
# backpropagation; otherwise they stay as they were drawn.

relu = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
networks = {
    "ReLU, 64 units": relu,
    "TS, 64 random gates": SwitchedLinear(64, 64, 10),
    "TS, 64 learned gates": SwitchedLinear(64, 64, 10, learn_gates="ibp"),
}
figure, axes = plt.subplots(figsize=(7, 3.2))
for name, network in networks.items():
    errors = train(network)
    axes.plot(range(1, len(errors) + 1), errors, "o-", label=name)
    count = sum(p.numel() for p in network.parameters())
    print(f"{name}: {errors[0]:.1f} % wrong after one epoch, {errors[-1]:.1f} % after 8; {count:,}")
axes.set(xlabel="epoch", ylabel="test error, %", ylim=(0, None))
axes.legend()
plt.show()

# %%
# Each layer of a TS network has many more weights than the ReLU layer with as many units, and
# therefore learns faster.
#
# Convert
# -------
# A trained ReLU network is a TS network whose analysis weights are products. ``convert`` writes
# them out. The result computes the same, and each unit now has a linear map of its own.

converted = convert(relu)
with torch.no_grad():
    far = (converted(test_x) - relu(test_x)).abs().max()
print(f"outputs differ by {float(far):.0e}; {error(converted):.1f} % wrong, as before")
print(converted.get_submodule("0"))

# %%
# Why this answer?
# ----------------
# Once the gates are known, the network is a linear map of the input: contributions are exact.

explanation = explain(converted, test_x[:1])
output = converted(test_x[:1])[0, 0].detach()
shares = explanation.contributions[0, 0]
total = shares.sum() + explanation.constant[0, 0]
print(f"shares of {len(shares)} pixels add up to {total:.4f}, the output is {float(output):.4f}")

# %%
# Layers compile in one graph (``torch.compile(network, fullgraph=True)``), export to ONNX
# (:func:`tensorswitch.nn.to_onnx`), and run under ``torchrun``. ``torch.export.load`` knows their
# operators after ``import tensorswitch.nn``. A residual network and a transformer with TS layers
# are in ``examples/resnet.py`` and ``examples/transformer.py``.
