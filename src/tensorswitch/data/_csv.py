"""Text files with separators, compressed or not, of any encoding, in one pass over their lines."""

from __future__ import annotations

import bz2
import csv
import gzip
import io
import lzma
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import IO, Any

import numpy as np

from tensorswitch.data._text import KINDS, as_dates, as_numbers, as_words
from tensorswitch.data.readers import DataError

SEPARATORS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars"}
CHUNK = 50_000  # rows that are held as text
COMPRESSED = (".gz", ".bz2", ".xz", ".zst", ".zip")
FALLBACK = "cp1252"
_OPENERS: dict[str, Any] = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}
_MARKS = ((b"\xef\xbb\xbf", "utf-8-sig"), (b"\xff\xfe", "utf-16"), (b"\xfe\xff", "utf-16"))


def read_csv(
    path: Path, kinds: dict[str, str] | None = None
) -> tuple[dict[str, np.ndarray], list[str]]:
    """Return the columns of a file by name, and notes on how it was read.

    ``kinds`` says what some columns contain: "number", "date" or "words".
    """
    notes: list[str] = []
    encoding = _encoding(path)
    try:
        columns = _read(path, encoding, dict(kinds or {}), notes)
    except UnicodeDecodeError:
        if encoding != "utf-8":
            raise
        notes = [f"text of {path.name} is not UTF-8; it was read as Windows-1252"]
        columns = _read(path, FALLBACK, dict(kinds or {}), notes)
    return columns, notes


def _read(
    path: Path, encoding: str, given: dict[str, str], notes: list[str]
) -> dict[str, np.ndarray]:
    with _lines(path, encoding) as lines:
        names, separator = _header(path, lines, notes)
    kinds = {name: given.get(name, KINDS[0]) for name in names}
    parts: list[dict[str, np.ndarray]] = []
    at_first: dict[str, str] | None = None
    while at_first != kinds:  # again if a later chunk has shown that a column is something else
        at_first, parts = None, []
        with _lines(path, encoding) as lines:
            for part in _parts(path, lines, names, separator, kinds, given):
                parts.append(part)
                at_first = at_first or dict(kinds)
        if not parts:
            break
    if not parts:
        raise DataError(f"{path} has a line of column names but no rows")
    return {name: np.concatenate([part[name] for part in parts]) for name in names}


def _parts(
    path: Path,
    lines: IO[str],
    names: list[str],
    separator: str,
    kinds: dict[str, str],
    given: dict[str, str],
) -> Iterator[dict[str, np.ndarray]]:
    """Yield chunks of converted columns, moving on ``kinds`` where a column does not fit."""
    reader = csv.reader(lines, delimiter=separator, strict=True)
    comma = separator != ","
    rows = _rows(path, reader, names, comma)
    while chunk := list(islice(rows, CHUNK)):
        converted = {}
        for place, name in enumerate(names):
            cells = [row[place] for row in chunk]
            column = _converted(cells, kinds[name], comma)
            while column is None:
                kinds[name] = "words" if name in given else KINDS[KINDS.index(kinds[name]) + 1]
                column = _converted(cells, kinds[name], comma)
            converted[name] = column
        yield converted


def _converted(cells: list[str], kind: str, comma: bool) -> np.ndarray | None:
    if kind == "number":
        return as_numbers(cells, comma)
    return as_dates(cells) if kind == "date" else as_words(cells)


def _rows(path: Path, reader: Any, names: list[str], comma: bool) -> Iterator[list[str]]:
    """Yield the rows below the names, of one length; blank lines are skipped."""
    first = True
    try:
        for row in reader:
            if not row:
                continue
            if len(row) != len(names):
                raise DataError(
                    f"{path}, line {reader.line_num}: {len(row)} fields, "
                    f"but there are {len(names)} columns"
                )
            if not first or not _is_header(row, comma):
                yield row
            first = False
    except csv.Error as error:
        raise DataError(f"{path}, line {reader.line_num}: {error}") from None


def _is_header(row: list[str], comma: bool) -> bool:
    """Return whether a first line has names, of which at least one is not a number."""
    return as_numbers(row, comma) is None


def _header(path: Path, lines: IO[str], notes: list[str]) -> tuple[list[str], str]:
    """Return the names of the columns and the separator."""
    sample = "".join(islice((line for line in lines if line.strip()), 3))
    if not sample:
        raise DataError(
            f"{path} is empty; expected a line of column names and rows of features and labels"
        )
    if "\0" in sample:
        raise DataError(f"{path} is not a text file: it contains zero bytes")
    separator = _separator(sample)
    reader = csv.reader(io.StringIO(sample), delimiter=separator)
    try:
        first = next(row for row in reader if row)
    except csv.Error as error:
        raise DataError(f"{path}, line {reader.line_num}: {error}") from None
    if separator != ",":
        notes.append(f"columns of {path.name} are separated by {SEPARATORS[separator]}")
    if not _is_header(first, separator != ","):
        notes.append(f"no line of column names in {path.name}; columns are called c1, c2, …")
        return [f"c{i}" for i in range(1, len(first) + 1)], separator
    names = [name.strip() or f"c{i}" for i, name in enumerate(first, 1)]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        places = ", ".join(str(i) for i, name in enumerate(names, 1) if name == twice[0])
        raise DataError(
            f"{path}, line 1: several columns are called {twice[0]!r} (columns {places}); "
            "names must be unique"
        )
    return names, separator


def _separator(sample: str) -> str:
    """Return the separator that gives the most columns, the same number on the first lines."""

    def merit(separator: str) -> tuple[bool, int, bool]:
        try:
            rows = list(csv.reader(io.StringIO(sample), delimiter=separator))
        except csv.Error:
            return False, 0, False
        counts = [len(row) for row in rows if row]
        # Among ties the comma loses, since it may separate decimals.
        return min(counts) == max(counts) > 1, counts[0], separator != ","

    best = max(SEPARATORS, key=merit)
    return best if merit(best)[1] > 1 else ","


def _encoding(path: Path) -> str:
    with _open(path) as file:
        start = file.read(4)
    return next((name for mark, name in _MARKS if start.startswith(mark)), "utf-8")


@contextmanager
def _lines(path: Path, encoding: str) -> Iterator[IO[str]]:
    with _open(path) as file, io.TextIOWrapper(file, encoding=encoding, newline="") as lines:
        yield lines


@contextmanager
def _open(path: Path) -> Iterator[Any]:
    """Open a file for reading bytes, decompressed according to its suffix."""
    suffix = path.suffix.lower()
    if suffix == ".zip":
        with zipfile.ZipFile(path) as archive:
            members = [m for m in archive.infolist() if not m.is_dir()]
            if len(members) != 1:
                raise DataError(f"{path} contains {len(members)} files, expected a single table")
            with archive.open(members[0]) as file:
                yield file
        return
    if suffix == ".zst":
        with _open_zstandard(path) as file:
            yield file
        return
    with _OPENERS.get(suffix, open)(path, "rb") as file:
        yield file


def _open_zstandard(path: Path) -> Any:
    """Open a file that Zstandard has compressed, with whichever library is installed."""
    try:
        from compression import zstd  # type: ignore[import-not-found] # since Python 3.14

        return zstd.open(path, "rb")
    except ImportError:
        pass
    try:
        import pyarrow as pa
    except ImportError:
        raise DataError(
            f"{path}: Zstandard needs pyarrow (or Python 3.14); "
            "install it with: pip install 'tensorswitch[tables]'"
        ) from None
    return io.BufferedReader(pa.CompressedInputStream(pa.OSFile(str(path)), "zstd"))
