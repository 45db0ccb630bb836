"""Columns of text as numbers, dates or words."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import partial

import numpy as np

MISSING = frozenset(("", "na", "n/a", "nan", "null", "none", "?", "#n/a", "nat", "-nan", "<na>"))
# Words that stand for a missing value where the other cells are numbers or dates.
ALSO_MISSING = frozenset(
    ("-", "--", "–", "—", ".", "missing", "unknown", "not available", "n.a.", "n/d", "#value!")
)
LEVELS = 30  # words of a column that have an input of their own
ODD = 0.05  # share of cells that may be no numbers or dates where the others are
# How a column can be written; one that does not fit is tried as the next.
FORMATS = {
    "number": "number",
    "padded": "number",  # 0123, which may be a name
    "grouped": "number",  # 1,234.5
    "comma": "number",  # 1234,5
    "grouped comma": "number",  # 1.234,5
    "date": "date",  # 2024-05-31
    "usual date": "date",  # 5/31/2024 or 31.5.2024
    "swapped date": "date",  # 31/5/2024 or 5.31.2024
    "words": "words",
    "text": "text",  # as it is, also what would stand for a missing value
}
_CLOCK = (
    r"(?:,?[ T](?P<hour>\d\d?):(?P<minute>\d\d)(?::(?P<second>\d\d)(?:[.,]\d+)?)?"
    r"(?: ?(?P<half>[AaPp])\.?[Mm]\.?)?(?: ?(?P<offset>Z|UTC|[-+]\d\d(?::?\d\d)?))?)?"
)
_YEAR, _MONTH, _DAY = r"(?P<year>\d{4})", r"(?P<name>[A-Za-z]{3,9})\.?", r"(?P<day>\d\d?)"
_ISO = re.compile(rf"{_YEAR}[-/](?P<month>\d\d?)[-/]{_DAY}{_CLOCK}Z?")
_NAMED = (
    re.compile(rf"{_DAY}\.?[ -]{_MONTH},?[ -]{_YEAR}{_CLOCK}"),  # 31 May 2024, 31-May-2024
    re.compile(rf"{_MONTH} {_DAY},? {_YEAR}{_CLOCK}"),  # May 31, 2024
)
_DAYS = re.compile(rf"(?P<month>\d\d?)(?P<mark>[./-]){_DAY}(?P=mark){_YEAR}{_CLOCK}")
_SHORT = re.compile(rf"(?P<month>\d\d?)(?P<mark>/){_DAY}/(?P<year>\d\d){_CLOCK}")
_MONTHS = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"]
_SIGNS = re.compile(r"([-+]?)\s*(?:[$€£¥₹]\s*)?([-+]?[^$€£¥₹%\s]+)\s*[$€£¥₹%]?")
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


def odd_words(words: Iterable[str | None]) -> tuple[str, set[str]] | None:
    """Return the words that are no numbers, or no dates, in a column where the others are.

    Also returns the kind of the others, of which there must be too many for words, and None if
    there is no such kind. Words for missing values may be more than a few.
    """
    counts = Counter(word for word in words if word is not None)
    known = sum(counts.values())
    if len(counts) <= LEVELS and len(counts) <= known / 2:
        return None
    for kind in _GAPS:
        if not any(_is(word, kind) for word in list(counts)[:100]):
            continue
        odd = {word for word in counts if not _is(word, kind)}
        others = known - sum(counts[word] for word in odd)
        few = sum(counts[word] for word in odd if word.lower() not in ALSO_MISSING)
        if odd and few <= max(1, ODD * (others + few)) and others >= 8:
            return kind, odd
    return None


def cells_that(name: str, words: Sequence[str], what: str) -> str:
    """Say which cells of a column are something that was not expected."""
    distinct = list(dict.fromkeys(words))
    shown = ", ".join(map(repr, distinct[:3])) + " …" * (len(distinct) > 3)
    return f"column {name!r}: {counted(len(words))} with {what}: {shown}"


def unfitting(kind: str) -> str:
    """Say what a cell is that is of another kind than its column."""
    return f"a value that is not a {kind} and counts as missing"


def counted(count: int, what: str = "row") -> str:
    """Return a number of things, as "1 row" or "2 rows"."""
    return f"{count} {what}" if count == 1 else f"{count} {what}s"


def _is(text: str, kind: str) -> bool:
    return best_conversion([text], kind) is not None


def commas_must_group(cells: Sequence[str]) -> bool | None:
    """Return whether commas cannot be decimal, in a column where three digits follow each.

    Numbers with as many decimals would all have a comma, and only one; numbers of more than three
    digits would have one if thousands were separated. None is returned if nothing shows it.
    """
    present = [_bare(cell.strip()).lstrip("+-") for cell in cells if not is_missing(cell)]
    if any("," not in cell and len(cell.partition(".")[0]) > 3 for cell in present):
        return False
    return True if any(cell.count(",") != 1 or "." in cell for cell in present) else None


def points_may_group(cells: Sequence[str]) -> bool | None:
    """Return whether points may separate thousands, or None if there are none.

    They may if three digits follow each, and numbers without have no more than three.
    """
    present = [_bare(cell.strip()) for cell in cells if not is_missing(cell)]
    if not all(_GROUPED_COMMA.fullmatch(cell) for cell in present):
        return False
    return True if any("." in cell for cell in present) else None


def _bare(text: str) -> str:
    """Return a number without a sign of currency or percent."""
    if (m := _SIGNS.fullmatch(text)) and not (m[1] and m[2][0] in "+-"):
        return m[1] + m[2]
    return text


def _number(text: str) -> float:
    if "_" in text:  # notations of Python that tables do not use
        raise ValueError(text)
    try:
        return float(text)
    except ValueError:
        return float(_bare(text))


def _grouped(text: str) -> float:
    if "," not in text:
        return _number(text)
    return float(_checked(_GROUPED, _bare(text)).replace(",", ""))


def _comma(text: str) -> float:
    text = _bare(text)
    if _COMMA.fullmatch(text):
        return float(text.replace(",", "."))
    if _GROUPED_COMMA.fullmatch(text):  # 1.234, beside numbers with decimal commas
        raise ValueError(text)
    return _number(text)


def _grouped_comma(text: str) -> float:
    return float(_checked(_GROUPED_COMMA, _bare(text)).replace(".", "").replace(",", "."))


def _checked(pattern: re.Pattern[str], text: str) -> str:
    if not pattern.fullmatch(text):
        raise ValueError(text)
    return text


def _date(text: str, swapped: bool | None = None) -> np.datetime64:
    """Return a date; slashes mean that the month comes first, unless the order is swapped."""
    patterns = (_ISO, *_NAMED) if swapped is None else (_ISO, *_NAMED, _DAYS, _SHORT)
    found = next((m for pattern in patterns if (m := pattern.fullmatch(text))), None)
    if found is None:
        raise ValueError(text)
    parts = found.groupdict()
    if "name" in parts:
        month, day = _MONTHS.index(parts["name"][:3].lower()) + 1, int(parts["day"])
    else:
        month, day = int(parts["month"]), int(parts["day"])
        if "mark" in parts and (parts["mark"] == "/") == swapped:
            month, day = day, month
    year = int(parts["year"])
    if len(parts["year"]) == 2:  # as in POSIX
        year += 2000 if year < 69 else 1900
    clock = f"{_hour(parts):02d}:{parts['minute'] or '00'}:{parts['second'] or '00'}"
    return np.datetime64(f"{year:04d}-{month:02d}-{day:02d}T{clock}") - _offset(parts["offset"])


def _hour(parts: dict[str, str]) -> int:
    hour = int(parts["hour"] or 0)
    if not parts["half"]:
        return hour
    if not 1 <= hour <= 12:
        raise ValueError(f"{hour} {parts['half']}m")
    return hour % 12 + 12 * (parts["half"].lower() == "p")


def _offset(text: str | None) -> np.timedelta64:
    """Return how far clocks are ahead of UTC."""
    if text in (None, "Z", "UTC"):
        return np.timedelta64(0, "s")
    assert text is not None
    digits = text[1:].replace(":", "").ljust(4, "0")
    minutes = 60 * int(digits[:2]) + int(digits[2:])
    return np.timedelta64(-minutes if text[0] == "-" else minutes, "m")


_READERS: dict[str, Callable[[str], float | np.datetime64]] = {
    "number": _number,
    "padded": _number,
    "grouped": _grouped,
    "comma": _comma,
    "grouped comma": _grouped_comma,
    "date": _date,
    "usual date": partial(_date, swapped=False),
    "swapped date": partial(_date, swapped=True),
}
_GAPS = {"number": float("nan"), "date": np.datetime64("NaT")}
