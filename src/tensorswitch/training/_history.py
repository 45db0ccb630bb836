"""The results of training, epoch by epoch."""

import csv
import io
import json
import math
from dataclasses import asdict, dataclass, field
from typing import Self

from tensorswitch.persistence import State


@dataclass
class Epoch:
    """Results of one epoch.

    Errors are fractions of rows misclassified. Values that were not measured are NaN.

    Parameters
    ----------
    epoch, seconds : int and float
        Number of the epoch, from 1, and time spent on training, without evaluation.
    train_loss, train_error : float
        Averages over the batches of the epoch, each measured before its step.
    validation_loss, validation_error, test_loss, test_error : float, default=nan
        Measured on these rows after the epoch.

    Examples
    --------
    >>> from tensorswitch.training import Epoch
    >>> Epoch(1, seconds=2.0, train_loss=0.9, train_error=0.3, validation_error=0.4).criterion
    0.4
    """

    epoch: int
    seconds: float
    train_loss: float
    train_error: float
    validation_loss: float = math.nan
    validation_error: float = math.nan
    test_loss: float = math.nan
    test_error: float = math.nan

    @property
    def criterion(self) -> float:
        """The first of validation error, validation loss and training loss that is not NaN."""
        values = self.validation_error, self.validation_loss, self.train_loss
        return next((value for value in values if not math.isnan(value)), math.inf)


@dataclass
class History:
    """Results of all epochs of a run.

    Parameters
    ----------
    epochs : list of Epoch, default=[]
        Results, first epoch first.

    Examples
    --------
    >>> from tensorswitch.training import Epoch, History
    >>> history = History([Epoch(1, 2.0, 0.9, 0.3), Epoch(2, 2.0, 0.5, 0.1)])
    >>> history.best.epoch
    2
    >>> History.from_json(history.to_json()).epochs[0].train_loss
    0.9
    """

    epochs: list[Epoch] = field(default_factory=list)

    @property
    def best(self) -> Epoch:
        """The epoch with the lowest ``criterion``, the first one of equals."""
        return min(self.epochs, key=lambda e: e.criterion)

    def to_json(self) -> str:
        """Return the epochs as a JSON list of objects, with null for NaN."""
        entries = [asdict(epoch) for epoch in self.epochs]
        plain = [{k: None if math.isnan(v) else v for k, v in e.items()} for e in entries]
        return json.dumps(plain, indent=1)

    def to_csv(self) -> str:
        """Return the epochs as CSV, one line per epoch after a header."""
        buffer = io.StringIO()
        writer = csv.DictWriter(buffer, list(Epoch.__dataclass_fields__), lineterminator="\n")
        writer.writeheader()
        writer.writerows(asdict(e) for e in self.epochs)
        return buffer.getvalue()

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Return the history that :meth:`to_json` wrote."""
        entries: list[State] = json.loads(text)
        for entry in entries:
            entry.update({k: math.nan for k, v in entry.items() if v is None})
        return cls([Epoch(**entry) for entry in entries])
