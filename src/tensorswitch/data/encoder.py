"""From the columns of a table to the inputs of a model, as learned from its training rows."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from typing import Any, Self

import numpy as np

from tensorswitch.data._text import (
    FORMATS,
    LEVELS,
    best_conversion,
    cells_that,
    converted,
    unfitting,
)
from tensorswitch.data.labels import number_name
from tensorswitch.data.readers import DataError
from tensorswitch.data.tables import Table
from tensorswitch.persistence import saved_as

__all__ = ["TableEncoder"]

DAY, YEAR, WEEK = 86_400, 365.2425, 7
OTHER = "other"
FAR = 1e6  # deviations from the mean beyond which values are no longer told apart


@dataclass(frozen=True)
class Column:
    """How one column becomes inputs.

    Parameters
    ----------
    name : str
        Name of the column.
    kind : {"number", "date", "words"}
        What it contains.
    fill, centre, scale : float
        Value of missing numbers, and the mean and deviation of the training rows: numbers, and the
        days since 1970 of dates, become ``(value − centre) / scale``.
    gaps : bool
        Whether there is an input that says that the value is missing.
    levels : tuple of str, default=()
        Words with an input each; where there are just two, the second has one.
    other : bool, default=False
        Whether there is an input for all other words.
    cycles : tuple of str, default=()
        Parts of dates that go round: "year", "week" and "day".
    written : str, default=""
        How it was written, if that is special; see :attr:`tensorswitch.data.Table.formats`.
    """

    name: str
    kind: str
    fill: float = 0.0
    centre: float = 0.0
    scale: float = 1.0
    gaps: bool = False
    levels: tuple[str, ...] = ()
    other: bool = False
    cycles: tuple[str, ...] = ()
    written: str = ""

    @property
    def single(self) -> bool:
        """Whether one input tells two words apart."""
        return len(self.levels) == 2 and not self.gaps and not self.other

    @property
    def input_names(self) -> list[str]:
        """Names of the inputs that the column becomes."""
        if self.kind == "words":
            names = [f"{self.name} = {level}" for level in self.levels[int(self.single) :]]
            names += [f"{self.name} = {OTHER}"] * self.other
        else:
            names = [self.name]
            names += [f"{self.name}, {c} {f}" for c in self.cycles for f in ("cos", "sin")]
        return names + [f"{self.name} is missing"] * self.gaps


@saved_as("table-encoder")
@dataclass(frozen=True)
class TableEncoder:
    """Columns as numbers: standardised, with categories one-hot and missing values filled.

        Numbers are standardised, with the median for missing values. Words get an input each for the
        30 most frequent ones and one for all others, to which words that were not seen in training
        belong, too. Dates become the number of days and the phases of the year, the week and, if there
        are times, the day. Where values were missing in training there is an input that says so.
        Columns that are constant, and words that are nearly all different, are left out.

        Parameters
        ----------
        columns : tuple of Column
            The columns that are used.
        left_out : dict of str to str
            The columns that are not, and why.

        Examples
        --------
        >>> import numpy as np
        >>> from tensorswitch.data import TableEncoder
        >>> from tensorswitch.data.tables import Table
    from tensorswitch.persistence import saved_as
        >>> colour = np.array(["red", "blue", None, "red"], dtype=object)
        >>> table = Table("mine", {"size": np.array([1.0, 2.0, np.nan, 4.0]), "colour": colour})
        >>> encoder = TableEncoder.fit(table)
        >>> encoder.input_names
        ['size', 'size is missing', 'colour = blue', 'colour = red', 'colour is missing']
        >>> encoder(table).shape
        (4, 5)
    """

    columns: tuple[Column, ...]
    left_out: dict[str, str] = field(default_factory=dict)

    @classmethod
    def fit(cls, table: Table) -> Self:
        """Learn the encoding of a table.

        Parameters
        ----------
        table : Table
            Training rows, without the target.

        Returns
        -------
        TableEncoder
            The encoder.

        Raises
        ------
        DataError
            If no column can be used.
        """
        columns, left_out = [], {}
        for name, values in table.columns.items():
            kind = table.kinds[name]
            fitted = {"number": _fit_numbers, "date": _fit_dates, "words": _fit_words}[kind](
                name, values
            )
            if isinstance(fitted, Column):
                columns.append(replace(fitted, written=table.formats.get(name, "")))
            else:
                left_out[name] = fitted
        if not columns:
            reasons = "; ".join(f"{name} {reason}" for name, reason in left_out.items())
            raise DataError(f"{table.name} has no column to learn from: {reasons or 'none left'}")
        return cls(tuple(columns), left_out)

    @property
    def kinds(self) -> dict[str, str]:
        """What the columns contain, by name, as :func:`tensorswitch.data.read_table` takes it."""
        return {column.name: column.written or column.kind for column in self.columns}

    @property
    def input_names(self) -> list[str]:
        """Names of the inputs."""
        return [name for column in self.columns for name in column.input_names]

    @property
    def sources(self) -> np.ndarray:
        """For each input, the place of its column among ``columns``."""
        return np.repeat(np.arange(len(self.columns)), [len(c.input_names) for c in self.columns])

    def __call__(self, table: Table) -> np.ndarray:
        """Encode rows.

        Parameters
        ----------
        table : Table
            Rows. Columns that are missing count as missing values.

        Returns
        -------
        ndarray of float32 of shape (rows, inputs)
            The inputs.
        """
        parts = [
            _encode(c, _as_kind(table.columns.get(c.name), c, len(table))) for c in self.columns
        ]
        return np.concatenate(parts, axis=1).clip(-FAR, FAR).astype(np.float32)

    def differences(self, table: Table) -> tuple[list[str], list[str]]:
        """Compare the columns of a table with those of the training rows.

        Parameters
        ----------
        table : Table
            Rows.

        Returns
        -------
        missing : list of str
            Columns that the encoder uses and the table does not have.
        new : list of str
            Columns that the encoder has never seen.
        """
        missing = [c.name for c in self.columns if c.name not in table.columns]
        known = {*self.kinds, *self.left_out}
        return missing, [name for name in table.columns if name not in known]

    def describe_unseen(self, table: Table) -> list[str]:
        """Describe values that training rows did not have, and what they count as.

        Parameters
        ----------
        table : Table
            Rows.

        Returns
        -------
        list of str
            A sentence for each column with words that are new, or values that are not of its kind.
        """
        notes = []
        for column in self.columns:
            values = table.columns.get(column.name)
            if values is None or values.dtype.kind != "O":
                continue
            if column.kind == "words":
                known, what = {None, *column.levels}, "a word that was not seen in training"
                new = [] if column.other else [v for v in values if v not in known]
            else:
                what = unfitting(column.kind)
                missing = np.isnan if column.kind == "number" else np.isnat
                gone = missing(_as_kind(values, column, len(table)))
                new = [v for v, lost in zip(values, gone, strict=True) if lost and v is not None]
            if new:
                notes.append(cells_that(column.name, new, what))
        return notes

    def state(self) -> dict[str, Any]:
        """Return the columns.

        Returns
        -------
        dict
            What :meth:`from_state` takes.
        """
        return self.to_json()

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> Self:
        """Return the encoder of a state.

        Parameters
        ----------
        state : dict
            What :meth:`state` returned.

        Returns
        -------
        TableEncoder
            The encoder.
        """
        return cls.from_json(state)

    def to_json(self) -> dict[str, Any]:
        """Return the parameters as values of JSON.

        Returns
        -------
        dict
            What :meth:`from_json` takes.
        """
        return {"columns": [vars(c) for c in self.columns], "left_out": self.left_out}

    @classmethod
    def from_json(cls, content: dict[str, Any]) -> Self:
        """Return the encoder of :meth:`to_json`.

        Parameters
        ----------
        content : dict
            The parameters.

        Returns
        -------
        TableEncoder
            The encoder.

        Raises
        ------
        ValueError
            If the parameters do not describe one.
        """
        try:
            columns = []
            for entry in content["columns"]:
                lists: dict[str, Any] = {k: tuple(map(str, entry[k])) for k in ("levels", "cycles")}
                numbers: dict[str, Any] = {k: float(entry[k]) for k in ("fill", "centre", "scale")}
                flags: dict[str, Any] = {k: bool(entry[k]) for k in ("gaps", "other")}
                name, kind = str(entry["name"]), str(entry["kind"])
                written = str(entry.get("written", ""))  # not in older files
                if FORMATS.get(written or kind) != kind:
                    raise TypeError(f"a column of kind {kind!r} cannot be written as {written!r}")
                columns.append(Column(name, kind, **numbers, **flags, **lists, written=written))
            return cls(tuple(columns), {str(k): str(v) for k, v in content["left_out"].items()})
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"not the description of a table's columns: {error!r}") from error


def _moments(values: np.ndarray) -> tuple[float, float] | None:
    """Return mean and deviation, or None if the values are constant."""
    with np.errstate(over="ignore"):
        centre, scale = float(values.mean()), float(values.std())
    varies = scale > 1e-10 * max(float(np.abs(values).max()), 1e-300)
    return (centre, scale) if varies and np.isfinite(scale) else None


def _fit_numbers(name: str, values: np.ndarray) -> Column | str:
    known = values[~np.isnan(values)]
    gaps = len(known) < len(values)
    if not len(known):
        return "has no values"
    fill = float(np.median(known))
    found = _moments(np.where(np.isnan(values), fill, values))
    if found is None and not gaps:
        return "is constant"
    centre, scale = found or (fill, 1.0)
    return Column(name, "number", fill, centre, scale, gaps)


def _fit_dates(name: str, values: np.ndarray) -> Column | str:
    known = values[~np.isnat(values)]
    gaps = len(known) < len(values)
    if not len(known):
        return "has no values"
    days = known.astype(np.int64) / DAY
    found = _moments(days)
    if found is None:
        return "is constant"
    span = float(days.max() - days.min())
    cycles = ["year"] * (span > 60) + ["week"] * (span > 6)
    cycles += ["day"] * bool((known.astype(np.int64) % DAY != 0).any())
    return Column(name, "date", float(np.median(days)), *found, gaps, cycles=tuple(cycles))


def _fit_words(name: str, values: np.ndarray) -> Column | str:
    counts = Counter(word for word in values if word is not None)
    known = sum(counts.values())
    gaps = known < len(values)
    if not counts:
        return "has no values"
    if len(counts) == 1 and not gaps:
        return "is constant"
    if len(counts) > LEVELS and len(counts) > known / 2:
        example = next(iter(counts))
        shown = example if len(example) <= 20 else example[:20] + "…"
        return f"has {len(counts)} different words, such as {shown!r}, in {known} rows"
    frequent = [word for word, _ in counts.most_common(LEVELS)]
    other = len(counts) > LEVELS
    return Column(name, "words", gaps=gaps, levels=tuple(sorted(frequent)), other=other)


def _as_kind(values: np.ndarray | None, column: Column, rows: int) -> np.ndarray:
    """Convert a column of a new table to its kind in training; other values become missing."""
    kind = column.kind
    if values is None:
        values = np.full(rows, None, dtype=object)
    own = {"f": "number", "M": "date", "O": "words"}[values.dtype.kind]
    if own == kind:
        return values
    if kind == "words":
        words = np.empty(rows, dtype=object)
        missing = np.isnan(values) if own == "number" else np.isnat(values)
        words[:] = [
            None if gone else (number_name(v) if own == "number" else str(v))
            for v, gone in zip(values, missing, strict=True)
        ]
        return words
    cells = ["" if own != "words" or v is None else v for v in values]
    if not column.written and (found := best_conversion(cells, kind)) is not None:
        return found[0]
    ways = (column.written, kind) if column.written else (kind,)
    read = [next((v for w in ways if (v := converted([c], w)) is not None), None) for c in cells]
    none = converted([""], kind)
    return np.concatenate([none if value is None else value for value in read])


def _encode(column: Column, values: np.ndarray) -> np.ndarray:
    if column.kind == "words":
        return _encode_words(column, values)
    if column.kind == "date":
        missing = np.isnat(values)
        seconds = np.where(missing, 0, values.astype(np.int64))
        values = np.where(missing, column.fill, seconds / DAY)
    else:
        missing = np.isnan(values)
        values = np.where(missing, column.fill, values)
    inputs = [(values - column.centre) / column.scale]
    for cycle in column.cycles:
        # The first of January 1970 was a Thursday; where the phase starts does not matter.
        phase = 2 * np.pi * values / {"year": YEAR, "week": WEEK, "day": 1}[cycle]
        inputs += [np.where(missing, 0, np.cos(phase)), np.where(missing, 0, np.sin(phase))]
    if column.gaps:
        inputs.append(missing.astype(float))
    return np.stack(inputs, axis=1)


def _encode_words(column: Column, values: np.ndarray) -> np.ndarray:
    width = len(column.levels) + column.other + column.gaps
    place = {level: i for i, level in enumerate(column.levels)}
    unknown = len(column.levels) if column.other else -1
    gap = width - 1 if column.gaps else unknown
    places = np.array([gap if w is None else place.get(w, unknown) for w in values], dtype=int)
    inputs = np.zeros((len(values), width))
    rows = np.flatnonzero(places >= 0)
    inputs[rows, places[rows]] = 1
    if column.single:  # anything else lies in between
        inputs[places < 0, 1] = 0.5
        return inputs[:, 1:]
    return inputs
