import numpy as np
import pytest
import torch
from torch.testing import assert_close

from tensorswitch.kernel_ridge import SCALINGS, Calibration, DistinctRows, Scaling, loo_at
from tensorswitch.kernel_ridge._large import CentredTiles, solve_large
from tensorswitch.kernel_ridge._loo import Centred
from tensorswitch.kernel_ridge._sensitivity import column_sensitivities, kappa
from tensorswitch.kernels import KernelTiles, equivalent_kernels, kernel_product

RNG = np.random.default_rng(0)


def test_identical_rows_become_one():
    x = np.array([[1.0, 2], [3, 4], [1, 2], [5, 6]])
    t = np.array([[1.0], [2], [4], [8]])
    rows = DistinctRows.of(x, t, np.array([1.0, 1, 2, 4]), seed=0)
    assert len(rows) == 3
    np.testing.assert_array_equal(rows.x[rows.place], x)
    np.testing.assert_allclose(rows.targets[rows.place], [[3.0], [2], [3], [8]])
    np.testing.assert_allclose(rows.weight[rows.place] / rows.weight[rows.place[1]], [3, 1, 3, 4])
    assert rows.weight.mean() == pytest.approx(1)
    assert rows.spread.sum() == pytest.approx((1 * 4 + 2 * 1) / 8 * 3)


def test_weights_are_repetitions_and_order_does_not_matter():
    x, t = RNG.integers(0, 3, (40, 2)).astype(float), RNG.normal(size=(40, 2))
    weight = RNG.integers(1, 4, 40)
    one = DistinctRows.of(x, t, weight.astype(float), seed=3)
    shuffled = RNG.permutation(np.repeat(np.arange(40), weight))
    other = DistinctRows.of(x[shuffled], t[shuffled], None, seed=3)
    for name in ("x", "targets", "weight", "spread"):
        np.testing.assert_allclose(getattr(one, name), getattr(other, name))


@pytest.mark.parametrize("name", SCALINGS)
def test_units_of_columns_do_not_matter_where_each_is_scaled(name):
    x = RNG.normal(size=(50, 3))
    x[:, 2] = 7  # constant
    scaling = Scaling.fit(name, x)
    z = scaling(x)
    assert np.square(z).sum(1).mean() == pytest.approx(1)
    np.testing.assert_allclose(z[:, scaling.sources == 2], 0)
    np.testing.assert_allclose(scaling(x + 1)[:, scaling.sources == 2] * (name == "ramps"), 0)
    factor = np.array([1e6, 1e6, 1e6]) if name == "common" else np.array([1e6, 1e-3, 10])
    np.testing.assert_allclose(Scaling.fit(name, x * factor + 5)(x * factor + 5), z, atol=1e-8)
    columns = {"robust": 6, "ramps": 24 + 24 + 1}.get(name, 3)
    assert scaling(x, 3.0).shape == (50, columns + 1)
    np.testing.assert_allclose(scaling(x, 3.0)[:, -1], 3.0)


def test_the_robust_scaling_joins_ranks_which_no_monotone_map_changes():
    x = RNG.normal(size=(200, 1))
    ranks = Scaling.fit("robust", x)(x)[:, 1]
    np.testing.assert_array_equal(np.argsort(ranks), np.argsort(x[:, 0]))
    cubes = Scaling.fit("robust", x**3)(x**3)[:, 1]
    np.testing.assert_allclose(ranks, cubes, atol=0.06)
    beyond = Scaling.fit("robust", x)(np.array([[-1e9], [1e9]]))[:, 1]
    np.testing.assert_allclose(beyond, [ranks.min(), ranks.max()])


def test_weights_of_a_feature_join_those_of_its_columns():
    x = RNG.normal(size=(50, 2))
    weights = np.array([1.0, 0.3, 0.0, 0.4])
    scaling = Scaling.fit("robust", x, weights, 1.0)
    np.testing.assert_allclose(scaling.feature_weights, [1, 0.5])
    np.testing.assert_allclose(Scaling.fit("robust", x).feature_weights, [1, 1])


def test_the_robust_scaling_bends_outliers():
    x = np.append(RNG.normal(size=99), 1e6)[:, None]
    standard, robust = (Scaling.fit(name, x)(x)[:, 0] for name in ("standard", "robust"))
    assert standard[:-1].std() < 1e-3
    assert robust[:-1].std() > 0.3


def test_ramps_count_the_quantiles_between_two_values():
    x = RNG.exponential(size=(500, 1))
    scaling = Scaling.fit("ramps", x)
    z = scaling(np.quantile(x, np.linspace(0, 1, 25))[:, None])
    z = (z - z[0]) / scaling.second_factor
    steps = np.minimum.outer(np.arange(25), np.arange(25)) / 24
    np.testing.assert_allclose(z @ z.T, steps, atol=1e-10)
    beyond = scaling(np.array([[-1e9], [1e9]]))
    np.testing.assert_allclose(beyond, scaling(np.array([x.min(), x.max()])[:, None]))


def test_ramps_of_a_feature_have_the_same_weight():
    x = np.column_stack([RNG.normal(size=100), RNG.integers(0, 2, 100), RNG.normal(size=100)])
    scaling = Scaling.fit("ramps", x)
    assert np.bincount(scaling.sources).tolist() == [24, 1, 24]
    g = scaling.weighed(np.arange(49.0))
    assert [len(np.unique(g[scaling.sources == j])) for j in range(3)] == [1, 1, 1]
    weighted = Scaling.fit("ramps", x, g / g.max(), 1.0)
    expected = [np.sqrt(np.square(np.arange(49.0)[scaling.sources == j]).mean()) for j in range(3)]
    np.testing.assert_allclose(weighted.feature_weights, np.array(expected) / max(expected))


def test_column_weights_multiply_the_scaled_columns():
    x = RNG.normal(size=(50, 3))
    weights = np.array([1.0, 0.5, 0.1])
    plain, weighted = Scaling.fit("standard", x)(x), Scaling.fit("standard", x, weights, 1.0)(x)
    ratio = weighted / (plain * weights)
    np.testing.assert_allclose(ratio, ratio[0, 0])


@pytest.mark.parametrize("kind", ["ss", "ts", "ntk"])
@pytest.mark.parametrize("depth", [1, 2, 4])
def test_the_derivative_of_the_kernel(kind, depth):
    c = torch.linspace(-0.95, 0.95, 41, dtype=torch.float64).requires_grad_()
    value, slope = kappa(c, kind, depth)
    (expected,) = torch.autograd.grad(value.sum(), c)
    assert_close(slope, expected)
    x = torch.tensor([[1.0, 0.0]], dtype=torch.float64)
    y = torch.stack([c.detach(), (1 - c.detach().square()).sqrt()], 1)
    kernel = equivalent_kernels(x, y, kinds=[kind], depths=[depth])[kind, depth]
    assert_close(value.detach(), kernel[0])


@pytest.mark.parametrize("kind", ["ss", "ts", "ntk"])
def test_sensitivities_are_gradients_of_predictions(kind):
    support, z = (torch.randn(n, 4, dtype=torch.float64) for n in (20, 7))
    coef = torch.randn(20, 2, dtype=torch.float64)

    def predict(z):
        return equivalent_kernels(z, support, kinds=[kind], depths=[2])[kind, 2] @ coef

    squares = torch.zeros(3, dtype=torch.float64)
    for j in range(3):
        step = torch.zeros(4, dtype=torch.float64)
        step[j] = 1e-6
        squares[j] = ((predict(z + step) - predict(z - step)) / 2e-6).square().mean()
    found = column_sensitivities(z, support, coef, kind, 2, 3)
    assert_close(found, squares.sqrt(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("kind", ["ss", "ts", "ntk"])
@pytest.mark.parametrize("weighted", [False, True])
def test_conjugate_gradients_give_the_direct_solution(kind, weighted):
    z = torch.randn(300, 5, dtype=torch.float64)
    targets = torch.stack([z.abs().sum(1), z[:, 0] * z[:, 1]], 1)
    weight = torch.rand(300, dtype=torch.float64) + 0.5 if weighted else None
    weight = weight / weight.mean() if weighted else None
    kernel = equivalent_kernels(z, kinds=[kind], depths=[2])[kind, 2]
    direct = loo_at(Centred.of(kernel, weight), targets, 0.05)
    coef, intercept, scale, iterations = solve_large(z, targets, kind, 2, 0.05, weight, tol=1e-10)
    assert scale == pytest.approx(direct.scale)
    assert iterations < 60
    assert_close(coef, direct.coef, rtol=1e-6, atol=1e-8)
    assert_close(intercept, direct.intercept, rtol=1e-6, atol=1e-8)


def rows_for_two():
    generator = torch.Generator().manual_seed(0)
    z = torch.randn(900, 4, dtype=torch.float64, generator=generator)
    return z, torch.stack([z.abs().sum(1), z[:, 0] * z[:, 1]], 1), z[:, 2].abs() + 0.5


def solve_as_one_of_two(rank, folder):
    torch.set_num_threads(1)
    meeting = {"init_method": f"file://{folder}/meeting", "rank": rank, "world_size": 2}
    torch.distributed.init_process_group("gloo", **meeting)
    z, targets, weight = rows_for_two()
    coef, intercept, *_ = solve_large(z, targets, "ts", 2, 0.05, weight / weight.mean())
    torch.save([coef, intercept], f"{folder}/{rank}.pt")
    torch.distributed.destroy_process_group()


def test_two_ranks_solve_what_one_does(tmp_path):
    torch.multiprocessing.spawn(solve_as_one_of_two, (str(tmp_path),), nprocs=2)
    z, targets, weight = rows_for_two()
    alone = solve_large(z, targets, "ts", 2, 0.05, weight / weight.mean())
    for rank in (0, 1):
        found = torch.load(tmp_path / f"{rank}.pt")
        for mine, expected in zip(found, alone, strict=False):
            assert_close(mine, expected, rtol=1e-7, atol=1e-8)


def test_parts_of_a_product_add_up():
    z, v = torch.randn(1700, 3, dtype=torch.float64), torch.randn(1700, 2, dtype=torch.float64)
    parts = [kernel_product(z, v, part=part, parts=3) for part in range(3)]
    assert_close(sum(parts), kernel_product(z, v))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_kept_tiles_give_the_same_product(dtype):
    z = torch.randn(1700, 3, dtype=dtype)
    kept = KernelTiles(z, "ss", 2, keep=True)
    for seed in range(3):  # the first product fills the tiles
        v = torch.randn(1700, 2, dtype=dtype, generator=torch.Generator().manual_seed(seed))
        assert torch.equal(kept @ v, kernel_product(z, v, "ss", 2))
    held = sum(tile.nbytes for _, _, tile in kept._kept)
    assert 0.9 < held / KernelTiles.kept_bytes(1700, dtype) < 1.1


def test_the_solution_does_not_depend_on_the_memory():
    z, y = torch.randn(900, 4), torch.randn(900, 2)
    few, much = (
        solve_large(z, y, "ts", 1, 0.01, memory=memory, sampled=200) for memory in (0, 1e9)
    )
    for a, b in zip(few, much, strict=True):
        assert_close(a, b)


def test_a_product_by_tiles_is_the_product_with_the_matrix():
    z, v = torch.randn(1700, 3, dtype=torch.float64), torch.randn(1700, 2, dtype=torch.float64)
    for kind, depth in (("ss", 1), ("ts", 3), ("ntk", 2), ("ts", 0)):
        kernel = equivalent_kernels(z, kinds=[kind], depths=[depth])[kind, depth]
        assert_close(kernel_product(z, v, kind, depth), kernel @ v)
    with pytest.raises(ValueError, match="X has 1700 rows but V has 3"):
        kernel_product(z, v[:3])


def test_the_sampled_factor_of_all_rows_is_the_kernel():
    z = torch.randn(60, 3, dtype=torch.float64)
    tiles = CentredTiles(z, "ts", 1, None)
    b = tiles.sampled_factor(torch.arange(60))
    v = tiles.project(torch.randn(60, 2, dtype=torch.float64))
    assert_close(b @ (b.t() @ v), tiles @ v, rtol=1e-3, atol=1e-4)


def test_calibration_recovers_probabilities():
    outputs = RNG.normal(size=(4000, 3))
    logits = 2.5 * outputs
    p = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    labels = np.array([RNG.choice(3, p=row) for row in p])
    fitted = Calibration.fit(outputs, labels, np.ones(4000))
    assert np.abs(fitted.probabilities(outputs) - p).mean() < 0.02
    assert fitted.temperature == pytest.approx(2.5, rel=0.15)


def test_classes_without_errors_do_not_ask_for_certainty():
    labels = np.arange(60) % 3
    outputs = np.where(labels[:, None] == np.arange(3), 1.0, -1.0)
    p = Calibration.fit(outputs, labels, np.ones(60)).probabilities(outputs)
    assert (p.argmax(1) == labels).all()
    assert 0.9 < p.max(1).mean() < 0.97  # one more row that is wrong among 20


def test_two_classes_have_one_output():
    outputs = RNG.normal(size=(500, 1))
    labels = (outputs[:, 0] + 0.3 * RNG.normal(size=500) > 0).astype(int)
    fitted = Calibration.fit(outputs, labels, np.ones(500))
    p = fitted.probabilities(outputs)
    assert p.shape == (500, 2)
    np.testing.assert_allclose(p.sum(1), 1)
    assert ((p[:, 1] > 0.5) == (outputs[:, 0] > 0)).mean() > 0.9
