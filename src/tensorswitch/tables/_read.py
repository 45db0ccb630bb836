"""Files of tables as frames: of text, or of the types that the file has."""

from __future__ import annotations

import csv
import re
import warnings
from collections.abc import Iterable
from itertools import pairwise, takewhile
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from tensorswitch.datasets import DataError
from tensorswitch.datasets._files import reading
from tensorswitch.tables._clean import MISSING, NUMBERS, counted, parsed

TEXT, ARROW = (".csv", ".tsv", ".txt"), (".parquet", ".arrow", ".feather")
COMPRESSED = (".gz", ".bz2", ".xz", ".zst", ".zip")
SEPARATORS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars", " ": "spaces"}
MOST_COMMENTS = 1000  # lines above a table
_NAMED = re.compile(r'"?sep=([,;\t|])"?', re.IGNORECASE)  # the first line of files from Excel


class Layout(NamedTuple):
    """Where the columns of a text file begin and end, and what they are called."""

    above: int
    sep: str
    names: list[str]
    has_names: bool


def is_table(path: Path) -> bool:
    """Return whether a path has the suffix of a table, compressed or not."""
    suffixes = [suffix.lower() for suffix in path.suffixes]
    if suffixes and suffixes[-1] in COMPRESSED:
        suffixes.pop()
    return bool(suffixes) and suffixes[-1] in (*TEXT, *ARROW)


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
    >>> import tempfile
    >>> from pathlib import Path
    >>> from tensorswitch.tables import read_table
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "a.csv"
    ...     _ = path.write_text("size;colour\n1,50;red\n;blue\n")
    ...     frame, sep, notes = read_table(path)
    >>> frame["size"].tolist(), notes
    (['1,50', ''], ['columns of a.csv are separated by semicolons'])
    """
    path = Path(path)
    with reading(path):
        if path.is_dir():
            raise DataError(f"{path} is a folder, expected a table")
        if path.suffix.lower() in ARROW:
            read = pd.read_parquet if path.suffix.lower() == ".parquet" else pd.read_feather
            frame = read(path, dtype_backend="pyarrow")
            if not len(frame):
                raise DataError(f"{path} has no rows")
            return frame.reset_index(drop=frame.index.names == [None]), "", []
        marked = _lines(path, "latin-1", 1)[0].startswith(("\xff\xfe", "\xfe\xff"))
        for encoding in ("utf-16",) if marked else ("utf-8-sig", "cp1252"):
            try:
                return _read_text(path, encoding, sep)
            except UnicodeDecodeError:
                continue
        raise DataError(
            f"{path} is neither UTF-8, UTF-16 with a byte order mark nor Windows-1252; save it as "
            "UTF-8"
        )


def _read_text(path: Path, encoding: str, sep: str | None) -> tuple[pd.DataFrame, str, list[str]]:
    notes = []
    if encoding == "cp1252":
        notes.append(f"text of {path.name} is not UTF-8; it was read as Windows-1252")
    layout = _layout(path, _lines(path, encoding, MOST_COMMENTS), sep, notes)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", pd.errors.ParserWarning)
            frame = pd.read_csv(
                _source(path),
                sep=r"\s+" if layout.sep == " " else layout.sep,
                header=0 if layout.has_names else None,
                names=layout.names,
                index_col=False,
                skiprows=layout.above,
                skipinitialspace=layout.sep != "\t",
                dtype=str,
                na_filter=False,
                encoding=encoding,
            )
    except (pd.errors.ParserError, pd.errors.ParserWarning):
        _check_rows(path, encoding, layout, strict=True)
        raise
    if not len(frame):
        raise DataError(f"{path} has a line of column names but no rows")
    if (frame.iloc[:, -1] == "").any():  # as pandas fills rows that are too short
        _check_rows(path, encoding, layout, strict=False)
    return frame, layout.sep, notes


def _source(path: Path) -> Any:
    """Return what pandas reads: the path, which it decompresses, or a stream of Zstandard."""
    if path.suffix.lower() != ".zst":
        return path
    import pyarrow as pa

    return pa.input_stream(str(path), compression="zstd")


def _lines(path: Path, encoding: str, count: int | None = None) -> list[str]:
    options: dict[str, Any] = {"quoting": csv.QUOTE_NONE, "skip_blank_lines": False}
    options |= {"dtype": str, "na_filter": False, "encoding": encoding, "nrows": count}
    try:
        frame = pd.read_csv(_source(path), sep="\x1f", header=None, names=["line"], **options)
    except pd.errors.EmptyDataError:
        frame = pd.DataFrame({"line": []})
    lines: list[str] = frame["line"].tolist()
    if not any(map(str.strip, lines)):
        raise DataError(f"{path} is empty; expected a line of column names and rows below it")
    return lines


def _check_rows(path: Path, encoding: str, layout: Layout, strict: bool) -> None:
    """Raise for the first row that has not as many fields as there are columns."""
    lines = _lines(path, encoding)[layout.above :]
    reader = _reader((line + "\n" for line in lines), layout.sep, strict)
    limit = csv.field_size_limit(1 << 30)
    try:
        for row in reader:
            if len(row) != len(layout.names) and any(map(str.strip, row)):
                raise DataError(
                    f"{path}, line {reader.line_num + layout.above}: "
                    f"{counted(len(row), 'field')}, but there are {len(layout.names)} columns"
                )
    except csv.Error as error:
        raise DataError(f"{path}, line {reader.line_num + layout.above}: {error}") from None
    finally:
        csv.field_size_limit(limit)


def _layout(path: Path, lines: list[str], sep: str | None, notes: list[str]) -> Layout:
    """Find the columns from the first lines, and add to the notes.

    A line that starts with # is a comment, unless it has as many columns as the line below it.
    """
    filled = [(i, line) for i, line in enumerate(lines) if line.strip()]
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
    if any("\0" in line for line in sample):
        raise DataError(
            f"{path} is not a text file, as it contains zero bytes; if it is UTF-16 without a byte "
            "order mark, save it as UTF-8"
        )
    sep = sep or _separator(sample)
    if sep != ",":
        notes.append(f"columns of {path.name} are separated by {SEPARATORS.get(sep, repr(sep))}")
    first, *rest = _fields(sample, sep)
    if not _is_header(first, rest[0] if rest else []):
        notes.append(f"no line of column names in {path.name}; columns are called c1, c2, …")
        return Layout(above, sep, [f"c{i}" for i in range(1, len(first) + 1)], False)
    names = [name or f"c{i}" for i, name in enumerate(first, 1)]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        places = ", ".join(str(i) for i, name in enumerate(names, 1) if name == twice[0])
        raise DataError(
            f"{path}, line {above + 1}: several columns are called {twice[0]!r} "
            f"(columns {places}); names must be unique"
        )
    return Layout(above, sep, names, True)


def _reader(lines: Iterable[str], sep: str, strict: bool = False) -> Any:
    # Spaces are skipped, as a quote after one would be part of the cell.
    lines = (line.strip() for line in lines) if sep == " " else lines
    return csv.reader(lines, delimiter=sep, skipinitialspace=sep != "\t", strict=strict)


def _fields(lines: list[str], sep: str) -> list[list[str]]:
    rows = _reader((line[:100_000] for line in lines), sep)
    return [[cell.strip() for cell in row] for row in rows if row]


def _separator(lines: list[str]) -> str:
    """Return the separator that gives the most columns, the same number on the first lines."""

    def merit(sep: str) -> tuple[bool, int, bool]:
        widths = [len(row) for row in _fields(lines, sep)]
        # Among ties the comma loses, since it may separate decimals.
        return min(widths) == max(widths) > 1, widths[0], sep != ","

    best = max((sep for sep in SEPARATORS if sep != " "), key=merit)
    if merit(best)[1] > 1:
        return best
    return " " if merit(" ")[0] else ","


def _is_header(row: list[str], below: list[str]) -> bool:
    """Return whether a first line has names.

    It has if no cell is a number. If some are, as in a table with a column for each year, it is
    taken for a row of data if the numbers do not look like names, and those of the second line are
    in the same columns. If all are, it is one, unless they count the columns after an empty cell.
    """
    kinds, others = ([_kind(cell) for cell in line] for line in (row, below))
    places = [i for i, kind in enumerate(kinds) if kind == "number"]
    if "word" not in kinds:
        return not row[0] and _count(row[1:])
    alike = len(row) == len(below) and all(
        a == b or "gap" in (a, b) for a, b in zip(kinds, others, strict=True)
    )
    if not places or not alike:
        return True
    names, values = ([line[i] for i in places] for line in (row, below))
    return _count(names) or (_are_years(names) and not _are_years(values))


def _kind(cell: str) -> str:
    if cell.lower() in MISSING:
        return "gap"
    numbers = (not pd.isna(parsed([cell], way)[0]) for way in NUMBERS)
    return "number" if any(numbers) else "word"


def _count(names: list[str]) -> bool:
    """Return whether numbers are names: 0, 1, 2, or at least three with equal steps."""
    if not all(map(str.isdecimal, names)):
        return False
    steps = {int(b) - int(a) for a, b in pairwise(names)}
    return len(steps) == 1 and steps != {0} and (len(names) > 2 or steps == {1})


def _are_years(cells: list[str]) -> bool:
    return all(cell.isdecimal() and 1800 <= int(cell) < 2200 for cell in cells)
