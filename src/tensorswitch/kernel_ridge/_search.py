"""The search: all candidates on a few rows, the best on more, column weights, then all rows."""

import itertools
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch

from tensorswitch._process import threads
from tensorswitch.kernel_ridge._large import Options, solve_large
from tensorswitch.kernel_ridge._model import KernelModel
from tensorswitch.kernel_ridge._penalty import PenaltyPath
from tensorswitch.kernel_ridge._settings import BIASES, DEPTHS, KINDS, PENALTIES, SCALINGS, SETTINGS
from tensorswitch.kernel_ridge._trials import (
    Candidate,
    SearchRows,
    Shape,
    Trials,
    by_error,
    rivals_of,
)
from tensorswitch.linear._loo import LeaveOneOut
from tensorswitch.preprocessing import ColumnMap
from tensorswitch.preprocessing._columns import SETTINGS as MAPS

log = logging.getLogger("tensorswitch.kernel_ridge")


@dataclass(frozen=True)
class SearchResult:
    """Hold what a search has found.

    Parameters
    ----------
    model : KernelModel
        What predicts.
    alpha : float
        λ in multiples of the mean diagonal of the centred kernel matrix.
    left_out : ndarray of shape (rows, outputs)
        The prediction of each row from all rows that differ from it; nan outside of the sample on
        which λ was chosen.
    variance : ndarray of shape (outputs,)
        Of a Gaussian process with this kernel, by the leave-one-out residuals.
    candidates : dict of lists
        Everything that was tried, as the columns of a table.

    Examples
    --------
    >>> import numpy as np
    >>> from tensorswitch.kernel_ridge import Search
    >>> x = np.linspace(-1, 1, 40)[:, None]
    >>> result = Search(kinds=("ts",), depths=(1,)).fit(x, np.abs(x))
    >>> result.left_out.shape, sorted(set(result.candidates["scaling"]))
    ((40, 1), ['common', 'ramps', 'robust', 'standard'])
    """

    model: KernelModel
    alpha: float
    left_out: np.ndarray
    variance: np.ndarray
    candidates: dict[str, list[float | str]]


@dataclass(frozen=True)
class Search:
    """Find the kernel and the penalty of least leave-one-out error, and solve with them.

    Parameters
    ----------
    scalings : sequence of {"standard", "common", "robust", "ramps"}
        Kinds of :class:`tensorswitch.preprocessing.ColumnMap` that are tried.
    biases : sequence of float
        Constant columns.
    kinds, depths : sequence of {"ss", "ts", "ntk"} and of int
        Kernels and their depths.
    penalties : sequence of float
        λ in multiples of the mean diagonal of the centred kernel matrix; a single one is not
        changed.
    column_weights : bool, default=True
        Whether columns are weighed by how strongly predictions depend on them.
    direct_rows : int, default=10_000
        Up to so many rows the final solution is direct; beyond, by conjugate gradients.
    memory : float, default=0.0
        Bytes that conjugate gradients may use. With few, kernel values are computed repeatedly.
    seed : int, default=0
        Of the sample on which candidates are tried.
    watch : callable, optional
        Called with a note on progress.

    Examples
    --------
    >>> import numpy as np
    >>> from tensorswitch.kernel_ridge import Search
    >>> x = np.random.default_rng(0).normal(size=(60, 2))
    >>> result = Search(kinds=("ss", "ts")).fit(x, np.abs(x[:, :1]))
    >>> result.model.kind in ("ss", "ts")
    True
    """

    scalings: Sequence[str] = SCALINGS
    biases: Sequence[float] = BIASES
    kinds: Sequence[str] = KINDS
    depths: Sequence[int] = DEPTHS
    penalties: Sequence[float] = PENALTIES
    column_weights: bool = True
    direct_rows: int = 10_000
    memory: float = 0.0
    seed: int = 0
    watch: Callable[[str], None] | None = None

    def fit(
        self, x: np.ndarray, targets: np.ndarray, weight: np.ndarray | None = None
    ) -> SearchResult:
        """Search on a table; raise ``ValueError`` if it has fewer than two distinct rows.

        Parameters
        ----------
        x, targets : ndarray of shape (rows, features) and (rows, outputs)
            The rows, in float64, and their targets, centred and of similar size.
        weight : ndarray of shape (rows,), optional
            Weights of the rows, above zero.
        """
        rows = SearchRows.of(x, targets, weight, self.seed)
        if len(rows) < 2:
            raise ValueError(
                f"X has {len(rows)} distinct row with a positive weight (n_samples={len(x)}); "
                "at least 2 are needed"
            )
        trials = Trials(rows, self.penalties)
        with threads(1):
            found = self._screened(trials)
        direct = len(rows) <= self.direct_rows
        count = len(rows) if direct else min(SETTINGS.choice_rows, len(rows))
        with threads(1 if count <= SETTINGS.one_thread else torch.get_num_threads()):
            found, loo = self._refined(trials, found, count, direct)
        model = self._model(rows, found, loo if direct else None)
        some = rows.observations.of_first(count)
        residuals, left = loo.unseen(some)
        left_out = np.full((len(rows.observations.row), targets.shape[1]), np.nan)
        left_out[: len(residuals)] = (rows.targets[some.row] + some.offset - residuals).numpy()
        noise = loo.penalty / (some.share * rows.weight[some.row])  # of an observation
        squares = residuals.square() * left / noise[:, None]
        variance = (some.units @ squares / some.units.sum()).numpy()
        return SearchResult(model, found.penalty, left_out[rows.place], variance, trials.table())

    def _note(self, note: str) -> None:
        if self.watch is not None:
            self.watch(note)

    def _screened(self, trials: Trials) -> Candidate:
        """Try all kernels on a few rows, then the best ones with other constants on more.

        Kernels of ramps and of columns are different enough for each to be given a chance on more
        rows, if the other is not clearly better.
        """
        total, features = trials.rows.x.shape
        first, second, final = (
            min(count, total) for count in (SETTINGS.first, SETTINGS.second, SETTINGS.final)
        )
        scalings = self.scalings
        if features > MAPS.ramped_features and len(scalings) > 1:
            scalings = [name for name in scalings if name != "ramps"]
        maps = [ColumnMap.fit(name, trials.sample) for name in scalings]
        shapes = list(itertools.product(self.biases[:1], self.kinds, self.depths))
        candidates = [Candidate(m, *shape) for m in maps for shape in shapes]
        self._note(f"{len(candidates)} kernels on {first} rows")
        ranked = trials.judge(candidates, first)
        best = ranked[: SETTINGS.kept]
        others = [replace(c, bias=b) for c in best for b in self.biases if b != c.bias]
        ranked = sorted([*ranked, *trials.judge(others, first)], key=by_error)
        if second > first and len(ranked) > 1:
            kept = ranked[: SETTINGS.kept]
            kept += [c for c in rivals_of(ranked) if all(c is not other for other in kept)]
            ranked = trials.judge(kept, second, SETTINGS.near)
        best_shapes = list(dict.fromkeys(c.shape for c in ranked))[: SETTINGS.weighted]
        rivals = rivals_of(ranked)
        if self.column_weights and features > 1:
            rivals = [self._weighted(trials, c, best_shapes, second) for c in rivals]
        rivals = rivals_of(sorted(rivals, key=by_error))
        if len(rivals) > 1 and final > second:
            rivals = trials.judge(rivals, final, SETTINGS.near)
        found = rivals[0]
        more = found.columns.power and final > second
        return self._weighted_again(trials, found, final) if more else found

    def _weighted(
        self, trials: Trials, found: Candidate, shapes: Sequence[Shape], count: int
    ) -> Candidate:
        """Learn column weights while they help, then try them with other kernels."""
        for _ in range(SETTINGS.rounds):
            self._note(f"column weights on {count} rows")
            maps = trials.weighted(found, count, SETTINGS.powers)
            more = trials.judge([replace(found, columns=m) for m in maps], count, SETTINGS.near)[0]
            if more.judged >= found.judged:
                break
            found = more
        if not found.columns.power:
            return found
        columns, penalty = found.columns, found.penalty
        others = [Candidate(columns, *s, penalty=penalty) for s in shapes if s != found.shape]
        return min([found, *trials.judge(others, count, SETTINGS.near)], key=by_error)

    def _weighted_again(self, trials: Trials, found: Candidate, count: int) -> Candidate:
        """Learn column weights once more, from more rows, and go on while they help much.

        Where a few of many columns matter, each round tells them apart better.
        """
        power = (found.columns.power,)
        rows = min(SETTINGS.gradient_rows, len(trials.rows))
        (columns,) = trials.weighted(trials.solved(found, rows), rows, power)
        (found,) = trials.judge([replace(found, columns=columns)], count, (1.0,))
        for _ in range(SETTINGS.more_rounds):
            self._note(f"column weights on {count} rows")
            (columns,) = trials.weighted(found, count, power)
            (more,) = trials.judge([replace(found, columns=columns)], count, (1.0,))
            if more.judged >= SETTINGS.gain * found.judged:
                break
            (found,) = trials.judge([more], count, SETTINGS.near)
        return replace(found, coef=None)

    def _refined(
        self, trials: Trials, c: Candidate, count: int, direct: bool
    ) -> tuple[Candidate, LeaveOneOut]:
        """Choose λ in small steps on all rows, or on those that decide."""
        self._note(f"penalty on {count} rows")
        rows, least = trials.rows, SETTINGS.limits[0] if direct else SETTINGS.single
        known = rows.targets[:count], rows.observations.of_first(count)
        path = PenaltyPath(trials.centred(c, count), *known, exact=trials.fixed)
        chosen = path.fixed(c.penalty) if trials.fixed else path.walk(c.penalty, least)
        loo = path.at(chosen)
        found = replace(c, rows=count, penalty=chosen, error=path.errors[chosen], coef=None)
        trials.tried.append(found)
        return found, loo

    def _model(self, rows: SearchRows, c: Candidate, found: LeaveOneOut | None) -> KernelModel:
        """Return the model of all rows, by conjugate gradients without a direct solution."""
        z = torch.from_numpy(c.columns(rows.x, c.bias))
        weight = rows.weight if rows.weighted else None
        if found is not None:
            coef, intercept, penalty = found.coef, found.intercept, found.penalty
        else:
            z = z.float()  # tiles of half the size, and twice as fast
            log.info("%d rows: conjugate gradients on kernel tiles", len(z))

            def watch(iteration: int, residual: float) -> None:
                self._note(f"iteration {iteration} on {len(z)} rows, residual {residual:.1e}")

            options = Options(memory=self.memory, seed=self.seed, watch=watch)
            coef, intercept, penalty = solve_large(z, rows.targets, c, weight, options)
        # In the layout of files, so that a loaded model predicts the same to the last bit.
        known = c.columns, c.bias, c.kind, c.depth, z, coef.contiguous(), intercept
        return KernelModel(*known, weight, penalty, rows.copies)
