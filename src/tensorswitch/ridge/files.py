"""Files of ridge statistics."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from torch import Tensor

from tensorswitch._files import read_tensors, write_tensors
from tensorswitch.ridge.feature_statistics import FeatureStatistics
from tensorswitch.ridge.route_statistics import RouteStatistics
from tensorswitch.ridge.statistics import RidgeStatistics
from tensorswitch.switches import switch_name

__all__ = ["load_statistics", "save_statistics"]

FORMAT = "tensorswitch.RidgeStatistics"
VERSION = 2
SUMS = {
    "gram": "_gram",
    "cross": "_cross",
    "target_sum": "_target_sum",
    "target_energy": "_target_energy",
    "counts": "_counts",
}
OLD = ("gram", "cross", "target_energy")  # of version 1, which had no folds and no means


def save_statistics(statistics: RidgeStatistics, path: str | Path) -> None:
    """Write a safetensors file, atomically.

    Parameters
    ----------
    statistics : RidgeStatistics
        What to save.
    path : str or Path
        The file. An existing file is replaced only when the new one is complete.
    """
    tensors: dict[str, Tensor] = {
        name: getattr(statistics, attribute) for name, attribute in SUMS.items()
    }
    tensors.update({f"gate_weight.{i}": w for i, w in enumerate(statistics.gate_weights)})
    names = ("forgetting", "folds", "held_out", "has_means")
    header = {name: getattr(statistics, name) for name in names}
    header |= {"version": VERSION, "switch": switch_name(statistics.switch)}
    header["explicit"] = isinstance(statistics, FeatureStatistics)
    header["routed"] = isinstance(statistics, RouteStatistics)
    write_tensors(path, FORMAT, tensors, header)


def load_statistics(path: str | Path) -> RidgeStatistics:
    """Read what :func:`save_statistics` or an older version wrote.

    Parameters
    ----------
    path : str or Path
        The file.

    Returns
    -------
    RidgeStatistics
        The statistics.

    Raises
    ------
    ValueError
        If the file is damaged, holds something else, or comes from a newer version.
    """
    tensors, header = read_tensors(path, FORMAT)
    try:
        version = header.get("version", 1)
        if version not in (1, VERSION):
            raise ValueError(
                f"it has version {version!r}, but this installation reads up to {VERSION}"
            )
        return _statistics(tensors, header, version)
    except (KeyError, IndexError, TypeError, ValueError, RuntimeError) as error:
        raise ValueError(f"{path} does not hold valid ridge statistics: {error}") from error


def _statistics(
    tensors: dict[str, Tensor], header: dict[str, Any], version: int
) -> RidgeStatistics:
    layers = sum(name.startswith("gate_weight.") for name in tensors)
    names = [f"gate_weight.{i}" for i in range(max(1, layers))]
    expected = {*(SUMS if version == VERSION else OLD), *names}
    if expected != set(tensors):
        raise ValueError(
            f"it holds {', '.join(sorted(tensors))}; expected {', '.join(sorted(expected))}"
        )
    gate_weights = [tensors.pop(name) for name in names]
    if version == 1:
        tensors = _from_version_1(tensors, header)
    options: dict[str, Any] = {
        "dtype": tensors["gram"].dtype,
        "forgetting": header["forgetting"],
        "folds": header.get("folds", 1),
        "held_out": header.get("held_out", False),
    }
    out = tensors["target_energy"].shape[-1]
    device = gate_weights[0].device
    if header.get("explicit", False):
        result: RidgeStatistics = FeatureStatistics(
            gate_weights[0].shape[1], out, device=device, **options
        )
    elif header.get("routed", False):
        units, inputs = gate_weights[0].shape
        result = RouteStatistics(units, inputs, out, device=device, **options)
    else:
        options["switch"] = header.get("switch", "relu")
        result = RidgeStatistics(gate_weights, out, **options)
    for name, attribute in SUMS.items():
        mine, theirs = getattr(result, attribute), tensors[name]
        if (theirs.shape, theirs.dtype) != (mine.shape, mine.dtype):
            raise ValueError(
                f"{name} is {theirs.dtype} of shape {tuple(theirs.shape)}, "
                f"expected {mine.dtype} of shape {tuple(mine.shape)}"
            )
        if not theirs.isfinite().all():
            raise ValueError(f"{name} contains NaN or infinity")
        setattr(result, attribute, theirs)
    if (tensors["counts"] < 0).any():
        raise ValueError(f"the number of rows is {result.rows}")
    result.has_means = version == VERSION and bool(header["has_means"])
    return result


def _from_version_1(tensors: dict[str, Tensor], header: dict[str, Any]) -> dict[str, Tensor]:
    """Add what version 1 lacks: a fold, and zeros for the sums of features and targets."""
    energy = tensors["target_energy"]
    counts = energy.new_tensor([[float(header["rows"]), float(header["weight_squares"])]])
    if not all(0 <= c < math.inf for c in counts[0].tolist()):
        raise ValueError(f"the number of rows is {header['rows']}")
    cross = tensors["cross"]
    padded = cross.new_zeros(*cross.shape[:-1], cross.shape[-1] + 1)
    padded[..., :-1] = cross
    new = {"gram": tensors["gram"], "cross": padded, "target_energy": energy}
    new["target_sum"] = energy * 0
    return {name: total[None] for name, total in new.items()} | {"counts": counts}
