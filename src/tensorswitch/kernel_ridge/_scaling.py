"""Scaling of columns: each by its own factor, all by one, robustly with ranks, or as ramps."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

__all__ = ["SCALINGS", "Scaling"]

SCALINGS = ("standard", "common", "robust", "ramps")
BEND = 3.0  # standard deviations at which the robust scaling begins to bend
KNOTS = 65  # of the piecewise linear map from values to ranks
RAMPS, MOST_RAMPS = 24, 2_048  # at most of each feature, and of all
RAMPED_FEATURES = 256  # with more, a feature would have too few
QUARTILES = 1.349  # from the first to the third of a normal distribution, in standard deviations


@dataclass(frozen=True)
class Scaling:
    """An affine map of each column and the factor of all of them.

    The mean squared length of the rows it was fitted to is 1. Constant columns become 0. Robust
    columns come with their ranks. With ramps, a feature becomes ``r_k = clip((x − a_k) / (a_{k+1} −
    a_k), 0, 1)`` with quantiles ``a_k``, so that ``r · r'`` depends on where x and x' lie among all
    values, and a kernel sees thresholds.

    Parameters
    ----------
    name : str
        One of ``SCALINGS``.
    centre, factor : ndarray of shape (features,)
        ``(x − centre) · factor``.
    ranks : tuple of pairs of ndarray
        Values and their ranks between −½ and ½, for each column; empty if not robust.
    knots : tuple of ndarray
        The quantiles ``a_k`` of each feature; empty without ramps.
    second_centre, second_factor : ndarray of shape (columns,)
        The same once more, after bending and joining, with column weights and the length of rows.
        There are twice as many columns as features if robust, and several of each with ramps.
    weights : ndarray of shape (columns,) or None
        Column weights, the largest of which is 1.
    power : float
        The power of the sensitivities that ``weights`` are, 0 without weights.
    """

    name: str
    centre: np.ndarray
    factor: np.ndarray
    ranks: tuple[tuple[np.ndarray, np.ndarray], ...]
    knots: tuple[np.ndarray, ...]
    second_centre: np.ndarray
    second_factor: np.ndarray
    weights: np.ndarray | None
    power: float

    @classmethod
    def fit(
        cls, name: str, x: np.ndarray, weights: np.ndarray | None = None, power: float = 0.0
    ) -> Scaling:
        """Fit the scaling to rows.

        Parameters
        ----------
        name : {"standard", "common", "robust", "ramps"}
            Each column divided by its standard deviation; all by one; each by the distance of its
            quartiles, with the ends bent towards zero, and joined by its ranks; or ramps in place
            of each column.
        x : ndarray of shape (rows, features)
            The rows.
        weights : ndarray of shape (columns,), optional
            Factors on the scaled columns.
        power : float, default=0.0
            What the weights are, as a power of the sensitivities.

        Returns
        -------
        Scaling
        """
        centre, deviation = x.mean(0), x.std(0)
        varies = deviation > 1e-10 * np.maximum(np.abs(x).max(0, initial=0), 1e-300)
        spread = deviation
        ranks: tuple[tuple[np.ndarray, np.ndarray], ...] = ()
        if name == "common":
            square = np.square(deviation[varies]).mean() if varies.any() else 1.0
            spread = np.full_like(deviation, np.sqrt(square))
        elif name == "robust":
            low, centre, high = np.quantile(x, [0.25, 0.5, 0.75], axis=0)
            spread = np.where(high > low, (high - low) / QUARTILES, deviation)
            ranks = tuple(_ranks(column) for column in x.T)
        knots = tuple(_knots(column, x.shape[1]) for column in x.T) if name == "ramps" else ()
        factor = np.divide(1.0, spread, out=np.zeros_like(spread), where=varies)
        first = cls(name, centre, factor, ranks, knots, np.zeros(1), np.ones(1), None, 0.0)
        z = first(x)
        second_centre = z.mean(0)
        z -= second_centre
        second = np.ones(z.shape[1])
        if name == "robust":  # each half to its standard deviation
            after = z.std(0)
            used = np.tile(varies, 2) & (after > 0)
            second = np.divide(1.0, after, out=np.zeros_like(after), where=used)
        if name == "ramps":
            second = varies[first.sources].astype(np.float64)
        if weights is not None:
            second = second * weights
        length = np.sqrt(np.square(z * second).sum(1).mean())
        second = second / (length if length > 0 else 1.0)
        return cls(name, centre, factor, ranks, knots, second_centre, second, weights, power)

    def __call__(self, x: np.ndarray, bias: float | None = None) -> np.ndarray:
        """Scale rows, and add a constant column if requested.

        Parameters
        ----------
        x : ndarray of shape (rows, features)
            The rows.
        bias : float, optional
            The constant.

        Returns
        -------
        ndarray of shape (rows, columns) or (rows, columns + 1)
        """
        if self.name == "ramps":
            z = np.column_stack([_ramps(x[:, j], knots) for j, knots in enumerate(self.knots)])
        else:
            z = (x - self.centre) * self.factor
        if self.name == "robust":
            z /= np.sqrt(1 + np.square(z / BEND))
            ranks = (np.interp(x[:, j], *knots) for j, knots in enumerate(self.ranks))
            z = np.column_stack([z, *ranks])
        z = (z - self.second_centre) * self.second_factor
        return z if bias is None else np.column_stack([z, np.full(len(z), float(bias))])

    @property
    def sources(self) -> np.ndarray:
        """The feature that each column comes from."""
        features = np.arange(len(self.centre))
        if self.name == "ramps":
            return np.repeat(features, [len(knots) - 1 for knots in self.knots])
        return np.tile(features, 2) if self.name == "robust" else features

    @property
    def feature_weights(self) -> np.ndarray:
        """Column weights of the features, the largest of which is 1."""
        features = len(self.centre)
        if self.weights is None:
            return np.ones(features)
        squares: np.ndarray = np.bincount(self.sources, np.square(self.weights), features)
        if self.name == "ramps":  # those of a feature have the same weight
            squares = squares / np.bincount(self.sources)
        weights = np.sqrt(squares)
        result: np.ndarray = weights / weights.max()
        return result

    def weighed(self, sensitivities: np.ndarray) -> np.ndarray:
        """Return the sensitivities of features, for each of their columns, if there are ramps.

        The ramps of a feature get the same weight, as there are too many to weigh each.

        Parameters
        ----------
        sensitivities : ndarray of shape (columns,)
            Of each column.

        Returns
        -------
        ndarray of shape (columns,)
        """
        if self.name != "ramps":
            return sensitivities
        sources = self.sources
        mean = np.bincount(sources, np.square(sensitivities)) / np.bincount(sources)
        result: np.ndarray = np.sqrt(mean)[sources]
        return result


def _knots(column: np.ndarray, features: int) -> np.ndarray:
    """Return the values of a column, or quantiles if there are many; at least two."""
    count = max(2, min(RAMPS, MOST_RAMPS // features))
    values = np.unique(column)
    if len(values) > count + 1:
        values = np.unique(np.quantile(column, np.linspace(0, 1, count + 1)))
    return values if len(values) > 1 else values[0] + np.array([0, max(1.0, abs(values[0]))])


def _ramps(column: np.ndarray, knots: np.ndarray) -> np.ndarray:
    """Return the ramps between knots, with a squared length of at most 1."""
    low, high = knots[:-1], knots[1:]
    result: np.ndarray = np.clip((column[:, None] - low) / (high - low), 0, 1) / len(low) ** 0.5
    return result


def _ranks(column: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return values and their ranks; equal values share the middle one."""
    levels = np.linspace(-0.5, 0.5, KNOTS)
    values, place = np.unique(np.quantile(column, levels + 0.5), return_inverse=True)
    return values, np.bincount(place, levels) / np.bincount(place)
