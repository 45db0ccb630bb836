"""Columns that are given: ``z = x``, by plain products."""

from typing import Any

from torch import Tensor

from tensorswitch._checks import check_positive
from tensorswitch.linear._cholesky import PackedPanels
from tensorswitch.linear._representation import Representation, RowsOf
from tensorswitch.persistence import saved_as
from tensorswitch.switches import Routes

CACHE_BYTES = 1 << 24  # of rows in single precision at a time, so that they stay in the cache


@saved_as("columns")
class Columns(Representation):
    """Features that others have computed: embeddings, random kernels, patch features.

        z = x,        z · z' = x · x'

    Only half of the symmetric sums is computed and stored, in panels small enough for the 32-bit
    indices of LAPACK.

    Parameters
    ----------
    features : int
        Number of columns.

    Examples
    --------
    >>> from tensorswitch.linear import Columns
    >>> columns = Columns(16_384)
    >>> round(columns.gram_shape[0] * 4 / 2**30, 2)  # gigabytes of sums in float32
    0.53
    """

    packing: PackedPanels

    def __init__(self, features: int) -> None:
        check_positive(features=features)
        self.shape, self.in_features = (int(features),), int(features)
        self.packing = PackedPanels(self.in_features)

    def rows(self, x: Tensor, routes: Tensor | Routes | None = None) -> RowsOf:
        """Return the rows, which have no gates."""
        if routes is not None:
            raise TypeError("columns that are given have no routes")
        return RowsOf(x)

    def accumulate(
        self, gram: Tensor, cross: Tensor, rows: RowsOf, targets: Tensor, sign: int = 1
    ) -> None:
        """Add ``XᵀX`` and ``XᵀT`` in the type of the sums."""
        z, targets = rows.x.to(gram.dtype), targets.to(gram.dtype)
        self.packing.view(gram).add_products(z, sign)
        cross.addmm_(z.t(), targets, alpha=sign)

    def differences(self, other: Representation) -> str:
        """Return how another representation differs, or ""."""
        same = isinstance(other, Columns) and self.shape == other.shape
        return "" if same else f"one has {self.features} columns, the other {other.features}"

    def state(self) -> dict[str, Any]:
        """Return the number of columns."""
        return {"features": self.features}

    def _block_rows(self, out: int, size: int) -> int:
        return CACHE_BYTES // (4 * self.features)

    def _apply(self, rows: RowsOf, weight: Tensor) -> Tensor:
        return rows.x @ weight

    def _adjoint(self, rows: RowsOf, errors: Tensor) -> Tensor:
        return rows.x.t() @ errors
