"""The training loop: epochs, metrics and checkpoints from which killed runs continue."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from torch import distributed

from tensorswitch._checks import check_positive
from tensorswitch._files import as_json, make_folder, write_text
from tensorswitch._progress import progress_bar
from tensorswitch.persistence import State, load
from tensorswitch.training._checkpoint import Checkpoint
from tensorswitch.training._divergence import raise_diverged
from tensorswitch.training._history import Epoch, History
from tensorswitch.training._learner import Learner, Rows

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter

CHECKPOINT, BEST = "checkpoint.safetensors", "best.safetensors"
NEXT_BEST = "next-best.safetensors"  # renamed to BEST once the checkpoint includes its epoch


def train(
    learner: Learner,
    rows: Rows,
    *,
    epochs: int,
    validation: Rows | None = None,
    test: Rows | None = None,
    patience: int | None = None,
    folder: str | Path | None = None,
    notes: State | None = None,
    tensorboard: bool = False,
    progress: bool = False,
    after: Callable[[Epoch], None] | None = None,
) -> History:
    """Train for a number of epochs and return the results of each.

    Parameters
    ----------
    learner, rows : Learner and Rows
        Network with its optimiser, and training rows.
    epochs : int
        Total number of epochs, including those of an earlier run in ``folder``.
    validation, test : Rows, optional
        Rows that choose the best epoch, and rows that are only evaluated.
    patience : int, optional
        Stop after this many epochs without improvement. By default never.
    folder : str or Path, optional
        Folder for ``checkpoint.safetensors``, ``best.safetensors``, ``history.csv`` and
        ``history.json``, which are written after every epoch. An interrupted run continues from
        there. If the loss diverges, the last good epoch is kept.
    notes : dict, optional
        Settings of the run, as JSON values or NumPy numbers. A checkpoint with other settings is
        refused.
    tensorboard, progress : bool, default=False
        Whether to write TensorBoard events to ``folder``, and to show a progress bar.
    after : callable, optional
        Called with each :class:`~tensorswitch.training.Epoch`; in a run that is continued, first
        with the last completed one.

    Examples
    --------
    >>> import torch
    >>> from tensorswitch.models import mlp
    >>> from tensorswitch.training import Learner, Rows, train
    >>> rows = Rows(torch.randn(64, 4), torch.randint(0, 3, (64,)))
    >>> len(train(Learner(mlp(4, 3, depth=1, width=8)), rows, epochs=2).epochs)
    2
    """
    check_positive(epochs=epochs)
    patience = epochs if patience is None else patience
    check_positive(patience=patience)
    notes = as_json(notes or {})
    place = None if folder is None else Path(folder)
    history = History() if place is None else _resume(learner, place, notes)
    if history.epochs and after is not None:
        after(history.epochs[-1])
    rows = rows.to(learner.device)
    main = learner.rank == 0
    writer = _events(place) if tensorboard and main else None
    batches = -(-len(rows.x) // (learner.batch_size * learner.ranks))
    done = batches * len(history.epochs)
    with progress_bar("training", progress and main, batches * epochs, done) as bar:
        while len(history.epochs) < epochs:
            if history.epochs and len(history.epochs) - history.best.epoch >= patience:
                break
            start = time.perf_counter()
            number = len(history.epochs) + 1
            trained = learner.epoch(rows, bar)
            seconds = time.perf_counter() - start
            held = {"validation": validation, "test": test}
            found = {what: learner.evaluate(part) for what, part in held.items()}
            for what, part in held.items():
                if part is not None and len(part.x) and not math.isfinite(found[what][0]):
                    problem = f"the {what} loss is not finite after epoch {number}"
                    raise_diverged(problem, learner.network, part.x, part.y, learner.batch_size)
            epoch = Epoch(number, seconds, *trained, *found["validation"], *found["test"])
            history.epochs.append(epoch)
            bar(0, _note(epoch))
            if writer is not None:
                for key, value in asdict(epoch).items():
                    if key != "epoch" and not math.isnan(value):
                        writer.add_scalar(key, value, number)
            if place is not None and main:
                _save(learner, place, history, notes)
            if after is not None:
                after(epoch)
    if writer is not None:
        writer.close()
    return history


def _resume(learner: Learner, place: Path, notes: State) -> History:
    """Create the folder, or continue from the checkpoint in it and return its history."""
    make_folder(place)
    history = History()
    if (place / CHECKPOINT).exists():
        history = learner.restore(place / CHECKPOINT, notes)
        if learner.rank == 0:  # the others must not look while a file is renamed
            following = place / NEXT_BEST
            written = load(following, Checkpoint).history if following.exists() else History()
            best = bool(written.epochs) and len(written.epochs) == history.best.epoch
            _settle_best(place, history, best)
            if not (place / BEST).exists():
                what = f"use another folder, or remove {place / CHECKPOINT} to start over"
                raise ValueError(f"{place} has {CHECKPOINT} but no {BEST}; {what}")
    if learner.ranks > 1:
        distributed.barrier()  # all must have read the checkpoint before one is written
    return history


def _save(learner: Learner, place: Path, history: History, notes: State) -> None:
    """Write the checkpoint after an epoch, which may be the best so far."""
    # The process may be killed between any two writes. The checkpoint decides which epochs are
    # done, so the best epoch is renamed after it is written, not before.
    if history.best is history.epochs[-1]:
        learner.save(place / NEXT_BEST, history, notes)
    learner.save(place / CHECKPOINT, history, notes)
    _settle_best(place, history, history.best is history.epochs[-1])


def _settle_best(place: Path, history: History, completed: bool) -> None:
    """Make the other files agree with the checkpoint, which has this history."""
    following = place / NEXT_BEST
    if completed:
        following.replace(place / BEST)
    else:  # what a killed process has left
        following.unlink(missing_ok=True)
    write_text(place / "history.csv", history.to_csv())
    write_text(place / "history.json", history.to_json())


def _note(epoch: Epoch) -> str:
    parts = [f"epoch {epoch.epoch}", f"loss {epoch.train_loss:.4f}"]
    for name in ("train", "validation", "test"):
        error = getattr(epoch, f"{name}_error")
        if not math.isnan(error):
            parts.append(f"{name} {100 * error:.2f} %")
    return ", ".join(parts)


def _events(place: Path | None) -> SummaryWriter:
    if place is None:
        raise ValueError("tensorboard needs a folder to write to")
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise ValueError(
            "tensorboard is not installed; install it with: pip install tensorboard"
        ) from None
    return SummaryWriter(str(place / "events"))
