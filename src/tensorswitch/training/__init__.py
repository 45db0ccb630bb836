"""Training on one process or several, with checkpoints from which killed runs continue.

A :class:`Learner` is a network with its optimiser, and :func:`train` runs it for a number of
epochs, evaluates it and writes its files. Under ``torchrun``, each process takes its share of every
batch.
"""

from tensorswitch.training._divergence import DivergedError
from tensorswitch.training._history import Epoch, History
from tensorswitch.training._learner import Learner, Rows
from tensorswitch.training._loop import BEST as BEST
from tensorswitch.training._loop import CHECKPOINT as CHECKPOINT
from tensorswitch.training._loop import train

__all__ = ["DivergedError", "Epoch", "History", "Learner", "Rows", "train"]
