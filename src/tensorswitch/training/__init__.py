"""Training on one process or several, with checkpoints from which killed runs continue.

A :class:`Learner` is a network with its optimiser, and :func:`train` runs it for a number of
epochs, evaluates it and writes its files.
"""

from tensorswitch.history import Epoch, History
from tensorswitch.training.learner import FORMAT, DivergedError, Learner, Rows
from tensorswitch.training.loop import BEST, CHECKPOINT, NEXT_BEST, train

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
