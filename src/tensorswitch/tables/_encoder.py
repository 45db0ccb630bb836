"""From the columns of a table to the inputs of a model, as learned from its training rows."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any, Self

import numpy as np
import pandas as pd
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from tensorswitch.datasets import DataError
from tensorswitch.persistence import saved_as
from tensorswitch.preprocessing._encoding import EncodedColumn
from tensorswitch.tables._clean import WAYS, cells_that, clean

FAR = 1e6  # deviations from the mean beyond which values are no longer told apart


@saved_as("table-encoder")
class TableEncoder(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Columns of any types as numbers: standardised, one-hot, and with missing values filled.

    Missing numbers become the median. The most frequent words have an input each, and all others,
    unseen ones too, share one. Dates become days and the phases of year, week and, if there are
    times, day. Where values were missing in training, an input says so. Columns that are constant,
    and words that are nearly all different, are left out; ``left_out`` says why.

    Parameters
    ----------
    levels : int, default=30
        Most words of a column with an input each.
    written : dict of str to str, optional
        How columns are written, where their rows do not show it, as :func:`clean` returns it.

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

    def __init__(self, levels: int = 30, *, written: Mapping[str, str] | None = None) -> None:
        self.levels = levels
        self.written = written

    def fit(self, X: pd.DataFrame, y: Any = None) -> Self:
        """Learn the encoding of training rows.

        Parameters
        ----------
        X : DataFrame
            Training rows, without the target.
        y : object, default=None
            Ignored.
        """
        frame, self.written_, _ = clean(pd.DataFrame(X), written=self.written)
        every = {n: EncodedColumn.fit(n, frame[n].to_numpy(), self.levels) for n in frame}
        self.columns_ = [found for found in every.values() if isinstance(found, EncodedColumn)]
        self.left_out = {n: reason for n, reason in every.items() if isinstance(reason, str)}
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
        """Return the names of the inputs, as scikit-learn asks for them."""
        return np.array(self.input_names, dtype=object)

    def transform(self, X: pd.DataFrame) -> np.ndarray:
        """Encode rows, as float32 of shape (rows, inputs).

        What is not of the kind of its column counts as missing, and so do columns that are absent.
        """
        check_is_fitted(self)
        frame = self._cleaned(X)[0]
        parts = [column(frame[column.name].to_numpy()) for column in self.columns_]
        return np.concatenate(parts, axis=1).clip(-FAR, FAR).astype(np.float32)

    def __call__(self, X: pd.DataFrame) -> np.ndarray:
        """Encode rows."""
        return np.asarray(self.transform(X))

    def describe_differences(self, X: pd.DataFrame, besides: Sequence[str] = ()) -> list[str]:
        """Describe how rows differ from those of training.

        Columns that are missing or new, words that are new and values that are not of the kind of
        their column.

        Parameters
        ----------
        X : DataFrame
            Raw rows; at least one column must be known.
        besides : sequence of str, default=()
            Columns that may be there.
        """
        present, notes = list(map(str, X.columns)), []
        missing = [name for name in self.columns if name not in present]
        if len(missing) == len(self.columns):
            some = ", ".join(missing[:8]) + (" …" if len(missing) > 8 else "")
            raise DataError(f"the rows have none of the columns of training: {some}")
        if missing:
            notes.append(f"missing columns, which count as missing values: {', '.join(missing)}")
        known = {*self.columns, *self.left_out, *besides}
        if new := [name for name in present if name not in known]:
            notes.append(f"new columns, which are not used: {', '.join(new)}")
        frame, _, more = self._cleaned(X)
        for column in self.columns_:
            if column.kind == "words" and not column.other:
                words = frame[column.name].dropna()
                strange = words[~words.isin(column.levels)].tolist()
                what = "a word that was not seen in training"
                more += cells_that(column.name, strange, what)
        return notes + more

    def _cleaned(self, X: pd.DataFrame) -> tuple[pd.DataFrame, dict[str, str], list[str]]:
        frame = pd.DataFrame(X).rename(columns=str).reindex(columns=self.columns)
        return clean(frame, written=self.written_)

    def state(self) -> dict[str, Any]:
        """Return what the encoder consists of."""
        fitted = {"columns": [asdict(c) for c in self.columns_], "left_out": self.left_out}
        return {"parameters": self.get_params(), "written": self.written_, **fitted}

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> Self:
        """Make the encoder again."""
        encoder = cls(**state["parameters"])
        encoder.written_, encoder.left_out = dict(state["written"]), dict(state["left_out"])
        encoder.columns_ = [EncodedColumn(**column) for column in state["columns"]]
        for column in encoder.columns_:
            if WAYS.get(way := encoder.written_[column.name]) != column.kind:
                what = f"column {column.name!r} of kind {column.kind!r}"
                raise ValueError(f"{what} cannot be written as {way!r}")
        return encoder
