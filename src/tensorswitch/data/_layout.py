"""Where the columns of a text file begin and end, and what they are called."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from tensorswitch.data._text import counted, is_missing, is_number
from tensorswitch.data.readers import DataError

MOST_COMMENTS = 1000  # lines above a table
_SEPARATOR = re.compile(r'"?sep=([,;\t|])"?', re.IGNORECASE)
SEPARATORS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars", " ": "spaces"}


class Layout(NamedTuple):
    """The columns of a file.

    Parameters
    ----------
    separator : str
        What separates them.
    names : list of str
        Their names.
    has_names : bool, default=True
        Whether they are in the first line.
    comments : int, default=0
        Number of lines above the table.
    """

    separator: str
    names: list[str]
    has_names: bool = True
    comments: int = 0

    @classmethod
    def of(cls, path: Path, lines: Iterable[str], notes: list[str]) -> Layout:
        """Find the columns from the first lines, and add to the notes."""
        comments, said, sample = _first_lines(line for line in lines if line.strip())
        if comments:
            notes.append(f"skipped: {counted(comments, 'line')} of comments above the table")
        if not sample:
            raise DataError(
                f"{path} is empty; expected a line of column names and rows of features and labels"
            )
        if "\0" in sample:
            raise DataError(
                f"{path} is not a text file, as it contains zero bytes; if it is UTF-16 without a "
                "byte order mark, save it as UTF-8"
            )
        separator = said or _separator(sample)
        # The sample may end within quotes.
        reader = _reader(io.StringIO(sample, newline=""), separator, strict=False)
        try:
            first, second, *_ = [*(row for row in reader if row), None]
        except csv.Error as error:
            raise DataError(f"{path}, line {reader.line_num}: {error}") from None
        assert first is not None
        if separator != ",":
            notes.append(f"columns of {path.name} are separated by {SEPARATORS[separator]}")
        if not _is_header(first, second):
            notes.append(f"no line of column names in {path.name}; columns are called c1, c2, …")
            names = [f"c{i}" for i in range(1, len(first) + 1)]
            return cls(separator, names, has_names=False, comments=comments)
        names = [name.strip() or f"c{i}" for i, name in enumerate(first, 1)]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            places = ", ".join(str(i) for i, name in enumerate(names, 1) if name == twice[0])
            raise DataError(
                f"{path}, line {comments + 1}: several columns are called {twice[0]!r} "
                f"(columns {places}); names must be unique"
            )
        return cls(separator, names, comments=comments)

    def reader(self, lines: Iterable[str]) -> Any:
        """Return the rows of the whole file, which must be well-formed."""
        return _reader(_below(lines, self.comments), self.separator, strict=True)


def _first_lines(lines: Iterable[str]) -> tuple[int, str, str]:
    """Return the number of comments above a table, the separator they name, and its first lines.

    A line that starts with # is a comment, unless it has as many columns as the line below it. So
    is the line ``sep=;`` of Excel, which names the separator.
    """
    comments: list[str] = []
    sample: list[str] = []
    said = ""
    for line in lines:
        if not sample and (found := _SEPARATOR.fullmatch(line.rstrip("\r\n"))):
            said = found[1]
            comments.append(line)
        elif line.startswith("#") and not sample:
            comments.append(line)
        else:
            sample.append(line)
        if len(sample) == 3 or len(comments) == MOST_COMMENTS:
            break
    if comments and not said:
        rows = comments[-1] + (sample or [""])[0]
        separator = _separator(rows)
        counts = [len(row) for row in _reader(io.StringIO(rows), separator, strict=False) if row]
        if not sample or (len(counts) == 2 and counts[0] == counts[1] > 1):
            sample = [comments.pop(), *sample][:3]
    return len(comments), said, "".join(sample)


def _below(lines: Iterable[str], count: int) -> Iterator[str]:
    """Yield the lines below the first ones that are not blank."""
    for line in lines:
        if count and line.strip():
            count -= 1
        else:
            yield line


def _reader(lines: Iterable[str], separator: str, strict: bool) -> Any:
    if separator == " ":
        lines = (line.strip() + "\n" for line in lines)
    # Otherwise a quote after a space would be part of the cell.
    skip = separator != "\t"
    return csv.reader(lines, delimiter=separator, strict=strict, skipinitialspace=skip)


def _is_header(row: list[str], second: list[str] | None) -> bool:
    """Return whether a first line has names.

    It has if no cell is a number. If some are, as in a table with a column for each year, it is
    taken for a row of data if the numbers do not look like names, and those of the second line are
    in the same columns. If all are, it is one, unless they count the columns after an empty cell.
    """
    numbers = [is_number(cell) and not is_missing(cell) for cell in row]
    if all(number or is_missing(cell) for number, cell in zip(numbers, row, strict=True)):
        return not row[0].strip() and _count([cell.strip() for cell in row[1:]])
    if not any(numbers) or second is None or len(second) != len(row):
        return True
    alike = all(
        is_missing(below) or is_missing(cell) or is_number(below) == number
        for cell, below, number in zip(row, second, numbers, strict=True)
    )
    names, below = (
        [cell.strip() for cell, number in zip(line, numbers, strict=True) if number]
        for line in (row, second)
    )
    return not alike or _count(names) or (_are_years(names) and not _are_years(below))


def _count(names: list[str]) -> bool:
    """Return whether numbers are names: 0, 1, 2, or at least three with equal steps."""
    values = [int(name) for name in names if name.isdecimal()]
    steps = {b - a for a, b in pairwise(values)}
    equal = len(steps) == 1 and steps != {0} and (len(values) > 2 or steps == {1})
    return len(values) == len(names) > 1 and equal


def _are_years(cells: list[str]) -> bool:
    return all(cell.isdecimal() and 1800 <= int(cell) < 2200 for cell in cells)


def _separator(sample: str) -> str:
    """Return the separator that gives the most columns, the same number on the first lines."""

    def merit(separator: str) -> tuple[bool, int, bool]:
        reader = _reader(io.StringIO(sample, newline=""), separator, strict=False)
        try:
            counts = [len(row) for row in reader if row]
        except csv.Error:
            return False, 0, False
        # Among ties the comma loses, since it may separate decimals.
        return min(counts) == max(counts) > 1, counts[0], separator != ","

    others = [separator for separator in SEPARATORS if separator != " "]
    best = max(others, key=merit)
    if merit(best)[1] > 1:
        return best
    return " " if merit(" ")[0] else ","
