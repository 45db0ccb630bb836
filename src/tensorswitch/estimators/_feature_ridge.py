"""Ridge regression on explicit features: what streaming and image estimators share."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from tensorswitch._checks import check_factor, from_numpy
from tensorswitch._memory import available_memory
from tensorswitch._progress import progress_bar
from tensorswitch.estimators._front import Scaling, rows_of
from tensorswitch.estimators._merging import Mergeable
from tensorswitch.estimators._ridge_base import Fitted, row_hashes_of, warn_of_ignored
from tensorswitch.explain import Explanation
from tensorswitch.ridge import FeatureRows, FeatureStatistics, gram_bytes
from tensorswitch.ridge.dispatch import Solved
from tensorswitch.ridge.folds import FOLDS
from tensorswitch.ridge.penalty import penalties
from tensorswitch.ridge.rows import fold_of_hashes
from tensorswitch.switches import AllOpen, Switch

log = logging.getLogger("tensorswitch.ridge")

CHUNK_BYTES = 1 << 27  # of features made at a time by fit
SOLVERS = ("auto", "streaming", "matrix-free")
MOST_SUMMED = 40_000  # features; with more, conjugate gradients are faster
FOLDED_FEATURES = 2048  # up to which each fold is left out in turn; beyond, only the first


class FeatureFront(NamedTuple):
    """The step before the readout: scaling of the columns.

    ``gate_weights`` has the unit that is always open, as in :class:`FeatureStatistics`.
    """

    scaling: Scaling
    intercept: bool
    gate_weights: list[Tensor]
    switch: Switch = AllOpen()

    @classmethod
    def of(
        cls, scaling: Scaling, intercept: bool, features: int, dtype: torch.dtype
    ) -> FeatureFront:
        """Return the front for a number of features."""
        return cls(scaling, intercept, [torch.zeros(1, features, dtype=dtype, device="cpu")])

    def __call__(self, X: Any) -> Tensor:
        """Return the scaled features, made block by block."""
        width = self.gate_weights[0].shape[1]
        result = self.gate_weights[0].new_empty(X.shape[0], width)
        for part, rows in rows_of(X):
            result[part] = from_numpy(np.ascontiguousarray(self.scaling(rows)))
        return result


class FeatureRidge(Mergeable):
    """Sums of explicit features, in chunks, in place of those of the TS representation."""

    gates: Any = 1
    _gated = False
    _given_features = True  # the columns of X are the features
    solver: str
    components: Any = None
    random_state: Any = 0

    def _fit(self, X: Any, targets: np.ndarray, sample_weight: np.ndarray | None) -> Solved:
        """Sum all rows, a chunk at a time, and solve."""
        penalties(self.alpha, 1.0, self.selection)
        check_factor(forgetting=self.forgetting)
        weight = None if sample_weight is None else from_numpy(sample_weight)
        hashes = row_hashes_of(X)
        fitted = self._new(X, targets, weight, hashes)
        if self._chosen_solver(fitted, targets.shape[1]) == "matrix-free":
            return self._fit_rows(X, targets, weight, hashes, fitted)
        statistics = None
        with progress_bar(type(self).__name__, self.verbose, X.shape[0]) as bar:
            for part in self._chunks(X, fitted):
                t = self._scaled(targets[part], fitted)
                s = None if weight is None else weight[part]
                for x in self._variants(X[part], fitted):
                    if statistics is None:
                        statistics = self._new_statistics(fitted, x, t)
                        statistics.forgetting = 1.0  # among the rows of a call, nothing is
                    statistics.update(x, t, s, fold_of_hashes(hashes[part], statistics.folds))
                bar(len(t), note="sums")
        if statistics is not None:
            statistics.forgetting = self.forgetting
        self._keep(fitted, "streaming", statistics, None)
        return Solved(self.solution_, "streaming", statistics, None)

    def _fit_rows(
        self, X: Any, targets: np.ndarray, weight: Tensor | None, hashes: Tensor, fitted: Fitted
    ) -> Solved:
        """Keep the features of all rows in half precision, and solve by conjugate gradients."""
        variants, like = self._variant_count(fitted), fitted.front.gate_weights[0]
        budget = None if self.memory_gb is None else self.memory_gb * 2**30 / 2
        width = like.shape[1]
        rows = FeatureRows(variants * X.shape[0], width, targets.shape[1], memory=budget)
        given = []  # places of the rows themselves, without mirror images
        centre: Tensor | None = None  # half precision is finest around zero
        with progress_bar(type(self).__name__, self.verbose, X.shape[0]) as bar:
            for part in self._chunks(X, fitted):
                t = self._scaled(targets[part], fitted)
                given.append(torch.arange(len(rows), len(rows) + len(t)))
                s = None if weight is None else weight[part]
                for x in self._variants(X[part], fitted):
                    if centre is None:
                        centre = x.mean(0) if fitted.front.intercept else torch.zeros_like(x[0])
                    rows.append((x - centre).float(), t.float(), s, hashes[part])
                bar(len(t), note="features")
            solution, left_out = rows.solve(
                self._alphas(),
                fit_intercept=fitted.front.intercept,
                watch=lambda note: bar(note=note),
                left_out=self._left_out_wanted,
            )
        readout, intercept = solution.weight.to(like), solution.intercept
        if intercept is not None and centre is not None:
            intercept = intercept - centre.double() @ readout.double()
        solution = solution._replace(weight=readout, intercept=intercept)
        self._keep(fitted, "matrix-free", None, solution)
        outputs = None if left_out is None else left_out[torch.cat(given)]
        return Solved(solution, "matrix-free", None, outputs)

    def _alphas(self) -> Any:
        return self.alpha

    def _chosen_solver(self, fitted: Fitted, out: int) -> str:
        if self.solver not in SOLVERS:
            known = ", ".join(map(repr, SOLVERS))
            raise ValueError(f"solver must be one of {known}, got {self.solver!r}")
        alphas, selection = penalties(self.alpha, 1.0, self.selection)
        gcv = selection == "gcv" and len(alphas) > 1
        if self.solver == "matrix-free" and gcv:
            raise ValueError(
                "solver='matrix-free' chooses alpha by cross-validation; use alpha='cv', or "
                "solver='streaming' for generalised cross-validation"
            )
        if self.solver != "auto" or self.forgetting != 1 or gcv:
            return "matrix-free" if self.solver == "matrix-free" else "streaming"
        like = fitted.front.gate_weights[0]
        if like.shape[1] <= MOST_SUMMED:
            try:
                self._fold_options(like.shape[1], out, like.dtype, False)
            except MemoryError as error:
                reason = str(error)
            else:
                return "streaming"
        else:
            reason = f"there are more than {MOST_SUMMED:,} features"
        log.info("rows are kept and solved by conjugate gradients: %s", reason)
        return "matrix-free"

    def _partial_fit(
        self, X: Any, targets: np.ndarray, sample_weight: np.ndarray | None, first: bool
    ) -> None:
        if first:
            penalties(self.alpha, 1.0, self.selection)
            weight = None if sample_weight is None else from_numpy(sample_weight)
            fitted = self._new(X, targets, weight, row_hashes_of(X))
            x = fitted.front(X[:1])
            sums = self._new_statistics(fitted, x, self._scaled(targets[:1], fitted))
            self._keep(fitted, "streaming", sums, None)
        elif self._given_features:
            warn_of_ignored(X, self._fitted.front.scaling)
        self._add(X, targets, sample_weight, FeatureStatistics.update)

    def _remove(self, X: Any, targets: np.ndarray, sample_weight: np.ndarray | None) -> None:
        self._add(X, targets, sample_weight, FeatureStatistics.remove)

    def _add(self, X: Any, targets: Any, sample_weight: Any, method: Any) -> None:
        """Add rows to the sums or remove them, all or none of them."""
        weight = None if sample_weight is None else from_numpy(sample_weight)
        fitted, sums = self._fitted, self._same_forgetting()
        fold = fold_of_hashes(row_hashes_of(X), sums.folds)
        parts = list(self._chunks(X, fitted))
        several = len(parts) > 1 or self._variant_count(fitted) > 1
        changed = sums.copy() if several else sums  # so that nothing changes if a later chunk fails
        for part in parts:
            t = self._scaled(targets[part], fitted)
            for x in self._variants(X[part], fitted):
                method(changed, x, t, None if weight is None else weight[part], fold[part])
                if several:
                    changed.forgetting = 1.0  # the rows before the call are forgotten once
        changed.forgetting = self.forgetting
        self._statistics, self._solution = changed, None

    def _chunks(self, X: Any, fitted: Fitted) -> Iterator[slice]:
        width = fitted.front.gate_weights[0].shape[1]
        step = max(64, CHUNK_BYTES // (width * fitted.front.gate_weights[0].element_size()))
        for start in range(0, X.shape[0], step):
            yield slice(start, min(start + step, X.shape[0]))

    def _variants(self, X: Any, fitted: Fitted) -> Iterator[Tensor]:
        """Yield the features of rows, and of whatever else stands for the same rows."""
        yield fitted.front(X)

    def _variant_count(self, fitted: Fitted) -> int:
        return 1

    def _new_statistics(self, fitted: Fitted, x: Tensor, t: Tensor) -> FeatureStatistics:
        """Return sums without rows, with as many folds as there is memory for."""
        alphas, selection = penalties(self.alpha, 1.0, self.selection)
        wanted = self._left_out_wanted or (len(alphas) > 1 and selection == "cv")
        options = self._fold_options(x.shape[1], t.shape[1], x.dtype, wanted)
        kept = {"dtype": x.dtype, "device": x.device, "forgetting": self.forgetting, **options}
        return FeatureStatistics(x.shape[1], t.shape[1], **kept)

    def _fold_options(
        self, features: int, out: int, dtype: torch.dtype, wanted: bool
    ) -> dict[str, Any]:
        given = self.memory_gb
        if given is not None and not given > 0:
            raise ValueError(f"memory_gb must be above 0, got {given!r}")
        budget = 0.7 * available_memory() if given is None else given * 2**30
        one = gram_bytes(features, dtype)
        fixed = 3 * CHUNK_BYTES + 6 * features * out * 8
        # Besides the sums of the parts, solving needs those of all rows and a factor.
        choices: list[tuple[int, dict[str, Any]]] = [(0, {"folds": 1})]
        if wanted:
            choices.insert(0, (2, {"folds": FOLDS, "held_out": True}))
            if features <= FOLDED_FEATURES:
                choices.insert(0, (FOLDS, {"folds": FOLDS}))
        for parts, options in choices:
            needed = (parts + 2) * one + fixed
            if needed <= budget:
                return options
        raise MemoryError(
            f"sums of {features:,} features need {needed / 2**30:.2g} GB, but the budget is "
            f"{budget / 2**30:.2g} GB; use fewer features, raise memory_gb, or fit all rows at "
            "once with solver='matrix-free'"
        )

    def explain(self, X: Any) -> Explanation:
        """Return what each feature contributes: its scaled value times its weight.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Samples.

        Returns
        -------
        Explanation
            Contributions of shape (n_samples, n_outputs, n_features) that add up with the constant
            to ``decision_function`` or ``predict``. Two classes have one output.
        """
        fitted, solution = self._fitted, self.solution_
        z = fitted.front(self._checked(X))
        share = (z[:, None, :] * solution.weight.t()).numpy() * fitted.scale
        constant = np.broadcast_to(self.intercept_, share.shape[:2])
        return Explanation(share, constant.copy())

    def _readout(self, x: Tensor, weight: Tensor, intercept: Tensor | None) -> Tensor:
        outputs = x @ weight
        return outputs if intercept is None else outputs + intercept.to(outputs)
