"""Sufficient statistics of ridge regression on explicit features."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from tensorswitch._checks import check_positive
from tensorswitch.ridge._cholesky import SymmetricPanels, vector_length
from tensorswitch.ridge._fold_sums import Rows
from tensorswitch.ridge._layouts import Panelled
from tensorswitch.ridge._solution import Solution
from tensorswitch.ridge.moments import ROUNDING
from tensorswitch.ridge.penalty import Alpha, log
from tensorswitch.ridge.statistics import RidgeStatistics

__all__ = ["FeatureStatistics", "gram_bytes"]

INEXACT = 1024  # as ROUNDING; below it, errors are a percent or more


class FeatureStatistics(RidgeStatistics):
    """Accumulate the sufficient statistics of ridge regression on features that are given.

        C = Σ s z zᵀ,        S = Σ s z tᵀ

    Features of any kind (embeddings, random kernels, patch features) are the TS representation of
    a single unit that is always open. Only half of the symmetric products is computed and stored,
    in panels small enough for the 32-bit indices of LAPACK. Statistics of different rows can be
    merged, and rows can be removed.

    Parameters
    ----------
    features : int
        Number of features.
    out_features : int
        Number of columns of the targets.
    dtype : {torch.float32, torch.float64}, default=torch.float32
        Data type of the sums. With an intercept they are centred when they are solved, so float32
        needs features and targets that are roughly centred: those whose mean is more than 300 times
        their standard deviation count as constant.
    forgetting : float, default=1.0
        Factor in (0, 1] by which each update multiplies the previous sums.
    folds : int, default=1
        Number of folds of the rows, for the choice of λ.
    held_out : bool, default=False
        Keep two sums instead of one per fold: of the first fold, and of all others.
    device : torch.device or str, optional
        Device of the sums.

    See Also
    --------
    RidgeStatistics : The same for a TS representation, whose copies are never formed.

    Examples
    --------
    >>> import torch
    >>> from tensorswitch.ridge import FeatureStatistics
    >>> z = torch.randn(300, 20, generator=torch.Generator().manual_seed(0))
    >>> statistics = FeatureStatistics(20, 1, folds=5)
    >>> for chunk in z.split(100):
    ...     statistics = statistics.update(chunk, chunk[:, :1] + 3)
    >>> solution = statistics.solve("cv", fit_intercept=True)
    >>> outputs = z @ solution.weight + solution.intercept.float()
    >>> torch.allclose(outputs, z[:, :1] + 3, atol=0.1)
    True
    """

    def __init__(
        self,
        features: int,
        out_features: int,
        *,
        dtype: torch.dtype = torch.float32,
        forgetting: float = 1.0,
        folds: int = 1,
        held_out: bool = False,
        device: torch.device | str | None = None,
    ) -> None:
        check_positive(features=features)
        always_open = [torch.zeros(1, features, dtype=dtype, device=device)]
        kept: dict[str, Any] = {"forgetting": forgetting, "folds": folds, "held_out": held_out}
        super().__init__(always_open, out_features, dtype=dtype, switch="none", **kept)

    @property
    def _layout(self) -> Panelled:
        return Panelled(self.in_features)

    def _gram_shape(self) -> tuple[int, ...]:
        return (vector_length(self.in_features),)

    def _add_products(
        self, part: int, rows: Rows, goal: Tensor, root: Tensor | None, sign: int
    ) -> None:
        z = rows.x
        if root is not None:
            z, goal = z * root, goal * root
        z, goal = z.to(self.dtype), goal.to(self.dtype)
        SymmetricPanels.of_vector(self.in_features, self._gram[part]).add_products(z, z, sign)
        self._cross[part, 0].addmm_(z.t(), goal, alpha=sign)

    def solve(
        self, alpha: Alpha = "mean", *, fit_intercept: bool = False, selection: str = "cv"
    ) -> Solution:
        """Return the readout; see :meth:`RidgeStatistics.solve`.

        Parameters
        ----------
        alpha : float, str or a sequence of these, default="mean"
            The penalty λ, or several of them.
        fit_intercept : bool, default=False
            Whether to add an intercept that is not penalised.
        selection : {"cv", "gcv"}, default="cv"
            How one of several λ is chosen.

        Returns
        -------
        Solution
            With ``weight`` of shape (features, out_features).
        """
        solution = super().solve(alpha, fit_intercept=fit_intercept, selection=selection)
        if fit_intercept:
            self._warn_of_large_means()
        return solution._replace(weight=solution.weight[0])

    def _warn_of_large_means(self) -> None:
        """Warn of features that lose most of their digits when their sums are centred."""
        whole, sums = self._diagonals().sum(0).double(), self._cross[:, 0, :, -1].sum(0).double()
        part = 1 - sums.square() / (self.rows * whole)  # variance by mean square
        eps = torch.finfo(self.dtype).eps
        # Those below are constant, or cannot be told from it.
        count = int(((part > ROUNDING * eps) & (part < INEXACT * eps)).sum())
        if count:
            log.warning(
                "the means of %d features are so large, compared to their standard deviations, "
                "that sums in %s lose most of their digits; centre the features, or use float64",
                count,
                self.dtype,
            )


def gram_bytes(features: int, dtype: torch.dtype = torch.float32) -> int:
    """Return the size of the Gram matrix of explicit features.

    Parameters
    ----------
    features : int
        Number of features.
    dtype : torch.dtype, default=torch.float32
        Data type of the sums.

    Returns
    -------
    int
        Bytes of the panels of its lower triangle.

    Examples
    --------
    >>> from tensorswitch.ridge import gram_bytes
    >>> round(gram_bytes(16_384) / 2**30, 2)
    0.53
    """
    return vector_length(features) * dtype.itemsize
