"""The search: all candidates on a few rows, the best on more, column weights, then all rows."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from tensorswitch._threads import threads
from tensorswitch.kernel_ridge._candidates import Candidate, Shape, rivals_of
from tensorswitch.kernel_ridge._large import solve_large
from tensorswitch.kernel_ridge._loo import (
    TIE,
    Centred,
    LeaveOneOut,
    best,
    loo_at,
    loo_error,
    loo_path,
)
from tensorswitch.kernel_ridge._model import KernelModel
from tensorswitch.kernel_ridge._rows import DistinctRows
from tensorswitch.kernel_ridge._scaling import RAMPED_FEATURES, SCALINGS, Scaling
from tensorswitch.kernel_ridge._sensitivity import column_sensitivities
from tensorswitch.kernels import equivalent_kernels

log = logging.getLogger("tensorswitch.kernel_ridge")

KINDS, DEPTHS, BIASES = ("ss", "ts", "ntk"), (1, 4), (1.0, 3.0)
PENALTIES = tuple(10.0**e for e in np.arange(-4.5, 1.01, 0.5))
FIRST_ROWS, SECOND_ROWS, KEPT = 300, 640, 3
POWERS, WEIGHTED, ROUNDS = (0.5, 1.0), 2, 2
MORE_ROUNDS, GAIN = 16, 0.99  # on more rows, as long as each brings the error down to this part
LEAST_WEIGHT = 1e-3  # of the largest, so that every column can recover
FINAL_ROWS = 1280
GRADIENT_ROWS = 2000
ONE_THREAD_ROWS = 1000  # up to which the last stage takes one thread, too
SCALING_ROWS = 20_000  # to which scalings are fitted
STEP = 10**0.25  # between neighbouring λ in the last stage
WORTH = 0.995  # a smaller λ must bring the error down to this part to be followed further
NEAR = (10**-0.5, 1.0, 10**0.5)  # where the second stage looks, as parts of the λ of fewer rows
LIMITS = (1e-6, 1e3)  # of λ there
LARGE_LEAST = 1e-3  # the least λ where tiles are float32
CHOICE_ROWS = 4000  # on which λ is chosen where all rows are too many
SINGLE_LEAST = 1e-3  # the least λ for which errors are compared in float32


def _worth(errors: dict[float, float]) -> bool:
    """Return whether the last step down lowered the error enough."""
    smallest, next_smallest = sorted(errors)[:2]
    return errors[smallest] < WORTH * errors[next_smallest]


class Search:
    """Find the kernel and the penalty of least leave-one-out error, and solve with them.

    Parameters
    ----------
    data : DistinctRows
        The rows.
    scalings, biases, kinds, depths, penalties : sequences
        What is tried.
    column_weights : bool, default=True
        Whether columns are weighed by how strongly predictions depend on them.
    direct_rows : int, default=10_000
        Up to so many rows the final solution is direct; beyond, by conjugate gradients.
    memory : float, default=0.0
        Bytes that conjugate gradients may use. With few, kernel values are computed repeatedly.
    seed : int, default=0
        Of the preconditioner's sample.
    watch : callable, optional
        Called with a note on progress.

    Attributes
    ----------
    tried : list of Candidate
        Everything that was tried.
    chosen : Candidate
        The best.
    loo : LeaveOneOut
        Its solution on all rows, or on the rows that decided.
    loo_rows : int
        How many these are.
    model : KernelModel
        What predicts.
    """

    def __init__(
        self,
        data: DistinctRows,
        *,
        scalings: Sequence[str] = SCALINGS,
        biases: Sequence[float] = BIASES,
        kinds: Sequence[str] = KINDS,
        depths: Sequence[int] = DEPTHS,
        penalties: Sequence[float] = PENALTIES,
        column_weights: bool = True,
        direct_rows: int = 10_000,
        memory: float = 0.0,
        seed: int = 0,
        watch: Callable[[str], None] | None = None,
    ) -> None:
        self.data, self.penalties, self.seed = data, tuple(penalties), seed
        self.memory = memory
        self.watch = watch or (lambda note: None)
        self.targets = torch.from_numpy(data.targets)
        self.weight = torch.from_numpy(data.weight)
        self.spread = torch.from_numpy(data.spread)
        self.weighted = bool(np.ptp(data.weight) > 0)
        self.tried: list[Candidate] = []
        self.column_weights = column_weights and data.x.shape[1] > 1
        shapes = list(itertools.product(biases[:1], kinds, depths))
        self.sample = data.x[:SCALING_ROWS]
        if data.x.shape[1] > RAMPED_FEATURES and len(scalings) > 1:
            scalings = [name for name in scalings if name != "ramps"]
        base = [Scaling.fit(name, self.sample) for name in scalings]
        candidates = [Candidate(s, b, k, d) for s in base for b, k, d in shapes]
        with threads(1):
            found = self._screen(candidates, biases)
        direct = len(data) <= direct_rows
        self.loo_rows = len(data) if direct else min(CHOICE_ROWS, len(data))
        self.least = LIMITS[0] if direct else LARGE_LEAST
        if len(self.penalties) > 1:
            found = replace(found, penalty=max(found.penalty, self.least))
        with threads(1 if self.loo_rows <= ONE_THREAD_ROWS else torch.get_num_threads()):
            self.chosen, self.loo = self._refine(found, self.loo_rows)
        self.model = self._direct_model() if direct else self._large_model()

    def _screen(self, candidates: list[Candidate], biases: Sequence[float]) -> Candidate:
        """Try all kernels on a few rows, then the best ones with other constants on more.

        Kernels of ramps and of columns are different enough for each to be given a chance on more
        rows, if the other is not clearly better.
        """
        first, second = (min(rows, len(self.data)) for rows in (FIRST_ROWS, SECOND_ROWS))
        self.watch(f"{len(candidates)} kernels on {first} rows")
        ranked = self._try(candidates, first)
        others = [replace(c, bias=b) for c in ranked[:KEPT] for b in biases if b != c.bias]
        ranked = sorted([*ranked, *self._try(others, first)], key=lambda c: c.judged)
        if second > first and len(ranked) > 1:
            kept = ranked[:KEPT]
            kept += [c for c in rivals_of(ranked) if all(c is not other for other in kept)]
            ranked = self._try(kept, second, NEAR)
        shapes = list(dict.fromkeys(c.shape for c in ranked))[:WEIGHTED]
        rivals = rivals_of(ranked)
        if self.column_weights:
            rivals = [self._weigh(c, shapes, second) for c in rivals]
        rivals = rivals_of(sorted(rivals, key=lambda c: c.judged))
        more = min(FINAL_ROWS, len(self.data))
        if len(rivals) > 1 and more > second:
            rivals = self._try(rivals, more, NEAR)
        found = rivals[0]
        return self._weigh_again(found) if found.scaling.power and more > second else found

    def _weigh(self, found: Candidate, shapes: Sequence[Shape], rows: int) -> Candidate:
        """Learn column weights while they help, then try them with other kernels."""
        for _ in range(ROUNDS):
            self.watch(f"column weights on {rows} rows")
            scalings = self._weighted(found, rows, POWERS)
            more = self._try([replace(found, scaling=s) for s in scalings], rows, NEAR)[0]
            if more.judged >= found.judged:
                break
            found = more
        if not found.scaling.power:
            return found
        others = [
            Candidate(found.scaling, *shape, penalty=found.penalty)
            for shape in shapes
            if shape != found.shape
        ]
        return min([found, *self._try(others, rows, NEAR)], key=lambda c: c.judged)

    def _weigh_again(self, found: Candidate) -> Candidate:
        """Learn column weights once more, from more rows, and go on while they help much.

        Where a few of many columns matter, each round tells them apart better.
        """
        rows = min(GRADIENT_ROWS, len(self.data))
        found = self._solved(found, rows)
        (scaling,) = self._weighted(found, rows, (found.scaling.power,))
        rows = min(FINAL_ROWS, len(self.data))
        (found,) = self._try([replace(found, scaling=scaling)], rows, (1.0,))
        for _ in range(MORE_ROUNDS):
            self.watch(f"column weights on {rows} rows")
            (scaling,) = self._weighted(found, rows, (found.scaling.power,))
            (more,) = self._try([replace(found, scaling=scaling)], rows, (1.0,))
            if more.judged >= GAIN * found.judged:
                break
            (found,) = self._try([more], rows, NEAR)
        return replace(found, coef=None)

    def _try(
        self, candidates: Iterable[Candidate], rows: int, parts: Sequence[float] = ()
    ) -> list[Candidate]:
        """Judge candidates on the first rows; kernels of one scaling come from one sweep.

        With ``parts``, only these parts of the λ that the candidates come with are tried, which is
        cheaper than all.
        """
        groups: dict[tuple[int, float], list[Candidate]] = {}
        for c in candidates:
            groups.setdefault((id(c.scaling), c.bias), []).append(c)
        judged = []
        weight, spread = self.weight[:rows].float(), self.spread[:rows].float()
        for same in groups.values():
            z = torch.from_numpy(same[0].scaling(self.data.x[:rows], same[0].bias)).float()
            kinds, depths = ({getattr(c, n) for c in same} for n in ("kind", "depth"))
            kernels = equivalent_kernels(z, kinds=sorted(kinds), depths=sorted(depths))
            for c in same:
                kernel = kernels.pop((c.kind, c.depth))
                results = self._results(kernel, rows, [part * c.penalty for part in parts])
                result, error = best(results, weight, spread)
                optimism = 1 + c.scaling.power * min(self.data.x.shape[1], rows) / rows
                judged.append(
                    replace(
                        c,
                        rows=rows,
                        penalty=result.penalty,
                        error=error,
                        judged=error * optimism,
                        coef=result.coef,
                    )
                )
        self.tried += judged
        return sorted(judged, key=lambda c: c.judged)

    def _results(self, kernel: Tensor, rows: int, penalties: Sequence[float]) -> list[LeaveOneOut]:
        targets, weight = self.targets[:rows].float(), self._weights(rows)
        weight = None if weight is None else weight.float()
        if not penalties or len(self.penalties) == 1:
            return loo_path(kernel, targets, weight, self.penalties)
        centred = Centred.of(kernel.clone(), weight)
        try:
            return [loo_at(centred, targets, penalty) for penalty in penalties]
        except RuntimeError:  # LinAlgError: the smallest is too small for working precision
            return loo_path(kernel, targets, weight, self.penalties)

    def _weights(self, rows: int) -> Tensor | None:
        if not self.weighted:
            return None
        weight = self.weight[:rows]
        return weight / weight.mean()

    def _weighted(self, c: Candidate, rows: int, powers: Iterable[float]) -> list[Scaling]:
        """Scalings with columns weighed by the sensitivity of a candidate's predictions."""
        assert c.coef is not None
        z = torch.from_numpy(c.scaling(self.data.x[:rows], c.bias))
        columns = z.shape[1] - 1
        few, every, coef = (t.float() for t in (z[:SECOND_ROWS], z, c.coef))
        g = column_sensitivities(few, every, coef, c.kind, c.depth, columns).double().numpy()
        g = c.scaling.weighed(g)
        g = g * (1 if c.scaling.weights is None else c.scaling.weights)
        g = g / max(g.max(), 1e-300) + LEAST_WEIGHT
        return [Scaling.fit(c.scaling.name, self.sample, g**p, p) for p in powers]

    def _kernel(self, c: Candidate, rows: int) -> Centred:
        z = torch.from_numpy(c.scaling(self.data.x[:rows], c.bias))
        kernel = equivalent_kernels(z, kinds=[c.kind], depths=[c.depth])[c.kind, c.depth]
        return Centred.of(kernel, self._weights(rows))

    def _solved(self, c: Candidate, rows: int) -> Candidate:
        """Return the candidate with its solution on other rows."""
        centred = self._kernel(c, rows).single()
        centred.matrix.diagonal().add_(max(c.penalty, LARGE_LEAST) * centred.scale)
        factor = torch.linalg.cholesky(centred.matrix, out=centred.matrix)
        beta = torch.cholesky_solve(centred.project(self.targets[:rows].float()), factor)
        return replace(c, coef=beta * centred.roots[:, None], rows=rows)

    def _refine(self, c: Candidate, rows: int) -> tuple[Candidate, LeaveOneOut]:
        """Walk along λ in small steps to the least error on these rows."""
        self.watch(f"penalty on {rows} rows")
        centred = self._kernel(c, rows)
        targets, weight, spread = self.targets[:rows], self.weight[:rows], self.spread[:rows]
        exact: dict[float, LeaveOneOut] = {}
        errors: dict[float, float] = {}
        fixed = len(self.penalties) == 1
        single = None if fixed else (centred.single(), targets.float(), weight.float(), spread)

        def at(penalty: float) -> None:
            try:
                if single is not None and penalty >= SINGLE_LEAST:
                    result = loo_at(*single[:2], penalty)
                    errors[penalty] = loo_error(result, *single[2:])
                    return
                exact[penalty] = loo_at(centred, targets, penalty)
                errors[penalty] = loo_error(exact[penalty], weight, spread)
            except RuntimeError:  # LinAlgError: too small for working precision
                errors[penalty] = np.inf

        chosen = self._walk(at, errors, c.penalty, fixed)
        if chosen not in exact:
            exact = {chosen: loo_at(centred, targets, chosen)}
        error = loo_error(exact[chosen], weight, spread)
        found = replace(c, rows=rows, penalty=chosen, error=error, coef=None)
        self.tried.append(found)
        return found, exact[chosen]

    def _walk(
        self, at: Callable[[float], None], errors: dict[float, float], start: float, fixed: bool
    ) -> float:
        """Follow falling errors along λ; ``at`` adds the error of one λ to ``errors``."""
        at(start)
        while np.isinf(min(errors.values())) and start < LIMITS[1]:
            start *= STEP**4
            at(start)
        if fixed:
            return start
        if start / STEP >= self.least:  # more rows need less
            at(start / STEP)
        if min(errors, key=lambda p: errors[p]) == start:
            at(start * STEP)
        while True:
            least = min(errors, key=lambda p: errors[p])
            if least == max(errors) and least < LIMITS[1]:
                at(least * STEP)
            elif least == min(errors) and least / STEP >= self.least and _worth(errors):
                at(least / STEP)
            else:
                break
        floor = min(errors.values())
        return max(p for p in errors if errors[p] <= TIE * floor)

    def _direct_model(self) -> KernelModel:
        c, loo = self.chosen, self.loo
        z = torch.from_numpy(c.scaling(self.data.x, c.bias))
        return self._model(z, loo.coef, loo.intercept, loo.penalty * loo.scale)

    def _large_model(self) -> KernelModel:
        c = self.chosen
        z = torch.from_numpy(c.scaling(self.data.x, c.bias)).float()
        weight = self.weight if self.weighted else None
        log.info("%d rows: conjugate gradients on kernel tiles", len(z))
        coef, intercept, scale, _ = solve_large(
            z,
            self.targets,
            c.kind,
            c.depth,
            c.penalty,
            weight,
            memory=self.memory,
            seed=self.seed,
            watch=lambda i, r: self.watch(f"iteration {i} on {len(z)} rows, residual {r:.1e}"),
        )
        return self._model(z, coef, intercept, c.penalty * scale)

    def _model(self, z: Tensor, coef: Tensor, intercept: Tensor, noise: float) -> KernelModel:
        c = self.chosen
        weight = self.weight if self.weighted else None
        solution = z, coef, intercept, weight, noise
        return KernelModel(c.scaling, c.bias, c.kind, c.depth, *solution, self.data.copies)
