"""Read grids of experiments from TOML files."""

from __future__ import annotations

import tomllib
from itertools import product
from pathlib import Path
from typing import Any

from reproduction.experiment import Experiment, settings_of


def experiments_from_toml(path: Path) -> list[Experiment]:
    """Read the experiments of a TOML file.

    Every ``[[grid]]`` table gives the product of its lists; settings above the first table apply to
    all of them. A list inside a list is a single value. A setting that some methods of the file do
    not use, such as ``lr`` beside ``rr``, is left out for them; experiments that are then the same
    are run once::

        data = "digits"
        [[grid]]
        method = ["ss", "ts-lrc"]
        depth = [1, 2]
    """
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ValueError(f"{path} does not exist") from None
    except RecursionError:
        raise ValueError(f"{path} is not a valid TOML file: it is nested too deeply") from None
    except (OSError, ValueError) as error:
        raise ValueError(f"{path} is not a valid TOML file: {error}") from None
    grids = content.pop("grid", [{}])
    if not isinstance(grids, list) or not all(isinstance(g, dict) for g in grids):
        raise ValueError(f"{path}: grids must be written as [[grid]] tables")
    every = [
        {name: value if isinstance(value, list) else [value] for name, value in axes.items()}
        for axes in ({**content, **grid} for grid in grids)
    ]
    methods = [m for axes in every for m in axes.get("method", [])]
    experiments: dict[str, Experiment] = {}
    for number, axes in enumerate(every, 1):
        try:
            for values in product(*axes.values()):
                settings = dict(zip(axes, values, strict=True))
                experiment = Experiment.from_settings(_used(settings, methods))
                experiments.setdefault(experiment.name, experiment)
        except ValueError as error:
            raise ValueError(f"{path}, grid {number}: {error}") from None
    if not experiments:
        raise ValueError(f"{path} defines no experiments: one of its lists is empty")
    return list(experiments.values())


def _used(settings: dict[str, Any], methods: list[Any]) -> dict[str, Any]:
    """Return the settings without those that only other methods of the file use."""
    own = settings_of(settings.get("method"))
    others = {name for method in methods for name in settings_of(method)}
    return {k: v for k, v in settings.items() if not own or k in own or k not in others}
