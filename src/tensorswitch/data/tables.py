"""Tables: columns of numbers, dates and words, read from csv, Parquet and Arrow files."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import numpy as np

from tensorswitch._checks import LARGEST_SQUARED
from tensorswitch.data._csv import COMPRESSED, read_csv
from tensorswitch.data._text import FORMATS, best_conversion, converted
from tensorswitch.data.readers import DataError, reading

__all__ = ["Table", "is_table", "read_table"]

TEXT = (".csv", ".tsv", ".txt")
ARROW = (".parquet", ".arrow", ".feather")


@dataclass(frozen=True)
class Table:
    r"""Columns by name, all of one length.

    Parameters
    ----------
    name : str
        Name of the table, for messages.
    columns : dict of str to ndarray
        Numbers are float64 with NaN for missing values, dates are datetime64[s] with NaT, and words
        are objects: str, or None.
    notes : tuple of str, default=()
        Remarks on how the file was read.
    formats : dict of str to str
        How columns were written, where numbers have commas or dates the day or the month first in
        spite of their separators.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from tensorswitch.data import read_table
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "a.csv"
    ...     _ = path.write_text("size,colour,day\n1.5,red,2024-05-31\n,blue,2024-06-01\n")
    ...     table = read_table(path)
    >>> table.kinds
    {'size': 'number', 'colour': 'words', 'day': 'date'}
    """

    name: str
    columns: dict[str, np.ndarray]
    notes: tuple[str, ...] = field(default=())
    formats: dict[str, str] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(next(iter(self.columns.values()))) if self.columns else 0

    @property
    def kinds(self) -> dict[str, str]:
        """What each column contains: "number", "date" or "words"."""
        kinds = {"f": "number", "M": "date", "O": "words"}
        return {name: kinds[column.dtype.kind] for name, column in self.columns.items()}

    @property
    def fingerprint(self) -> str:
        """A short hash of the names and the content."""
        digest = hashlib.blake2b(repr(list(self.kinds.items())).encode(), digest_size=8)
        for column in self.columns.values():
            if column.dtype.kind == "O":
                digest.update("\0".join("\1" if w is None else w for w in column).encode())
            else:
                digest.update(np.ascontiguousarray(column).view(np.uint8).data)
        return digest.hexdigest()

    def take(self, rows: np.ndarray) -> Table:
        """Return some of the rows.

        Parameters
        ----------
        rows : ndarray of int or bool
            Which rows, as an index of an array.

        Returns
        -------
        Table
            The rows in this order.
        """
        return replace(self, columns={n: c[rows] for n, c in self.columns.items()})

    def without(self, names: Iterable[str]) -> Table:
        """Return the table without some columns.

        Parameters
        ----------
        names : iterable of str
            Columns to leave out.

        Returns
        -------
        Table
            The other columns.
        """
        left_out = set(names)
        return replace(self, columns={n: c for n, c in self.columns.items() if n not in left_out})

    def __getitem__(self, name: str) -> np.ndarray:
        return self.columns[name]

    def drop(self, columns: Iterable[str]) -> Table:
        """Return the table without some columns, as a data frame does.

        Parameters
        ----------
        columns : iterable of str
            Columns to leave out.

        Returns
        -------
        Table
            The other columns.
        """
        return self.without(columns)

    def column(self, name: str, what: str = "column") -> np.ndarray:
        """Return a column, or raise an error that suggests similar names.

        Parameters
        ----------
        name : str
            Name of the column.
        what : str, default="column"
            What it is used for, for the message.

        Returns
        -------
        ndarray
            The column.

        Raises
        ------
        DataError
            If there is no such column.
        """
        if name in self.columns:
            return self.columns[name]
        by_case = {n.lower(): n for n in self.columns}
        close = get_close_matches(name.lower(), by_case, n=3, cutoff=0.6)
        hint = " or ".join(repr(by_case[n]) for n in close)
        names = list(self.columns)
        listed = ", ".join(names[:12]) + (f" and {len(names) - 12} more" if len(names) > 12 else "")
        ask = f"did you mean {hint}?" if hint else f"its columns are {listed}"
        raise DataError(f"{self.name} has no {what} {name!r}; {ask}")


_INDEX = re.compile(r"__index_level_\d+__")


def is_table(path: str | Path) -> bool:
    """Return whether a path has the suffix of a table.

    Parameters
    ----------
    path : str or Path
        The path.

    Returns
    -------
    bool
        True for csv files, compressed or not, and for Parquet and Arrow files.
    """
    suffixes = [s.lower() for s in Path(path).suffixes]
    if suffixes and suffixes[-1] in COMPRESSED:
        suffixes.pop()
    return bool(suffixes) and suffixes[-1] in (*TEXT, *ARROW)


def read_table(path: str | Path, kinds: dict[str, str] | None = None) -> Table:
    """Read a table.

    Columns of a csv file are numbers if all of their cells are, else dates, else words. Where only
    a few cells are words, they count as missing. Numbers may have decimal commas, thousands that
    are separated, and signs of currency or percent. The separator is found from the first lines,
    and a file that is not UTF-8 is read as Windows-1252.

    Parameters
    ----------
    path : str or Path
        A ``.csv``, ``.tsv`` or ``.txt`` file, which may be compressed (``.gz``, ``.bz2``, ``.xz``,
        ``.zst``, ``.zip``), or a ``.parquet``, ``.arrow`` or ``.feather`` file.
    kinds : dict of str to str, optional
        What some columns contain, "number", "date" or "words", or how they are written
        (:attr:`Table.formats`), if it is known. "text" is left as it is.

    Returns
    -------
    Table
        The table.

    Raises
    ------
    DataError
        If the file cannot be read: it names the file and, where it can, the line.
    """
    path = Path(path)
    with reading(path):
        if path.is_dir():
            raise DataError(f"{path} is a folder, expected a table")
        if path.suffix.lower() in ARROW:
            columns, formats, notes = _read_arrow(path, kinds or {})
        else:
            columns, formats, notes = read_csv(path, kinds)
    for name, column in columns.items():
        if column.dtype.kind != "f":
            continue
        # Values such as 1.8e308 stand for missing ones, and their squares overflow.
        beyond = np.abs(column) > LARGEST_SQUARED
        if count := int(beyond.sum()):
            column[beyond] = np.nan
            what = "infinite or beyond 1e150"
            notes.append(f"column {name!r}: {count} values that are {what} count as missing")
    special = {name: found for name, found in formats.items() if FORMATS[found] != found}
    return Table(path.name, columns, tuple(notes), special)


def _read_arrow(
    path: Path, given: dict[str, str]
) -> tuple[dict[str, np.ndarray], dict[str, str], list[str]]:
    try:
        import pyarrow as pa
        from pyarrow import feather, parquet
    except ImportError:
        raise DataError(
            f"{path}: Parquet and Arrow files need pyarrow; "
            "install it with: pip install 'tensorswitch[tables]'"
        ) from None
    if path.suffix.lower() == ".parquet":
        content = parquet.read_table(path)
    else:
        content = feather.read_table(path)
    names = content.column_names
    if twice := sorted({n for n in names if names.count(n) > 1}):
        raise DataError(f"{path}: several columns are called {twice[0]!r}; names must be unique")
    if not content.num_rows:
        raise DataError(f"{path} has no rows")
    columns, formats, notes = {}, {}, []
    for name, stored in zip(names, content.columns, strict=True):
        if b"pandas" in (content.schema.metadata or {}) and _INDEX.fullmatch(name):
            notes.append(f"{name!r}, the index that pandas has added, is left out")
            continue
        if given.get(name) == "text":
            columns[name] = np.array(
                ["" if v is None else str(v).strip() for v in stored.to_pylist()], dtype=object
            )
            continue
        column = _from_arrow(pa, stored)
        if column is None:
            notes.append(f"column {name!r} of type {stored.type} is left out")
        elif column.dtype.kind != "O" or not any(column):
            columns[name] = column
        else:  # many tables have dates as text
            cells = ["" if word is None else word for word in column]
            columns[name], formats[name] = _dates(cells, given.get(name)) or (column, "words")
    return columns, formats, notes


def _dates(cells: list[str], given: str | None) -> tuple[np.ndarray, str] | None:
    """Return text as dates with their format, in the given one if it is special."""
    if given in (None, "date"):
        return best_conversion(cells, "date")
    found = converted(cells, given) if FORMATS[given] == "date" else None
    return None if found is None else (found, given)


def _from_arrow(pa: Any, column: Any) -> np.ndarray | None:
    """Convert a column, or return None if its type is none of numbers, dates and words."""
    types = pa.types
    if types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    kind = column.type
    if types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind):
        return np.array(column.cast(pa.float64(), safe=False).to_numpy(), dtype=np.float64)
    if types.is_timestamp(kind) or types.is_date(kind):
        whole = column.cast(pa.timestamp("s"), safe=False)
        return whole.to_numpy().astype("datetime64[s]")  # type: ignore[no-any-return]
    if types.is_boolean(kind) or types.is_string(kind) or types.is_large_string(kind):
        words = np.empty(len(column), dtype=object)
        words[:] = [None if w is None else str(w).strip() or None for w in column.to_pylist()]
        return words
    if types.is_null(kind):
        return np.full(len(column), np.nan)
    return None
