"""Ridge regression on more features than a Gram matrix has room for."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from tensorswitch._checks import check_positive, check_shape
from tensorswitch._memory import available_memory
from tensorswitch.ridge._free_system import FreeSystem, Options
from tensorswitch.ridge._processes import Total
from tensorswitch.ridge._solution import Solution
from tensorswitch.ridge.matrix_free import solve_system
from tensorswitch.ridge.penalty import Alpha, penalties
from tensorswitch.ridge.problem import check_finite, check_sample_weight
from tensorswitch.ridge.readout import ReadoutMap

__all__ = ["FeatureRows"]

BLOCK_BYTES = 1 << 24  # of rows in single precision at a time, so that they stay in the cache
LARGEST = 32_768.0  # half precision ends at 65,504


class FeatureRows:
    """Keep rows of explicit features, and solve by conjugate gradients without a Gram matrix.

        (Σ s z zᵀ + λI) W = Σ s z tᵀ

    Where :class:`FeatureStatistics` needs ``features² / 2`` numbers, this needs ``rows · features``
    in half precision, in memory if they fit and else in a temporary file. It is for more than some
    30,000 features, whose Gram matrix takes long or does not fit into memory; below, the sums are
    faster, and their rows can be merged and removed. Each iteration reads all rows once. The
    preconditioner is the Gram matrix of up to 8,192 rows, as in :func:`solve_matrix_free`.

    Parameters
    ----------
    rows : int
        Number of rows to come.
    features : int
        Number of features. They should be of the order of 1: half precision keeps 11 bits.
    out_features : int
        Number of columns of the targets.
    memory : float, optional
        Bytes that the rows may take before a file is used, and as many for the preconditioner. By
        default half and a quarter of what is available.
    folder : str or Path, optional
        Where to put the file. By default the folder for temporary files.

    Examples
    --------
    >>> import torch
    >>> from tensorswitch.ridge import FeatureRows
    >>> z = torch.randn(300, 500, generator=torch.Generator().manual_seed(0))
    >>> rows = FeatureRows(300, 500, 1)
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
    ) -> FeatureRows:
        """Add rows.

        Parameters
        ----------
        z : Tensor of shape (rows, features)
            Their features.
        targets : Tensor of shape (rows, out_features)
            Their targets.
        sample_weight : Tensor of shape (rows,), optional
            Their weights, 1 by default.
        hashes : Tensor of int64 of shape (rows,), optional
            Hashes from :func:`tensorswitch.ridge.rows.row_hashes`; rows of equal hashes are left
            out together when λ is chosen. By default each row by itself.

        Returns
        -------
        FeatureRows
            The same object.

        Raises
        ------
        ValueError
            If there are more rows than announced, features or targets are not finite or too large,
            or weights are negative or not finite. No rows are added then.
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
        if len(z) and not float(z.abs().max()) <= LARGEST:
            raise ValueError(
                f"features must be finite and at most {LARGEST:,.0f} in size; standardise them"
            )
        targets = targets.to(self._targets)  # large numbers may become infinite
        check_finite("targets", targets)
        self._z[start:end] = z.to(torch.float16)
        self._targets[start:end] = targets
        if sample_weight is not None:
            self._weight[start:end] = sample_weight
        places = torch.arange(start, end, device="cpu")
        self._hashes[start:end] = places if hashes is None else hashes
        self._filled = end
        return self

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
        alpha : float, str or a sequence of these, default="mean"
            The penalty λ, or several of which the one of least error on rows left out is taken.
        fit_intercept : bool, default=False
            Whether to add an intercept that is not penalised.
        tol : float, default=1e-3
            Stop when the norm of the residual relative to ``Zᵀ T`` is at most ``tol``.
        max_iter : int, default=500
            Maximum number of iterations.
        watch : callable, optional
            Called with a note on the residual after each iteration.
        left_out : bool, default=False
            Whether outputs for rows left out are wanted, even for a single λ.

        Returns
        -------
        solution : Solution
            With ``weight`` of shape (features, out_features).
        left_out : Tensor of shape (rows, out_features) or None
            Outputs for rows of readouts that have not seen them, NaN where they are not known.

        Raises
        ------
        ValueError
            If λ is to be chosen by generalised cross-validation: degrees of freedom that are
            estimated are not good enough where there are as many features as rows.
        """
        if penalties(alpha, 1.0).selection == "gcv":
            raise ValueError("conjugate gradients choose alpha by cross-validation; use 'cv'")
        rows = slice(self._filled)
        weight = self._weight[rows]
        z = _HalfRows(self._z[rows], None if bool((weight == 1).all()) else weight)
        options = Options(
            tol, max_iter, fit_intercept, "cv", "sampled", watch, sample_bytes=self._memory
        )
        hashes = self._hashes[rows]
        system = FreeSystem(z, self._targets[rows], hashes, alpha, options, Total())
        solution, outputs = solve_system(system, left_out=left_out)
        return solution._replace(weight=solution.weight[0]), outputs


class _HalfRows(ReadoutMap):
    """``Z`` times ``2^exponent``, for rows in half precision; weights are (1, features, 1, out)."""

    independent = False

    def __init__(self, z: Tensor, sample_weight: Tensor | None, exponent: int = 0) -> None:
        self.stored, self.sample_weight, self.exponent = z, sample_weight, exponent
        self._last: tuple[int, Tensor] | None = None

    @property
    def like(self) -> Tensor:
        return torch.empty(0, device="cpu")

    @property
    def sizes(self) -> list[int]:
        return [self.stored.shape[1], 1]

    def mean_diagonal(self) -> float:
        total = 0.0
        for part in self._parts(1):
            energy = self._block(part).square().sum(1).double()
            s = self.sample_weight
            total += float(energy.sum() if s is None else s[part].double() @ energy)
        return total / self.stored.shape[1] * 4.0**self.exponent

    def scaled(self, exponent: int, sample_weight: Tensor | None) -> _HalfRows:
        return _HalfRows(self.stored, sample_weight, self.exponent + exponent)

    def rows(self, index: Tensor) -> list[Tensor]:
        x = self.stored[index].float() * 2.0**self.exponent
        return [x, torch.ones(len(index), 1, dtype=torch.bool, device="cpu")]

    def _block(self, part: slice) -> Tensor:
        """Return rows in single precision; the last ones are kept for the adjoint."""
        if self._last is None or self._last[0] != part.start:
            self._last = part.start, self.stored[part].float()
        return self._last[1]

    def _forward(self, part: slice, weight: Tensor) -> Tensor:
        return (self._block(part) @ weight[0]).mul_(2.0**self.exponent)

    def _sum(self, out: int, errors: Callable[[slice], Tensor]) -> Tensor:
        result = torch.zeros(self.stored.shape[1], out, device="cpu")
        for part in self._parts(out):
            r = errors(part)
            if self.sample_weight is not None:
                r = r * self.sample_weight[part, None]
            result.addmm_(self._block(part).t(), r)
        self._last = None
        return result.mul_(2.0**self.exponent).view(1, -1, 1, out)

    def _parts(self, out: int) -> list[slice]:
        step = max(64, BLOCK_BYTES // (4 * self.stored.shape[1]))
        return [slice(s, s + step) for s in range(0, len(self.stored), step)]


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
