"""A learning problem: rows, a target, and how they are split."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import numpy as np

from tensorswitch.data._held_out import held_out
from tensorswitch.data._target import FEW, decide, is_known, loses_names, names_of
from tensorswitch.data._text import counted
from tensorswitch.data.dataset import Dataset, Preparation
from tensorswitch.data.encoder import TableEncoder
from tensorswitch.data.labels import number_name
from tensorswitch.data.readers import DataError
from tensorswitch.data.tables import Table, read_table

__all__ = ["Parts", "Problem", "table_problem"]

TARGETS = ("label", "labels", "class", "target", "y")  # names of targets, unless one is given
FEWEST = 10  # rows of which some are held out
FOLDS, FOLD_ROWS = 5, 2_000  # tables of fewer rows are cross-validated
TASKS = ("classification", "regression")


class Parts(NamedTuple):
    """Inputs and targets of training and test rows, and how further rows become inputs.

    Parameters
    ----------
    train, train_target : ndarray
        Training rows.
    test, test_target : ndarray
        Test rows.
    encoder : TableEncoder or Preparation
        Fitted on the training rows.
    """

    train: np.ndarray
    train_target: np.ndarray
    test: np.ndarray
    test_target: np.ndarray
    encoder: TableEncoder | Preparation


@dataclass(frozen=True)
class Problem:
    """Rows and what is to be predicted for them.

    Parameters
    ----------
    name : str
        Name of the data.
    rows : Table or ndarray
        Columns without the target, images of shape (rows, channels, height, width), or rows of
        features.
    target : ndarray of shape (rows,)
        Indices into ``class_names``, or numbers.
    class_names : tuple of str, or None
        Names of the classes; None for a regression.
    target_name, id_name : str, default=""
        Columns of the target, and of what identifies rows.
    given_test : ndarray of int, or None, default=None
        Which rows are for testing, if the data say so.
    ignored : tuple of str, default=()
        Columns of a table that are not learned from.
    target_written : str, default=""
        How the target was written, if that is special; see :attr:`Table.formats`.
    notes : tuple of str, default=()
        What was decided, for the user.
    row_names : tuple of str, or None, default=None
        What rows are called: their identifiers, or their numbers in the file.
    """

    name: str
    rows: Table | np.ndarray
    target: np.ndarray
    class_names: tuple[str, ...] | None
    target_name: str = ""
    id_name: str = ""
    given_test: np.ndarray | None = None
    ignored: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    target_written: str = ""
    row_names: tuple[str, ...] | None = None

    @classmethod
    def from_dataset(cls, data: Dataset) -> Problem:
        """Return the problem of a data set, with its own test rows.

        Parameters
        ----------
        data : Dataset
            The data set.

        Returns
        -------
        Problem
            The problem.
        """
        rows = np.concatenate([data.train_images, data.test_images])
        target = np.concatenate([data.train_labels, data.test_labels])
        test = np.arange(len(data.train_images), len(rows))
        return cls(data.name, rows, target, data.class_names, given_test=test)

    def __len__(self) -> int:
        return len(self.target)

    @property
    def task(self) -> str:
        """Either "classification" or "regression"."""
        return TASKS[self.class_names is None]

    def row_name(self, row: int) -> str:
        """Return what a row is called.

        Parameters
        ----------
        row : int
            Its index.

        Returns
        -------
        str
            Its identifier or its number in the file, or in its part of a data set.
        """
        if self.row_names is not None:
            return f"row {self.row_names[row]}"
        if self.given_test is None:
            return f"row {row}"
        before = int(np.count_nonzero(self.given_test < row))
        is_test = row in self.given_test
        return f"test row {before}" if is_test else f"training row {row - before}"

    @property
    def is_table(self) -> bool:
        """Whether the rows are a table with named columns."""
        return isinstance(self.rows, Table)

    @property
    def is_image(self) -> bool:
        """Whether the rows are images."""
        return isinstance(self.rows, np.ndarray) and self.rows.ndim == 4

    @cached_property
    def fingerprint(self) -> str:
        """A short hash of rows, target and split."""
        columns = self.rows.columns if isinstance(self.rows, Table) else {}
        everything = {f"column {k}": v for k, v in columns.items()}
        whole = Table(self.name, {**everything, "target": self.target.astype(float)})
        if isinstance(self.rows, Table):
            if self.class_names is None:
                return whole.fingerprint
            names = np.array(self.class_names, dtype=object)
            return replace(whole, columns={**whole.columns, "names": names}).fingerprint
        split = np.zeros(0) if self.given_test is None else self.given_test.astype(float)
        bytes_ = np.ascontiguousarray(self.rows).reshape(-1).view(np.uint8)
        from hashlib import blake2b

        digest = blake2b(repr((self.rows.shape, self.class_names)).encode(), digest_size=8)
        for part in (bytes_, self.target.astype(float).view(np.uint8), split.view(np.uint8)):
            digest.update(part.data)
        return digest.hexdigest()

    def splits(self) -> list[tuple[np.ndarray, np.ndarray]]:
        """Return training and test rows: of each fold for small tables, else once.

        Returns
        -------
        list of tuple of ndarray
            Indices of training and test rows.
        """
        every = np.arange(len(self))
        if self.given_test is not None:
            return [(np.setdiff1d(every, self.given_test), self.given_test)]
        if len(self) >= FOLD_ROWS:
            return [self.split()]
        from sklearn.model_selection import KFold, StratifiedKFold

        counts = np.zeros(1) if self.class_names is None else np.bincount(self.target)
        if counts.max() < FOLDS:
            return list(KFold(FOLDS, shuffle=True, random_state=0).split(every))
        folds = StratifiedKFold(FOLDS, shuffle=True, random_state=0)
        with warnings.catch_warnings():  # classes of fewer rows are in some of the folds
            warnings.simplefilter("ignore", UserWarning)
            found = list(folds.split(every, self.target))
        alone = every[counts[self.target] == 1]  # nothing could be learned of these without them
        return [(np.union1d(train, alone), np.setdiff1d(test, alone)) for train, test in found]

    def split(self) -> tuple[np.ndarray, np.ndarray]:
        """Return training and test rows, as they are given or else 70 % and 30 %.

        Returns
        -------
        train, test : ndarray of int
            Indices of the rows.
        """
        if self.given_test is not None:
            return self.splits()[0]
        return held_out(self.target, self.class_names is not None)

    def parts(self, train: np.ndarray, test: np.ndarray, components: int | None = None) -> Parts:
        """Encode training and test rows, with an encoder fitted on the former.

        Parameters
        ----------
        train, test : ndarray of int
            Indices of the rows.
        components : int, optional
            Principal components to project rows of numbers on; tables are not projected.

        Returns
        -------
        Parts
            Inputs and targets.
        """
        encoder: TableEncoder | Preparation
        if isinstance(self.rows, Table):
            encoder = TableEncoder.fit(self.rows.take(train))
            encoder.left_out.update(dict.fromkeys(self.ignored, "is ignored"))
        else:
            encoder = Preparation.fit(self.rows[train], components)
        inputs = (encoder(_take(self.rows, rows)) for rows in (train, test))  # type: ignore[arg-type]
        x, x_test = inputs
        return Parts(x, self.target[train], x_test, self.target[test], encoder)

    def dataset(self) -> Dataset:
        """Return a data set of encoded rows, for networks and the paper's protocol.

        Returns
        -------
        Dataset
            Training and test rows; tables are encoded.

        Raises
        ------
        DataError
            If the target is a number.
        """
        if self.class_names is None:
            raise DataError(
                f"{self.name}: the target {self.target_name!r} is numeric, but classes are "
                "required; use `compare`, or `train --method` with rr, kernel-ridge or a network"
            )
        train, test = self.split()
        target = self.target[train], self.target[test]
        if not isinstance(self.rows, Table):
            images = self.rows[train], self.rows[test]
            return Dataset(self.name, images[0], target[0], images[1], target[1], self.class_names)
        parts = self.parts(train, test)
        assert isinstance(parts.encoder, TableEncoder)
        whole = Dataset(self.name, parts.train, target[0], parts.test, target[1], self.class_names)
        return replace(
            whole,
            encoder=parts.encoder,
            target_name=self.target_name,
            target_written=self.target_written,
            id_name=self.id_name,
        )


def _take(rows: Table | np.ndarray, places: np.ndarray) -> Table | np.ndarray:
    return rows.take(places) if isinstance(rows, Table) else rows[places]


def table_problem(
    path: str | Path,
    target: str | None = None,
    *,
    ignore: Iterable[str] = (),
    id_column: str | None = None,
    task: str | None = None,
) -> Problem:
    """Read a table and decide what is to be learned from it.

    Parameters
    ----------
    path : str or Path
        A file that :func:`tensorswitch.data.read_table` reads.
    target : str, optional
        Column to predict; by default the one called ``label``, ``class``, ``target`` or ``y``, or
        else the last.
    ignore : iterable of str, default=()
        Columns not to learn from. Several may be in one string, separated by commas.
    id_column : str, optional
        Column that identifies rows; it is not learned from.
    task : {"classification", "regression"}, optional
        By default words, and whole numbers of at most 20 different values, are classes, and other
        numbers are quantities. More than 5 values need 5 rows each to be classes.

    Returns
    -------
    Problem
        The problem. Its ``notes`` say what was decided.

    Raises
    ------
    DataError
        If the file cannot be read, a column does not exist, or the target cannot be learned.
    """
    if task not in (None, *TASKS):
        raise ValueError(f"task must be classification or regression, got {task!r}")
    path = Path(path)
    table = read_table(path)
    notes = list(table.notes)
    left_out = [*_named(table, ignore), *([id_column] if id_column else [])]
    for name in left_out:
        table.column(name)
    if target is None:
        usual = [n for n in table.columns if n.lower() in TARGETS and n not in left_out]
        others = [n for n in table.columns if n not in left_out]
        target = usual[0] if usual else (others or [""])[-1]
        notes.append(f"no --target given: {target!r} is taken")
    values = table.column(target, "target")
    if target in left_out:
        raise DataError(f"{path}: the target {target!r} is also to be ignored")
    if task != "regression" and loses_names(table, target):
        values, remarks = names_of(read_table(path, {target: "text"}).columns[target], target)
        notes += remarks
        formats = {name: found for name, found in table.formats.items() if name != target}
        table = replace(table, columns={**table.columns, target: values}, formats=formats)
    counters = [
        name
        for name, column in table.columns.items()
        if name not in (target, *left_out) and _counts_rows(column)
    ]
    known = is_known(values)
    if not known.any():
        raise DataError(f"{path}: the target {target!r} has no values")
    row_names = _row_names(table, id_column, known)
    if not known.all():
        notes.append(f"left out: {counted(int((~known).sum()))} without a value of {target!r}")
        table, values = table.take(known), values[known]
    codes, names, why = decide(path, target, values, task)
    notes.append(why)
    features = table.without([target, *left_out, *counters])
    notes += [f"{name!r} numbers the rows and is left out" for name in counters]
    if not features.columns:
        raise DataError(f"{path} has no columns to learn from besides {target!r}")
    for name, reason in TableEncoder.fit(features).left_out.items():
        notes.append(f"{name!r} {reason} and is left out")
    if len(codes) < FEWEST:
        raise DataError(
            f"{path} has only {len(codes)} rows; at least {FEWEST} are required to hold out a test "
            "set"
        )
    stem = path.name.split(".")[0] or path.name
    ignored = tuple(n for n in table.columns if n not in features.columns and n != target)
    return Problem(
        stem,
        features,
        codes,
        names,
        target,
        id_column or "",
        ignored=ignored,
        notes=tuple(notes),
        target_written=table.formats.get(target, ""),
        row_names=row_names,
    )


def _row_names(table: Table, id_column: str | None, used: np.ndarray) -> tuple[str, ...]:
    """Return the identifiers of rows that are used, or their numbers, from 0 as in predictions."""
    if id_column is None:
        return tuple(map(str, np.flatnonzero(used)))
    ids = table.columns[id_column][used]
    return tuple(number_name(v) if isinstance(v, float) else str(v) for v in ids.tolist())


def _named(table: Table, columns: Iterable[str]) -> list[str]:
    """Return names of columns; one that is not a column may be several, with commas between."""
    found = []
    for name in columns:
        parts = [name] if name in table.columns else name.split(",")
        found += [part.strip() for part in parts if part.strip()]
    return found


def _counts_rows(column: np.ndarray) -> bool:
    return (
        column.dtype.kind == "f"
        and len(column) > FEW
        and bool((np.diff(column) == 1).all())
        and column[0] in (0, 1)
    )
