"""The last choice of λ: a walk in small steps to the least leave-one-out error."""

import numpy as np
from torch import Tensor

from tensorswitch.kernel_ridge._settings import SETTINGS
from tensorswitch.linear import SingularError
from tensorswitch.linear._loo import Centred, LeaveOneOut
from tensorswitch.linear._rows import Observations


class PenaltyPath:
    """Leave-one-out errors along λ, in float32 where that tells them apart.

    λ is given in multiples of the mean diagonal of the centred kernel matrix.
    """

    def __init__(
        self, centred: Centred, targets: Tensor, observations: Observations, exact: bool
    ) -> None:
        self.whole, self.observations = (centred, targets), observations
        self.single = None if exact else (centred.single(), targets.float())
        self.errors: dict[float, float] = {}
        self.found: dict[float, LeaveOneOut] = {}

    def at(self, penalty: float) -> LeaveOneOut:
        """Return the solution of one λ, in float64."""
        if penalty not in self.found:
            self.found[penalty] = self._judged(self.whole, penalty)
        return self.found[penalty]

    def _judged(self, known: tuple[Centred, Tensor], penalty: float) -> LeaveOneOut:
        centred, targets = known
        found = centred.at(penalty * centred.scale, targets)
        self.errors[penalty] = found.error(self.observations)
        return found

    def add(self, penalty: float) -> None:
        """Find the error of one λ, which is infinite if λ is too small for working precision."""
        try:
            if self.single is not None and penalty >= SETTINGS.single:
                self._judged(self.single, penalty)
            else:
                self.at(penalty)
        except SingularError:
            self.errors[penalty] = np.inf

    @property
    def best(self) -> float:
        """The λ of least error so far."""
        return min(self.errors, key=lambda penalty: self.errors[penalty])

    def walk(self, start: float, least: float) -> float:
        """Follow falling errors from a start; of ties, return the largest λ."""
        step, most = SETTINGS.step, SETTINGS.limits[1]
        self._rise(max(start, least))
        start = max(self.errors)
        if start / step >= least:  # more rows need less
            self.add(start / step)
        if self.best == start:
            self.add(start * step)
        while True:
            best = self.best
            if best == max(self.errors) and best < most:
                self.add(best * step)
            elif best == min(self.errors) and best / step >= least and self._pays():
                self.add(best / step)
            else:
                break
        floor = min(self.errors.values())
        return max(p for p in self.errors if self.errors[p] <= SETTINGS.tie * floor)

    def fixed(self, penalty: float) -> float:
        """Return a λ that was given, or the next one that working precision allows."""
        self._rise(penalty)
        return max(self.errors)

    def _rise(self, penalty: float) -> None:
        self.add(penalty)
        while np.isinf(min(self.errors.values())) and penalty < SETTINGS.limits[1]:
            penalty *= SETTINGS.step**4
            self.add(penalty)

    def _pays(self) -> bool:
        """Return whether the last step down lowered the error enough."""
        smallest, next_smallest = sorted(self.errors)[:2]
        return self.errors[smallest] < SETTINGS.worth * self.errors[next_smallest]
