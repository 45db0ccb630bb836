import pytest
import torch
from torch.testing import assert_close

from tensorswitch.linear._cholesky import SingularError, SymmetricPanels


def symmetric(order, dtype=torch.float64):
    z = torch.randn(3 * order + 3, order, dtype=torch.float64)
    return (z.T @ z).to(dtype)


def in_panels(matrix, panel=4, multiple=1):
    return SymmetricPanels.from_rows(len(matrix), lambda a, b: matrix[a:b], matrix, multiple, panel)


@pytest.mark.parametrize("multiple", [1, 3])
@pytest.mark.parametrize("order", [1, 2, 4, 5, 11])
def test_the_panels_are_the_lower_triangle(order, multiple):
    matrix = symmetric(order)
    panels = in_panels(matrix, multiple=multiple)
    assert sum(p.numel() for p in panels.panels) <= order * (order + 4) / 2 + 4
    for (start, stop), panel in zip(panels.spans, panels.panels, strict=True):
        assert torch.equal(panel, matrix[start:stop, :stop])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("order", [1, 4, 6, 8, 13])
def test_the_factor_solves_the_shifted_system(order, dtype):
    matrix, right = symmetric(order, dtype), torch.randn(order, 2, dtype=dtype)
    shifted = matrix + 0.5 * torch.eye(order, dtype=dtype)
    factor = in_panels(matrix).cholesky(0.5)
    tolerance = {"rtol": 1e-4, "atol": 1e-5} if dtype == torch.float32 else {}
    assert_close(factor.solve(right), torch.linalg.solve(shifted, right), **tolerance)
    inverse = torch.linalg.inv(shifted.double())
    assert_close(factor.inverse_diagonal(), inverse.diagonal(), rtol=1e-4, atol=1e-5)


def test_solving_does_not_change_the_right_side():
    right = torch.ones(5, 1, dtype=torch.float64)
    in_panels(symmetric(5)).cholesky().solve(right)
    assert torch.equal(right, torch.ones(5, 1, dtype=torch.float64))


@pytest.mark.parametrize("size", [1e-30, 1.0, 1e30])
def test_a_singular_system_raises_at_any_scale(size):
    z = size**0.5 * torch.randn(3, 6)
    with pytest.raises(SingularError, match="use a larger alpha, or float64"):
        in_panels(z.T @ z).cholesky()
    with pytest.raises(SingularError, match=r"use a larger alpha$"):
        in_panels((z.T @ z).double()).cholesky()
