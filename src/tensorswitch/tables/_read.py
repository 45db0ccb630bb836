"""Files of tables as frames: of text, or of the types that the file has."""

import csv
import re
from collections.abc import Iterable
from contextlib import suppress
from importlib import import_module
from itertools import pairwise, takewhile
from pathlib import Path
from typing import Any

import pandas as pd

from tensorswitch.datasets import DataError
from tensorswitch.datasets._files import reading
from tensorswitch.tables._clean import MISSING, NUMBERS, counted, parsed

ARROW = {".parquet": pd.read_parquet, ".arrow": pd.read_feather, ".feather": pd.read_feather}
MOST_COMMENTS = 1000  # lines above a table
SEPARATORS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars", " ": "spaces"}
TEXT: dict[str, Any] = {"header": None, "dtype": str, "na_filter": False}
_TABLE = re.compile(r".*\.(csv|tsv|txt|parquet|arrow|feather)(\.(gz|bz2|xz|zst|zip))?", re.I)
_NAMED = re.compile(r'"?sep=([,;\t|])"?', re.I)  # the first line of files from Excel
_YEAR = re.compile(r"(1[89]|2[01])\d\d")


def is_table(path: Path) -> bool:
    """Return whether a path has the suffix of a table, compressed or not."""
    return bool(_TABLE.fullmatch(path.name))


def read_table(path: str | Path, sep: str | None = None) -> tuple[pd.DataFrame, str, list[str]]:
    r"""Read a table as it is.

    Parameters
    ----------
    path : str or Path
        A ``.csv``, ``.tsv`` or ``.txt`` file, which may be compressed (``.gz``, ``.bz2``, ``.xz``,
        ``.zst``, ``.zip``), or a ``.parquet``, ``.arrow`` or ``.feather`` file.
    sep : str, optional
        What separates the columns of text. By default it is found from the first lines.

    Returns
    -------
    frame : DataFrame
        The rows: text as it stands in the file, or the types of a Parquet or Arrow file.
    sep : str
        What separates the columns, "" if they are not text.
    notes : list of str
        Remarks on how the file was read.

    Examples
    --------
    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> from tensorswitch.tables import read_table
    >>> with TemporaryDirectory() as folder:
    ...     _ = Path(folder, "a.csv").write_text("size;colour\n1,50;red\n;blue\n")
    ...     frame, sep, notes = read_table(Path(folder, "a.csv"))
    >>> frame["size"].tolist(), notes
    (['1,50', ''], ['columns of a.csv are separated by semicolons'])
    """
    path = Path(path)
    with reading(path):
        if path.is_dir():
            raise DataError(f"{path} is a folder, expected a table")
        if (suffix := path.suffix.lower()) in ARROW:
            frame = ARROW[suffix](path, dtype_backend="pyarrow")
            if not len(frame):
                raise DataError(f"{path} has no rows")
            return frame.reset_index(drop=frame.index.names == [None]), "", []
        marked = "".join(_lines(path, "latin-1", 1)).startswith(("\xff\xfe", "\xfe\xff"))
        with path.open("rb") as file:  # every other byte of UTF-16 is zero, which pandas may drop
            zeros = suffix in (".csv", ".tsv", ".txt") and b"\0" in file.read(1 << 12)
        for encoding in ("utf-16",) if marked else () if zeros else ("utf-8-sig", "cp1252"):
            with suppress(UnicodeError):
                return _read_text(path, encoding, sep)
        what = "or it is UTF-16 without a byte order mark; save it as UTF-8"
        raise DataError(f"{path} is neither UTF-8, UTF-16 nor Windows-1252, {what}")


def _read_text(path: Path, encoding: str, sep: str | None) -> tuple[pd.DataFrame, str, list[str]]:
    lines, notes = _lines(path, encoding), list[str]()
    if encoding == "cp1252":
        notes.append(f"text of {path.name} is not UTF-8; it was read as Windows-1252")
    above, sep, names, has_names = _layout(path, lines[:MOST_COMMENTS], sep, notes)
    rows = _reader((line + "\n" for line in lines[above:]), sep)
    limit = csv.field_size_limit(1 << 30)
    try:  # pandas would fill rows that are too short, and count lines without those in quotes
        for row in rows:
            if len(row) != len(names) and any(map(str.strip, row)):
                what = f"{counted(len(row), 'field')}, but there are {len(names)} columns"
                what += "; is a quote not closed?" * any("\n" in cell for cell in row)
                raise DataError(f"{path}, line {rows.line_num + above}: {what}")
    finally:
        csv.field_size_limit(limit)
    options = {"sep": r"\s+" if sep == " " else sep, "skipinitialspace": sep != "\t"}
    options |= {"skiprows": above + has_names, "names": names, "index_col": False}
    frame = pd.read_csv(_source(path), **options, **TEXT, encoding=encoding)
    if not len(frame):
        raise DataError(f"{path} has a line of column names but no rows")
    return frame, sep, notes


def _source(path: Path) -> Any:
    """Return what pandas reads: the path, or a stream, as it takes half a .zst file for a whole."""
    if path.suffix.lower() != ".zst":
        return path
    return import_module("pyarrow").input_stream(str(path), compression="zstd")


def _lines(path: Path, encoding: str, count: int | None = None) -> list[str]:
    """Return the lines of a file, as pandas decompresses them."""
    options = {"sep": "\x1f", "quoting": csv.QUOTE_NONE, "skip_blank_lines": False, "nrows": count}
    frame = pd.read_csv(_source(path), names=["line"], **options, **TEXT, encoding=encoding)
    lines: list[str] = frame["line"].tolist()
    return lines


def _layout(
    path: Path, lines: list[str], sep: str | None, notes: list[str]
) -> tuple[int, str, list[str], bool]:
    """Return the number of lines above, the separator, names, and whether the file has them.

    A line that starts with # is a comment, unless it has as many columns as the line below it.
    """
    filled = [(i, line) for i, line in enumerate(lines) if line.strip()]
    if not filled:
        raise DataError(f"{path} is empty; expected a line of column names and rows below it")
    marks = list(takewhile(lambda pair: pair[1][0] == "#" or _NAMED.fullmatch(pair[1]), filled))
    sep = sep or next((found[1] for _, line in marks if (found := _NAMED.fullmatch(line))), None)
    if marks and sep is None:
        pair = [line for _, line in filled[len(marks) - 1 : len(marks) + 1]]
        widths = {len(row) for row in _fields(pair, _separator(pair))}
        if len(pair) == 1 or (len(widths) == 1 and widths != {1}):
            marks.pop()
    if marks:
        notes.append(f"skipped: {counted(len(marks), 'line')} of comments above the table")
    above, sample = filled[len(marks)][0], [line for _, line in filled[len(marks) :][:3]]
    sep = sep or _separator(sample)
    if sep != ",":
        notes.append(f"columns of {path.name} are separated by {SEPARATORS.get(sep, repr(sep))}")
    first, *rest = _fields(sample, sep)
    has_names = _is_header(first, rest[0] if rest else [])
    if not has_names:
        notes.append(f"no line of column names in {path.name}; columns are called c1, c2, …")
    names = [cell if has_names and cell else f"c{i}" for i, cell in enumerate(first, 1)]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        places = ", ".join(str(i) for i, name in enumerate(names, 1) if name == twice[0])
        what = f"several columns are called {twice[0]!r} (columns {places}); names must be unique"
        raise DataError(f"{path}, line {above + 1}: {what}")
    return above, sep, names, has_names


def _reader(lines: Iterable[str], sep: str) -> Any:
    # Spaces are skipped: a quote after one would be part of the cell.
    lines = (line.strip() if sep == " " else line for line in lines)
    return csv.reader(lines, delimiter=sep, skipinitialspace=sep != "\t")


def _fields(lines: list[str], sep: str) -> list[list[str]]:
    rows = _reader((line[:100_000] for line in lines), sep)  # csv refuses longer fields
    return [[cell.strip() for cell in row] for row in rows if row]


def _separator(lines: list[str]) -> str:
    """Return the separator that gives the most columns, the same number on the first lines."""

    def merit(sep: str) -> tuple[bool, int, bool]:
        widths = [len(row) for row in _fields(lines, sep)]
        # Among ties the comma loses, since it may separate decimals.
        return min(widths) == max(widths) > 1, widths[0], sep != ","

    best = max(",;\t|", key=merit)
    if merit(best)[1] > 1:
        return best
    return " " if merit(" ")[0] else ","


def _is_header(row: list[str], below: list[str]) -> bool:
    """Return whether a first line has names, which may be numbers that count or are years.

    It has none if its numbers are not such names, and those of the second line are in the same
    columns. If all cells are numbers, it has names if the first one is empty and the others count.
    """
    kinds, others = ([_kind(cell) for cell in line] for line in (row, below))
    names = [cell for cell, kind in zip(row, kinds, strict=True) if kind == "number"]
    values = [cell for cell, kind in zip(below, kinds, strict=False) if kind == "number"]
    whole = all(map(str.isdecimal, names))
    steps = {int(b) - int(a) for a, b in pairwise(names)} if whole else set()
    counts = steps == {1} or (len(names) > 2 and len(steps) == 1 and steps != {0})
    if "word" not in kinds:
        return not row[0] and counts
    pairs = [{*pair} for pair in zip(kinds, others, strict=False)]
    alike = len(row) == len(below) and {"word", "number"} not in pairs
    years = all(map(_YEAR.fullmatch, names)) and not all(map(_YEAR.fullmatch, values))
    return not names or not alike or counts or years


def _kind(cell: str) -> str:
    if cell.lower() in MISSING:
        return "gap"
    return "word" if all(pd.isna(parsed([cell], way)[0]) for way in NUMBERS) else "number"
