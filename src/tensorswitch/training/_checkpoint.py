"""Checkpoints: everything that a learner needs to continue exactly where it was."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from torch import Tensor

from tensorswitch.persistence import State, saved_as
from tensorswitch.training._history import History

if TYPE_CHECKING:
    from tensorswitch.training._learner import Learner


@saved_as("checkpoint")
@dataclass
class Checkpoint:
    """The state of a learner after an epoch, with the settings and the results of its run."""

    epochs_done: int
    history: History
    notes: State
    settings: State
    weights: dict[str, Tensor]
    optimizer: State
    generator: Tensor
    schedule: State | None

    @classmethod
    def of(cls, learner: Learner, history: History, notes: State) -> Self:
        """Collect what a learner consists of, without copying it."""
        weights, optimizer = dict(learner.network.state_dict()), learner.optimizer.state_dict()
        schedule = None if learner.schedule is None else _plain(learner.schedule.state_dict())
        run = learner.epochs_done, history, notes, learner.settings
        return cls(*run, weights, optimizer, learner.generator.get_state(), schedule)

    def differences(self, learner: Learner, notes: State) -> list[str]:
        """Return the names of the settings in which another run differs."""
        pairs = (self.notes, notes), (self.settings, learner.settings)
        return sorted({k for old, new in pairs for k in {*old, *new} if old.get(k) != new.get(k)})

    def restore(self, learner: Learner) -> History:
        """Replace the state of a learner of the same run, and return the results so far."""
        learner.network.load_state_dict(self.weights)
        learner.optimizer.load_state_dict(self.optimizer)
        learner.generator.set_state(self.generator)
        if learner.schedule is not None:
            own = learner.schedule.state_dict()
            learner.schedule.load_state_dict(_restored(self.schedule, own))
        learner.epochs_done = self.epochs_done
        return self.history

    def state(self) -> State:
        """Return the fields, with the history as plain values."""
        return {**vars(self), "history": self.history.to_json()}

    @classmethod
    def from_state(cls, state: State) -> Self:
        """Return the checkpoint of a state."""
        return cls(**{**state, "history": History.from_json(state["history"])})


def _plain(value: Any) -> Any:
    """Leave out the functions of a schedule, which it has again when it is made."""
    if isinstance(value, dict):
        return {k: _plain(v) for k, v in value.items() if not callable(v)}
    return [_plain(v) for v in value] if isinstance(value, list) else value


def _restored(value: Any, own: Any) -> Any:
    """Return a state in the types of the schedule's own: milestones are counters, for example."""
    if isinstance(own, dict):
        return type(own)({k: _restored(v, own.get(k)) for k, v in value.items()})
    if isinstance(own, list) and len(own) == len(value):
        return [_restored(v, o) for v, o in zip(value, own, strict=True)]
    return value
