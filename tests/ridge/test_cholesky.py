import numpy as np
import pytest
import torch
from scipy.linalg import lapack
from torch.testing import assert_close

from tensorswitch.ridge._cholesky import SingularError, packed_rows, solve_full, solve_packed


def symmetric(order):
    z = torch.randn(3 * order + 3, order, dtype=torch.float64)
    matrix = z.T @ z
    return matrix + matrix.T


@pytest.mark.parametrize("step", [1, 2, 3, 100])
@pytest.mark.parametrize("order", [1, 2, 3, 4, 7, 10, 33])
def test_the_packed_format_is_that_of_lapack(order, step):
    matrix = symmetric(order)
    packed = packed_rows(order, lambda a, b: matrix[a:b], step, matrix)
    np.testing.assert_array_equal(packed.flatten().numpy(), lapack.dtrttf(matrix.numpy(), uplo="L")[0])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("order", [1, 6, 7])
def test_both_solve_the_system(order, dtype):
    matrix, right = symmetric(order).to(dtype), torch.randn(order, 2, dtype=dtype)
    shifted = matrix + 0.5 * torch.eye(order, dtype=dtype)
    expected = torch.linalg.solve(shifted, right)
    trace = float(torch.linalg.inv(shifted).trace())
    packed = packed_rows(order, lambda a, b: matrix[a:b], 2, matrix)
    for answer, found in (solve_packed(packed, order, right, 0.5, True), solve_full(shifted, right, True)):
        assert_close(answer, expected, rtol=1e-4, atol=1e-5)
        assert found == pytest.approx(trace, rel=1e-4)


@pytest.mark.parametrize("size", [1e-30, 1.0, 1e30])
def test_a_singular_system_is_refused_at_any_scale(size):
    z = size**0.5 * torch.randn(3, 6)
    matrix = z.T @ z
    with pytest.raises(SingularError, match="use a larger alpha, or float64"):
        solve_packed(packed_rows(6, lambda a, b: matrix[a:b], 6, matrix), 6, torch.ones(6, 1), 0.0)
    with pytest.raises(SingularError, match="singular"):
        solve_full(matrix, torch.ones(6, 1))
