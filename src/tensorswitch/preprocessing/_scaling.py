"""Scaling of columns by one affine map, ``z = (x − centre) · factor``, for inputs and targets."""

from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from tensorswitch.persistence import SavedPart, saved_as
from tensorswitch.preprocessing._moments import Rows, column_moments, dense_blocks

CONSTANT = 1e-10  # a smaller deviation, relative to the numbers, is taken for rounding error
KINDS = ("columns", "common", "none")


@saved_as("scaling")
@dataclass(frozen=True)
class Scaling(SavedPart):
    """Centre and scale columns.

        z = (x − centre) · factor

    Constant columns have the factor 0, so that they become exactly zero however large they are.

    Parameters
    ----------
    kind : {"columns", "common", "given", "none"}
        Whether each column has a factor of its own, all have the same, they were given by the
        user, or nothing is scaled.
    centre, factor : ndarray of shape (features,), optional
        The map; None leaves rows as they are.

    Examples
    --------
    >>> import numpy as np
    >>> from tensorswitch.preprocessing import Scaling
    >>> x = np.array([[1.0, 7.0], [3.0, 7.0]])
    >>> Scaling.fit(x)(x)
    array([[-1.,  0.],
           [ 1.,  0.]])
    """

    kind: str = "none"
    centre: np.ndarray | None = None
    factor: np.ndarray | None = None

    @classmethod
    def fit(
        cls,
        X: Rows,
        weight: np.ndarray | None = None,
        kind: str = "columns",
        constant: float = CONSTANT,
    ) -> Self:
        """Fit the map to rows.

        Parameters
        ----------
        X, weight : {ndarray, sparse matrix} of shape (rows, features), and ndarray, optional
            The rows, and sample weights of shape (rows,), 1 by default.
        kind : {"columns", "common", "none"}, default="columns"
            One factor for each column, one for all, or no scaling.
        constant : float, default=1e-10
            Columns whose deviation is a smaller part of their root mean square are constant.
        """
        if kind == "none":
            return cls()
        return cls.of_moments(column_moments(X, weight), kind, constant)

    @classmethod
    def of_moments(
        cls,
        moments: tuple[np.ndarray, np.ndarray, np.ndarray],
        kind: str = "columns",
        constant: float = CONSTANT,
    ) -> Self:
        """Return the map for means, standard deviations and root mean squares of columns."""
        if kind not in KINDS:
            raise ValueError(f"kind must be one of {', '.join(map(repr, KINDS))}, got {kind!r}")
        if kind == "none":
            return cls()
        centre, deviation, size = moments
        varies = deviation > constant * size
        if kind == "common":
            square = np.square(deviation[varies]).mean() if varies.any() else 1.0
            deviation = np.full_like(deviation, np.sqrt(square))
        factor = np.divide(1.0, deviation, out=np.zeros_like(deviation), where=varies)
        return cls(kind, centre, factor)

    @classmethod
    def given(cls, moments: Any, features: int) -> Self:
        """Return the map for means and standard deviations that a user gave as ``standardize``."""
        try:
            if isinstance(moments, str):
                raise TypeError("a word is no pair")
            centre, deviation = (np.broadcast_to(np.asarray(m, float), features) for m in moments)
        except (TypeError, ValueError) as error:
            raise ValueError(
                "standardize must be True, False, 'auto', 'columns', 'common', or a pair of means "
                f"and standard deviations with {features} numbers each; got {moments!r}"
            ) from error
        if not (
            np.isfinite(centre).all() and np.isfinite(deviation).all() and (deviation >= 0).all()
        ):
            raise ValueError("the means and standard deviations of standardize must be finite")
        found = cls.of_moments((centre, deviation, np.abs(centre)))
        return cls("given", found.centre, found.factor)

    def __call__(self, X: np.ndarray) -> np.ndarray:
        """Return scaled rows, computed in float64, in the type of the rows."""
        if self.centre is None or self.factor is None:
            return X
        dtype = X.dtype if X.dtype.kind == "f" else np.float64
        return ((X - self.centre) * self.factor).astype(dtype, copy=False)

    def inverse(self, z: np.ndarray) -> np.ndarray:
        """Return scaled rows in their own units again; constant columns have their constant."""
        if self.centre is None:
            return z
        return z * self.spread + self.centre

    @property
    def spread(self) -> np.ndarray:
        """What columns are divided by, ``1 / factor``; 0 for constant ones."""
        if self.factor is None:
            raise ValueError("rows are not scaled")
        return np.divide(1.0, self.factor, out=np.zeros_like(self.factor), where=self.factor > 0)

    def ignored(self, X: Rows) -> np.ndarray:
        """Return the columns that were constant when the map was fitted, but vary in other rows."""
        if self.centre is None or self.factor is None:
            return np.empty(0, dtype=np.int64)
        columns = np.flatnonzero(self.factor == 0)
        centre = self.centre[columns]
        varies = np.zeros(len(columns), dtype=bool)
        for _, rows in dense_blocks(X[:, columns]):
            varies |= (np.abs(rows - centre) > 1e-6 * np.abs(centre)).any(0)
        return columns[varies]
