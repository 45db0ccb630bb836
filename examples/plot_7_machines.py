"""
Several machines: Dask and torchrun
===================================

Sums over rows can be computed anywhere and added: on threads, processes or machines. Three ways are
shown on one machine; they are the same on many. :doc:`/planning` says how many are worth it.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import dask
import dask.array as da
import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits

from tensorswitch.estimators import TSConvRidgeClassifier, fit_on_dask

digits = load_digits()
images, labels = digits.images[:1500], digits.target[:1500]
test, truth = digits.images[1500:], digits.target[1500:]

# %%
# By hand
# -------
# One model learns the features from a sample. Each worker starts from a copy ``without_rows``,
# learns from its own rows, and sends it back: sums, whose size does not depend on the rows.

sample = TSConvRidgeClassifier(256, grid=2, flips=False, dtype="float64")
sample.fit(images[:300], labels[:300])
whole = sample.without_rows().partial_fit(images, labels)
total = sample.without_rows()
for worker in range(4):
    total.merge(sample.without_rows().partial_fit(images[worker::4], labels[worker::4]))
print(f"one machine: {100 * whole.score(test, truth):.1f} % right")
far = np.abs(total.decision_function(test) - whole.decision_function(test)).max()
print(f"four workers: outputs differ by {far:.0e}")

# %%
# Dask
# ----
# The rows are a Dask array, in chunks that live on the workers. Sums are merged in a tree. Without
# a cluster, as here, Dask uses threads; with ``dask.distributed.Client(ADDRESS)`` it uses the
# workers of that cluster. Tasks do not modify their inputs, so a chunk that is repeated after a
# worker has died still counts once.

arrays = [da.from_array(a, chunks=250) for a in (images, labels)]
with dask.config.set(scheduler="threads", num_workers=2):
    clustered = fit_on_dask(sample, *arrays, split_every=2)
far = np.abs(clustered.decision_function(test) - whole.decision_function(test)).max()
print(f"Dask, six chunks: outputs differ by {far:.0e}")

# %%
# torchrun
# --------
# Under ``torchrun`` each rank runs the same program on its share of the rows, and
# ``model.all_reduce()`` adds the sums of all. This is ``examples/ranks.py``, which has to be in the
# current folder or in ``examples``:

program = next((p for p in (Path("ranks.py"), Path("examples/ranks.py")) if p.exists()), None)
if program is None:
    sys.exit("ranks.py was not found; download it to this folder")
command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
done = subprocess.run(
    [*command, str(program)],
    env={**os.environ, "OMP_NUM_THREADS": "1"},
    capture_output=True,
    text=True,
    check=True,
)
print(done.stdout)

# %%
# How much is sent
# ----------------
# A worker sends two halves of symmetric matrices, of all rows and of those that are left out to
# choose the penalty, however many rows it has seen. Left of the crossing points sums are smaller
# than the images that they stand for.

features = 2 ** np.arange(10, 16)
figure, axes = plt.subplots(figsize=(7, 3.2))
axes.loglog(features, 2 * features**2 / 2 * 4 / 1e6, "o-", label="sums of a worker (float32)")
for count, place, side in ((10_000, features[-1], "right"), (1_000_000, features[0], "left")):
    size = count * 32 * 32 * 3 / 1e6
    axes.axhline(size, linestyle=":", color="#999999")
    axes.text(place, 1.2 * size, f"{count:,} colour images of 32 × 32", horizontalalignment=side)
axes.set(xlabel="features", ylabel="megabytes", ylim=(1, 10_000))
axes.legend(loc="lower right")
plt.show()
