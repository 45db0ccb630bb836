"""From the columns of a table to the inputs of a model, as learned from its training rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Self

import numpy as np
import pandas as pd
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from tensorswitch.datasets import DataError
from tensorswitch.persistence import saved_as
from tensorswitch.tables._clean import (
    DATES,
    NUMBERS,
    cells_that,
    clean,
    converted,
    unfitting,
)

DAY = 86_400  # seconds
CYCLES = {"year": 365.2425, "week": 7.0, "day": 1.0}  # days
OTHER = "other"
FAR = 1e6  # deviations from the mean beyond which values are no longer told apart


@dataclass(frozen=True)
class Column:
    """How a column becomes inputs: numbers and days as (value − centre) / scale, words one-hot."""

    name: str
    written: str
    gaps: bool  # whether there is an input that says that the value is missing
    fill: float = 0.0
    centre: float = 0.0
    scale: float = 1.0
    cycles: tuple[str, ...] = ()  # those of dates
    levels: tuple[str, ...] = ()  # words with an input each
    other: bool = False  # whether there is an input for all other words

    @classmethod
    def fit(cls, name: str, values: np.ndarray, written: str, most: int) -> Column | str:
        """Return how to encode a column, or why it is left out."""
        missing = pd.isna(values)
        known, gaps = values[~missing], bool(missing.any())
        if not len(known):
            return "has no values"
        if written == "words":
            return cls._of_words(name, known, gaps, most)
        cycles: list[str] = []
        if written in DATES:
            known = known.astype(np.int64) / DAY
            span = float(np.ptp(known))
            cycles = ["year"] * (span > 60) + ["week"] * (span > 6)
            cycles += ["day"] * bool((known % 1 != 0).any())
            found = _moments(known)
        else:
            found = _moments(np.append(known, np.full(missing.sum(), np.median(known))))
        fill = float(np.median(known))
        if found is None and (written in DATES or not gaps):
            return "is constant"
        return cls(name, written, gaps, fill, *(found or (fill, 1.0)), cycles=tuple(cycles))

    @classmethod
    def _of_words(cls, name: str, known: np.ndarray, gaps: bool, most: int) -> Column | str:
        counts = Counter(known)
        if len(counts) == 1 and not gaps:
            return "is constant"
        if len(counts) > most and len(counts) > len(known) / 2:
            example = next(iter(counts))
            shown = example if len(example) <= 20 else example[:20] + "…"
            return f"has {len(counts)} different words, such as {shown!r}, in {len(known)} rows"
        frequent = sorted(word for word, _ in counts.most_common(most))
        return cls(name, "words", gaps, levels=tuple(frequent), other=len(counts) > most)

    @property
    def single(self) -> bool:
        """Whether one input tells two words apart."""
        return len(self.levels) == 2 and not self.gaps and not self.other

    @property
    def input_names(self) -> list[str]:
        """Names of the inputs that the column becomes."""
        names = [f"{self.name}, {c} {f}" for c in self.cycles for f in ("cos", "sin")]
        if self.written == "words":
            names = [f"{self.name} = {level}" for level in self.levels[int(self.single) :]]
            names += [f"{self.name} = {OTHER}"] * self.other
        else:
            names = [self.name, *names]
        return names + [f"{self.name} is missing"] * self.gaps

    def encode(self, values: np.ndarray) -> np.ndarray:
        """Return the inputs of converted values."""
        missing = pd.isna(values)
        if self.written == "words":
            places = pd.Index(self.levels).get_indexer(pd.Index(values, dtype=object))
            inputs = np.eye(len(self.levels))[places] * (places >= 0)[:, None]
            if self.single:  # anything else lies in between
                return np.where(places < 0, 0.5, places)[:, None]
            if self.other:
                rest = places < 0 if not self.gaps else (places < 0) & ~missing
                inputs = np.column_stack([inputs, rest])
        else:
            if self.written in DATES:
                values = np.where(missing, 0, values.astype(np.int64)) / DAY
            values = np.where(missing, self.fill, values)
            inputs = (values - self.centre)[:, None] / self.scale
            for cycle in self.cycles:
                # The first of January 1970 was a Thursday; where the phase starts does not matter.
                phase = 2 * np.pi * values / CYCLES[cycle]
                waves = np.where(missing, 0, [np.cos(phase), np.sin(phase)])
                inputs = np.column_stack([inputs, *waves])
        return np.column_stack([inputs, missing]) if self.gaps else inputs


def _moments(values: np.ndarray) -> tuple[float, float] | None:
    """Return mean and deviation, or None if the values are constant."""
    centre, scale = float(values.mean()), float(values.std())
    return (centre, scale) if scale > 1e-10 * max(float(np.abs(values).max()), 1e-300) else None


@saved_as("table-encoder")
class TableEncoder(TransformerMixin, BaseEstimator):
    """Columns of any types as numbers: standardised, one-hot, and with missing values filled.

    Numbers are standardised, with the median for missing values. Words get an input each for the
    most frequent ones and one for all others, to which words that were not seen in training
    belong, too. Dates become the number of days and the phases of the year, the week and, if there
    are times, the day. Where values were missing in training there is an input that says so.
    Columns that are constant, and words that are nearly all different, are left out.

    Parameters
    ----------
    levels : int, default=30
        Most words of a column with an input each.
    decimal : {".", ","}, optional
        As in :func:`clean`, for numbers in text.
    dayfirst : bool, optional
        As in :func:`clean`, for dates in text.
    written : dict of str to str, optional
        How columns are written, where it is known, as in the result of :func:`clean`.

    Attributes
    ----------
    columns : list of str
        The columns that are used.
    left_out : dict of str to str
        The columns that are not, and why.
    input_names : list of str
        Names of the inputs.
    sources : ndarray of int of shape (inputs,)
        For each input, the place of its column among ``columns``.

    Examples
    --------
    >>> import pandas as pd
    >>> from tensorswitch.tables import TableEncoder
    >>> frame = pd.DataFrame({"size": ["1.5", "2", None, "4"], "sex": ["f", "m", "m", "f"]})
    >>> encoder = TableEncoder().fit(frame)
    >>> encoder.input_names
    ['size', 'size is missing', 'sex = m']
    >>> encoder.transform(frame).shape
    (4, 3)
    """

    def __init__(
        self,
        levels: int = 30,
        *,
        decimal: str | None = None,
        dayfirst: bool | None = None,
        written: Mapping[str, str] | None = None,
    ) -> None:
        self.levels = levels
        self.decimal = decimal
        self.dayfirst = dayfirst
        self.written = written

    def fit(self, X: pd.DataFrame, y: Any = None) -> Self:
        """Learn the encoding of training rows.

        Parameters
        ----------
        X : DataFrame
            Training rows, without the target.
        y : object, default=None
            Ignored.

        Returns
        -------
        TableEncoder
            The encoder.
        """
        options = {"decimal": self.decimal, "dayfirst": self.dayfirst, "written": self.written}
        frame, written, _ = clean(pd.DataFrame(X), **options)  # type: ignore[arg-type]
        self.left_out: dict[str, str] = {}
        self.columns_: list[Column] = []
        for name in frame:
            found = Column.fit(name, frame[name].to_numpy(), written[name], self.levels)
            if isinstance(found, Column):
                self.columns_.append(found)
            else:
                self.left_out[name] = found
        if not self.columns_:
            reasons = "; ".join(f"{name} {reason}" for name, reason in self.left_out.items())
            raise DataError(f"there is no column to learn from: {reasons or 'none left'}")
        return self

    @property
    def columns(self) -> list[str]:
        """Names of the columns that are used."""
        return [column.name for column in self.columns_]

    @property
    def input_names(self) -> list[str]:
        """Names of the inputs."""
        return [name for column in self.columns_ for name in column.input_names]

    @property
    def sources(self) -> np.ndarray:
        """For each input, the place of its column among ``columns``."""
        return np.repeat(np.arange(len(self.columns_)), [len(c.input_names) for c in self.columns_])

    def get_feature_names_out(self, input_features: Any = None) -> np.ndarray:
        """Return the names of the inputs.

        Parameters
        ----------
        input_features : object, default=None
            Ignored.

        Returns
        -------
        ndarray of str
            The names.
        """
        return np.array(self.input_names, dtype=object)

    def transform(self, X: pd.DataFrame) -> np.ndarray:
        """Encode rows.

        Parameters
        ----------
        X : DataFrame
            Rows. Columns that are missing, and values that are not of the kind of their column,
            count as missing values.

        Returns
        -------
        ndarray of float32 of shape (rows, inputs)
            The inputs.
        """
        check_is_fitted(self)
        frame = pd.DataFrame(X).rename(columns=str)
        parts = [column.encode(self._values(column, frame)[0]) for column in self.columns_]
        return np.concatenate(parts, axis=1).clip(-FAR, FAR).astype(np.float32)

    def __call__(self, X: pd.DataFrame) -> np.ndarray:
        """Encode rows."""
        return self.transform(X)

    def differences(self, X: pd.DataFrame) -> tuple[list[str], list[str]]:
        """Compare the columns of rows with those of the training rows.

        Parameters
        ----------
        X : DataFrame
            Rows.

        Returns
        -------
        missing : list of str
            Columns that the encoder uses and the rows do not have.
        new : list of str
            Columns that the encoder has never seen.
        """
        present = list(map(str, X.columns))
        missing = [name for name in self.columns if name not in present]
        return missing, [name for name in present if name not in {*self.columns, *self.left_out}]

    def describe_unseen(self, X: pd.DataFrame) -> list[str]:
        """Describe values that training rows did not have, and what they count as.

        Parameters
        ----------
        X : DataFrame
            Rows.

        Returns
        -------
        list of str
            A sentence for each column with words that are new, or values that are not of its kind.
        """
        notes, frame = [], X.rename(columns=str)
        for column in self.columns_:
            values, odd = self._values(column, frame)
            what = unfitting(column.written)
            if column.written == "words" and not column.other:
                what = "a word that was not seen in training"
                odd = [word for word in values[~pd.isna(values)] if word not in column.levels]
            if odd:
                notes.append(cells_that(column.name, odd, what))
        return notes

    @staticmethod
    def _values(column: Column, frame: pd.DataFrame) -> tuple[np.ndarray, list[str]]:
        if column.name in frame:
            return converted(frame[column.name], column.written)
        return converted(pd.Series([None] * len(frame), dtype=object), column.written)

    def state(self) -> dict[str, Any]:
        """Return what the encoder consists of."""
        fitted = {"columns": [asdict(c) for c in self.columns_], "left_out": self.left_out}
        return {"parameters": self.get_params(), **fitted}

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> Self:
        """Make the encoder again.

        Parameters
        ----------
        state : dict
            What :meth:`state` returned.

        Returns
        -------
        TableEncoder
            The encoder.
        """
        encoder = cls(**state["parameters"])
        encoder.columns_ = [Column(**column) for column in state["columns"]]
        for column in encoder.columns_:
            if column.written not in (*NUMBERS, *DATES, "words"):
                raise ValueError(f"column {column.name!r} cannot be written as {column.written!r}")
        encoder.left_out = dict(state["left_out"])
        return encoder
