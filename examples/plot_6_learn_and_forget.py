"""
Learn classes one after another, and forget on request
======================================================

Networks that learn tasks one after another forget the first ones. Sums do not: they hold what was
learned from every row, in any order, and what was added can be subtracted. Here digits arrive two
classes at a time, then from a hundred clients with one class each, and then images are removed.
Each time, the model is the one of the same rows at once, to rounding.
"""

from __future__ import annotations

import matplotlib.pyplot as plt
import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import nn

from tensorswitch.estimators import TSConvRidgeClassifier

digits = load_digits()
images, labels = digits.images[:1500], digits.target[:1500]
test, truth = digits.images[1500:], digits.target[1500:]


def difference(one: TSConvRidgeClassifier, other: TSConvRidgeClassifier) -> float:
    """Return the largest difference of the outputs of two models."""
    return float(np.abs(one.decision_function(test) - other.decision_function(test)).max())


# %%
# Everything at once
# ------------------
# The features are learned from the first images, without labels. From then on rows only count as
# sums.

first = TSConvRidgeClassifier(256, grid=2, flips=False, dtype="float64")
first.fit(images[:300], labels[:300])
whole = first.without_rows().partial_fit(images, labels)
print(f"all images at once: {100 * whole.score(test, truth):.1f} % right")

# %%
# Two classes at a time
# ---------------------
# A network trained by gradient descent on one pair after another is drawn for comparison: it knows
# the last pair.

network = nn.Sequential(nn.Flatten(), nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))
optimizer = torch.optim.Adam(network.parameters(), lr=3e-3)
later = first.without_rows()
curves: dict[str, list[float]] = {"exact sums": [], "network, gradient descent": []}
for task in range(5):
    rows = np.isin(labels, [2 * task, 2 * task + 1])
    seen = truth < 2 * task + 2
    later.partial_fit(images[rows], labels[rows])
    curves["exact sums"].append(100 * later.score(test[seen], truth[seen]))
    x, y = torch.tensor(images[rows] / 16).float(), torch.tensor(labels[rows])
    for _ in range(60):
        optimizer.zero_grad()
        nn.functional.cross_entropy(network(x), y).backward()
        optimizer.step()
    guess = network(torch.tensor(test[seen] / 16).float()).argmax(1).numpy()
    curves["network, gradient descent"].append(100 * float(np.mean(guess == truth[seen])))
print(f"two classes at a time: outputs differ by {difference(later, whole):.1e}")

figure, axes = plt.subplots(figsize=(7, 3.2))
for name, values in curves.items():
    axes.plot([2 * task + 2 for task in range(5)], values, "o-", label=name)
axes.set(
    xlabel="classes seen so far", ylabel="% of them right", xticks=range(2, 11, 2), ylim=(0, 103)
)
axes.legend()
plt.show()

# %%
# A hundred clients
# -----------------
# Each client has images of one class or two, and sends only its sums. One round of merging gives
# the model of all images.

server = first.without_rows()
for part in np.array_split(np.argsort(labels, kind="stable"), 100):
    server.merge(first.without_rows().partial_fit(images[part], labels[part]))
print(f"a hundred clients, merged: outputs differ by {difference(server, whole):.1e}")

# %%
# Forget
# ------
# Every hundredth image is to be deleted. Its row is subtracted from the sums; nothing of it is left
# in the model, which is that of the other images.

removed = np.arange(len(images)) % 100 == 0
server.remove(images[removed], labels[removed])
without = first.without_rows().partial_fit(images[~removed], labels[~removed])
print(f"1 % of the images removed: outputs differ by {difference(server, without):.1e}")

# %%
# Gates and scales, which were learned without labels from the first 300 images, stay: if one of
# these images must leave no trace, start from other images.
