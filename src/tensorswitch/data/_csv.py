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
from typing import IO, Any, NamedTuple

import numpy as np

from tensorswitch.data._layout import Layout
from tensorswitch.data._text import (
    FORMATS,
    cells_that,
    commas_must_group,
    converted,
    is_missing,
    odd_words,
    points_may_group,
    unfitting,
)
from tensorswitch.data.readers import DataError

CHUNK = 50_000  # rows that are held as text
LONGEST = 1 << 30  # characters of a cell
COMPRESSED = (".gz", ".bz2", ".xz", ".zst", ".zip")
FALLBACK = "cp1252"
_OPENERS: dict[str, Any] = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}
_MARKS = ((b"\xef\xbb\xbf", "utf-8-sig"), (b"\xff\xfe", "utf-16"), (b"\xfe\xff", "utf-16"))


def read_csv(
    path: Path, formats: dict[str, str] | None = None
) -> tuple[dict[str, np.ndarray], dict[str, str], list[str]]:
    """Return the columns of a file by name, how they are written, and notes on the reading.

    ``formats`` says how some columns are written, a key of :data:`FORMATS` each.
    """
    notes: list[str] = []
    encoding = _encoding(path)
    usual = csv.field_size_limit(LONGEST)
    try:
        columns, found = _read(path, encoding, dict(formats or {}), notes)
    except UnicodeDecodeError:
        if encoding != "utf-8":
            raise
        notes = [f"text of {path.name} is not UTF-8; it was read as Windows-1252"]
        try:
            columns, found = _read(path, FALLBACK, dict(formats or {}), notes)
        except UnicodeDecodeError as error:
            raise DataError(
                f"{path} is neither UTF-8, UTF-16 with a byte order mark nor Windows-1252; save it "
                "as UTF-8"
            ) from error
    finally:
        csv.field_size_limit(usual)
    return columns, found, notes


def _read(
    path: Path, encoding: str, given: dict[str, str], notes: list[str]
) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    with _lines(path, encoding) as lines:
        layout = Layout.of(path, lines, notes)
    formats = {name: given.get(name, "number") for name in layout.names}
    source = _Source(path, encoding, layout, given)
    evidence = _Evidence(set(), {}, {}, set())
    columns = _columns(source, formats, {}, evidence)
    odd = {
        name: found
        for name, column in columns.items()
        if formats[name] == "words"
        and name not in {*given, *evidence.padded}  # with zeros in front they are names
        and (found := odd_words(column))
    }
    if odd:  # read these columns as if the few cells that do not fit were empty
        again = {**formats, **dict.fromkeys(odd, "number")}
        blank = {name: words for name, (_, words) in odd.items()}
        second = _columns(source, again, blank, evidence)
        for name, (kind, words) in odd.items():
            if again[name] != "words":
                cells = [word for word in columns[name] if word in words]
                notes.append(cells_that(name, cells, unfitting(kind)))
                columns[name], formats[name] = second[name], again[name]
    formats.update({n: "padded" for n in evidence.padded if formats[n] == "number"})
    notes += _remarks(columns, formats, given, evidence.slashed)
    return columns, formats


class _Source(NamedTuple):
    """A file, and what is known about its columns."""

    path: Path
    encoding: str
    layout: Layout
    given: dict[str, str]


def _columns(
    source: _Source, formats: dict[str, str], blank: dict[str, set[str]], evidence: _Evidence
) -> dict[str, np.ndarray]:
    """Return the columns, with ``formats`` moved on; words that are ``blank`` count as missing."""
    path, encoding, layout, given = source
    parts: list[dict[str, np.ndarray]] = []
    at_first: dict[str, str] | None = None
    while at_first != formats:  # again if a later chunk has shown that a column is something else
        at_first, parts = None, []
        with _lines(path, encoding) as lines:
            for part in _parts(source, lines, formats, blank, evidence):
                parts.append(part)
                at_first = at_first or dict(formats)
        if not parts:
            break
        if at_first == formats:
            formats.update(_second_thoughts(evidence, formats, given))
    if not parts:
        raise DataError(f"{path} has a line of column names but no rows")
    return {name: np.concatenate([part[name] for part in parts]) for name in layout.names}


def _second_thoughts(
    evidence: _Evidence, formats: dict[str, str], given: dict[str, str]
) -> dict[str, str]:
    """Return formats of columns that the whole file shows in another light.

    Commas are decimal unless they must separate thousands. Where they are, points separate
    thousands if they can.
    """
    free = {name: w for name, w in formats.items() if _is_free(given.get(name))}
    found = {n: "comma" for n, w in free.items() if w == "grouped" and not evidence.groups.get(n)}
    if {"comma", "grouped comma"} & {*free.values(), *found.values()}:
        pointed = {n for n, may in evidence.points.items() if may and free.get(n) == "number"}
        found.update(dict.fromkeys(pointed, "grouped comma"))
    return found


def _remarks(
    columns: dict[str, np.ndarray],
    formats: dict[str, str],
    given: dict[str, str],
    slashed: set[str],
) -> list[str]:
    """Say how numbers and dates were read that others may mean otherwise."""
    said = {
        "grouped": "commas separate thousands",
        "comma": "commas are decimal",
        "grouped comma": "commas are decimal, points separate thousands",
    }
    notes = []
    for written, text in said.items():
        names = [repr(n) for n, w in formats.items() if w == written and _is_free(given.get(n))]
        if names:
            more = f" and {len(names) - 5} more" if len(names) > 5 else ""
            notes.append(f"{text} in {', '.join(names[:5])}{more}")
    for name in sorted(n for n in slashed if _is_free(given.get(n))):
        column = columns[name]
        if formats[name] == "usual date" and not (_day_of_month(column) > 12).any():
            notes.append(
                f"{name!r}: the month is taken to come first in dates such as "
                f"{_with_slashes(column)}, which no date confirms"
            )
    return notes


def _is_free(given: str | None) -> bool:
    """Return whether the way to write a column is not given, but its kind at most."""
    return given is None or FORMATS[given] == given


def _day_of_month(dates: np.ndarray) -> np.ndarray:
    known = dates[~np.isnat(dates)]
    days: np.ndarray = (known.astype("datetime64[D]") - known.astype("datetime64[M]")).astype(int)
    return days + 1


def _with_slashes(dates: np.ndarray) -> str:
    year, month, day = str(dates[~np.isnat(dates)][0])[:10].split("-")
    return f"{month}/{day}/{year}"


class _Evidence(NamedTuple):
    """What the cells of all chunks show of how columns are written.

    ``slashed`` are columns with slashes between days and months; ``groups`` and ``points`` say
    whether commas must and points may separate thousands; ``padded`` are columns with zeros before
    whole numbers among the first rows.
    """

    slashed: set[str]
    groups: dict[str, bool]
    points: dict[str, bool]
    padded: set[str]

    def note(self, name: str, cells: list[str], written: str, separator: str) -> None:
        """Add what a chunk shows of a column; one that contradicts is enough."""
        if written == "usual date":
            if any("/" in cell[:3] and not is_missing(cell) for cell in cells):
                self.slashed.add(name)
        elif written == "grouped":
            must = True if separator == "," else commas_must_group(cells)
            if must is not None:
                self.groups[name] = self.groups.get(name, True) and must
        elif written == "number" and separator != ",":
            may = points_may_group(cells)
            if may is not None:
                self.points[name] = self.points.get(name, True) and may


def _parts(
    source: _Source,
    lines: IO[str],
    formats: dict[str, str],
    blank: dict[str, set[str]],
    evidence: _Evidence,
) -> Iterator[dict[str, np.ndarray]]:
    """Yield chunks of converted columns, moving on ``formats`` where a column does not fit."""
    path, _, layout, given = source
    rows, first = _rows(path, layout.reader(lines), layout), True
    while chunk := list(islice(rows, CHUNK)):
        columns = {}
        for place, name in enumerate(layout.names):
            cells = [row[place] for row in chunk]
            if name in blank:
                cells = ["" if cell.strip() in blank[name] else cell for cell in cells]
            column = converted(cells, formats[name])
            while column is None:
                formats[name] = _next(formats[name], given.get(name))
                column = converted(cells, formats[name])
            columns[name] = column
            evidence.note(name, cells, formats[name], layout.separator)
            if first and any(cell[:1] == "0" != cell and cell.isdigit() for cell in cells):
                evidence.padded.add(name)
        first = False
        yield columns


def _next(written: str, given: str | None) -> str:
    """Return the format to try next.

    If the kind is given, it is kept, and if the format is, nothing else is tried.
    """
    order = list(FORMATS)
    following = order[order.index(written) + 1]
    if given is None or FORMATS[following] == given:
        return following
    return "words"


def _rows(path: Path, reader: Any, layout: Layout) -> Iterator[list[str]]:
    """Yield the rows below the names, of one length; blank lines are skipped."""
    first = layout.has_names
    try:
        for row in reader:
            if not row:
                continue
            if len(row) != len(layout.names):
                raise DataError(
                    f"{path}, line {reader.line_num + layout.comments}: {len(row)} fields, "
                    f"but there are {len(layout.names)} columns"
                )
            if not first:
                yield row
            first = False
    except csv.Error as error:
        raise DataError(f"{path}, line {reader.line_num + layout.comments}: {error}") from None


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
