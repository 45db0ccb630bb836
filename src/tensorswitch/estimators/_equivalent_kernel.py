"""The equivalent kernels as a kernel object of scikit-learn.

It can be used with ``GaussianProcessRegressor``, ``KernelRidge`` and other kernel estimators.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from sklearn.gaussian_process.kernels import Hyperparameter, Kernel
from sklearn.utils import check_array

from tensorswitch.kernels import check_depth, check_kind, diagonal_factor, equivalent_kernels


@dataclass(eq=False, repr=False)
class EquivalentKernel(Kernel):  # type: ignore[misc]
    """Equivalent kernel of an infinitely wide SS or TS network, ``scale · k_depth(x, y)``.

    Parameters
    ----------
    kind, depth : {"ts", "ss", "ntk"}, default="ts", and int, default=1
        The kernel and its layers, as in :class:`TSKernelSVC`. They are not optimised.
    scale, scale_bounds : float, default=1.0, and pair of float or "fixed", default=(1e-5, 1e5)
        Factor of the kernel, and its bounds for the optimiser, from which "fixed" excludes it.

    Examples
    --------
    The constant second feature acts as a bias.

    >>> import numpy as np
    >>> from sklearn.gaussian_process import GaussianProcessRegressor
    >>> from tensorswitch.estimators import EquivalentKernel
    >>> X = np.stack([np.linspace(-1, 1, 20), np.ones(20)], axis=1)
    >>> y = np.sin(3 * X[:, 0])
    >>> model = GaussianProcessRegressor(EquivalentKernel("ts", depth=2), alpha=1e-6).fit(X, y)
    >>> bool(model.score(X, y) > 0.999)
    True
    """

    kind: str = "ts"
    depth: int = 1
    scale: float = 1.0
    scale_bounds: tuple[float, float] | str = (1e-5, 1e5)

    @property
    def hyperparameter_scale(self) -> Hyperparameter:
        """The hyperparameter ``scale`` with its bounds."""
        return Hyperparameter("scale", "numeric", self.scale_bounds)

    def __call__(
        self, X: ArrayLike, Y: ArrayLike | None = None, eval_gradient: bool = False
    ) -> np.ndarray | tuple[np.ndarray, np.ndarray]:
        """Return the kernel matrix and, on request, its gradient in the logarithm of ``scale``.

        The gradient has the shape (n_samples_X, n_samples_X, 1), or 0 if the scale is fixed.
        """
        if eval_gradient and Y is not None:
            raise ValueError("the gradient is only available for k(X, X): omit Y")
        kind, depth = check_kind(self.kind), check_depth(self.depth)
        rows: np.ndarray = check_array(X, dtype=[np.float64, np.float32])
        others = None if Y is None else check_array(Y, dtype=rows.dtype)
        kernels = equivalent_kernels(rows, others, depths=[depth], kinds=[kind])
        K: np.ndarray = self.scale * kernels[kind, depth]
        if not eval_gradient:
            return K
        if self.hyperparameter_scale.fixed:
            return K, np.empty((*K.shape, 0))
        return K, K.copy()[:, :, None]  # Gaussian processes add the noise to K in place

    def diag(self, X: ArrayLike) -> np.ndarray:
        """Return the diagonal of the kernel matrix of ``X``, of shape (n_samples,).

        It is ``scale · ‖x‖²`` for "ts" and "ss", and depth + 1 times as much for "ntk".
        """
        rows: np.ndarray = check_array(X, dtype=[np.float64, np.float32])
        factor = diagonal_factor(check_kind(self.kind), check_depth(self.depth))
        return self.scale * factor * np.einsum("ij,ij->i", rows, rows)

    def is_stationary(self) -> bool:
        """Return False: the kernel depends on more than the difference of two rows."""
        return False

    def __repr__(self) -> str:
        name = type(self).__name__
        return f"{name}(kind={self.kind!r}, depth={self.depth}, scale={self.scale:.3g})"
