"""The columns of a frame as numbers, dates and words, however they are written.

NUMBERS has a form for each way to write numbers. What has the form is left to pandas, once the sign
of thousands is removed and the decimal sign is a point; pandas rejects all that is no number.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from tensorswitch._checks import LARGEST_SQUARED
from tensorswitch.datasets import DataError

MISSING = frozenset(("", "na", "n/a", "nan", "null", "none", "?", "#n/a", "nat", "-nan", "<na>"))
# Words that stand for a missing value where the other cells are numbers or dates.
ALSO_MISSING = {"-", "--", "–", "—", ".", "n.a.", "n/d", "#value!", "not available"}
ALSO_MISSING |= {"missing", "unknown"}
FEW_WORDS = 30  # words that are better told apart than called missing
ODD = 0.05  # share of cells that may be no numbers or dates where the others are
KINDS = dict.fromkeys(("integer", "floating", "decimal", "mixed-integer-float"), "number")
KINDS |= dict.fromkeys(("datetime64", "datetime", "date"), "date")
KINDS |= dict.fromkeys(("string", "boolean", "categorical", "empty", "mixed-integer"), "words")
_COMMAS, _POINTS = r"[-+]?[1-9]\d{0,2}(,\d{3})+(\.\d+)?", r"[-+]?[1-9]\d{0,2}(\.\d{3})+"
_SHORT, _BOTH = r"[-+]?\d{1,3}", "commas are decimal, points separate thousands"
NUMBERS = {  # form, sign of thousands, decimal sign, remark
    "number": (r".*", "", ".", ""),
    "number .,": (rf"[^,]*|{_COMMAS}", ",", ".", "commas separate thousands"),
    "number ,": (rf"(?!{_POINTS}$).*", "", ",", "commas are decimal"),
    "number ,.": (rf"({_POINTS}|{_SHORT})(,\d+)?", ".", ",", _BOTH),
}
DATES = {"date": None, "date dayfirst": True, "date monthfirst": False}  # whether the day is first
WAYS = {way: way.partition(" ")[0] for way in (*NUMBERS, *DATES, "words")}
_PLAIN = re.compile(r"[-+]?[\d.,]+").fullmatch
_SIGNS = re.compile(r"^([-+]?)\s*[$€£¥₹]?\s*|\s*[$€£¥₹%]$")
# Seconds and what is behind them are optional, and so is the whole.
_CLOCK = r"(?:,?[ T]\d\d?:\d\d[\d:.,]*(?: ?[ap]\.?m\.?)?(?: ?(?:Z|UTC|[-+]\d\d(?::?\d\d)?))?)?"
_DATE = re.compile(  # 2024-05-31, 31 May 2024, 31-May-2024 or May 31, 2024
    r"(?i)(?:\d{4}[-/]\d\d?[-/]\d\d?|\d\d?\.?[ -][a-z]{3,9}\.?,?[ -]\d{4}"
    rf"|[a-z]{{3,9}}\.? \d\d?,? \d{{4}}){_CLOCK}Z?"
)
# 31.5.2024, 5/31/2024 or 5/31/24
_ORDERED = re.compile(rf"(?i)(\d\d?)([./-])(\d\d?)\2(\d{{4}}|(?<=/)\d\d)({_CLOCK})")


def clean(
    frame: pd.DataFrame,
    *,
    decimal: str | None = None,
    dayfirst: bool | None = None,
    written: Mapping[str, str] | None = None,
    sep: str = ",",
) -> tuple[pd.DataFrame, dict[str, str], list[str]]:
    """Find out what the columns of a frame contain, and convert them.

    Text is numbers if all of its cells are, else dates, else words; a few odd cells count as
    missing. Numbers may have decimal commas, separated thousands, and signs of currency or percent.

    Parameters
    ----------
    frame : DataFrame
        Columns of any types.
    decimal : {".", ","}, optional
        Decimal sign of numbers in text. By default the one that fits each column.
    dayfirst : bool, optional
        Whether the day comes first in dates such as 5/6/2024. By default, except between slashes.
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
        What was assumed, what is left out and what counts as missing.

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
        if name in found:
            continue
        if kind is None:
            notes.append(f"column {name!r} of type {column.dtype} is left out")
            frame = frame.drop(columns=name)
        elif kind == "words" and column.dtype != "category":
            texts[name] = _distinct(column)
            found[name] = _way(*texts[name], decimal, dayfirst, sep)
        else:
            found[name] = kind
    if sep != "," and any(found[name].startswith("number ,") for name in texts):
        for name, (_, words) in texts.items():  # points may separate thousands as well
            points = found[name] == "number" and any("." in word for word in words)
            if points and not np.isnan(parsed(words, "number ,.")).any():
                found[name] = "number ,."
    columns: dict[str, Any] = {}
    for name, column in frame.items():
        values, odd = _converted(column, found[name], texts.get(name))
        what = f"a value that is not a {WAYS[found[name]]} and counts as missing"
        notes += cells_that(name, odd, what)
        if found[name] in NUMBERS:
            # Values such as 1.8e308 stand for missing ones, and their squares overflow.
            beyond = np.abs(values) > LARGEST_SQUARED
            what = "a value infinite or beyond 1e150, which counts as missing"
            notes += cells_that(name, [f"{value:.4g}" for value in values[beyond]], what)
            values = np.where(beyond, np.nan, values)
        columns[name] = values
    for way, (*_, remark) in NUMBERS.items():
        if remark and (names := [repr(name) for name in texts if found[name] == way]):
            more = f" and {len(names) - 5} more" if len(names) > 5 else ""
            notes.append(f"{remark} in {', '.join(names[:5])}{more}")
    for name, (_, words) in texts.items():
        assumed = found[name] == "date" and dayfirst is None
        slashed = [word for word in words if assumed and "/" in word[1:3]]
        if slashed and not np.isnat(parsed(slashed, "date dayfirst")).any():
            what = f"the month is taken to come first in dates such as {slashed[0]}"
            notes.append(f"{name!r}: {what}, which no date confirms")
    return pd.DataFrame(columns, index=frame.index), found, notes


def kind_of(column: pd.Series) -> str | None:
    """Return "number", "date" or "words", or None for lists, bytes and the like."""
    kind = pd.api.types.infer_dtype(column, skipna=True)
    if kind == "unknown-array":
        kind = pd.api.types.infer_dtype(column.astype(object), skipna=True)
    return KINDS.get(kind)


def _distinct(column: pd.Series) -> tuple[np.ndarray, np.ndarray]:
    """Return which word each cell has, -1 if it is missing, and the words."""
    codes, cells = pd.factorize(column.astype(object))
    words = [number_name(cell) if isinstance(cell, float) else str(cell).strip() for cell in cells]
    known = [None if word.lower() in MISSING else word for word in words]
    places, distinct = pd.factorize(np.array([*known, None], dtype=object))
    return places[codes], np.asarray(distinct, dtype=object)


def _converted(
    column: pd.Series, written: str, cells: tuple[np.ndarray, np.ndarray] | None
) -> tuple[np.ndarray, list[str]]:
    """Return the values of a column, and its cells that are not written as the others."""
    kind, own = WAYS[written], kind_of(column)
    if own == kind == "number":
        return column.to_numpy(dtype=np.float64, na_value=np.nan), []
    if own == kind == "date":
        dates = pd.to_datetime(column, utc=True, errors="coerce").dt.tz_localize(None)
        return dates.to_numpy().astype("datetime64[s]"), []
    codes, words = cells or _distinct(column if own else pd.Series([None] * len(column)))
    if kind == "words":
        return np.array([*words, None], dtype=object)[codes], []
    values = parsed([*words, ""], written)  # with a missing one in the last place, for -1
    return values[codes], words[codes[(codes >= 0) & pd.isna(values[codes])]].tolist()


def parsed(words: Iterable[str], written: str) -> np.ndarray:
    """Return words as float64 or datetime64[s]; those that are not written so are missing."""
    if written in DATES:
        # pandas reads almost anything as a date, such as "5", and swaps day and month where one of
        # them is too large; so it is only given what has the form of a date, with the year first.
        texts = pd.Series([_year_first(word, DATES[written]) for word in words], dtype=object)
        dates = pd.to_datetime(texts, format="mixed", utc=True, errors="coerce")
        return np.asarray(dates.dt.tz_localize(None), dtype="datetime64[s]")
    form, thousand, decimal, _ = NUMBERS[written]
    texts = [word if _PLAIN(word) else _SIGNS.sub(r"\1", word) for word in words]
    if written != "number":  # of which pandas takes any
        fits = re.compile(form).fullmatch
        texts = [t.replace(thousand, "").replace(decimal, ".") if fits(t) else "" for t in texts]
    return np.asarray(pd.to_numeric(pd.Series(texts, dtype=object), errors="coerce"), dtype=float)


def cells_that(name: str, words: Sequence[str], what: str) -> list[str]:
    """Say which cells of a column are something that was not expected, if there are any."""
    distinct = list(dict.fromkeys(words))
    shown = ", ".join(map(repr, distinct[:3])) + " …" * (len(distinct) > 3)
    return [f"column {name!r}: {counted(len(words))} with {what}: {shown}"] if distinct else []


def counted(count: int, what: str = "row") -> str:
    """Return a number of things, as "1 row" or "2 rows"."""
    return f"{count} {what}" if count == 1 else f"{count} {what}s"


def number_name(value: float) -> str:
    """Return a number as it would be written, without a decimal point if it is whole."""
    return str(int(value)) if float(value).is_integer() else repr(float(value))


def _way(
    codes: np.ndarray, words: np.ndarray, decimal: str | None, dayfirst: bool | None, sep: str
) -> str:
    """Return the way to write numbers or dates that fits all words or nearly all of them."""
    if not len(words):
        return "number"
    ways = [way for way, (_, _, sign, _) in NUMBERS.items() if decimal in (None, sign)]
    if decimal is None and sep != ",":
        # Three digits after a comma are decimals if all numbers have one comma, or if one has more
        # than three digits in front and no comma.
        texts = [text for word in words if (text := _SIGNS.sub("", word))[:1].isdecimal()]
        long = any(re.fullmatch(r"\d{4}[^,]*", text) for text in texts)
        if long or all(re.fullmatch(r"[^.,]*,[^.,]*", text) for text in texts):
            ways.remove("number .,")
    ways += sorted(DATES, key=lambda way: DATES[way] is not dayfirst)
    counts = np.bincount(codes[codes >= 0], minlength=len(words))
    stands = np.array([word.lower() in ALSO_MISSING for word in words])
    lost = {}
    for way in ways:
        if pd.isna(parsed(words[~stands][:100], way)).all():
            continue  # soon, as columns of words may have many
        lost[way] = pd.isna(parsed(words, way))
        if not lost[way].any():
            return way
    few = len(words) <= FEW_WORDS and len(words) <= counts.sum() / 2
    if not lost or few or any(word[0] == "0" != word and word.isdecimal() for word in words):
        return "words"
    best = min(lost, key=lambda way: counts[lost[way]].sum())
    odd, others = counts[lost[best] & ~stands].sum(), counts[~lost[best]].sum()
    return best if others >= 8 and odd <= max(1, ODD * (others + odd)) else "words"


def _year_first(word: str, dayfirst: bool | None) -> str | None:
    """Return a date with the year first, or with the month by name; None if it is no date."""
    found = _ORDERED.fullmatch(word)
    if found is None:
        return word if _DATE.fullmatch(word) else None
    month, mark, day, year, clock = found.groups()
    if mark != "/" if dayfirst is None else dayfirst:
        month, day = day, month
    century = "" if len(year) == 4 else "19" if year > "68" else "20"  # as in POSIX
    return f"{century}{year}-{month:0>2}-{day:0>2}{clock}"
