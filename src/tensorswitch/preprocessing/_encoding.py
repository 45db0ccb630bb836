"""One column of numbers, dates or words as inputs of a model, learned from its training rows.

numbers, days   (value − centre) / scale, with the median for gaps
dates           also cos and sin of 2π · days / period
words           one-hot: the most frequent ones, and one input for all others
"""

from collections import Counter
from dataclasses import dataclass
from typing import Self

import numpy as np

DAY = 86_400  # seconds
CYCLES = {"year": 365.2425, "week": 7.0, "day": 1.0}  # days
OTHER = "other"


@dataclass(frozen=True)
class EncodedColumn:
    """How a column becomes inputs."""

    name: str
    kind: str  # "number", "date" or "words"
    gaps: bool  # whether there is an input that says that the value is missing
    fill: float = 0.0
    centre: float = 0.0
    scale: float = 1.0
    cycles: tuple[str, ...] = ()  # those of dates
    levels: tuple[str, ...] = ()  # words with an input each
    other: bool = False  # whether there is an input for all other words

    @classmethod
    def fit(cls, name: str, values: np.ndarray, levels: int) -> Self | str:
        """Return how to encode float64, datetime64[s] or words, or why a column is left out."""
        kind = {"f": "number", "M": "date"}.get(values.dtype.kind, "words")
        missing = _missing(values)
        known, gaps = values[~missing], bool(missing.any())
        if not len(known):
            return "has no values"
        if kind == "words":
            return cls._of_words(name, known, gaps, levels)
        cycles: list[str] = []
        if kind == "date":
            known = known.astype(np.int64) / DAY
            span = float(np.ptp(known))
            cycles = ["year"] * (span > 60) + ["week"] * (span > 6)
            cycles += ["day"] * bool((known % 1 != 0).any())
        fill = float(np.median(known))
        # The gaps of numbers count as medians, so that all inputs have a deviation of one.
        filled = np.append(known, np.full(missing.sum() * (kind == "number"), fill))
        centre, scale = float(filled.mean()), float(filled.std())
        if not scale > 1e-10 * max(float(np.abs(filled).max()), 1e-300):
            if not gaps:
                return "is constant"
            centre, scale, cycles = fill, 1.0, []
        return cls(name, kind, gaps, fill, centre, scale, tuple(cycles))

    @classmethod
    def _of_words(cls, name: str, known: np.ndarray, gaps: bool, levels: int) -> Self | str:
        counts = Counter(known)
        if len(counts) == 1 and not gaps:
            return "is constant"
        if len(counts) > levels and len(counts) > len(known) / 2:
            example = next(iter(counts))
            shown = example if len(example) <= 20 else example[:20] + "…"
            return f"has {len(counts)} different words, such as {shown!r}, in {len(known)} rows"
        frequent = tuple(sorted(word for word, _ in counts.most_common(levels)))
        return cls(name, "words", gaps, levels=frequent, other=len(counts) > levels)

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

    def __call__(self, values: np.ndarray) -> np.ndarray:
        """Return the inputs of values of the kind of the column."""
        missing = _missing(values)
        if self.kind == "words":
            place = {level: i for i, level in enumerate(self.levels)}
            places = np.array([place.get(word, -1) for word in values], dtype=int)
            if self.single:  # anything else lies in between
                return np.where(places < 0, 0.5, places)[:, None]
            inputs = np.eye(len(self.levels))[places] * (places >= 0)[:, None]
            if self.other:
                inputs = np.column_stack([inputs, (places < 0) & ~(missing & self.gaps)])
        else:
            if self.kind == "date":
                values = np.where(missing, 0, values.astype(np.int64)) / DAY
            values = np.where(missing, self.fill, values)
            inputs = (values - self.centre)[:, None] / self.scale
            for cycle in self.cycles:
                # The first of January 1970 was a Thursday; where the phase starts does not matter.
                phase = 2 * np.pi * values / CYCLES[cycle]
                waves = np.where(missing, 0, [np.cos(phase), np.sin(phase)])
                inputs = np.column_stack([inputs, *waves])
        return np.column_stack([inputs, missing]) if self.gaps else inputs


def _missing(values: np.ndarray) -> np.ndarray:
    """Return which values are None, NaN or NaT."""
    if values.dtype.kind == "O":
        return np.array([value is None or value != value for value in values], dtype=bool)
    return np.isnat(values) if values.dtype.kind == "M" else np.isnan(values)
