"""The columns of a frame as numbers, dates and words, however they are written."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from tensorswitch._checks import LARGEST_SQUARED
from tensorswitch.datasets import DataError

MISSING = frozenset(("", "na", "n/a", "nan", "null", "none", "?", "#n/a", "nat", "-nan", "<na>"))
# Words that stand for a missing value where the other cells are numbers or dates.
ALSO_MISSING = frozenset(
    ("-", "--", "–", "—", ".", "missing", "unknown", "not available", "n.a.", "n/d", "#value!")
)
FEW_WORDS = 30  # words that are better told apart than called missing
ODD = 0.05  # share of cells that may be no numbers or dates where the others are
_PLAIN = r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?|[-+]?[iI]nf(?:inity)?"
_POINTS = r"[1-9]\d{0,2}(?:\.\d{3})+"


class Way(NamedTuple):
    """How numbers are written: their pattern, what separates thousands, and the decimal sign."""

    pattern: re.Pattern[str]
    thousand: str
    decimal: str
    remark: str = ""


NUMBERS = {
    "number": Way(re.compile(_PLAIN), "", "."),
    "number .,": Way(
        re.compile(rf"[-+]?[1-9]\d{{0,2}}(?:,\d{{3}})+(?:\.\d+)?|{_PLAIN}"),
        *(",", ".", "commas separate thousands"),
    ),
    "number ,": Way(  # where 1.234 is a thousand
        re.compile(rf"[-+]?\d+(?:,\d+)?(?:[eE][-+]?\d+)?|(?![-+]?{_POINTS}$)(?:{_PLAIN})"),
        *("", ",", "commas are decimal"),
    ),
    "number ,.": Way(
        re.compile(rf"[-+]?(?:{_POINTS}|\d{{1,3}})(?:,\d+)?"),
        *(".", ",", "commas are decimal, points separate thousands"),
    ),
}
DATES = {"date": None, "date dayfirst": True, "date monthfirst": False}
WAYS = {way: way.partition(" ")[0] for way in (*NUMBERS, *DATES, "words")}
_SIGNS = re.compile(r"([-+]?)\s*(?:[$€£¥₹]\s*)?([-+]?[^$€£¥₹%\s]+)\s*[$€£¥₹%]?")
_CLOCK = (
    r"(?:,?[ T]\d\d?:\d\d(?::\d\d(?:[.,]\d+)?)?(?: ?[AaPp]\.?[Mm]\.?)?"
    r"(?: ?(?:Z|UTC|[-+]\d\d(?::?\d\d)?))?)?"
)
_DATE = re.compile(  # 2024-05-31, 31 May 2024, 31-May-2024 or May 31, 2024
    r"(?:\d{4}[-/]\d\d?[-/]\d\d?|\d\d?\.?[ -][A-Za-z]{3,9}\.?,?[ -]\d{4}"
    rf"|[A-Za-z]{{3,9}}\.? \d\d?,? \d{{4}}){_CLOCK}Z?"
)
_ORDERED = re.compile(  # 31.5.2024, 5/31/2024 or 5/31/24
    rf"(\d\d?)([./-])(\d\d?)\2(\d{{4}}|(?<=/)\d\d)({_CLOCK})"
)
Cells = tuple[np.ndarray, np.ndarray]  # which word each cell has, -1 for none, and the words


def clean(
    frame: pd.DataFrame,
    *,
    decimal: str | None = None,
    dayfirst: bool | None = None,
    written: Mapping[str, str] | None = None,
    sep: str = ",",
) -> tuple[pd.DataFrame, dict[str, str], list[str]]:
    """Find out what the columns of a frame contain, and convert them.

    Text is numbers if all of its cells are, else dates, else words; where only a few cells are
    words, they count as missing. Numbers may have decimal commas, separated thousands and signs of
    currency or percent.

    Parameters
    ----------
    frame : DataFrame
        Columns of any types.
    decimal : {".", ","}, optional
        Decimal sign of numbers in text. By default the one that fits each column.
    dayfirst : bool, optional
        Whether the day comes first in dates such as 5/6/2024, which could be either. By default it
        does, except between slashes.
    written : mapping of str to str, optional
        How columns are written, where it is known, as in the result.
    sep : str, default=","
        What separated the columns: between commas, commas in numbers separate thousands.

    Returns
    -------
    frame : DataFrame
        Numbers as float64, dates as datetime64[s] in UTC, words as str, all with missing values.
    written : dict of str to str
        How each column is written.
    notes : list of str
        What was assumed, and what is left out.

    Examples
    --------
    >>> import pandas as pd
    >>> from tensorswitch.tables import clean
    >>> raw = pd.DataFrame({"price": ["€ 1,50", "n/a"], "day": ["31.5.2024", "1.6.2024"]})
    >>> clean(raw)[1]
    {'price': 'number ,', 'day': 'date'}
    """
    frame = frame.rename(columns=str)
    if (twice := frame.columns[frame.columns.duplicated()]).size:
        raise DataError(f"several columns are called {twice[0]!r}; names must be unique")
    found, notes, texts = dict(written or {}), [], {}
    for name, column in frame.items():
        kind = kind_of(column)
        if kind is None:
            notes.append(f"column {name!r} of type {column.dtype} is left out")
            frame = frame.drop(columns=name)
        elif name not in found and kind == "words" and column.dtype != "category":
            texts[name] = distinct_words(column)
            found[name] = _format(*texts[name], decimal, dayfirst, sep)
        else:
            found.setdefault(name, kind)
    if sep != "," and any(found[name].startswith("number ,") for name in texts):
        plain = (name for name in texts if found[name] == "number")
        found |= {name: "number ,." for name in plain if _points_may_group(texts[name][1])}
    columns: dict[str, Any] = {}
    for name, column in frame.items():
        columns[name], odd = converted(column, found[name], texts.get(name))
        if odd:
            notes.append(cells_that(name, odd, unfitting(found[name])))
        if found[name] in NUMBERS:
            # Values such as 1.8e308 stand for missing ones, and their squares overflow.
            beyond = np.abs(columns[name]) > LARGEST_SQUARED
            if beyond.any():
                odd = [f"{value:.4g}" for value in columns[name][beyond]]
                columns[name] = np.where(beyond, np.nan, columns[name])
                what = "a value infinite or beyond 1e150, which counts as missing"
                notes.append(cells_that(name, odd, what))
    for way, (*_, remark) in NUMBERS.items():
        if remark and (names := [repr(name) for name in texts if found[name] == way]):
            more = f" and {len(names) - 5} more" if len(names) > 5 else ""
            notes.append(f"{remark} in {', '.join(names[:5])}{more}")
    for name, (_, words) in texts.items():
        if found[name] == "date" and dayfirst is None and (example := _either_way(words)):
            what = f"the month is taken to come first in dates such as {example}"
            notes.append(f"{name!r}: {what}, which no date confirms")
    return pd.DataFrame(columns, index=frame.index), found, notes


def kind_of(column: pd.Series) -> str | None:
    """Return "number", "date" or "words", or None for lists, bytes and the like."""
    kind = pd.api.types.infer_dtype(column, skipna=True)
    if kind == "unknown-array":
        kind = pd.api.types.infer_dtype(column.astype(object), skipna=True)
    if kind in ("integer", "floating", "decimal", "mixed-integer-float"):
        return "number"
    if kind in ("datetime64", "datetime", "date"):
        return "date"
    text = ("string", "boolean", "categorical", "empty", "mixed-integer")
    return "words" if kind in text else None


def distinct_words(column: pd.Series) -> Cells:
    """Return the different words of a column, stripped, without those for missing values."""
    codes, cells = pd.factorize(column.astype(object))
    words = [str(cell).strip() for cell in cells]
    known = [None if word.lower() in MISSING else word for word in words]
    places, distinct = pd.factorize(np.array([*known, None], dtype=object))
    return places[codes], np.asarray(distinct, dtype=object)


def converted(
    column: pd.Series, written: str, cells: Cells | None = None
) -> tuple[np.ndarray, list[str]]:
    """Return the values of a column, and its cells that are not written as the others."""
    kind, own = written.partition(" ")[0], kind_of(column)
    if own == "number" and kind != "date":
        numbers = column.to_numpy(dtype=np.float64, na_value=np.nan)
        if kind == "number":
            return numbers, []
        column = pd.Series([None if np.isnan(v) else number_name(v) for v in numbers], dtype=object)
    elif own == kind == "date":
        dates = pd.to_datetime(column, utc=True, errors="coerce").dt.tz_localize(None)
        return dates.to_numpy().astype("datetime64[s]"), []
    elif own != "words" and kind != "words":  # a date where numbers are expected
        column = pd.Series([None] * len(column), dtype=object)
    codes, words = cells or distinct_words(column)
    if kind == "words":
        return np.array([*words, None], dtype=object)[codes], []
    values = parsed([*words, ""], written)
    lost = pd.isna(values[:-1])
    return values[codes], [words[code] for code in codes if code >= 0 and lost[code]]


def parsed(words: Iterable[str], written: str) -> np.ndarray:
    """Return words as float64 or datetime64[s]; those that are not written so are missing."""
    if written in DATES:
        # pandas reads almost anything as a date, such as "5", and swaps day and month where one of
        # them is too large; so it is only given what has the form of a date, with the year first.
        texts = pd.Series([_year_first(word, DATES[written]) for word in words], dtype=object)
        dates = pd.to_datetime(texts, format="mixed", utc=True, errors="coerce")
        return np.asarray(dates.dt.tz_localize(None), dtype="datetime64[s]")
    pattern, thousand, decimal, _ = NUMBERS[written]
    bare = [word if pattern.fullmatch(word) else _bare(word) for word in words]
    plain = [
        text.replace(thousand, "").replace(decimal, ".") if pattern.fullmatch(text) else ""
        for text in bare
    ]
    return np.asarray(pd.to_numeric(pd.Series(plain, dtype=object), errors="coerce"), dtype=float)


def cells_that(name: str, words: Sequence[str], what: str) -> str:
    """Say which cells of a column are something that was not expected."""
    distinct = list(dict.fromkeys(words))
    shown = ", ".join(map(repr, distinct[:3])) + " …" * (len(distinct) > 3)
    return f"column {name!r}: {counted(len(words))} with {what}: {shown}"


def unfitting(written: str) -> str:
    """Say what a cell is that is of another kind than its column."""
    return f"a value that is not a {written.partition(' ')[0]} and counts as missing"


def counted(count: int, what: str = "row") -> str:
    """Return a number of things, as "1 row" or "2 rows"."""
    return f"{count} {what}" if count == 1 else f"{count} {what}s"


def number_name(value: float) -> str:
    """Return a number as it would be written, without a decimal point if it is whole."""
    return str(int(value)) if float(value).is_integer() else repr(float(value))


def _format(
    codes: np.ndarray, words: np.ndarray, decimal: str | None, dayfirst: bool | None, sep: str
) -> str:
    """Return the way to write numbers or dates that fits all words or nearly all of them."""
    if not len(words):
        return "number"
    counts = np.bincount(codes[codes >= 0], minlength=len(words))
    stands = np.array([word.lower() in ALSO_MISSING for word in words])
    few = len(words) <= FEW_WORDS and len(words) <= counts.sum() / 2
    names = few or any(word[0] == "0" != word and word.isdecimal() for word in words)
    for ways in (_ways_of_numbers(words, decimal, sep), _ways_of_dates(words, dayfirst)):
        if all(pd.isna(parsed(words[~stands][:100], way)).all() for way in ways):
            continue
        lost = {}
        for way in ways:
            lost[way] = pd.isna(parsed(words, way))
            if not lost[way].any():
                return way
        best = min(ways, key=lambda way: counts[lost[way]].sum())
        odd, others = counts[lost[best] & ~stands].sum(), counts[~lost[best]].sum()
        if not names and others >= 8 and odd <= max(1, ODD * (others + odd)):
            return best
    return "words"


def _ways_of_numbers(words: np.ndarray, decimal: str | None, sep: str) -> list[str]:
    """Return the ways that numbers may be written, the most likely one first."""
    if decimal is not None:
        return ["number ,.", "number ,"] if decimal == "," else ["number", "number .,"]
    # Between commas, three digits after a comma are thousands. Elsewhere, numbers with three
    # decimals all have one comma, and numbers of more than three digits have none.
    texts = [_bare(word).lstrip("+-") for word in words if sep != ","]
    texts = [text for text in texts if text[:1].isdecimal()]
    long = any("," not in text and len(text.partition(".")[0]) > 3 for text in texts)
    decimals = long or all(text.count(",") == 1 and "." not in text for text in texts)
    return [way for way in NUMBERS if way != "number .," or sep == "," or not decimals]


def _ways_of_dates(words: np.ndarray, dayfirst: bool | None) -> list[str]:
    """Return the orders of day and month, the most likely one first."""
    if not any(map(_ORDERED.fullmatch, words)):
        return ["date"]
    return sorted(DATES, key=lambda way: DATES[way] is not dayfirst)


def _either_way(words: np.ndarray) -> str | None:
    """Return a date between slashes, if all of them could have the day first as well."""
    slashed = [word for word in words if (m := _ORDERED.fullmatch(word)) and m[2] == "/"]
    swapped = parsed(slashed, "date dayfirst")
    return slashed[0] if slashed and not pd.isna(swapped).any() else None


def _points_may_group(words: np.ndarray) -> bool:
    """Return whether points may separate thousands, as three digits follow each."""
    texts, pattern = [_bare(word) for word in words], NUMBERS["number ,."][0]
    return any("." in text for text in texts) and all(map(pattern.fullmatch, texts))


def _year_first(word: str, dayfirst: bool | None) -> str | None:
    """Return a date with the year first, or with the month by name; None if it is no date."""
    found = _ORDERED.fullmatch(word)
    if found is None:
        return word if _DATE.fullmatch(word) else None
    month, mark, day, year, clock = found.groups()
    if mark != "/" if dayfirst is None else dayfirst:
        month, day = day, month
    if len(year) == 2:  # as in POSIX
        year = f"{19 if int(year) > 68 else 20}{year}"
    return f"{year}-{int(month):02d}-{int(day):02d}{clock}"


def _bare(text: str) -> str:
    """Return a number without a sign of currency or percent."""
    if (found := _SIGNS.fullmatch(text)) and not (found[1] and found[2][0] in "+-"):
        return found[1] + found[2]
    return text
