"""Ridge regression on more features than a Gram matrix has room for.

z = stored · 2^exponent        in half precision, with an exponent for each column
"""

import os
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import numpy as np
import torch
from torch import Tensor

from tensorswitch._checks import check_positive, check_shape
from tensorswitch._memory import available_memory
from tensorswitch.linear._columns import Columns
from tensorswitch.linear._matrix_free import Options, matrix_free
from tensorswitch.linear._penalty import Alpha
from tensorswitch.linear._problem import Problem, Solution, check_finite, check_sample_weight
from tensorswitch.linear._representation import RowsOf
from tensorswitch.linear._rows import row_hashes

# The largest value of a column is stored as about 2^7: half precision keeps 11 bits down to 2^-14,
# and a later one that is 256 times as large still fits, since it ends at 65,504.
TOP, END = 7, 15
REACH = 110  # of exponents, whose powers are numbers in single precision
UNKNOWN = -REACH - TOP - 1  # of columns that are zero so far


class StoredRows:
    """Keep rows of explicit features, and solve by conjugate gradients without a Gram matrix.

        (Σ s z zᵀ + λI) W = Σ s z tᵀ

    This needs ``rows · features`` numbers in half precision, in memory if they fit and else in a
    temporary file, where :class:`Sums` need ``features² / 2``. Each column is scaled by a power of
    two before it is rounded, so that 11 bits are kept at any scale. It is for more than some 30,000
    features; below, the sums are faster, and their rows can be merged and removed. Each iteration
    reads all rows once. The preconditioner is that of :func:`solve_matrix_free`.

    Parameters
    ----------
    rows, features, out_features : int
        Number of rows to come, of features, and of columns of the targets.
    memory : float, optional
        Bytes that the rows may take before a file is used, and as many for the preconditioner. By
        default half and a quarter of what is available.
    folder : str or Path, optional
        Where to put the file. By default the folder for temporary files.

    Examples
    --------
    >>> import torch
    >>> from tensorswitch.linear import StoredRows
    >>> z = torch.randn(300, 500, generator=torch.Generator().manual_seed(0))
    >>> rows = StoredRows(300, 500, 1)
    >>> for chunk in z.split(100):
    ...     rows = rows.append(chunk, chunk[:, :1] + 3)
    >>> solution, _ = rows.solve("0.01 mean", fit_intercept=True)
    >>> outputs = z @ solution.weight + solution.intercept.float()
    >>> torch.allclose(outputs, z[:, :1] + 3, atol=0.1)
    True
    """

    def __init__(
        self,
        rows: int,
        features: int,
        out_features: int,
        *,
        memory: float | None = None,
        folder: str | Path | None = None,
    ) -> None:
        check_positive(rows=rows, features=features, out_features=out_features)
        budget = available_memory() / 2 if memory is None else memory
        self._memory, self.in_memory = memory, 2 * rows * features <= budget
        if self.in_memory:
            self._z = torch.empty(rows, features, dtype=torch.float16, device="cpu")
        else:
            self._z = _file_of(rows, features, folder)
        self._exponents = torch.full((features,), UNKNOWN, dtype=torch.int32, device="cpu")
        self._targets = torch.empty(rows, out_features, device="cpu")
        self._weight = torch.ones(rows, device="cpu")
        self._hashes = torch.zeros(rows, dtype=torch.int64, device="cpu")
        self._filled = 0

    def __len__(self) -> int:
        return self._filled

    @torch.no_grad()
    def append(
        self,
        z: Tensor,
        targets: Tensor,
        sample_weight: Tensor | None = None,
        hashes: Tensor | None = None,
    ) -> Self:
        """Add rows and return the same object.

        Parameters
        ----------
        z, targets : Tensor of shape (rows, features) and (rows, out_features)
            Their features and targets.
        sample_weight : Tensor of shape (rows,), optional
            Their weights, 1 by default.
        hashes : Tensor of int64 of shape (rows,), optional
            Rows of equal hashes are left out together when λ is chosen. By default hashes of the
            features; see :func:`fold_of_rows`.

        Raises
        ------
        ValueError
            If there are more rows than announced, features or targets are not finite in single
            precision, or weights are negative or not finite. No rows are added then.
        """
        check_shape("z", z, (None, self._z.shape[1]), "(rows, features)")
        check_shape("targets", targets, (len(z), self._targets.shape[1]), "(rows, out_features)")
        if hashes is not None:
            check_shape("hashes", hashes, (len(z),), "(rows,)")
        if sample_weight is not None:
            sample_weight = check_sample_weight(sample_weight, self._weight.new_empty(len(z)))
            check_finite("sample_weight", sample_weight)
        start, end = self._filled, self._filled + len(z)
        if end > len(self._z):
            raise ValueError(f"there is room for {len(self._z):,} rows, but {end:,} were given")
        z, targets = z.to(self._targets), targets.to(self._targets)  # large numbers become infinite
        check_finite("targets", targets)
        if len(z):
            self._make_room(z)
            self._z[start:end] = z * torch.exp2(-self._exponents)
        self._targets[start:end] = targets
        if sample_weight is not None:
            self._weight[start:end] = sample_weight
        self._hashes[start:end] = row_hashes(z) if hashes is None else hashes
        self._filled = end
        return self

    def _make_room(self, z: Tensor) -> None:
        """Choose exponents that suit new rows as well, or raise if these are not finite."""
        largest = torch.linalg.vector_norm(z, torch.inf, dim=0)
        check_finite("z", largest)
        wanted = torch.frexp(largest).exponent.clamp(-REACH, REACH) - TOP
        unknown = self._exponents == UNKNOWN
        narrow = torch.where(unknown, largest > 0, wanted > self._exponents + END - TOP)
        for column in (narrow & ~unknown).nonzero().flatten().tolist():
            change = int(self._exponents[column] - wanted[column])
            self._z[: self._filled, column] *= 2.0**change
        self._exponents = torch.where(narrow, wanted, self._exponents)

    @torch.no_grad()
    def solve(
        self,
        alpha: Alpha = "mean",
        *,
        fit_intercept: bool = False,
        tol: float = 1e-3,
        max_iter: int = 500,
        watch: Callable[[str], None] | None = None,
        left_out: bool = False,
    ) -> tuple[Solution, Tensor | None]:
        """Return the readout.

        Parameters
        ----------
        alpha, fit_intercept, tol, max_iter, watch : as for :func:`solve_matrix_free`
            The penalty λ, or several of which the one of least error on rows left out is taken.
        left_out : bool, default=False
            Whether outputs for rows left out are wanted, even for a single λ.

        Returns
        -------
        solution : Solution
            With ``weight`` of shape (features, out_features).
        left_out : Tensor of shape (rows, out_features) or None
            Outputs for rows of readouts that have not seen them, NaN where they are not known.
        """
        filled = slice(self._filled)
        weight = self._weight[filled]
        problem = Problem(
            Columns(self._z.shape[1]),
            _HalfRows(self._z[filled], scale=torch.exp2(self._exponents.double())),
            self._targets[filled],
            None if bool((weight == 1).all()) else weight,
            self._hashes[filled],
        )
        options = Options(tol, max_iter, fit_intercept, "sampled", watch, self._memory)
        return matrix_free(problem, alpha, options, left_out=left_out)


@dataclass(frozen=True)
class _HalfRows(RowsOf):
    """Rows in half precision, times ``scale``; those that are taken out are single precision."""

    scale: Tensor = None  # type: ignore[assignment]  # of each column, in float64

    def __getitem__(self, index: slice | Tensor) -> RowsOf:
        return RowsOf(self.x[index].float().mul_(self.scale.float()))

    def times(self, factor: Tensor | float) -> RowsOf:
        return _HalfRows(self.x, scale=self.scale * factor)


def _file_of(rows: int, features: int, folder: str | Path | None) -> Tensor:
    """Return an array in a temporary file, which is deleted when it is no longer used."""
    place = Path(tempfile.gettempdir() if folder is None else folder)
    needed, free = 2 * rows * features, shutil.disk_usage(place).free
    if needed > free:
        raise OSError(
            f"{rows:,} rows of {features:,} features take {needed / 2**30:.1f} GB in {place}, "
            f"where {free / 2**30:.1f} GB are free; use fewer features, or set TMPDIR to a folder "
            "with more room"
        )
    with tempfile.TemporaryFile(dir=place) as file:
        if hasattr(os, "posix_fallocate"):  # else a full disk would end the process later
            os.posix_fallocate(file.fileno(), 0, needed)
        else:
            file.truncate(needed)
        array = np.memmap(file, dtype=np.float16, mode="r+", shape=(rows, features))
    return torch.from_numpy(array)
