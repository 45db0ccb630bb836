"""Principal components of weighted rows: ``Σ s (x − mean)(x − mean)ᵀ B = B Λ``."""

from dataclasses import dataclass
from typing import Self

import numpy as np

from tensorswitch._checks import check_positive
from tensorswitch.persistence import SavedPart, saved_as
from tensorswitch.preprocessing._moments import Rows, _average, dense_blocks
from tensorswitch.preprocessing._scaling import Scaling


@saved_as("principal-components")
@dataclass(frozen=True)
class PrincipalComponents(SavedPart):
    """Project rows on the leading eigenvectors of their covariance.

        z = (x − mean) B

    Parameters
    ----------
    mean, basis : ndarray of shape (features,) and (features, components)
        The mean of the rows, and B, the eigenvectors with the largest eigenvalues, in decreasing
        order.

    Examples
    --------
    >>> import numpy as np
    >>> from tensorswitch.preprocessing import PrincipalComponents
    >>> x = np.array([[1.0, 1.0], [2.0, 2.0], [6.0, 6.0]])
    >>> np.round(np.abs(PrincipalComponents.fit(x, 1)(x)), 2)
    array([[2.83],
           [1.41],
           [4.24]])
    """

    mean: np.ndarray
    basis: np.ndarray

    @classmethod
    def fit(
        cls,
        X: Rows,
        components: int,
        weight: np.ndarray | None = None,
        scaling: Scaling | None = None,
        unit: bool = False,
    ) -> Self:
        """Fit the components to rows.

        scikit-learn's ``PCA`` knows neither weights nor blocks of sparse rows.

        Parameters
        ----------
        X, components : {ndarray, sparse matrix} of shape (rows, features), and int
            The rows, and the number of components.
        weight, scaling : ndarray of shape (rows,), and Scaling, optional
            Sample weights, 1 by default, and what is applied to the rows first.
        unit : bool, default=False
            Whether to divide all components by one number, so that their mean square is 1.
        """
        check_positive(components=components)
        rows, features = X.shape
        if components > min(rows, features):
            raise ValueError(
                f"components must be at most {min(rows, features)} for {rows} rows of {features} "
                f"features, got {components}"
            )
        scaled = Scaling() if scaling is None else scaling
        mean = _average(X, weight, scaled)
        if rows < features:  # the matrix of the rows is smaller and has the same eigenvalues
            values, vectors = _of_few_rows(X, weight, scaled, mean)
        else:
            values, vectors = np.linalg.eigh(_covariance(X, weight, scaled, mean))
        values, basis = values[::-1][:components], vectors[:, ::-1][:, :components]
        if unit:
            total = rows if weight is None else weight.sum()
            square = values.mean() / max(total, np.finfo(float).tiny)
            basis = basis / (np.sqrt(square) if square > 0 else 1.0)
        dtype = X.dtype if X.dtype.kind == "f" else np.float64
        return cls(mean.astype(dtype), np.ascontiguousarray(basis.astype(dtype)))

    def __call__(self, x: np.ndarray) -> np.ndarray:
        """Return the components of rows."""
        return (x - self.mean) @ self.basis


def _covariance(
    X: Rows, weight: np.ndarray | None, scaling: Scaling, mean: np.ndarray
) -> np.ndarray:
    """Return ``Σ s (x − mean)(x − mean)ᵀ``, block by block in float64."""
    moment = np.zeros((X.shape[1], X.shape[1]))
    for part, rows in dense_blocks(X):
        centred = scaling(rows.astype(np.float64)) - mean
        s = np.ones(len(rows)) if weight is None else weight[part].astype(np.float64)
        moment += (centred * s[:, None]).T @ centred
    return moment


def _of_few_rows(
    X: Rows, weight: np.ndarray | None, scaling: Scaling, mean: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return the same eigenvalues and vectors, in ascending order, from products of the rows."""
    rows = np.concatenate([rows for _, rows in dense_blocks(X)]).astype(np.float64)
    centred = scaling(rows) - mean
    if weight is not None:
        centred *= np.sqrt(weight)[:, None]
    values, inner = np.linalg.eigh(centred @ centred.T)
    # Where eigenvalues are zero, orthogonalisation completes the basis.
    vectors, triangle = np.linalg.qr(centred.T @ inner[:, ::-1])
    vectors = vectors * np.where(np.diagonal(triangle) < 0, -1, 1)
    return values, vectors[:, ::-1]
