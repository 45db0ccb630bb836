"""Training on one process or several, with checkpoints from which killed runs continue.

A :class:`Learner` is a network with its optimiser, and :func:`train` runs it for a number of
epochs, evaluates it and writes its files.
"""

from tensorswitch.history import Epoch, History
from tensorswitch.training.checkpoint import FORMAT
from tensorswitch.training.learner import DivergedError, Learner
from tensorswitch.training.loop import BEST, CHECKPOINT, NEXT_BEST, train
from tensorswitch.training.rows import Rows

__all__ = [
    "BEST",
    "CHECKPOINT",
    "FORMAT",
    "NEXT_BEST",
    "DivergedError",
    "Epoch",
    "History",
    "Learner",
    "Rows",
    "train",
]
