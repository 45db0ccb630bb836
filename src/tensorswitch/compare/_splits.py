"""Training and test rows of a problem, by the splitters of scikit-learn."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn import model_selection

from tensorswitch._checks import check_positive

if TYPE_CHECKING:
    from tensorswitch.compare._problem import Problem

FOLDS, FOLD_ROWS = 5, 2_000  # tables of fewer rows are cross-validated
Split = tuple[np.ndarray, np.ndarray]


def divided(
    problem: Problem, cv: int | None = None, repeats: int = 1, split: str | None = None
) -> list[Split]:
    """Return training and test rows of each fold, divided as :func:`compare` says."""
    kind, column = parsed(split)
    count, every = cv or FOLDS, np.arange(len(problem))
    check_positive(repeats=repeats)
    if count < 2:
        raise ValueError(f"cv must be at least 2, got {cv}")
    if repeats > 1 and column:
        raise ValueError(f"repeats have no effect with split {split!r}")
    usual = not (cv or repeats > 1 or column)
    if usual and (problem.given_test is not None or len(every) >= FOLD_ROWS):
        return [problem.split()]
    if count > len(every):
        raise ValueError(f"{count} folds need as many rows, but there are {len(every)}")
    if kind == "time":
        order = np.argsort(_column(problem, column), kind="stable")  # ties as in the file
        parts = model_selection.TimeSeriesSplit(count).split(every)
        return [(order[train], order[test]) for train, test in parts]
    target = None if problem.class_names is None else problem.target
    if target is not None and np.bincount(target).max() < count:
        target = None  # no class has a row for each fold
    name, groups = "KFold" if target is None else "StratifiedKFold", None
    options: dict[str, Any] = {"n_splits": count, "random_state": 0}
    if kind == "group":
        groups = np.unique(_column(problem, column), return_inverse=True)[1]  # as numbers
        name, options["shuffle"] = name.replace("KFold", "GroupKFold"), True
        if groups.max() + 1 < count:
            found = f"{column!r} has {groups.max() + 1} values"
            raise ValueError(f"{count} folds need as many groups, but {found}")
    else:
        name, options["n_repeats"] = f"Repeated{name}", repeats
    splitter = getattr(model_selection, name)(**options)
    with warnings.catch_warnings():  # classes of fewer rows are in some of the folds
        warnings.simplefilter("ignore", UserWarning)
        splits = list(splitter.split(every, target, groups))
    if not usual or target is None:
        return splits
    alone = every[np.bincount(target)[target] == 1]  # nothing is learned of these without them
    return [(np.union1d(train, alone), np.setdiff1d(test, alone)) for train, test in splits]


def once(problem: Problem, split: str | None) -> Split:
    """Return seven tenths of the rows to train with and the others to test with."""
    kind, column = parsed(split)
    if kind == "random":
        return problem.split()
    values = _column(problem, column)
    if kind == "time":
        order = np.argsort(values, kind="stable")
        return order[: len(order) * 7 // 10], order[len(order) * 7 // 10 :]
    splitter = model_selection.GroupShuffleSplit(1, test_size=0.3, random_state=0)
    train, test = next(splitter.split(values, groups=np.unique(values, return_inverse=True)[1]))
    return train, test


def parsed(split: str | None) -> tuple[str, str]:
    """Return how rows are divided, and by which column."""
    kind, _, column = (split or "random").partition(":")
    if kind not in ("random", "time", "group") or bool(column) != (kind != "random"):
        raise ValueError(f"split must be random, time:COLUMN or group:COLUMN; got {split!r}")
    return kind, column


def _column(problem: Problem, name: str) -> np.ndarray:
    """Return a column as numbers, dates or text, which can be compared."""
    if not problem.is_table:
        raise ValueError(f"{problem.name} is not a table, so there is no column {name!r}")
    if name == problem.id_name and problem.row_names is not None:
        return np.array(problem.row_names)
    frame: Any = problem.rows
    if name in frame.columns:
        values: np.ndarray = frame[name].to_numpy()
        return values if values.dtype.kind in "fiubM" else values.astype(str)
    if f"{name!r} numbers the rows and is left out" in problem.notes:
        return np.arange(len(problem))
    if name in problem.ignored:
        raise ValueError(f"{name!r} is left out of the rows, so it cannot divide them")
    known = ", ".join(map(str, frame.columns))
    raise ValueError(f"{problem.name} has no column {name!r}; expected one of {known}")
