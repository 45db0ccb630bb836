"""Columns of text as numbers, dates or words."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

MISSING = frozenset(("", "na", "n/a", "nan", "null", "none", "?", "#n/a", "nat", "-nan", "<na>"))
KINDS = ("number", "date", "words")  # a column that is not the first is tried as the next
_ISO = re.compile(r"(\d{4})[-/](\d\d?)[-/](\d\d?)(?:[ T](\d\d?):(\d\d)(?::(\d\d)(?:\.\d+)?)?)?Z?")
_DAYS = re.compile(r"(\d\d?)[./-](\d\d?)[./-](\d{4})(?:[ T](\d\d?):(\d\d)(?::(\d\d)(?:\.\d+)?)?)?")
_COMMA = re.compile(r"[-+]?\d+(?:,\d+)?(?:[eE][-+]?\d+)?")


def is_missing(text: str) -> bool:
    """Return whether a cell stands for a missing value."""
    return text.strip().lower() in MISSING


def as_words(cells: Sequence[str]) -> np.ndarray:
    """Return an array of str, with None where a value is missing."""
    words = np.empty(len(cells), dtype=object)
    words[:] = [None if is_missing(cell) else cell.strip() for cell in cells]
    return words


def as_numbers(cells: Sequence[str], comma: bool = False) -> np.ndarray | None:
    """Return float64 with NaN where a value is missing, or None if a cell is not a number.

    With ``comma`` the decimal separator may be a comma.
    """
    if comma and all(is_missing(c) or _COMMA.fullmatch(c.strip()) for c in cells):
        cells = [c.replace(",", ".") for c in cells]
    try:
        return np.array([float("nan") if is_missing(c) else _number(c) for c in cells])
    except ValueError:
        return None


def _number(text: str) -> float:
    if "_" in text:  # notations of Python that tables do not use
        raise ValueError(text)
    return float(text)


def as_dates(cells: Sequence[str]) -> np.ndarray | None:
    """Return datetime64[s] with NaT where a value is missing, or None if a cell is not a date.

    Dates are ``2024-05-31``, ``31.5.2024`` or ``5/31/2024``, with or without a time. Where day and
    month could be confused in all cells, slashes mean that the month comes first.
    """
    known = [None if is_missing(cell) else cell.strip() for cell in cells]
    dates = np.full(len(known), np.datetime64("NaT"), dtype="datetime64[s]")
    present = [cell for cell in known if cell is not None]
    if not present:
        return dates
    pattern = _ISO if _ISO.fullmatch(present[0]) else _DAYS
    matches = [None if cell is None else pattern.fullmatch(cell) for cell in known]
    if any(m is None and cell is not None for m, cell in zip(matches, known, strict=True)):
        return None
    order = (1, 2, 3)
    if pattern is _DAYS:
        first = max(int(m[1]) for m in matches if m)
        second = max(int(m[2]) for m in matches if m)
        month_first = first <= 12 and (second > 12 or "/" in present[0])
        order = (3, 1, 2) if month_first else (3, 2, 1)
    try:
        for i, m in enumerate(matches):
            if m is not None:
                year, month, day = (int(m[k]) for k in order)
                clock = f"{int(m[4] or 0):02d}:{m[5] or '00'}:{m[6] or '00'}"
                dates[i] = np.datetime64(f"{year:04d}-{month:02d}-{day:02d}T{clock}")
    except ValueError:
        return None
    return dates
