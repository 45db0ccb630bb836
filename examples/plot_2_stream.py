"""
A stream that never ends
========================

Rows arrive in chunks, and no chunk is kept. A ridge regression of the copies needs only sums over
the rows, whose size does not depend on how many there were: after any number of chunks, the model
is the exact solution for all of them. If the world changes, a factor lets old rows fade.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import matplotlib.pyplot as plt
import numpy as np

from tensorswitch.estimators import TSRidgeClassifier

# %%
# The world turns
# ---------------
# Points belong to one of two crossed sectors, which no line separates. From the fortieth chunk on,
# the cross turns.


def world(chunks: int, rows: int = 100) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield chunks of points and of their classes."""
    rng = np.random.default_rng(0)
    for chunk in range(chunks):
        turned = 0.05 * max(0, chunk - 40)
        X = rng.normal(size=(rows, 2))
        angle = np.arctan2(X[:, 1], X[:, 0]) - turned
        yield X, (np.sin(2 * angle) > 0).astype(int)


# %%
# Test, then learn
# ----------------
# Each chunk is predicted before it is learned from, so that every accuracy is one on new rows. The
# readout is solved when a prediction needs it.

scores: dict[str, list[float]] = {}
for name, factor in (("all rows count", 1.0), ("old rows fade by 20 % a chunk", 0.8)):
    model = TSRidgeClassifier(gates=32, alpha="0.01 mean", forgetting=factor, random_state=0)
    scores[name] = []
    for number, (X, y) in enumerate(world(80)):
        if number:
            scores[name].append(float(model.score(X, y)))
        model.partial_fit(X, y, classes=[0, 1])

figure, axes = plt.subplots(figsize=(8, 3.2))
for name, values in scores.items():
    axes.plot(np.convolve(values, np.ones(5) / 5, "valid"), label=name)
    print(f"{name}: {np.mean(values[-20:]):.3f} in the last 20 chunks")
axes.axvline(40, linestyle=":", color="#999999")
axes.set(xlabel="chunk", ylabel="accuracy on new rows", title="the world turns from chunk 40 on")
axes.legend()
plt.show()

# %%
# Chunks make no difference
# -------------------------
# Without forgetting, chunks give the model of all rows at once. Scales of columns are the
# exception: ``partial_fit`` takes them from its first chunk, so they are given here.

parts = list(world(20))
X_all, y_all = (np.concatenate(a) for a in zip(*parts, strict=True))
given: Any = {
    "standardize": (X_all.mean(0), X_all.std(0)),
    "solver": "streaming",
    "random_state": 0,
}
whole = TSRidgeClassifier(gates=32, **given).fit(X_all, y_all)
chunked = TSRidgeClassifier(gates=32, **given)
for X, y in parts:
    chunked.partial_fit(X, y, classes=[0, 1])
far = np.abs(whole.decision_function(X_all) - chunked.decision_function(X_all)).max()
print(f"largest difference of the outputs: {far:.0e}")

# %%
# Files that are larger than memory are streams, too: ``examples/stream_from_disk.py`` reads NumPy
# files and a Parquet table in chunks.
