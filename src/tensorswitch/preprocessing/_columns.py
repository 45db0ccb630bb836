"""Columns as a kernel sees them: scaled, with their ranks, or as ramps between quantiles."""

from dataclasses import dataclass
from typing import Self

import numpy as np

from tensorswitch.persistence import SavedPart, saved_as
from tensorswitch.preprocessing._moments import column_moments
from tensorswitch.preprocessing._scaling import Scaling


@dataclass(frozen=True)
class Settings:
    """Constants of the maps, chosen by ``benchmarks.tables`` on splits of their own.

    ``bend`` is where the robust map begins to bend, in standard deviations; ``levels`` are the
    points of the map from values to ranks. A feature has at most ``ramps`` ramps, and all have at
    most ``most_ramps``; with more features than ``ramped_features`` each would have too few.
    """

    bend: float = 3.0
    levels: int = 65
    ramps: int = 24
    most_ramps: int = 2_048
    ramped_features: int = 256


SETTINGS = Settings()
QUARTILES = 1.349  # from the first to the third of a normal distribution, in standard deviations


@saved_as("column-map")
@dataclass(frozen=True)
class ColumnMap(SavedPart):
    """Map columns so that rows have a mean squared length of 1.

        z = second(expand(first(x)))

    *standard* and *common* only scale. *robust* scales by quartiles, bends large values towards
    zero and adds the ranks as further columns. *ramps* replaces a feature by
    ``r_k = clip((x − a_k) / (a_{k+1} − a_k), 0, 1)`` with quantiles ``a_k``, so that ``r · r'``
    depends on where x and x' lie among all values, and a kernel sees thresholds. Constant columns
    become 0.
    """

    kind: str
    first: Scaling  # of the features
    ranks: list[tuple[np.ndarray, np.ndarray]]  # values and ranks in [−½, ½]; empty if not robust
    knots: list[np.ndarray]  # the quantiles a_k of each feature; empty without ramps
    second: Scaling  # of the expanded columns, with their weights and the length of rows
    weights: np.ndarray | None = None  # of the columns; the largest is 1
    power: float = 0.0  # of the sensitivities that the weights are; 0 without weights

    @classmethod
    def fit(
        cls, kind: str, x: np.ndarray, weights: np.ndarray | None = None, power: float = 0.0
    ) -> Self:
        """Fit the map to rows, with factors on the expanded columns and the power that they are."""
        first = _first_scaling(kind, x)
        assert first.factor is not None
        varies = first.factor > 0
        ranks = [_ranks(column) for column in x.T] if kind == "robust" else []
        knots = [_knots(column, x.shape[1]) for column in x.T] if kind == "ramps" else []
        plain = cls(kind, first, ranks, knots, Scaling())
        z = plain(x)
        centre = z.mean(0)
        z -= centre
        factor = np.ones(z.shape[1])
        if kind == "robust":  # each half to its standard deviation
            spread = z.std(0)
            used = np.tile(varies, 2) & (spread > 0)
            factor = np.divide(1.0, spread, out=np.zeros_like(spread), where=used)
        if kind == "ramps":
            factor = varies[plain.sources].astype(np.float64)
        if weights is not None:
            factor = factor * weights
        length = np.sqrt(np.square(z * factor).sum(1).mean())
        factor = factor / (length if length > 0 else 1.0)
        second = Scaling("given", centre, factor)
        return cls(kind, first, ranks, knots, second, weights, power)

    def __call__(self, x: np.ndarray, bias: float | None = None) -> np.ndarray:
        """Return the columns of rows, with a constant one at the end if it is given."""
        if self.kind == "ramps":
            z = np.column_stack([_ramps(x[:, j], knots) for j, knots in enumerate(self.knots)])
        else:
            z = self.first(x)
        if self.kind == "robust":
            z = z / np.sqrt(1 + np.square(z / SETTINGS.bend))
            ranks = (np.interp(x[:, j], *pair) for j, pair in enumerate(self.ranks))
            z = np.column_stack([z, *ranks])
        z = self.second(z)
        return z if bias is None else np.column_stack([z, np.full(len(z), float(bias))])

    @property
    def features(self) -> int:
        """Number of features."""
        assert self.first.centre is not None
        return len(self.first.centre)

    @property
    def sources(self) -> np.ndarray:
        """The feature that each column comes from."""
        features = np.arange(self.features)
        if self.kind == "ramps":
            return np.repeat(features, [len(knots) - 1 for knots in self.knots])
        return np.tile(features, 2) if self.kind == "robust" else features

    @property
    def feature_weights(self) -> np.ndarray:
        """Column weights of the features, the largest of which is 1."""
        if self.weights is None:
            return np.ones(self.features)
        squares: np.ndarray = np.bincount(self.sources, np.square(self.weights), self.features)
        if self.kind == "ramps":  # those of a feature have the same weight
            squares = squares / np.bincount(self.sources)
        weights = np.sqrt(squares)
        return weights / weights.max()

    def shared(self, sensitivities: np.ndarray) -> np.ndarray:
        """Return the root mean square over the ramps of each feature, too many to weigh apart."""
        if self.kind != "ramps":
            return sensitivities
        sources = self.sources
        mean = np.bincount(sources, np.square(sensitivities)) / np.bincount(sources)
        return np.sqrt(mean)[sources]


def _first_scaling(kind: str, x: np.ndarray) -> Scaling:
    """Return the scaling of the features themselves."""
    scaling = Scaling.fit(x, kind="common" if kind == "common" else "columns")
    if kind != "robust":
        return scaling
    assert scaling.factor is not None
    low, centre, high = np.quantile(x, [0.25, 0.5, 0.75], axis=0)
    deviation = column_moments(x)[1]
    spread = np.where(high > low, (high - low) / QUARTILES, deviation)
    factor = np.divide(1.0, spread, out=np.zeros_like(spread), where=scaling.factor > 0)
    return Scaling("given", centre, factor)


def _knots(column: np.ndarray, features: int) -> np.ndarray:
    """Return the values of a column, or quantiles if there are many; at least two."""
    count = max(2, min(SETTINGS.ramps, SETTINGS.most_ramps // features))
    values = np.unique(column)
    if len(values) > count + 1:
        values = np.unique(np.quantile(column, np.linspace(0, 1, count + 1)))
    return values if len(values) > 1 else values[0] + np.array([0, max(1.0, abs(values[0]))])


def _ramps(column: np.ndarray, knots: np.ndarray) -> np.ndarray:
    """Return the ramps between knots, with a squared length of at most 1."""
    low, high = knots[:-1], knots[1:]
    return np.clip((column[:, None] - low) / (high - low), 0, 1) / len(low) ** 0.5


def _ranks(column: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return values and their ranks; equal values share the middle one."""
    levels = np.linspace(-0.5, 0.5, SETTINGS.levels)
    values, place = np.unique(np.quantile(column, levels + 0.5), return_inverse=True)
    return values, np.bincount(place, levels) / np.bincount(place)
