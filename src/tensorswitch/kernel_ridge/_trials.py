"""Kernels that are tried on the first rows of a table, and their leave-one-out errors."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter

import numpy as np
import torch
from torch import Tensor

from tensorswitch.kernel_ridge._sensitivity import column_sensitivities
from tensorswitch.kernel_ridge._settings import SETTINGS
from tensorswitch.kernels import equivalent_kernels
from tensorswitch.linear import SingularError
from tensorswitch.linear._loo import Centred, LeaveOneOut, Spectrum
from tensorswitch.linear._rows import Observations, distinct_rows, row_hashes
from tensorswitch.preprocessing import ColumnMap

Shape = tuple[float, str, int]  # constant, kind and depth
by_error = attrgetter("judged")  # the order of candidates


@dataclass(frozen=True)
class SearchRows:
    """Rows without duplicates, in an order that depends on their content and a seed alone.

    Leaving out one of two copies says nothing about new data, so leave-one-out leaves out all of
    them together, unless they are observations. It also makes a weight of two equal to a repeated
    row.
    """

    x: np.ndarray
    targets: Tensor  # the weighted mean of the targets of each
    weight: Tensor  # summed, with a mean of 1
    observations: Observations
    place: np.ndarray  # the observation of each row
    copies: float  # how many observations a distinct row has, on average

    @classmethod
    def of(
        cls, x: np.ndarray, targets: np.ndarray, weight: np.ndarray | None, seed: int
    ) -> SearchRows:
        """Merge identical rows, all of which have positive weights."""
        rows, t = torch.from_numpy(x), torch.from_numpy(targets)
        s = None if weight is None else torch.from_numpy(weight)
        found = distinct_rows(rows, row_hashes(rows), t, s, seed)
        return cls(
            x[found.first.numpy()],
            found.targets,
            found.weight / found.weight.mean(),
            found.observations,
            found.place.numpy(),
            float(found.observations.units.sum()) / len(found.first),
        )

    def __len__(self) -> int:
        return len(self.x)

    @property
    def weighted(self) -> bool:
        """Whether the weights differ."""
        return bool(self.weight.min() < self.weight.max())


@dataclass(frozen=True)
class Candidate:
    """A kernel on scaled columns, and its error on some rows."""

    columns: ColumnMap
    bias: float
    kind: str
    depth: int
    rows: int = 0  # on which it was tried
    penalty: float = 0.0  # the best λ, in multiples of the mean diagonal of the centred kernel
    error: float = np.inf  # mean squared leave-one-out error
    judged: float = np.inf  # raised for column weights that were learned from the same rows
    coef: Tensor | None = field(default=None, repr=False, compare=False)

    @property
    def shape(self) -> Shape:
        """Constant, kind and depth."""
        return self.bias, self.kind, self.depth


def rivals_of(ranked: Sequence[Candidate]) -> list[Candidate]:
    """Return the best kernels of ramps and of columns, or only one if it is clearly better."""
    best, ramps = ranked[0], ranked[0].columns.kind == "ramps"
    other = next((c for c in ranked if (c.columns.kind == "ramps") != ramps), None)
    if other is None or other.judged > SETTINGS.close * best.judged:
        return [best]
    return [best, other]


class Trials:
    """Judge candidates, and keep all that were tried."""

    def __init__(self, rows: SearchRows, penalties: Sequence[float]) -> None:
        self.rows, self.penalties, self.fixed = rows, penalties, len(penalties) == 1
        self.sample = rows.x[: SETTINGS.map_rows]
        self.tried: list[Candidate] = []

    def judge(
        self, candidates: Iterable[Candidate], count: int, near: Sequence[float] = ()
    ) -> list[Candidate]:
        """Return candidates by their error on the first rows, the best one first.

        Kernels of one map come from one sweep. With ``near``, only these parts of the λ that the
        candidates come with are tried, which is cheaper than all.
        """
        groups: dict[tuple[int, float], list[Candidate]] = {}
        for c in candidates:
            groups.setdefault((id(c.columns), c.bias), []).append(c)
        judged = []
        for same in groups.values():
            z = self._scaled(same[0], count).float()
            kinds, depths = {c.kind for c in same}, {c.depth for c in same}
            kernels = equivalent_kernels(z, kinds=sorted(kinds), depths=sorted(depths))
            for c in same:
                parts = [] if self.fixed else [part * c.penalty for part in near]
                centred = Centred.of(kernels.pop((c.kind, c.depth)), self.weights(count))
                judged.append(self._best(c, count, self._path(centred, count, parts)))
        self.tried += judged
        return sorted(judged, key=by_error)

    def _path(
        self, centred: Centred, count: int, parts: Sequence[float]
    ) -> list[tuple[float, LeaveOneOut]]:
        """Return solutions for multiples of λ: by factors if they are few, else by a spectrum."""
        targets = self.rows.targets[:count].float()
        if parts:
            try:
                return [(p, centred.at(p * centred.scale, targets)) for p in parts]
            except SingularError:  # the smallest is too small for working precision
                pass
        spectrum = Spectrum(centred)
        ordered = sorted(self.penalties)
        usable = [p for p in ordered if p * centred.scale >= spectrum.least] or ordered[-1:]
        found = spectrum.path([p * centred.scale for p in usable], targets)
        return list(zip(usable, found, strict=True))

    def _best(
        self, c: Candidate, count: int, path: Sequence[tuple[float, LeaveOneOut]]
    ) -> Candidate:
        some = self.rows.observations.of_first(count)
        found = [(loo.error(some), p, loo.coef) for p, loo in path]
        least = min(error for error, _, _ in found)
        tied = [entry for entry in found if entry[0] <= SETTINGS.tie * least]
        error, penalty, coef = max(tied or found[:1], key=lambda entry: entry[1])
        judged = error * (1 + c.columns.power * min(self.rows.x.shape[1], count) / count)
        return replace(c, rows=count, penalty=penalty, error=error, judged=judged, coef=coef)

    def weights(self, count: int) -> Tensor | None:
        """Return the weights of the first rows, with a mean of 1; None if all are alike."""
        if not self.rows.weighted:
            return None
        weight = self.rows.weight[:count]
        return weight / weight.mean()

    def weighted(self, c: Candidate, count: int, powers: Iterable[float]) -> list[ColumnMap]:
        """Return maps with columns weighed by the sensitivity of a candidate's predictions."""
        assert c.coef is not None
        z = self._scaled(c, count).float()
        found = column_sensitivities(z[: SETTINGS.second], z, c.coef.float(), c.kind, c.depth)
        g = c.columns.shared(found[:-1].double().numpy())  # but that of the constant column
        g = g * (1 if c.columns.weights is None else c.columns.weights)
        g = g / max(g.max(), 1e-300) + SETTINGS.least_weight
        return [ColumnMap.fit(c.columns.kind, self.sample, g**p, p) for p in powers]

    def centred(self, c: Candidate, count: int) -> Centred:
        """Return the centred kernel matrix of the first rows, in float64."""
        z = self._scaled(c, count)
        kernel = equivalent_kernels(z, kinds=[c.kind], depths=[c.depth])[c.kind, c.depth]
        return Centred.of(kernel, self.weights(count))

    def solved(self, c: Candidate, count: int) -> Candidate:
        """Return the candidate with its solution on other rows."""
        centred = self.centred(c, count).single()
        penalty = max(c.penalty, SETTINGS.single) * centred.scale  # float32 cannot factorise less
        goal = centred.centring.goal(self.rows.targets[:count].float())
        coef = centred.factorise(penalty).solve(goal) * centred.centring.roots[:, None]
        return replace(c, coef=coef, rows=count)

    def _scaled(self, c: Candidate, count: int) -> Tensor:
        return torch.from_numpy(c.columns(self.rows.x[:count], c.bias))

    def table(self) -> dict[str, list[float | str]]:
        """Return all that was tried as the columns of a table."""
        names = ("kind", "depth", "bias", "penalty", "rows", "error")
        return {
            "scaling": [c.columns.kind for c in self.tried],
            "weights": [c.columns.power for c in self.tried],
            **{name: [getattr(c, name) for c in self.tried] for name in names},
        }
