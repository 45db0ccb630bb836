"""What is to be predicted: the names of classes, or numbers."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from tensorswitch.data._text import is_missing
from tensorswitch.data.labels import number_name
from tensorswitch.data.readers import DataError
from tensorswitch.data.tables import Table

FEW = 20  # integers with more distinct values than this are targets of a regression
ALWAYS, CLASS_ROWS = 5, 5  # so few values are classes; more need as many rows each


def loses_names(table: Table, target: str) -> bool:
    """Return whether cells of a target are names of classes that were read as something else."""
    values = table.columns[target]
    if table.formats.get(target) == "padded":
        return len(np.unique(values[~np.isnan(values)])) <= FEW
    return values.dtype.kind == "O" and any(v is None for v in values)


def names_of(cells: np.ndarray, target: str) -> tuple[np.ndarray, list[str]]:
    """Return a target as it is written; "None" is a class, unless it stands in a single row."""
    none = sum(cell.lower() == "none" for cell in cells) > 1
    values = np.empty(len(cells), dtype=object)
    values[:] = [
        None if is_missing(cell) and not (none and cell.lower() == "none") else cell
        for cell in cells
    ]
    remark = f"'None' is a class of {target!r}; leave cells empty where values are missing"
    return values, [remark] * none


def is_known(values: np.ndarray) -> np.ndarray:
    """Return which values are not missing."""
    if values.dtype.kind == "O":
        return np.array([v is not None for v in values], dtype=bool)
    missing: np.ndarray = np.isnat(values) if values.dtype.kind == "M" else np.isnan(values)
    return ~missing


def decide(
    path: Path, name: str, values: np.ndarray, task: str | None
) -> tuple[np.ndarray, tuple[str, ...] | None, str]:
    """Return codes or numbers, the names of the classes, and the decision in words."""
    if values.dtype.kind == "M":
        raise DataError(f"{path}: the target {name!r} is a date, which cannot be predicted")
    distinct = np.unique(values.astype(str) if values.dtype.kind == "O" else values)
    if len(distinct) < 2:
        only = distinct[0] if values.dtype.kind == "O" else number_name(distinct[0])
        raise DataError(
            f"{path}: the target {name!r} is {only} in every row; there is nothing to learn"
        )
    if values.dtype.kind == "O":
        if task == "regression":
            raise DataError(
                f"{path}: the target {name!r} contains text such as {str(distinct[0])!r}, "
                "so it cannot be the target of a regression"
            )
        if len(distinct) > max(FEW, len(values) / 4):
            raise DataError(
                f"{path}: the target {name!r} has {len(distinct)} different words, such as "
                f"{str(distinct[0])!r}, in {len(values)} rows, which are too many classes to "
                "learn; if they are meant to be numbers, write them without units"
            )
        codes = np.searchsorted(distinct, values.astype(str))
        why = f"target {name!r}: {len(distinct)} classes, so classification"
        if alike := _alike(distinct):
            why += f" (some differ in case only, such as {alike[0]!r} and {alike[1]!r})"
        return codes.astype(np.int64), tuple(map(str, distinct)), why
    whole = bool((values == values.round()).all())
    classes = task == "classification"
    if task is None:  # many values in few rows are quantities
        classes = whole and len(distinct) <= max(ALWAYS, min(FEW, len(values) / CLASS_ROWS))
    if not classes:
        what = "requested" if task else f"{len(distinct)} different numbers"
        return values.astype(np.float64), None, f"target {name!r}: {what}, so regression"
    if len(distinct) > max(FEW, len(values) / 2):
        raise DataError(
            f"{path}: the target {name!r} has {len(distinct)} different numbers in "
            f"{len(values)} rows, which are too many classes to learn"
        )
    codes = np.searchsorted(distinct, values).astype(np.int64)
    hint = "whole numbers, so classification (--task regression predicts the number)"
    why = f"target {name!r}: {len(distinct)} {'classes' if task else hint}"
    return codes, tuple(map(number_name, distinct)), why


def _alike(names: np.ndarray) -> tuple[str, str] | None:
    """Return two names that differ in case only."""
    seen: dict[str, str] = {}
    for name in map(str, names):
        if (other := seen.setdefault(name.lower(), name)) != name:
            return other, name
    return None
