"""
Images in one pass
==================

A convolutional TS layer copies whitened patches to the windows of an image. Its readout is linear,
so it can be solved in closed form: one look at each image, no learning rate, no epochs.
"""

from __future__ import annotations

import matplotlib.pyplot as plt
import numpy as np
import torch
from sklearn.datasets import load_digits

from tensorswitch.estimators import TSConvRidgeClassifier

digits = load_digits()
images, labels = digits.images[:1200], digits.target[:1200]
test, truth = digits.images[1200:], digits.target[1200:]

# %%
# Fit
# ---
# Patch sizes, windows and mirror images are chosen on a sample. More features mean fewer errors,
# and time and memory that grow with their square.

errors = {}
for features in (64, 512):
    model = TSConvRidgeClassifier(features).fit(images, labels)
    errors[features] = 100 * (1 - model.score(test, truth))
    print(f"{features} features: {errors[features]:.1f} % wrong")
print(f"patches of {model.sizes_}, {model.grid_} × {model.grid_} windows, flips {model.flips_}")

# %%
# What it looks at
# ----------------
# Gates open for patches that look like theirs. An explanation divides an output among the pixels:
# blue ones spoke for the class, red ones against it, and all of them and a constant add up to the
# output exactly.

state = model.bank_.state_dict()
gates, filters = state["parts.2.gate_weight"][:18], state["parts.2.filters"]  # largest patches
patches = torch.einsum("gc,chij->gij", gates, filters).numpy()
row = int(np.flatnonzero(model.predict(test) != truth)[0])  # one that it gets wrong
explanation = model.explain(test[row : row + 1])
outputs = model.decision_function(test[row : row + 1])[0]
best, second = outputs.argsort()[::-1][:2]
print("sums differ from outputs by", f"{np.abs(explanation.outputs[0] - outputs).max():.0e}")

figure = plt.figure(figsize=(9, 3))
left, right = figure.subfigures(1, 2, squeeze=False)[0]
for axes, image in zip(left.subplots(3, 6).flat, patches, strict=True):
    axes.imshow(image, cmap="gray")
    axes.set_axis_off()
left.suptitle("what gates look for")
first, *others = right.subplots(1, 3)
first.imshow(test[row], cmap="gray")
first.set_title(f"a {truth[row]}")
shares = explanation.contributions[0]
limit = np.abs(shares).max()
for axes, which in zip(others, (best, second), strict=True):
    axes.imshow(shares[which], cmap="RdBu", vmin=-limit, vmax=limit)
    axes.set_title(f"as a {which}: {outputs[which]:.2f}")
for axes in (first, *others):
    axes.set_axis_off()
plt.show()

# %%
# Features of your own
# --------------------
# The same closed form takes any features: embeddings of a pretrained network, random convolutions.
# :class:`~tensorswitch.estimators.StreamingRidgeClassifier` is that part alone, and
# :class:`~tensorswitch.features.PatchFeatures` the other one.
