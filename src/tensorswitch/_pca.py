"""Principal components."""

from __future__ import annotations

import numpy as np

from tensorswitch._checks import check_positive


def principal_components(x: np.ndarray, count: int) -> np.ndarray:
    """Return the leading eigenvectors of ``xᵀx``, of shape (features, count), in float64 inside.

    Rows must be centred already. scikit-learn's ``PCA(svd_solver="covariance_eigh")`` does the same
    after centring them itself, which would be wrong for rows scaled by the roots of their weights.
    """
    check_positive(components=count)
    if count > min(x.shape):
        raise ValueError(
            f"components must be at most {min(x.shape)} for {x.shape[0]} rows of "
            f"{x.shape[1]} features, got {count}"
        )
    if len(x) < x.shape[1]:  # the matrix of the rows is smaller and has the same eigenvalues
        wide = x.astype(np.float64)
        _, rows = np.linalg.eigh(wide @ wide.T)
        # Where eigenvalues are zero, orthogonalisation completes the basis.
        vectors, triangle = np.linalg.qr(wide.T @ rows[:, ::-1][:, :count])
        vectors = vectors * np.where(np.diagonal(triangle) < 0, -1, 1)
        return np.ascontiguousarray(vectors.astype(x.dtype))
    _, vectors = np.linalg.eigh((x.T @ x).astype(np.float64))
    return np.ascontiguousarray(vectors[:, ::-1][:, :count].astype(x.dtype))
