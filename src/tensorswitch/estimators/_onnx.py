"""Fitted estimators as torch modules and ONNX files."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn

from tensorswitch.nn import TensorSwitching, to_onnx

FAR = 1e4  # spreads of the targets from zero, beyond which float32 has fewer than four digits


class Steps(nn.Module):
    """Scaling, principal components and a constant input: the steps before a network.

    ``((x − centre) / spread − mean) B``, each of which may be missing, computed in float64 as in
    the estimators, and then a column with a constant.
    """

    centre: Tensor | None
    spread: Tensor | None
    mean: Tensor | None
    basis: Tensor | None

    def __init__(
        self,
        centre: Any = None,
        spread: Any = None,
        mean: Any = None,
        basis: Any = None,
        constant: float = 0.0,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        super().__init__()
        self.constant, self.dtype = float(constant), dtype
        arrays = {"centre": centre, "spread": spread, "mean": mean, "basis": basis}
        for name, array in arrays.items():
            held = None if array is None else _as_tensor(array, torch.float64)
            self.register_buffer(name, held)

    def forward(self, x: Tensor) -> Tensor:
        """Return the inputs of the network."""
        if self.centre is not None or self.basis is not None:
            x = x.double()
        if self.centre is not None and self.spread is not None:
            x = (x - self.centre) / self.spread
        if self.basis is not None and self.mean is not None:
            x = (x - self.mean) @ self.basis
        x = x.to(self.dtype)
        if not self.constant:
            return x
        return nn.functional.pad(x, (0, 1), value=self.constant)


def ridge_network(front: Any, weight: Tensor, intercept: Tensor | None) -> nn.Sequential:
    """Return the steps of a fitted ridge regression and its readout as one module."""
    factor, spread = front.scaling.factor, None
    if factor is not None:  # a factor of zero removes a column
        spread = np.where(factor == 0, np.inf, 1 / np.where(factor == 0, 1, factor))
    dtype = front.gate_weights[0].dtype
    options: dict[str, Any] = {"dtype": dtype, "device": "cpu"}
    *gates, n_in, outputs = weight.shape
    if gates:
        constant = 1.0 if front.intercept else 0.0
        steps = Steps(front.scaling.centre, spread, front.mean, front.basis, constant, dtype)
        readout: Any = TensorSwitching(n_in, gates[::-1], outputs, switch=front.switch, **options)
    else:  # features that are given
        steps = Steps(front.scaling.centre, spread, dtype=dtype)
        readout = nn.Linear(n_in, outputs, **options)
    with torch.no_grad():
        if gates:
            for parameter, given in zip(readout.gate_weights, front.gate_weights, strict=True):
                parameter.copy_(given)
        readout.weight.copy_(weight if gates else weight.t())
        readout.bias.zero_()
        if intercept is not None:
            readout.bias.copy_(intercept)
    return nn.Sequential(steps, readout)


def _as_tensor(array: Any, dtype: torch.dtype) -> Tensor:
    return torch.tensor(np.asarray(array), dtype=dtype, device="cpu")


class OnnxMixin:
    """Give a fitted estimator the methods ``to_torch`` and ``to_onnx``."""

    def to_torch(self) -> nn.Module:
        """Return the fitted model as a torch module from features to outputs.

        Returns
        -------
        torch.nn.Module
            For classifiers the outputs whose largest decides the class (logits of networks, the
            decision function of ridge regression, with a single output for two classes); for
            regressors the predictions, as columns. They are in float64 where float32 would lose
            them, as targets are far from zero compared with their spread (Unix times).
        """
        model: Any = self
        check_is_fitted(model)
        if hasattr(type(model), "network_"):
            scale, targets = (getattr(model, n, None) for n in ("_scale", "_target_scale"))
            steps = Steps(
                getattr(scale, "centre", None),
                getattr(scale, "spread", None),
                constant=getattr(scale, "constant", 0.0),
            )
            network = [steps, copy.deepcopy(model.network_)]
            if targets is not None and targets.centre is not None:
                network.append(_Unscaled(targets.centre, targets.spread))
            return nn.Sequential(*network).cpu().eval()
        fitted, solution = model._fitted, model.solution_
        found = ridge_network(fitted.front, solution.weight, solution.intercept)
        if fitted.shift.any() or fitted.scale != 1:
            found.append(_Unscaled(fitted.shift, fitted.scale))
        return found.eval()

    def to_onnx(self, path: str | Path) -> None:
        """Write the fitted model as an ONNX file, from features to the outputs of ``to_torch``.

        The input ``x`` has the shape (rows, n_features), or (images, channels, height, width) for
        images, in float32, or in float64 if a ridge regression was fitted with it; the output ``y``
        has the shape (rows, outputs).

        Parameters
        ----------
        path : str or Path
            File to write.

        Raises
        ------
        ImportError
            If the packages of the extra ``onnx`` are missing.
        """
        network = self.to_torch()
        dtype = next(p.dtype for p in network.parameters())
        to_onnx(network, path, torch.zeros(2, *self._input_shape(), dtype=dtype, device="cpu"))

    def _input_shape(self: Any) -> tuple[int, ...]:
        """Return the shape of one input of :meth:`to_torch`."""
        return (self.n_features_in_,)


class _Unscaled(nn.Module):
    """``z · spread + centre``: targets in their own units, in float64 if float32 is too coarse."""

    centre: Tensor
    spread: Tensor

    def __init__(self, centre: Any, spread: Any) -> None:
        super().__init__()
        self.register_buffer("centre", _as_tensor(centre, torch.float64))
        self.register_buffer("spread", _as_tensor(spread, torch.float64))
        self.is_far = bool((self.centre.abs() > FAR * self.spread).any())

    def forward(self, z: Tensor) -> Tensor:
        """Return predictions."""
        result = z.double() * self.spread + self.centre
        return result if self.is_far else result.to(z.dtype)
