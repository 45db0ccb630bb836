"""Train one method on a table, on images or on arrays, and keep it for predictions."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

from tensorswitch._files import make_folder, only_one
from tensorswitch.compare import Problem
from tensorswitch.experiments.comparison import Settings, check_methods
from tensorswitch.experiments.fitting import Fit, WatchEpoch, fit_method
from tensorswitch.experiments.methods import COMPARED
from tensorswitch.experiments.predictor import MODEL
from tensorswitch.training import CHECKPOINT

__all__ = ["train_method"]


def train_method(
    problem: Problem,
    folder: str | Path,
    method: str,
    *,
    watch: WatchEpoch | None = None,
    **settings: Any,
) -> Fit:
    """Fit a method to the training rows and write it to ``FOLDER/model.safetensors``.

    Parameters
    ----------
    problem : Problem
        The problem.
    folder : str or Path
        Output folder.
    method : str
        A method of this library, a key of :data:`~tensorswitch.experiments.methods.COMPARED`.
    watch : callable, optional
        Called after every epoch of a network as ``watch(done, total, note)``.
    **settings
        Fields of :class:`~tensorswitch.experiments.comparison.Settings`; missing ones are chosen
        from the size of the data.

    Returns
    -------
    Fit
        The fitted method with its measures on the test rows.

    Raises
    ------
    ValueError
        If the method is unknown, is not one of this library, or does not suit the problem, or the
        folder has the checkpoints of a network.
    """
    own = [name for name, candidate in COMPARED.items() if candidate.own]
    if method not in own:
        raise ValueError(f"unknown method {method}; expected one of {', '.join(own)}")
    check_methods([method], problem)
    chosen = Settings.for_problem(problem, **settings)
    folder = Path(folder)
    make_folder(folder)
    if (folder / CHECKPOINT).exists():
        raise ValueError(
            f"{folder} has the checkpoints of a network; choose another folder, or delete it"
        )
    with only_one(folder):
        fit = fit_method(
            method,
            problem,
            problem.split(),
            partial(chosen.setting, problem.task),
            chosen.components,
            watch,
        )
        fit.predictor.save(folder / MODEL)
    return fit
