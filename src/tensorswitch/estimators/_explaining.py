"""Exact explanations of estimators: contributions of features that add up to an output."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from tensorswitch._checks import from_numpy
from tensorswitch.estimators._inputs import rows_of_numbers
from tensorswitch.explain import Explanation, explain, nearest_patterns
from tensorswitch.kernel_ridge import KernelModel
from tensorswitch.switches import combine_gates, deep_gates

BLOCK = 1 << 26  # numbers of effective weights or kernel values held at a time


def has_gates(model: Any) -> bool:
    """Raise unless a model has gates."""
    if not model._gated:
        raise AttributeError(f"{type(model).__name__} has no gates: its features are given")
    return True


class NearestRows:
    """``nearest_rows``, for models that know how similar the gates of rows are."""

    _gated = True

    @available_if(has_gates)  # type: ignore[untyped-decorator]
    def nearest_rows(
        self: Any, X: Any, others: Any, count: int = 3
    ) -> tuple[np.ndarray, np.ndarray]:
        """Find the rows whose patterns of gates are most similar.

        A kernel has infinitely many random gates, of which two rows at an angle θ share
        ``1 − θ / π``.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Samples.
        others : array-like of shape (n_others, n_features)
            Rows to compare with, such as the training rows.
        count : int, default=3
            How many to find.

        Returns
        -------
        places : ndarray of int of shape (n_samples, count)
            Indices of the most similar rows, most similar first.
        share : ndarray of shape (n_samples, count)
            Share of the gates that agree.
        """
        found: tuple[np.ndarray, np.ndarray] = self._nearest(X, others, count)
        return found


class ExplainedRidge(NearestRows):
    """``explain`` and ``open_gates`` for ridge regression on a TS representation."""

    def explain(self: Any, X: Any) -> Explanation:
        """Return what each feature contributes: ``W_eff(x)_oi x_i``, exactly.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Samples.

        Returns
        -------
        Explanation
            Contributions of shape (n_samples, n_outputs, n_features), relative to the mean of the
            training samples where there is one, that add up with the constant to
            ``decision_function`` or ``predict``. Two classes have one output.
        """
        X = self._checked(X)
        fitted, solution = self._fitted, self.solution_
        front, weight = fitted.front, solution.weight
        inputs, chains = weight.shape[-2:], weight.flatten(0, -3).flatten(1)
        mean, basis, start = _inputs_at_zero(front, inputs[0], X.shape[1])
        parts, constants = [], []
        step = max(1, BLOCK // (inputs[0] * inputs[1] + len(chains)))
        for begin in range(0, len(X), step):
            x = front(X[begin : begin + step])
            gates = combine_gates(deep_gates(x, front.gate_weights, front.switch)).to(chains)
            effective = (gates @ chains).reshape(len(x), *inputs)
            scaled = front.scaling(X[begin : begin + step])
            rows = from_numpy(scaled if mean is None else scaled - mean)
            slopes = effective[:, : rows.shape[1]]
            if basis is not None:
                slopes = torch.einsum("fi,rio->rfo", basis, effective[:, : basis.shape[1]])
            parts.append(slopes.transpose(1, 2) * rows[:, None])
            constants.append(start @ effective)
        constant = torch.cat(constants)
        if solution.intercept is not None:
            constant = constant + solution.intercept.to(constant)
        share = torch.cat(parts).numpy() * fitted.scale
        return Explanation(share, constant.numpy() * fitted.scale + fitted.shift)

    @available_if(has_gates)  # type: ignore[untyped-decorator]
    def open_gates(self: Any, X: Any) -> np.ndarray:
        """Return which gates are open, the pattern that decides what linear map is applied.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Samples.

        Returns
        -------
        ndarray of bool of shape (n_samples, n_gates)
            The gates of all layers, the first layer first.
        """
        X = self._checked(X)
        front = self._fitted.front
        gates = deep_gates(front(X), front.gate_weights, front.switch)
        return torch.cat(gates, dim=1).numpy()

    def _nearest(self: Any, X: Any, others: Any, count: int) -> tuple[np.ndarray, np.ndarray]:
        return nearest_patterns(self.open_gates(X), self.open_gates(others), count)

    def _checked(self: Any, X: Any) -> np.ndarray:
        check_is_fitted(self, "solver_")
        checked: np.ndarray = rows_of_numbers(
            self, X, dtype=self.gate_weights_[0].dtype, order="C", reset=False
        )
        return checked


def _inputs_at_zero(
    front: Any, n_in: int, features: int
) -> tuple[np.ndarray | None, Tensor | None, Tensor]:
    """Return what is subtracted from scaled rows, their map to the inputs, and inputs at zero.

    The inputs of the gates are ``(scaled(x) − mean) · basis + start``. Rows that are scaled have
    their centre at zero; the mean is subtracted from others.
    """
    mean, basis = (getattr(front, name, None) for name in ("mean", "basis"))
    start = front.gate_weights[0].new_zeros(n_in)
    if mean is not None and basis is not None and front.scaling.centre is not None:
        start[: basis.shape[1]] = -from_numpy(mean @ basis)
        mean = None
    if n_in > (features if basis is None else basis.shape[1]):
        start[-1] = 1  # the constant input
    return mean, None if basis is None else from_numpy(basis), start


class ExplainedKernelRidge(NearestRows):
    """``explain`` for kernel ridge regression."""

    def explain(self: Any, X: Any) -> Explanation:
        """Return what each feature contributes: ``z_i ∂f/∂z_i``, exactly.

        Kernels of ReLU networks are homogeneous of degree one in the scaled row z, so that
        ``f(x) = intercept + Σ_i z_i ∂f/∂z_i`` by Euler's theorem. The share of the constant column
        of z belongs to the constant. As z is zero for a value at the centre of its column,
        contributions say what differs from a row of averages.

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
        check_is_fitted(self, "kernel_")
        X = rows_of_numbers(self, X, dtype=np.float64, order="C", reset=False)
        model: KernelModel = self._model
        step = max(1, BLOCK // len(model.support))
        shares, outputs = [], []
        for begin in range(0, len(X), step):
            z = model.scaled(X[begin : begin + step])
            shares.append(model.contributions(z).double().numpy())
            outputs.append((model.kernel(z) @ model.coef + model.intercept).double())
        total, share = torch.cat(outputs).numpy(), np.concatenate(shares)[:, :, :-1]
        raw = Explanation(share, total - share.sum(2)).grouped(model.columns.sources, X.shape[1])
        found: Explanation = self._as_outputs(raw)
        return found

    def _nearest(self: Any, X: Any, others: Any, count: int) -> tuple[np.ndarray, np.ndarray]:
        check_is_fitted(self, "kernel_")
        rows = (
            rows_of_numbers(self, x, dtype=np.float64, order="C", reset=False) for x in (X, others)
        )
        a, b = (torch.nn.functional.normalize(self._model.scaled(x).double()) for x in rows)
        places, share = [], []
        for part in a.split(max(1, BLOCK // max(1, len(b)))):
            angle = (part @ b.t()).clamp(-1, 1).acos()
            least = angle.topk(min(count, len(b)), largest=False)
            places.append(least.indices.numpy())
            share.append(1 - least.values.numpy() / np.pi)
        return np.concatenate(places), np.concatenate(share)


class ExplainedNetwork:
    """``explain`` for SS and TS networks."""

    def explain(self: Any, X: Any) -> Explanation:
        """Return what each feature contributes: input times gradient, exact once gates are known.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Samples.

        Returns
        -------
        Explanation
            Contributions of shape (n_samples, n_outputs, n_features) that add up with the constant
            to the outputs of the network.
        """
        check_is_fitted(self, "n_iter_")
        X = rows_of_numbers(self, X, dtype=np.float64, order="C", reset=False)
        z = from_numpy(self._scale(X)).to(self._learner.device)
        found = explain(self.network_, z)
        share, constant = found.contributions, found.constant
        if self._scale.constant:  # the last input is constant
            share, constant = share[..., :-1], constant + share[..., -1]
        targets = self._target_scale
        if targets.spread is None or targets.centre is None:
            return Explanation(share, constant)
        return Explanation(share * targets.spread[:, None], targets.inverse(constant))
