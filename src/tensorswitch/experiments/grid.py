"""Grids of experiments from a TOML file."""

from __future__ import annotations

import tomllib
from itertools import product
from pathlib import Path

from tensorswitch.experiments.experiment import Experiment

__all__ = ["experiments_from_toml"]


def experiments_from_toml(path: Path) -> list[Experiment]:
    """The experiments of a file: tables ``[[grid]]``, each with settings; lists are varied over, and a list in a list is one value.

    data = "digits"            # what stands above holds for all grids
    [[grid]]
    method = ["ss", "ts-lrc"]
    depth = [1, 2]
    """
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ValueError(f"{path} is not there") from None
    except (OSError, ValueError, RecursionError) as error:
        raise ValueError(f"{path} is not a TOML file: {error}") from None
    grids = content.pop("grid", [{}])
    if not isinstance(grids, list) or not all(isinstance(g, dict) for g in grids):
        raise ValueError(f"{path}: grids are written as [[grid]], with settings below")
    experiments = []
    for number, grid in enumerate(grids, 1):
        axes = {
            name: value if isinstance(value, list) else [value]
            for name, value in {**content, **grid}.items()
        }
        try:
            experiments += [
                Experiment.from_settings(dict(zip(axes, values, strict=True)))
                for values in product(*axes.values())
            ]
        except ValueError as error:
            raise ValueError(f"{path}, grid {number}: {error}") from None
    if not experiments:
        raise ValueError(f"{path} has no experiments: a list in it is empty")
    return experiments
