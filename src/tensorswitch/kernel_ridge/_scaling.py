"""Scaling of columns: each by its own factor, all by one, or robustly and with their ranks."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

__all__ = ["SCALINGS", "Scaling"]

SCALINGS = ("standard", "common", "robust")
BEND = 3.0  # standard deviations at which the robust scaling begins to bend
KNOTS = 65  # of the piecewise linear map from values to ranks
QUARTILES = 1.349  # from the first to the third of a normal distribution, in standard deviations


@dataclass(frozen=True)
class Scaling:
    """An affine map of each column and the factor of all of them; robust columns come with ranks.

    The mean squared length of the rows it was fitted to is 1. Constant columns become 0.

    Parameters
    ----------
    name : str
        One of ``SCALINGS``.
    centre, factor : ndarray of shape (features,)
        ``(x − centre) · factor``.
    ranks : tuple of pairs of ndarray
        Values and their ranks between −½ and ½, for each column; empty if not robust.
    second_centre, second_factor : ndarray of shape (columns,)
        The same once more, after bending and joining, with column weights and the length of rows.
        There are twice as many columns as features if robust.
    weights : ndarray of shape (columns,) or None
        Column weights, the largest of which is 1.
    power : float
        The power of the sensitivities that ``weights`` are, 0 without weights.
    """

    name: str
    centre: np.ndarray
    factor: np.ndarray
    ranks: tuple[tuple[np.ndarray, np.ndarray], ...]
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
        name : {"standard", "common", "robust"}
            Each column divided by its standard deviation; all by one; or each by the distance of
            its quartiles, with the ends bent towards zero, and joined by its ranks.
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
        factor = np.divide(1.0, spread, out=np.zeros_like(spread), where=varies)
        first = cls(name, centre, factor, ranks, np.zeros(1), np.ones(1), None, 0.0)
        z = first(x)
        second_centre = z.mean(0)
        z -= second_centre
        second = np.ones(z.shape[1])
        if name == "robust":  # each half to its standard deviation
            after = z.std(0)
            used = np.tile(varies, 2) & (after > 0)
            second = np.divide(1.0, after, out=np.zeros_like(after), where=used)
        if weights is not None:
            second = second * weights
        length = np.sqrt(np.square(z * second).sum(1).mean())
        second = second / (length if length > 0 else 1.0)
        return cls(name, centre, factor, ranks, second_centre, second, weights, power)

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
        z = (x - self.centre) * self.factor
        if self.name == "robust":
            z /= np.sqrt(1 + np.square(z / BEND))
            ranks = (np.interp(x[:, j], *knots) for j, knots in enumerate(self.ranks))
            z = np.column_stack([z, *ranks])
        z = (z - self.second_centre) * self.second_factor
        return z if bias is None else np.column_stack([z, np.full(len(z), float(bias))])

    @property
    def feature_weights(self) -> np.ndarray:
        """Column weights of the features, the largest of which is 1."""
        features = len(self.centre)
        if self.weights is None:
            return np.ones(features)
        weights = np.sqrt(np.square(self.weights).reshape(-1, features).sum(0))
        result: np.ndarray = weights / weights.max()
        return result


def _ranks(column: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return values and their ranks; equal values share the middle one."""
    levels = np.linspace(-0.5, 0.5, KNOTS)
    values, place = np.unique(np.quantile(column, levels + 0.5), return_inverse=True)
    return values, np.bincount(place, levels) / np.bincount(place)
