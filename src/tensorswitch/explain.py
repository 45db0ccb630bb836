"""Exact explanations: what each feature contributes to an output, and which gates are open.

Once its gates are known, a TS or ReLU network is affine in its input,

    y = W_eff(x) x + b(x),        W_eff(x) = Σ_j h_j(x) V_jᵀ        (one layer)

so ``W_eff(x)_oi x_i`` is the share of feature i in output o, and the shares and the constant b add
up to the output: nothing is approximated, and nothing is sampled. A kernel machine whose kernel is
homogeneous of degree one, ``k(a x, y) = a k(x, y)`` for ``a > 0``, as all equivalent kernels of
ReLU networks are, has the same property by Euler's theorem, ``f(x) = ∇f(x) · x``.

The gates divide the inputs into regions, in each of which the network is one linear map.
"""

from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from tensorswitch.nn import evaluating

__all__ = ["Explanation", "explain"]

COMPARED_BYTES = 1 << 27  # of gates at a time
CHECKED = 16  # rows for which a module's second derivatives are computed


@dataclass(frozen=True)
class Explanation:
    """Outputs as sums over features.

    Parameters
    ----------
    contributions : ndarray of shape (rows, outputs, ...)
        Share of each feature, or of each pixel, in each output; the last axes are those of a row.
    constant : ndarray of shape (rows, outputs)
        What does not depend on a feature: biases, intercepts and the means of the training rows.

    Examples
    --------
    >>> import torch
    >>> from tensorswitch import SwitchedLinear
    >>> from tensorswitch.explain import explain
    >>> layer, x = SwitchedLinear(3, 8, 2), torch.randn(4, 3)
    >>> explanation = explain(layer, x)
    >>> bool(abs(explanation.outputs - layer(x).detach().numpy()).max() < 1e-5)
    True
    """

    contributions: np.ndarray
    constant: np.ndarray

    @property
    def outputs(self) -> np.ndarray:
        """The sums of the contributions and the constant, of shape (rows, outputs)."""
        axes = tuple(range(2, self.contributions.ndim))
        return self.contributions.sum(axes) + self.constant

    @property
    def importance(self) -> np.ndarray:
        """The mean absolute contribution of each feature over rows and outputs."""
        return np.abs(self.contributions).mean((0, 1))

    def grouped(self, sources: np.ndarray, groups: int) -> Self:
        """Add up the contributions of features that belong together.

        Parameters
        ----------
        sources, groups : ndarray of int of shape (features,) and int
            Group of each feature, such as the column of one-hot inputs, and number of groups.
        """
        return replace(self, contributions=self.contributions @ np.eye(groups)[sources])


def explain(model: Any, X: Any) -> Explanation:
    """Return what each feature contributes to each output.

    Contributions add up to the outputs: of a module, of ``decision_function`` of a classifier or of
    ``predict`` of a regressor.

    Parameters
    ----------
    model, X : torch.nn.Module or estimator, and array-like or Tensor of shape (rows, ...)
        A network whose layers are affine once gates are known (TS layers, ReLU, max pooling), or a
        fitted estimator with a method ``explain``, and its inputs.

    Raises
    ------
    TypeError
        If the gradient of the model changes between gates: GELU, softmax, layer normalisation.
    """
    if isinstance(model, nn.Module):
        return _explain_module(model, X if isinstance(X, Tensor) else torch.as_tensor(X))
    if not hasattr(model, "explain"):
        raise TypeError(f"{type(model).__name__} has no exact explanation")
    return model.explain(X)


def _explain_module(module: nn.Module, x: Tensor) -> Explanation:
    """Return input times gradient, in evaluation mode, and the rest as the constant."""
    kind = next((p.dtype for p in module.parameters() if p.is_floating_point()), x.dtype)
    x = x.to(kind)
    with evaluating(module), torch.inference_mode(False), torch.enable_grad():
        inputs = x.detach().clone().requires_grad_()
        outputs = module(inputs)
        if outputs.dim() != 2 or len(outputs) != len(x):
            what = f"expected (rows, outputs) for inputs of shape {tuple(x.shape)}"
            raise ValueError(f"outputs of shape {tuple(outputs.shape)} cannot be explained; {what}")
        if len(x):
            _check_affine_between_gates(module, x[:CHECKED])
        shares = [
            torch.autograd.grad(column.sum(), inputs, retain_graph=True)[0] * inputs.detach()
            for column in outputs.unbind(1)
        ]
    contributions = torch.stack(shares, dim=1)
    constant = outputs.detach() - contributions.flatten(2).sum(2)
    return Explanation(contributions.cpu().numpy(), constant.cpu().numpy())


def _check_affine_between_gates(module: nn.Module, x: Tensor) -> None:
    """Raise if second derivatives do not vanish."""
    inputs = x.detach().clone().requires_grad_()
    with sdpa_kernel(SDPBackend.MATH):  # other kernels can be differentiated only once
        outputs = module(inputs)
    # The sum of the outputs of a softmax is constant, and ∇²f(x) x vanishes for any homogeneous
    # function, so outputs and directions have different weights.
    weights = torch.linspace(1, 2, outputs.shape[1], device=outputs.device)
    [slope] = torch.autograd.grad((outputs * weights).sum(), inputs, create_graph=True)
    if not slope.requires_grad:
        return
    generator = torch.Generator().manual_seed(0)
    direction = torch.rand(x.shape, generator=generator, device="cpu").to(x)
    try:
        [change] = torch.autograd.grad((slope * direction).sum(), inputs, allow_unused=True)
    except RuntimeError:  # a custom function without a second derivative cannot be checked
        return
    if change is not None and (change * x).abs().max() > 1e-5 * slope.abs().max():
        raise TypeError(
            f"{type(module).__name__} has no exact explanation: between its gates it is not "
            "affine, as with softmax, GELU or layer normalisation. Networks of linear layers, "
            "ReLU, max pooling and TS layers are; of a classifier, explain the logits."
        )


def nearest_patterns(
    gates: np.ndarray, others: np.ndarray, count: int = 3
) -> tuple[np.ndarray, np.ndarray]:
    """Find the rows with the most similar gates: their indices, and the shares that agree."""
    count = min(count, len(others))
    signs = 2 * others.astype(np.float32) - 1
    places = np.empty((len(gates), count), dtype=np.int64)
    share = np.empty((len(gates), count))
    step = max(1, COMPARED_BYTES // (4 * max(1, len(others))))
    for start in range(0, len(gates), step):
        part = slice(start, start + step)
        # Products of ±1 count the gates that agree, less those that do not.
        agreement = (1 + (2 * gates[part].astype(np.float32) - 1) @ signs.T / gates.shape[1]) / 2
        places[part] = np.argsort(-agreement, axis=1, kind="stable")[:, :count]
        share[part] = np.take_along_axis(agreement, places[part], axis=1)
    return places, share
