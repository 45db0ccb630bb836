"""
Reproduce the paper
===================

``python -m reproduction all`` runs the experiments of Tsai, Saxe and Cox (NIPS 2016) and writes its
table and figures; ``--scale smoke`` takes a minute, ``small`` hours, ``full`` is the whole grid.
The package ``reproduction`` is in the repository, beside the library. Here are its parts, on the
digits that come with scikit-learn. What came out on MNIST, CIFAR-10 and SVHN is on
:doc:`/results/README`, and :doc:`/paper` leads from each equation to its function.
"""

from __future__ import annotations

import tempfile
from typing import Any

import matplotlib.pyplot as plt
import torch

from reproduction import Experiment, reproduce, run
from tensorswitch import SwitchedLinear, algebra

# %%
# The algebra
# -----------
# Expansion ⊕ copies the input to each open unit, and contraction ⊖ multiplies the copies by the
# weights. Both together are a ReLU layer, Eq. (1). Without the contraction it is a TS layer.

x, w = torch.randn(5, 4), torch.randn(3, 4)
z = algebra.expand(x, w)
print("copies:", tuple(z.shape))
print("a ReLU layer:", torch.allclose(algebra.contract(z, w), (x @ w.T).relu()))

# %%
# The layer of the library computes the readout of the copies without building them.

layer = SwitchedLinear(4, 3, 2)
w_star = layer.weight.detach().flatten(0, 1).T
same = algebra.rotate_compress(x, layer.gate_weight, w_star)
print("the layer:", torch.allclose(layer(x), same, atol=1e-6))

# %%
# One pass
# --------
# The claim of table 1, in small: after one pass over the rows, TS networks (LRC, IBP-LRC and ridge
# regression, RR) have learned what a ReLU network (SS) has not. The protocol is that of the paper,
# with its learning rate, but for batches of 16 rows, since the digits are few.

few: Any = {"data": "digits", "width": 32, "components": 32, "batch_size": 16, "epochs": 12}
methods = {"ss": "SS", "ts-lrc": "TS LRC", "ts-ibp-lrc": "TS IBP-LRC", "rr": "TS RR, one pass"}
figure, axes = plt.subplots(figsize=(7, 3.2))
for method, name in methods.items():
    result = run(Experiment(method=method, **few))
    print(f"{name:16s}{100 * result.one_pass:5.1f} % wrong after one pass")
    if result.epochs:
        errors = [100 * epoch["test_error"] for epoch in result.epochs]
        axes.plot(range(1, len(errors) + 1), errors, "s--" if "IBP" in name else "o-", label=name)
    else:
        axes.axhline(100 * result.one_pass, linestyle=":", color="#009e73", label=name)
axes.set(xlabel="epoch", ylabel="test error, %", ylim=(0, 100))
axes.legend()
plt.show()

# %%
# A figure with one call
# ----------------------
# ``reproduce`` runs what is missing, and writes the figure and a page with all results.

with tempfile.TemporaryDirectory() as folder:
    made = reproduce(["figure2"], folder=folder)
    print(sorted(path.name for path in made.paths))
