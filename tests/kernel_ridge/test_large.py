"""Conjugate gradients on tiles give the direct solution."""

import numpy as np
import pytest
import torch

from tensorswitch.kernel_ridge import Search
from tensorswitch.kernels import KernelTiles, equivalent_kernels

FIXED = {"depths": (2,), "scalings": ("common",), "biases": (1.0,), "column_weights": False}


def problem(rows=900):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(rows, 4))
    y = np.stack([np.abs(x).sum(1), x[:, 0] * x[:, 1]], 1)
    return x, y - y.mean(0), rng.uniform(0.5, 1.5, rows)


@pytest.mark.parametrize("memory", [0.0, 1e9])
@pytest.mark.parametrize("kind", ["ss", "ts", "ntk"])
@pytest.mark.parametrize("weighted", [False, True])
def test_the_direct_solution(kind, weighted, memory):
    x, y, weight = problem()
    options = {**FIXED, "kinds": (kind,), "penalties": (0.05,)}
    given = weight if weighted else None
    direct = Search(**options).fit(x, y, given)
    notes = []
    large = Search(**options, direct_rows=100, memory=memory, watch=notes.append).fit(x, y, given)
    assert sum(note.startswith("iteration") for note in notes) < 20
    np.testing.assert_allclose(large.model.noise, direct.model.noise, rtol=1e-5)
    np.testing.assert_allclose(large.left_out, direct.left_out, rtol=1e-9)
    np.testing.assert_allclose(large.model.variance(x), direct.model.variance(x), rtol=1e-3)
    difference = large.model(x) - direct.model(x)
    assert np.sqrt(np.square(difference).mean()) < 5e-3 * y.std()  # the tolerance of the residual


def test_rows_of_few_columns_converge_in_single_precision():
    x, _, _ = problem(700)
    y = np.sign(x[:, :1] * x[:, 1:2])
    notes = []
    options = {"kinds": ("ss",), "penalties": (3e-3,), "direct_rows": 100, "watch": notes.append}
    Search(**{**FIXED, "depths": (1,), **options}).fit(x[:, :3], y)
    residuals = [float(note.split()[-1]) for note in notes if note.startswith("iteration")]
    assert max(residuals) < 1
    assert residuals[-1] <= 3e-3


def solve_as_one_of_two(rank, folder):
    torch.set_num_threads(1)
    meeting = {"init_method": f"file://{folder}/meeting", "rank": rank, "world_size": 2}
    torch.distributed.init_process_group("gloo", **meeting)
    np.save(f"{folder}/{rank}.npy", predicted())
    torch.distributed.destroy_process_group()


def predicted():
    options = {**FIXED, "kinds": ("ts",), "penalties": (0.05,), "direct_rows": 100}
    x, y, weight = problem()
    return Search(**options).fit(x, y, weight).model(x)


def test_two_ranks_solve_what_one_does(tmp_path):
    torch.multiprocessing.spawn(solve_as_one_of_two, (str(tmp_path),), nprocs=2)
    alone = predicted()
    for rank in (0, 1):
        np.testing.assert_allclose(np.load(tmp_path / f"{rank}.npy"), alone, rtol=1e-4, atol=1e-4)


def test_parts_of_a_product_add_up():
    z, v = torch.randn(1700, 3, dtype=torch.float64), torch.randn(1700, 2, dtype=torch.float64)
    parts = [KernelTiles(z, part=part, parts=3) @ v for part in range(3)]
    torch.testing.assert_close(sum(parts), KernelTiles(z) @ v)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_kept_tiles_give_the_same_product(dtype):
    z = torch.randn(1700, 3, dtype=dtype)
    kept = KernelTiles(z, "ss", 2, keep=True)
    for seed in range(3):  # the first product fills the tiles
        v = torch.randn(1700, 2, dtype=dtype, generator=torch.Generator().manual_seed(seed))
        assert torch.equal(kept @ v, KernelTiles(z, "ss", 2) @ v)


def test_a_product_by_tiles_is_the_product_with_the_matrix():
    z, v = torch.randn(1700, 3, dtype=torch.float64), torch.randn(1700, 2, dtype=torch.float64)
    for kind, depth in (("ss", 1), ("ts", 3), ("ntk", 2), ("ts", 0)):
        kernel = equivalent_kernels(z, kinds=[kind], depths=[depth])[kind, depth]
        torch.testing.assert_close(KernelTiles(z, kind, depth) @ v, kernel @ v)
    with pytest.raises(ValueError, match="X has 1700 rows but V has 3"):
        KernelTiles(z) @ v[:3]
