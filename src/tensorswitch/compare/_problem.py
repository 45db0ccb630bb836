"""A learning problem: rows, a target, and how they are split."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from functools import cached_property
from hashlib import blake2b
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas
from pandas import DataFrame, Series
from pandas.util import hash_pandas_object

from tensorswitch.compare._splits import Split, divided
from tensorswitch.datasets import NAMES, DataError, Dataset, Preparation, load
from tensorswitch.datasets._arrays import held_out, load_arrays
from tensorswitch.datasets._pictures import labelled_pictures
from tensorswitch.tables import TableEncoder, clean, read_table
from tensorswitch.tables._clean import number_name
from tensorswitch.tables._read import is_table

TARGETS = ("label", "labels", "class", "target", "y")  # names of targets, unless one is given
FEWEST = 10  # rows of which some are held out
TASKS = ("classification", "regression")
ARRAYS = (".npz", ".npy")
FEW = 20  # integers with more distinct values than this are targets of a regression
ALWAYS, CLASS_ROWS = 5, 5  # so few values are classes; more need as many rows each


class Parts(NamedTuple):
    """Inputs of training and test rows, and how further rows become inputs."""

    train: np.ndarray
    test: np.ndarray
    encoder: Any


@dataclass(frozen=True)
class Problem:
    """Rows and what is to be predicted for them.

    Parameters
    ----------
    name : str
        Name of the data.
    rows : DataFrame or ndarray
        Columns without the target, images of shape (rows, channels, height, width), or rows of
        features.
    target : ndarray of shape (rows,)
        Indices into ``class_names``, or numbers.
    class_names : tuple of str, or None
        Names of the classes; None for a regression.
    target_name, id_name, target_written : str, default=""
        Columns of the target and of what identifies rows, and how the target of a table is
        written, as in :class:`tensorswitch.tables.TableEncoder`.
    given_test : ndarray of int, or None, default=None
        Which rows are for testing, if the data say so.
    ignored, notes : tuple of str, default=()
        Columns of a table that are not learned from, and what was decided, for the user.
    row_names : tuple of str, or None, default=None
        What rows are called: their identifiers, or their numbers in the file.
    written : dict of str to str
        How the columns of a table are written.
    """

    name: str
    rows: DataFrame | np.ndarray
    target: np.ndarray
    class_names: tuple[str, ...] | None
    target_name: str = ""
    id_name: str = ""
    given_test: np.ndarray | None = None
    ignored: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    target_written: str = ""
    row_names: tuple[str, ...] | None = None
    written: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def from_dataset(cls, data: Dataset) -> Problem:
        """Return the problem of a data set, with its own test rows."""
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
        """Return what the row of an index is called: its identifier, or number in file or part."""
        if self.row_names is not None:
            return f"row {self.row_names[row]}"
        if self.given_test is None:
            return f"row {row}"
        before = int(np.count_nonzero(self.given_test < row))
        return f"test row {before}" if row in self.given_test else f"training row {row - before}"

    @property
    def is_image(self) -> bool:
        """Whether the rows are images."""
        return isinstance(self.rows, np.ndarray) and self.rows.ndim == 4

    @property
    def is_table(self) -> bool:
        """Whether the rows are a table with named columns."""
        return not isinstance(self.rows, np.ndarray)

    @cached_property
    def fingerprint(self) -> str:
        """A short hash of rows, target and split."""
        if isinstance(self.rows, np.ndarray):
            about, content = self.rows.shape, np.ascontiguousarray(self.rows)
        else:
            about = tuple((name, self.rows[name].dtype.kind) for name in self.rows)
            content = hash_pandas_object(self.rows, index=False).to_numpy()
        digest = blake2b(repr((about, self.class_names)).encode(), digest_size=8)
        test = np.zeros(0) if self.given_test is None else self.given_test
        for part in (content, self.target.astype(float), test.astype(float)):
            digest.update(part.reshape(-1).view(np.uint8).data)  # bytes, without a copy
        return digest.hexdigest()

    def without(self, column: str) -> Problem:
        """Return the problem without a column to learn from, if it has it."""
        if not self.is_table or column not in self.rows:
            return self
        rows: Any = self.rows
        ignored = (*self.ignored, column)
        return replace(self, rows=rows.drop(columns=[column]), ignored=ignored)

    def take(self, places: np.ndarray) -> Any:
        """Return the raw rows at some indices."""
        return self.rows.take(places, axis=0)

    def splits(self) -> list[Split]:
        """Return indices of training and test rows: of five folds for small tables, else once."""
        return divided(self)

    def split(self) -> Split:
        """Return indices of training and test rows, as they are given or else 70 % and 30 %."""
        if self.given_test is not None:
            return np.setdiff1d(np.arange(len(self)), self.given_test), self.given_test
        return held_out(self.target, self.class_names is not None)

    def parts(self, train: np.ndarray, test: np.ndarray, components: int | None = None) -> Parts:
        """Encode training and test rows, with an encoder fitted on the former.

        Parameters
        ----------
        train, test : ndarray of int
            Indices of the rows.
        components : int, optional
            Principal components to project rows of numbers on; tables are not projected.
        """
        rows = self.take(train)
        encoder: Any
        if self.is_table:
            encoder = TableEncoder(written=self.written).fit(rows)
            encoder.left_out.update(dict.fromkeys(self.ignored, "is ignored"))
        else:
            encoder = Preparation.fit(rows, components)
        return Parts(encoder(rows), encoder(self.take(test)), encoder)

    def dataset(self) -> Dataset:
        """Return classes as a data set for the paper's protocol; rows of tables are encoded."""
        if self.class_names is None:
            raise DataError(
                f"{self.name}: the target {self.target_name!r} is numeric, but classes are "
                "required; use `compare`, or `train --method` with rr, kernel-ridge or a network"
            )
        train, test = self.split()
        if self.is_table:
            parts = self.parts(train, test)
        else:
            parts = Parts(self.take(train), self.take(test), None)
        rows = parts.train, self.target[train], parts.test, self.target[test]
        columns = self.target_name, self.id_name, self.target_written
        return Dataset(self.name, *rows, self.class_names, parts.encoder, *columns)


def load_problem(
    name: str | Path,
    *,
    target: str | None = None,
    ignore: Iterable[str] = (),
    id_column: str | None = None,
    task: str | None = None,
    test: str | Path | None = None,
    sep: str | None = None,
    decimal: str | None = None,
    dayfirst: bool | None = None,
) -> Problem:
    """Load rows and what is to be predicted for them, a class or a quantity.

    Parameters
    ----------
    name : str or Path
        Name of a data set, or a path to one of

        - a table, as in :func:`tensorswitch.tables.read_table`;
        - a folder with a folder of images for each class, or one of these to train and to test;
        - arrays, as in :func:`tensorswitch.datasets.load_arrays`.
    target : str, optional
        Column of a table to predict; by default the one called ``label``, ``class``, ``target`` or
        ``y``, or else the last.
    ignore : iterable of str, default=()
        Columns not to learn from. Several may be in one string, separated by commas.
    id_column : str, optional
        Column that identifies rows; it is not learned from.
    task : {"classification", "regression"}, optional
        By default words, and whole numbers of at most 20 different values, are classes, and other
        numbers are quantities. More than 5 values need 5 rows each to be classes.
    test : str or Path, optional
        A second table, of the rows to test on.
    sep, decimal : str, optional
        What separates the columns of a text file, and the decimal sign, if they are not found.
    dayfirst : bool, optional
        Whether the day comes first in dates that could be either.

    Returns
    -------
    Problem
        The problem. Its ``notes`` say what was decided.

    Examples
    --------
    >>> from tensorswitch.compare import load_problem
    >>> problem = load_problem("digits")
    >>> problem.task, len(problem), problem.is_image
    ('classification', 1797, True)
    """
    if task not in (None, *TASKS):
        raise ValueError(f"task must be classification or regression, got {task!r}")
    path = Path(name)
    asked: dict[str, Any] = {"target": target, "ignore": [*ignore], "id_column": id_column}
    asked |= {"task": task, "test": test, "sep": sep, "decimal": decimal, "dayfirst": dayfirst}
    if str(name) not in NAMES:
        if not str(name) or not path.exists():
            known = f"a data set known by name ({', '.join(NAMES)})"
            raise DataError(f"{str(name)!r} is neither {known} nor an existing file or folder")
        if path.is_file() and path.suffix not in ARRAYS:
            return _table_problem(path, asked)
    if wrong := [option for option, value in asked.items() if value]:
        what = "a table with named columns"
        raise DataError(f"{name} is not {what}, so {wrong[0]} does not apply to it")
    if str(name) in NAMES:
        return Problem.from_dataset(load(str(name)))
    if path.is_dir() and not any(path.glob("*-ubyte*")):
        return _picture_problem(path)
    return Problem.from_dataset(load_arrays(path))


def _picture_problem(path: Path) -> Problem:
    pictures, test, notes = labelled_pictures(path)
    names, codes = np.unique(pictures.labels or [], return_inverse=True)
    if len(names) < 2:
        raise DataError(f"{path}: all pictures are of class {names[0]}; two classes are required")
    if test is None:
        _check_rows(path, len(codes), "pictures")
    found = path.resolve().name, pictures.images, codes.astype(np.int64), tuple(map(str, names))
    return Problem(*found, given_test=test, notes=tuple(notes))


def _table_problem(path: Path, asked: Mapping[str, Any]) -> Problem:
    """Read a table and decide what is to be learned from it, from the options that are given."""
    if not is_table(path):
        how = " (pandas.read_excel or read_json, then to_csv)"
        known = ".csv, .tsv, .parquet, .arrow, .npz, .npy, and folders with images or IDX files"
        advice = f"save it as .csv{how if path.suffix in ('.xlsx', '.xls', '.json') else ''}"
        raise DataError(f"{path} has an unknown format; {advice}; supported are {known}")
    raw, sep, notes = read_table(path, asked["sep"])
    count = len(raw)
    if asked["test"] is not None:
        raw = _with_test_rows(raw, path, Path(asked["test"]), asked["sep"])
    target, id_column, task = asked["target"], asked["id_column"], asked["task"]
    left_out = [*_named(raw, asked["ignore"]), *([id_column] if id_column else [])]  # not converted
    for name in left_out:
        _check_column(path, raw, name)
    if target is None:
        others = [name for name in map(str, raw.columns) if name not in left_out]
        usual = [name for name in others if name.lower() in TARGETS]
        target = usual[0] if usual else (others or [""])[-1]  # "" if all are left out
        notes.append(f"no --target given: {target!r} is taken")
    _check_column(path, raw, target, "target")
    if target in left_out:
        raise DataError(f"{path}: the target {target!r} is also to be ignored")
    form = {name: asked[name] for name in ("decimal", "dayfirst")}
    frame, written, remarks = clean(raw.drop(columns=left_out), sep=sep, **form)
    notes += remarks
    if target not in frame:
        raise DataError(f"{path}: the target {target!r} has neither numbers nor words")
    values, how = frame.pop(target), written.pop(target)
    if task != "regression" and (names := _names(raw[target], values, how)) is not None:
        values, how = names, "words"
        if any(str(value).lower() == "none" for value in values.dropna().unique()):
            what = f"'None' is a class of {target!r}"
            notes.append(f"{what}; leave cells empty where values are missing")
    known = values.notna().to_numpy()
    if not known.any():
        raise DataError(f"{path}: the target {target!r} has no values")
    counters = [name for name in frame if _counts_rows(frame[name])]
    if missing := int((~known).sum()):
        rows = "1 row" if missing == 1 else f"{missing} rows"
        notes.append(f"left out: {rows} without a value of {target!r}")
    codes, class_names, why = _decide(path, target, values[known].to_numpy(), how, task)
    notes += [why, *(f"{name!r} numbers the rows and is left out" for name in counters)]
    features = frame.drop(columns=counters)[known].reset_index(drop=True)
    tested = np.flatnonzero(np.flatnonzero(known) >= count)
    if not len(features.columns):
        raise DataError(f"{path} has no columns to learn from besides {target!r}")
    try:
        encoder = TableEncoder(written=written).fit(features)  # to say what it leaves out
    except DataError as error:
        raise DataError(f"{path}: {error}") from error
    notes += [f"{name!r} {reason} and is left out" for name, reason in encoder.left_out.items()]
    notes += suspicions(features, codes, class_names, None if id_column is None else raw[id_column])
    _check_rows(path, len(codes), "rows")
    # Rows have their identifiers, or their numbers from 0 as in predictions.
    ids = np.flatnonzero(known) if id_column is None else raw[id_column][known]
    ignored = tuple(n for n in map(str, raw) if n != target and n not in features)
    about: dict[str, Any] = {"ignored": ignored, "notes": tuple(notes), "target_written": how}
    about |= {"row_names": tuple(map(str, ids)), "written": written}
    about |= {"given_test": tested if len(tested) else None}
    name = path.name.split(".")[0] or path.name  # of all suffixes, ".csv.gz" too
    return Problem(name, features, codes, class_names, target, id_column or "", **about)


def _with_test_rows(raw: DataFrame, path: Path, test: Path, sep: str | None) -> DataFrame:
    """Append the rows of a second table, which must have the same columns."""
    if not test.is_file() or not is_table(test):
        raise DataError(f"{test} is not a table of rows to test on")
    more = read_table(test, sep)[0]
    if missing := [name for name in map(str, raw.columns) if name not in more]:
        raise DataError(f"{test} has no column {missing[0]!r}, which {path.name} has")
    return pandas.concat([raw, more[raw.columns]], ignore_index=True)


def suspicions(
    frame: DataFrame, target: np.ndarray, classes: tuple[str, ...] | None, ids: Series | None
) -> list[str]:
    """Say which columns are copies of the target, and which suggest that rows are not independent.

    These are dates, and identifiers that repeat: the column of identifiers, or numbers and words
    whose name ends with "id".
    """
    notes = []
    for name, column in frame.items():
        values, known = column.to_numpy(), column.notna().to_numpy()
        if known.mean() < 0.5:
            continue
        if values.dtype.kind == "f" and classes is None:
            a, b = values[known], target[known]
            # The deviation of constant columns is rounding error.
            spread = np.ptp(a) > 1e-9 * np.abs(a).max() and np.ptp(b) > 0
            copied = spread and abs(np.corrcoef(a, b)[0, 1]) > 1 - 1e-9
        else:
            codes = pandas.factorize(values[known])[0]
            pairs = len(np.unique(np.column_stack([codes, target[known]]), axis=0))
            copied = classes is not None and pairs == codes.max() + 1 == len(classes)
        if copied:
            notes.append(f"{name!r} is a copy of the target; leave it out with --ignore {name}")
    dates = [name for name, column in frame.items() if column.dtype.kind == "M"]
    if dates:
        what = f"rows have dates; if new rows are later ones, test so with --split time:{dates[0]}"
        notes.append(what)
    called = {
        str(n): c for n, c in frame.items() if re.search(r"(?i)(^|[^a-z])id$|[a-z]Id$|ID$", n)
    }
    if ids is not None:
        called = {str(ids.name): ids, **called}
    for name, column in called.items():
        if FEW < column.nunique() < 0.9 * column.count():
            what = "if new rows have others, test so with"
            notes.append(f"values of {name!r} repeat; {what} --split group:{name}")
    return notes


def true_target(
    column: Series, class_names: Iterable[str] | None, written: str = "number"
) -> np.ndarray | None:
    """Return the names of classes, or the numbers, of new rows; None if some are missing.

    A class that is written 1.0 is called "1" if that is known.
    """
    cells = column.rename("cell").to_frame()
    how = written if written.startswith("number") else "number"
    numbers = clean(cells, written={"cell": how})[0]["cell"]
    if class_names is None:
        if numbers.isna().all():
            raise DataError(f"the target {column.name!r} is not a column of numbers")
        return None if numbers.isna().any() else numbers.to_numpy()
    known, text = set(class_names), column.astype(object).astype(str).str.strip()
    words = clean(cells, written={"cell": "words"})[0]["cell"]
    if (words.isna() & ~text.isin(known)).any():
        return None
    named = numbers.map(number_name, na_action="ignore").astype(object)
    return np.asarray(named.where(numbers.notna() & ~text.isin(known), text), dtype=str)


def _check_rows(path: Path, count: int, what: str) -> None:
    if count < FEWEST:
        least = f"at least {FEWEST} are required to hold out a test set"
        raise DataError(f"{path} has only {count} {what}; {least}")


def _check_column(path: Path, frame: DataFrame, name: str, what: str = "column") -> None:
    """Raise if there is no such column, and suggest similar names."""
    names = list(map(str, frame.columns))
    if name in names:
        return
    by_case = {n.lower(): n for n in names}  # case is a frequent mistake
    close = get_close_matches(name.lower(), by_case, n=3, cutoff=0.6)
    listed = ", ".join(names[:12]) + (f" and {len(names) - 12} more" if len(names) > 12 else "")
    hint = " or ".join(repr(by_case[n]) for n in close)
    ask = f"did you mean {hint}?" if hint else f"its columns are {listed}"
    raise DataError(f"{path.name} has no {what} {name!r}; {ask}")


def _named(frame: DataFrame, columns: Iterable[str]) -> list[str]:
    """Return names of columns; one that is not a column may be several, with commas between."""
    found = []
    for name in columns:
        parts = [name] if name in frame.columns else name.split(",")
        found += [part.strip() for part in parts if part.strip()]
    return found


def _counts_rows(column: Series) -> bool:
    values = column.to_numpy()
    numbers = values.dtype.kind == "f" and len(values) > FEW
    return numbers and values[0] in (0, 1) and bool((np.diff(values) == 1).all())


def _names(raw: Series, values: Series, written: str) -> Series | None:
    """Return a target as it stands in the file, if the names of classes were lost in reading it.

    That is so for numbers with zeros in front, and for "None", unless it stands in a single row.
    """
    if raw.dtype.kind not in "OU" or getattr(raw.dtype, "categories", None) is not None:
        return None
    cells = [cell.strip() if isinstance(cell, str) else "" for cell in raw]
    nones = np.array([cell.lower() == "none" for cell in cells])  # missing, or a word
    if written == "words" and nones.sum() > 1:
        return values.astype(object).where(~nones, cells)
    padded = any(cell[:1] == "0" != cell and cell.isdecimal() for cell in cells)
    if written.startswith("number") and padded and values.nunique() <= FEW:
        return values.astype(object).where(values.isna(), cells)
    return None


def _decide(
    path: Path, name: str, values: np.ndarray, written: str, task: str | None
) -> tuple[np.ndarray, tuple[str, ...] | None, str]:
    """Return codes or numbers, the names of the classes, and the decision in words."""
    subject = f"{path}: the target {name!r}"
    if values.dtype.kind == "M":
        raise DataError(f"{subject} is a date, which cannot be predicted")
    words = written == "words"
    distinct, codes = np.unique(values.astype(str) if words else values, return_inverse=True)
    names = tuple(map(str if words else number_name, distinct.tolist()))
    if len(names) < 2:
        raise DataError(f"{subject} is {names[0]} in every row; there is nothing to learn")
    if words and task == "regression":
        example = f"text such as {names[0]!r}"
        raise DataError(f"{subject} contains {example}, so it cannot be the target of a regression")
    classes = words or task == "classification"
    if not words and task is None:  # many values in few rows are quantities
        most = max(ALWAYS, min(FEW, len(values) / CLASS_ROWS))
        classes = bool((values == values.round()).all()) and len(names) <= most
    if not classes:
        what = "requested" if task else f"{len(names)} different numbers"
        return values.astype(np.float64), None, f"target {name!r}: {what}, so regression"
    if len(names) > max(FEW, len(values) / (4 if words else 2)):
        kind = f"words, such as {names[0]!r}," if words else "numbers"
        hint = "; if they are meant to be numbers, write them without units" if words else ""
        raise DataError(
            f"{subject} has {len(names)} different {kind} in {len(values)} rows, which are too "
            f"many classes to learn{hint}"
        )
    why = "classes"
    if words:
        cases = Counter(map(str.lower, names))
        alike = [repr(name) for name in names if cases[name.lower()] > 1][:2]
        case = f" (some differ in case only, such as {' and '.join(alike)})" if alike else ""
        why = f"classes, so classification{case}"
    elif task is None:
        why = "whole numbers, so classification (--task regression predicts the number)"
    return codes.astype(np.int64), names, f"target {name!r}: {len(names)} {why}"
