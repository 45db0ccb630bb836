"""Checkpoints: everything that a learner needs to continue exactly where it was."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import Tensor

from tensorswitch._files import read_tensors, write_tensors
from tensorswitch.history import History

if TYPE_CHECKING:
    from tensorswitch.training.learner import Learner

__all__ = ["FORMAT", "read_checkpoint", "write_checkpoint"]

FORMAT = "tensorswitch.checkpoint"


class _OtherRunError(ValueError):
    """Raised if a checkpoint belongs to a run with other settings."""


def write_checkpoint(
    learner: Learner, path: str | Path, history: History, notes: dict[str, Any]
) -> None:
    """Write a checkpoint; see :meth:`Learner.save`.

    Parameters
    ----------
    learner : Learner
        Network, optimiser, schedule and random numbers.
    path : str or Path
        File to write, atomically.
    history : History
        Results so far.
    notes : dict
        Settings of the run, as JSON values.
    """
    weights = learner.network.state_dict()
    # Layers may share a weight, but tensors of a file must not share memory.
    shared = Counter(v.data_ptr() for v in weights.values())
    tensors = {
        f"model.{k}": (v.clone() if shared[v.data_ptr()] > 1 else v).detach().cpu().contiguous()
        for k, v in weights.items()
    }
    state = learner.optimizer.state_dict()
    scalars: dict[str, dict[str, Any]] = {}
    for index, entries in state["state"].items():
        for name, value in entries.items():
            if isinstance(value, Tensor):
                tensors[f"optimizer.{index}.{name}"] = value.detach().cpu().contiguous()
            else:
                scalars.setdefault(str(index), {})[name] = value
    tensors["generator"] = learner.generator.get_state()
    schedule = None
    if learner.schedule is not None:
        schedule = dict(_plain(learner.schedule.state_dict()))
    header = {
        "epochs_done": learner.epochs_done,
        "history": history.to_json(),
        "notes": notes,
        "settings": learner.settings,
        "groups": state["param_groups"],
        "scalars": scalars,
        "schedule": schedule,
    }
    write_tensors(path, FORMAT, tensors, header)


def read_checkpoint(learner: Learner, path: str | Path, notes: dict[str, Any]) -> History:
    """Continue from a checkpoint; see :meth:`Learner.restore`.

    Parameters
    ----------
    learner : Learner
        Learner of the same network. Its state is replaced.
    path : str or Path
        File to read.
    notes : dict
        Settings of the run, which must be those of the checkpoint.

    Returns
    -------
    History
        Results so far.

    Raises
    ------
    ValueError
        If the checkpoint has other settings, another network, or is damaged.
    """
    tensors, header = read_tensors(path, FORMAT)
    try:
        return _restore(learner, path, tensors, header, notes)
    except (KeyError, TypeError, RuntimeError, AttributeError, ValueError) as error:
        if isinstance(error, _OtherRunError):
            raise
        raise ValueError(
            f"{path} is not a checkpoint of this network; "
            f"use another folder, or remove it ({error})"
        ) from error


def _restore(
    learner: Learner,
    path: str | Path,
    tensors: dict[str, Tensor],
    header: dict[str, Any],
    notes: dict[str, Any],
) -> History:
    settings = {**learner.settings, **header.get("settings", {})}
    different = _differing(header["notes"], notes) | _differing(settings, learner.settings)
    if different:
        raise _OtherRunError(
            f"{path} was made with other settings ({', '.join(sorted(different))} differ); "
            "use another folder, or remove it"
        )
    learner.network.load_state_dict(
        {k.removeprefix("model."): v for k, v in tensors.items() if k.startswith("model.")}
    )
    state: dict[int, dict[str, Any]] = {int(k): dict(v) for k, v in header["scalars"].items()}
    for key, value in tensors.items():
        if key.startswith("optimizer."):
            _, index, name = key.split(".", 2)
            state.setdefault(int(index), {})[name] = value
    learner.optimizer.load_state_dict({"state": state, "param_groups": header["groups"]})
    learner.generator.set_state(tensors["generator"])
    if learner.schedule is not None and header["schedule"] is not None:
        own = learner.schedule.state_dict()
        learner.schedule.load_state_dict(_restored(header["schedule"], own))
    learner.epochs_done = header["epochs_done"]
    return History.from_json(header["history"])


def _differing(before: dict[str, Any], now: dict[str, Any]) -> set[str]:
    return {name for name in {*before, *now} if before.get(name) != now.get(name)}


def _plain(value: Any) -> Any:
    """Return a state without functions and dictionaries, which become pairs.

    The keys of JSON are strings, those of a :class:`collections.Counter` of milestones are not.
    """
    if isinstance(value, dict):
        return [(k, _plain(v)) for k, v in value.items() if not callable(v)]
    return [_plain(v) for v in value] if isinstance(value, list) else value


def _restored(value: Any, own: Any) -> Any:
    """Return a state in the types of the schedule's own state."""
    if isinstance(own, dict):
        return type(own)({k: _restored(v, own.get(k)) for k, v in dict(value).items()})
    if isinstance(own, list) and len(own) == len(value):
        return [_restored(v, o) for v, o in zip(value, own, strict=True)]
    return value
