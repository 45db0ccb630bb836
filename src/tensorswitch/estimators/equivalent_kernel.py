"""The equivalent kernels as a kernel object for ``GaussianProcessRegressor``, ``KernelRidge`` and their like."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.gaussian_process.kernels import Hyperparameter, Kernel
from sklearn.utils import check_array

from tensorswitch.kernels import check_depth, check_kind, diagonal_factor, equivalent_kernels

__all__ = ["EquivalentKernel"]


class EquivalentKernel(Kernel):  # type: ignore[misc]
    """``scale · k_depth(x, y)`` with k the equivalent kernel of an infinitely wide SS or TS network.

    Parameters
    ----------
    kind : "ts" or "ss"
    depth : layers, fixed
    scale : factor, a hyper-parameter
    scale_bounds : bounds of ``scale`` for the optimiser, or "fixed"

    Examples
    --------
    >>> from sklearn.gaussian_process import GaussianProcessRegressor
    >>> X = np.linspace(-1, 1, 20)[:, None] * [1.0, 0.0] + [0.0, 1.0]  # the second feature is constant: a bias
    >>> model = GaussianProcessRegressor(EquivalentKernel("ts", depth=2), alpha=1e-6).fit(X, np.sin(3 * X[:, 0]))
    >>> bool(model.score(X, np.sin(3 * X[:, 0])) > 0.999)
    True
    """

    def __init__(
        self, kind: str = "ts", depth: int = 1, scale: float = 1.0, scale_bounds: Any = (1e-5, 1e5)
    ) -> None:
        self.kind = kind
        self.depth = depth
        self.scale = scale
        self.scale_bounds = scale_bounds

    @property
    def hyperparameter_scale(self) -> Hyperparameter:
        return Hyperparameter("scale", "numeric", self.scale_bounds)

    def __call__(self, X: Any, Y: Any = None, eval_gradient: bool = False) -> Any:
        """The kernel of all pairs of rows; with ``eval_gradient`` also its gradient by the logarithm of ``scale``."""
        if eval_gradient and Y is not None:
            raise ValueError("the gradient can only be evaluated for k(X, X): leave Y out")
        kind, depth = check_kind(self.kind), check_depth(self.depth)
        X = check_array(X, dtype=[np.float64, np.float32])
        Y = None if Y is None else check_array(Y, dtype=X.dtype)
        K = self.scale * equivalent_kernels(X, Y, depths=[depth], kinds=[kind])[kind, depth]
        if not eval_gradient:
            return K
        return K, K[:, :, np.newaxis] if not self.hyperparameter_scale.fixed else np.empty(
            (*K.shape, 0)
        )

    def diag(self, X: Any) -> Any:
        """``scale · ‖x‖²``, at any depth."""
        X = check_array(X, dtype=[np.float64, np.float32])
        factor = diagonal_factor(check_kind(self.kind), check_depth(self.depth))
        return self.scale * factor * np.einsum("ij,ij->i", X, X)

    def is_stationary(self) -> bool:
        return False

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}(kind={self.kind!r}, depth={self.depth}, scale={self.scale:.3g})"
        )
