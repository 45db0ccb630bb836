"""
Train for long: checkpoints, processes and TensorBoard
======================================================

:func:`tensorswitch.training.train` writes a checkpoint after every epoch. A run that was killed
continues from there, with the same result to the last bit, and the checkpoint of a run with other
settings is refused.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import torch

from tensorswitch.data import load
from tensorswitch.models import mlp
from tensorswitch.training import BEST, Learner, Rows, train

split = load("digits").protocol()
rows = Rows.from_numpy(split.train, split.train_labels)
held: Any = {
    "validation": Rows.from_numpy(split.validation, split.validation_labels),
    "test": Rows.from_numpy(split.test, split.test_labels),
}


def new_learner() -> Learner:
    """Return a network that has not been trained, with its optimiser."""
    torch.manual_seed(0)
    return Learner(mlp(64, 10, kind="ts-ibp-lrc", depth=2, width=16), lr=0.05, batch_size=32)


# %%
# Interrupted and resumed
# -----------------------
# Three epochs, and then eight in all: the second call does the five that are missing. The folder
# has the last and the best weights, and the history as a table and as JSON.

folder = Path(tempfile.mkdtemp())
train(new_learner(), rows, epochs=3, folder=folder / "a", notes={"lr": 0.05}, **held)
history = train(new_learner(), rows, epochs=8, folder=folder / "a", notes={"lr": 0.05}, **held)
whole = train(new_learner(), rows, epochs=8, **held)
same = history.epochs[-1].train_loss == whole.epochs[-1].train_loss
print(f"{len(history.epochs)} epochs; the loss is that of a run without a pause: {same}")
print("files:", ", ".join(sorted(path.name for path in (folder / "a").glob("[!.]*"))))

learner = new_learner()
learner.restore(folder / "a" / BEST, {"lr": 0.05})
error = learner.evaluate(held["test"])[1]
print(f"epoch {history.best.epoch} has the lowest validation error: {100 * error:.1f} % wrong")

try:
    train(new_learner(), rows, epochs=8, folder=folder / "a", notes={"lr": 0.1}, **held)
except ValueError as reason:
    print(f"refused: {reason}")

# %%
# Several processes
# -----------------
# Under ``torchrun`` each process takes its share of each batch, and only the first one writes. The
# program is ``examples/train_network.py``; it also writes events for ``tensorboard --logdir``. Two
# processes with 16 rows each do what one does with 32. It has to be in this folder or in
# ``examples``:

program = next(
    (p for p in (Path("train_network.py"), Path("examples/train_network.py")) if p.exists()), None
)
if program is None:
    sys.exit("train_network.py was not found; download it to this folder")
command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
done = subprocess.run(
    [*command, str(program), str(folder / "b"), "4"],
    env={**os.environ, "OMP_NUM_THREADS": "1"},
    capture_output=True,
    text=True,
    check=True,
)
print(done.stdout)

# %%
# What was learned when
# ---------------------

epochs = [epoch.epoch for epoch in history.epochs]
figure, axes = plt.subplots(figsize=(7, 3.2))
axes.plot(epochs, [100 * e.validation_error for e in history.epochs], "o-", label="validation")
axes.plot(epochs, [100 * e.test_error for e in history.epochs], "o-", label="test")
axes.axvline(3.5, linestyle=":", color="#999999", label="interrupted")
axes.set(xlabel="epoch", ylabel="error, %", ylim=(0, None))
axes.legend()
plt.show()
