"""Columns of text as numbers, dates or words."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

MISSING = frozenset(("", "na", "n/a", "nan", "null", "none", "?", "#n/a", "nat", "-nan", "<na>"))
# How a column can be written; one that does not fit is tried as the next.
FORMATS = {
    "number": "number",
    "grouped": "number",  # 1,234.5
    "comma": "number",  # 1234,5
    "grouped comma": "number",  # 1.234,5
    "date": "date",  # 2024-05-31
    "usual date": "date",  # 5/31/2024 or 31.5.2024
    "swapped date": "date",  # 31/5/2024 or 5.31.2024
    "words": "words",
    "text": "text",  # as it is, also what would stand for a missing value
}
_CLOCK = r"(?:[ T](\d\d?):(\d\d)(?::(\d\d)(?:\.\d+)?)?)?"
_ISO = re.compile(rf"(\d{{4}})[-/](\d\d?)[-/](\d\d?){_CLOCK}Z?")
_DAYS = re.compile(rf"(\d\d?)([./-])(\d\d?)[./-](\d{{4}}){_CLOCK}")
_COMMA = re.compile(r"[-+]?\d+(?:,\d+)?(?:[eE][-+]?\d+)?")
_GROUPED = re.compile(r"[-+]?[1-9]\d{0,2}(?:,\d{3})+(?:\.\d+)?")
_GROUPED_COMMA = re.compile(r"[-+]?(?:[1-9]\d{0,2}(?:\.\d{3})+|\d{1,3})(?:,\d+)?")


def is_missing(text: str) -> bool:
    """Return whether a cell stands for a missing value."""
    return text.strip().lower() in MISSING


def converted(cells: Sequence[str], written: str) -> np.ndarray | None:
    """Return a column, or None if a cell is not written in one of the :data:`FORMATS`.

    Numbers are float64 with NaN where a value is missing, dates datetime64[s] with NaT, and words
    are objects: str, or None.
    """
    kind = FORMATS[written]
    if kind in ("words", "text"):
        words = np.empty(len(cells), dtype=object)
        words[:] = [
            None if kind == "words" and is_missing(cell) else cell.strip() for cell in cells
        ]
        return words
    read, gap = _READERS[written], _GAPS[kind]
    try:
        found = [gap if is_missing(cell) else read(cell.strip()) for cell in cells]
    except ValueError:
        return None
    return np.array(found, dtype=np.float64 if kind == "number" else "datetime64[s]")


def best_conversion(cells: Sequence[str], kind: str) -> tuple[np.ndarray, str] | None:
    """Return a column of numbers or dates in the first format that fits, and the format."""
    for written in (w for w, k in FORMATS.items() if k == kind):
        if (found := converted(cells, written)) is not None:
            return found, written
    return None


def is_number(text: str) -> bool:
    """Return whether a cell is a number, however it is written, or missing."""
    return best_conversion([text], "number") is not None


def commas_must_group(cells: Sequence[str]) -> bool | None:
    """Return whether commas cannot be decimal, in a column where three digits follow each.

    Numbers with as many decimals would all have a comma, and only one; numbers of more than three
    digits would have one if thousands were separated. None is returned if nothing shows it.
    """
    present = [cell.strip().lstrip("+-") for cell in cells if not is_missing(cell)]
    if any("," not in cell and len(cell.partition(".")[0]) > 3 for cell in present):
        return False
    return True if any(cell.count(",") != 1 or "." in cell for cell in present) else None


def points_may_group(cells: Sequence[str]) -> bool | None:
    """Return whether points may separate thousands, or None if there are none.

    They may if three digits follow each, and numbers without have no more than three.
    """
    present = [cell.strip() for cell in cells if not is_missing(cell)]
    if not all(_GROUPED_COMMA.fullmatch(cell) for cell in present):
        return False
    return True if any("." in cell for cell in present) else None


def _number(text: str) -> float:
    if "_" in text:  # notations of Python that tables do not use
        raise ValueError(text)
    return float(text)


def _grouped(text: str) -> float:
    return float(_checked(_GROUPED, text).replace(",", "")) if "," in text else _number(text)


def _comma(text: str) -> float:
    if _COMMA.fullmatch(text):
        return float(text.replace(",", "."))
    if _GROUPED_COMMA.fullmatch(text):  # 1.234, beside numbers with decimal commas
        raise ValueError(text)
    return _number(text)


def _grouped_comma(text: str) -> float:
    return float(_checked(_GROUPED_COMMA, text).replace(".", "").replace(",", "."))


def _checked(pattern: re.Pattern[str], text: str) -> str:
    if not pattern.fullmatch(text):
        raise ValueError(text)
    return text


def _date(text: str, swapped: bool | None = None) -> np.datetime64:
    """Return a date; slashes mean that the month comes first, unless the order is swapped."""
    if m := _ISO.fullmatch(text):
        year, month, day, *clock = m.groups()
    elif swapped is not None and (m := _DAYS.fullmatch(text)):
        month, mark, day, year, *clock = m.groups()
        if (mark == "/") == swapped:
            month, day = day, month
    else:
        raise ValueError(text)
    hours, minutes, seconds = (part or "00" for part in clock)
    return np.datetime64(
        f"{year}-{int(month):02d}-{int(day):02d}T{int(hours):02d}:{minutes}:{seconds}"
    )


_READERS: dict[str, Callable[[str], float | np.datetime64]] = {
    "number": _number,
    "grouped": _grouped,
    "comma": _comma,
    "grouped comma": _grouped_comma,
    "date": _date,
    "usual date": partial(_date, swapped=False),
    "swapped date": partial(_date, swapped=True),
}
_GAPS = {"number": float("nan"), "date": np.datetime64("NaT")}
