"""Read grids of experiments from TOML files."""

from __future__ import annotations

import tomllib
from itertools import product
from pathlib import Path

from tensorswitch.experiments.experiment import Experiment

__all__ = ["experiments_from_toml"]


def experiments_from_toml(path: Path) -> list[Experiment]:
    """Read the experiments of a TOML file.

    Every ``[[grid]]`` table gives the product of its lists; settings above the first table apply to
    all of them. A list inside a list is a single value.

    Parameters
    ----------
    path : Path
        The file.

    Returns
    -------
    list of Experiment
        The experiments of all grids.

    Raises
    ------
    ValueError
        If the file is missing or not valid TOML, or a setting is invalid.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> text = '''
    ... data = "digits"
    ... [[grid]]
    ... method = ["ss", "ts-lrc"]
    ... depth = [1, 2]
    ... '''
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "grid.toml"
    ...     _ = path.write_text(text)
    ...     [(e.method, e.depth) for e in experiments_from_toml(path)]
    [('ss', 1), ('ss', 2), ('ts-lrc', 1), ('ts-lrc', 2)]
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
        raise ValueError(f"{path} defines no experiments: one of its lists is empty")
    return experiments
