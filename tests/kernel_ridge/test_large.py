import torch

from tensorswitch.kernel_ridge._large import CentredTiles, solve_large


def rows(count=300, seed=0):
    return torch.randn(count, 3, generator=torch.Generator().manual_seed(seed))


def test_a_constant_added_to_the_vector_makes_no_difference():
    z = rows()
    kernel = CentredTiles(z, "ss", 1, None)
    v = torch.randn(len(z), 1, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    torch.testing.assert_close(kernel @ (v + 5), kernel @ v, rtol=1e-4, atol=1e-3)


def test_tiles_in_float32_converge_on_rows_of_few_columns():
    z = rows(700)
    targets = torch.sign(z[:, :1] * z[:, 1:2]).double()
    residuals = []
    solve_large(z, targets, "ss", 1, 3e-3, watch=lambda _, residual: residuals.append(residual))
    assert max(residuals) < 1
    assert residuals[-1] <= 1e-3
    assert len(residuals) < 20
