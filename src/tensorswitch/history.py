"""What training came to, epoch by epoch."""

from __future__ import annotations

import csv
import io
import json
import math
from dataclasses import asdict, dataclass, field
from typing import Any

__all__ = ["Epoch", "History", "percent"]


def percent(error: float) -> str:
    """An error as it is shown; a dash where there is none."""
    return "–" if math.isnan(error) else f"{100 * error:.2f}"


@dataclass
class Epoch:
    """What an epoch came to. Errors are fractions of rows misclassified (nan in regression); training values are averages over the epoch."""

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
        """What epochs are compared by: validation error, or loss where there is no error."""
        for value in (self.validation_error, self.validation_loss, self.train_loss):
            if not math.isnan(value):
                return value
        return math.inf


@dataclass
class History:
    epochs: list[Epoch] = field(default_factory=list)

    @property
    def best(self) -> Epoch:
        """The epoch of least validation error, the first of equals."""
        return min(self.epochs, key=lambda e: e.criterion)

    def to_json(self) -> str:
        return json.dumps(
            [{k: None if math.isnan(v) else v for k, v in asdict(e).items()} for e in self.epochs],
            indent=1,
        )

    def to_csv(self) -> str:
        buffer = io.StringIO()
        writer = csv.DictWriter(buffer, list(Epoch.__dataclass_fields__), lineterminator="\n")
        writer.writeheader()
        writer.writerows(asdict(e) for e in self.epochs)
        return buffer.getvalue()

    @classmethod
    def from_json(cls, text: str) -> History:
        entries: list[dict[str, Any]] = [
            {k: math.nan if v is None else v for k, v in e.items()} for e in json.loads(text)
        ]
        return cls([Epoch(**entry) for entry in entries])
