import itertools

import numpy as np
import pytest
import torch
from torch import multiprocessing
from torch.testing import assert_close

from tensorswitch import TensorSwitching, algebra
from tensorswitch.ridge import (
    RidgeStatistics,
    Solution,
    apply_readout,
    mean_diagonal,
    solve_dual,
    solve_matrix_free,
)
from tensorswitch.ridge import statistics as statistics_module
from tensorswitch.ridge._gram import unpack
from tensorswitch.switches import Maxout, combine_gates, deep_gates

DEPTHS = [(5,), (4, 3), (3, 2, 2)]


def problem(gates, rows=60, n_in=4, out=2):
    x = torch.randn(rows, n_in, dtype=torch.float64)
    gate_weights = [
        torch.randn(n, below, dtype=torch.float64)
        for below, n in itertools.pairwise((n_in, *gates))
    ]
    return (
        x,
        torch.randn(rows, out, dtype=torch.float64),
        gate_weights,
        torch.rand(rows, dtype=torch.float64),
    )


def dense(x, targets, gate_weights, weight, alpha):
    """Solve with the full representation."""
    z = algebra.tensor_switching(x, gate_weights)[-1].flatten(1)
    s = torch.ones(len(x), dtype=x.dtype) if weight is None else weight
    gram = z.T @ (s[:, None] * z)
    value = gram.diagonal().mean() if alpha == "mean" else alpha
    solution = torch.linalg.solve(
        gram + value * torch.eye(len(gram), dtype=x.dtype), z.T @ (s[:, None] * targets)
    )
    return solution, float(value)


def streaming(x, targets, gate_weights, alpha="mean", *, sample_weight=None, switch="relu"):
    return (
        RidgeStatistics(gate_weights, targets.shape[1], dtype=torch.float64, switch=switch)
        .update(x, targets, sample_weight)
        .solve(alpha)
    )


def matrix_free(*arguments, **options):
    return solve_matrix_free(*arguments, tol=1e-12, **options)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("alpha", ["mean", 0.3])
@pytest.mark.parametrize("solver", [streaming, matrix_free, solve_dual])
@pytest.mark.parametrize("gates", DEPTHS)
def test_the_three_solvers_agree(gates, solver, alpha, weighted):
    x, targets, gate_weights, weight = problem(gates)
    weight = weight if weighted else None
    solution = solver(x, targets, gate_weights, alpha, sample_weight=weight)
    expected, value = dense(x, targets, gate_weights, weight, alpha)
    assert solution.alpha == pytest.approx(value)
    assert solution.weight.shape == (*gates[::-1], 4, 2)
    assert_close(solution.weight.flatten(0, -2), expected)


@pytest.mark.parametrize("gates", DEPTHS)
def test_the_readout_is_that_of_the_network(gates):
    x = problem(gates)[0]
    network = TensorSwitching(4, gates, 3, bias=False, dtype=torch.float64)
    assert_close(
        apply_readout(x, list(network.gate_weights), network.weight.detach()), network(x).detach()
    )


@pytest.mark.parametrize("rows", [3, 50, 700])
@pytest.mark.parametrize("units", [1, 7, 10])
def test_the_structured_sums_are_those_of_the_representation(rows, units):
    x, targets, gate_weights, weight = problem((units,), rows)
    z = algebra.expand(x, gate_weights[0]).flatten(1)
    statistics = RidgeStatistics(gate_weights, 2, dtype=torch.float64).update(x, targets, weight)
    assert_close(unpack(statistics.gram, units, 4), z.T @ (weight[:, None] * z))
    assert_close(statistics.cross.flatten(0, 1), z.T @ (weight[:, None] * targets))
    assert statistics.mean_diagonal() == pytest.approx(
        mean_diagonal(x, [algebra.gates(x, gate_weights[0]) > 0], weight)
    )


def test_float32_sums_are_good_to_one_in_ten_thousand():
    x, targets, gate_weights, _ = problem((12,), 3000, 8)
    single = RidgeStatistics([w.float() for w in gate_weights], 2)
    double = RidgeStatistics(gate_weights, 2, dtype=torch.float64)
    for part in range(0, 3000, 100):
        single.update(x[part : part + 100].float(), targets[part : part + 100].float())
    double.update(x, targets)
    assert (single.gram - double.gram).abs().max() < 1e-4 * double.gram.abs().max()


def test_order_of_batches_and_merges_do_not_matter():
    x, targets, gate_weights, weight = problem((4, 3))
    whole = streaming(x, targets, gate_weights, sample_weight=weight)
    parts = []
    for rows in torch.randperm(60).split(17):
        parts.append(
            RidgeStatistics(gate_weights, 2, dtype=torch.float64).update(
                x[rows], targets[rows], weight[rows]
            )
        )
    merged = parts[2].merge(parts[0]).merge(parts[3].merge(parts[1]))
    assert merged.rows == pytest.approx(float(weight.sum()))
    assert_close(merged.solve().weight, whole.weight)


def test_forgetting_weighs_old_rows_less():
    x, targets, gate_weights, _ = problem((5,))
    statistics = RidgeStatistics(gate_weights, 2, dtype=torch.float64, forgetting=0.5)
    for rows in torch.arange(60).split(20):
        statistics.update(x[rows], targets[rows])
    weight = torch.tensor([0.25, 0.5, 1.0], dtype=torch.float64).repeat_interleave(20)
    assert_close(
        statistics.solve(0.1).weight,
        streaming(x, targets, gate_weights, 0.1, sample_weight=weight).weight,
    )


def test_a_warm_start_needs_fewer_iterations():
    x, targets, gate_weights, _ = problem((8,), 300, 6)
    cold = solve_matrix_free(x, targets, gate_weights, 1.0, tol=1e-10)
    warm = solve_matrix_free(x, targets, gate_weights, 1.0, tol=1e-10, start=cold.weight)
    near = solve_matrix_free(x, targets, gate_weights, 1.1, tol=1e-10, start=cold.weight)
    assert warm.iterations == 0
    assert near.iterations <= cold.iterations
    assert_close(near.weight, solve_dual(x, targets, gate_weights, 1.1).weight)


def test_stopping_early_is_logged(caplog):
    x, targets, gate_weights, _ = problem((8,), 300, 6)
    assert solve_matrix_free(x, targets, gate_weights, 1e-6, tol=1e-12, max_iter=2).iterations == 2
    assert "stopped after 2 iterations" in caplog.text


def test_matches_the_original(golden):
    data = golden("d_rdge")
    gate_weight = data["W1"].flatten(1)
    rows = data["X"].flatten(1)
    targets = 2 * torch.nn.functional.one_hot(data["y"].long(), 10).float() - 1
    statistics = RidgeStatistics([gate_weight], 10).update(rows, targets)
    assert_golden(unpack(statistics.gram, 5, 6).triu(), data["SII_upper"].triu())
    assert_golden(statistics.cross.flatten(0, 1), data["SIO"])
    for solution in (
        statistics.solve(),
        solve_matrix_free(rows, targets, [gate_weight], tol=1e-7),
        solve_dual(rows, targets, [gate_weight]),
    ):
        assert solution.alpha == pytest.approx(float(data["lam"]), rel=1e-5)
        assert_golden(solution.weight.flatten(0, 1), data["W_Z"])
        assert_golden(apply_readout(rows, [gate_weight], solution.weight), data["scores"])


def assert_golden(actual, expected):
    assert_close(actual, expected.view_as(actual), rtol=0, atol=1e-5 * expected.abs().max().item())


def test_loaded_statistics_can_be_updated(tmp_path):
    x, targets, gate_weights, _ = problem((4, 3))
    statistics = RidgeStatistics(gate_weights, 2, dtype=torch.float64, forgetting=0.9).update(
        x[:30], targets[:30]
    )
    path = tmp_path / "sums.safetensors"
    statistics.save(path)
    assert [p.name for p in tmp_path.iterdir()] == [path.name]
    loaded = RidgeStatistics.load(path)
    assert torch.equal(
        loaded.update(x[30:], targets[30:]).solve().weight,
        statistics.update(x[30:], targets[30:]).solve().weight,
    )
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(ValueError, match=r"sums\.safetensors is damaged or not a safetensors"):
        RidgeStatistics.load(path)
    from safetensors.torch import save_file

    save_file({"a": torch.ones(1)}, path)
    with pytest.raises(ValueError, match=r"does not contain tensorswitch\.RidgeStatistics"):
        RidgeStatistics.load(path)


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (
            {"x": torch.ones(3, 5)},
            ValueError,
            r"x has size 5 on axis 1 \(in_features\), expected 4",
        ),
        (
            {"targets": torch.ones(2, 1)},
            ValueError,
            r"targets has size 2 on axis 0 \(rows\), expected 3",
        ),
        ({"x": torch.full((3, 4), torch.nan)}, ValueError, "x contains NaN or infinity"),
        (
            {"targets": torch.full((3, 1), torch.inf)},
            ValueError,
            "targets contains NaN or infinity",
        ),
        ({"sample_weight": -torch.ones(3)}, ValueError, "sample_weight must not be negative"),
        (
            {"x": torch.ones(3, 4).double()},
            TypeError,
            "x is torch.float64 but gate_weights is torch.float32",
        ),
    ],
)
def test_an_invalid_update_changes_nothing(change, error, message):
    statistics = RidgeStatistics([torch.randn(6, 4)], 1).update(
        torch.randn(20, 4), torch.randn(20, 1)
    )
    before = [total.clone() for total in (statistics.gram, statistics.cross)]
    with pytest.raises(error, match=message):
        statistics.update(**{"x": torch.ones(3, 4), "targets": torch.ones(3, 1), **change})
    assert all(
        torch.equal(a, b) for a, b in zip(before, (statistics.gram, statistics.cross), strict=True)
    )
    assert statistics.rows == 20


def test_an_interrupted_update_is_noticed(monkeypatch):
    statistics = RidgeStatistics([torch.randn(6, 4)], 1).update(
        torch.randn(20, 4), torch.randn(20, 1)
    )

    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(statistics_module, "add_gram", interrupt)
    with pytest.raises(KeyboardInterrupt):
        statistics.update(torch.randn(3, 4), torch.randn(3, 1))
    with pytest.raises(RuntimeError, match="an update was interrupted"):
        statistics.solve()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda s: s.solve(-1.0),
            "alpha must be 'mean', a non-negative number or a list of these, got -1.0",
        ),
        (lambda s: s.solve("best"), "alpha must be 'mean'"),
        (lambda s: s.solve(0.0), "singular to working precision; use a larger alpha"),
        (
            lambda s: RidgeStatistics(s.gate_weights, 1).solve(),
            "nothing to solve: there are no rows",
        ),
        (lambda s: s.merge(RidgeStatistics([torch.ones(6, 4)], 1)), "different gate weights"),
        (lambda s: s.merge(RidgeStatistics(s.gate_weights, 2)), "out_features differ: 1 and 2"),
        (lambda s: RidgeStatistics([torch.ones(6, 4), torch.ones(2, 5)], 1), "expected 6"),
        (lambda s: RidgeStatistics(s.gate_weights, 1, forgetting=0), "forgetting must be in"),
        (lambda s: RidgeStatistics([], 1), "gate_weights must be a non-empty list"),
    ],
)
def test_wrong_arguments_are_named(call, message):
    statistics = RidgeStatistics([torch.randn(6, 4)], 1).update(
        torch.randn(3, 4), torch.randn(3, 1)
    )
    with pytest.raises(ValueError, match=message):
        call(statistics)


def rank_job(rank, address, results):
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo", init_method=address, rank=rank, world_size=2)
    torch.manual_seed(0)
    x, targets, gate_weights, _ = problem((4, 3))
    mine = slice(rank, None, 2)
    exact = (
        RidgeStatistics(gate_weights, 2, dtype=torch.float64)
        .update(x[mine], targets[mine])
        .all_reduce()
        .solve()
    )
    free = solve_matrix_free(x[mine], targets[mine], gate_weights, tol=1e-12, distributed=True)
    results.put((rank, exact.alpha, exact.weight.tolist(), free.alpha, free.weight.tolist()))
    torch.distributed.destroy_process_group()


def test_two_processes_agree_with_one(tmp_path):
    context = multiprocessing.get_context("spawn")
    results = context.SimpleQueue()
    ranks = [
        context.Process(
            target=rank_job, args=(rank, f"file://{tmp_path / 'meeting'}", results), daemon=True
        )
        for rank in range(2)
    ]
    for process in ranks:
        process.start()
    for process in ranks:
        process.join(300)
    assert [process.exitcode for process in ranks] == [0, 0]  # else there would be no answers
    answers = [results.get() for _ in ranks]
    torch.manual_seed(0)
    x, targets, gate_weights, _ = problem((4, 3))
    expected = solve_dual(x, targets, gate_weights)
    for _, exact_alpha, exact, free_alpha, free in answers:
        assert exact_alpha == pytest.approx(expected.alpha)
        assert free_alpha == pytest.approx(expected.alpha)
        assert_close(torch.tensor(exact, dtype=torch.float64), expected.weight)
        assert_close(torch.tensor(free, dtype=torch.float64), expected.weight)


@pytest.mark.parametrize("solver", [streaming, matrix_free, solve_dual])
def test_autocast_and_gradients_do_not_matter(solver):
    x, targets, gate_weights, weight = problem((4, 3))
    expected = solver(x, targets, gate_weights, sample_weight=weight).weight
    with torch.autocast("cpu"):
        found = solver(
            x.clone().requires_grad_(),
            targets,
            gate_weights,
            sample_weight=weight.clone().requires_grad_(),
        ).weight
    assert torch.equal(found, expected)


@pytest.mark.parametrize(
    "alpha", [np.float32(2), np.int64(2), torch.tensor(2.0), [2.0], (2,), np.array([2.0])]
)
def test_a_penalty_of_any_numeric_type(alpha):
    x, targets, gate_weights, _ = problem((5,))
    assert solve_dual(x, targets, gate_weights, alpha).alpha == 2.0


def test_the_dual_solution_is_accurate_in_float32():
    x, targets, gate_weights, _ = problem((3,), 400)
    single = solve_dual(x.float(), targets.float(), [w.float() for w in gate_weights], 1e-4).weight
    assert_close(
        single.double(), solve_dual(x, targets, gate_weights, 1e-4).weight, rtol=1e-4, atol=1e-5
    )


@pytest.mark.parametrize("solver", [streaming, matrix_free, solve_dual])
@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (
            {"gate_weights": []},
            ValueError,
            "gate_weights must be a non-empty list with one matrix per layer",
        ),
        ({"gate_weights": torch.ones(3, 4)}, ValueError, "gate_weights must be a non-empty list"),
        (
            {"gate_weights": [torch.ones(3, 4), torch.ones(2, 4)]},
            ValueError,
            r"gate_weights\[1\] has size 4 on axis 1 \(units below\), expected 3",
        ),
        (
            {"gate_weights": [torch.full((3, 4), torch.nan)]},
            ValueError,
            r"gate_weights\[0\] contains NaN",
        ),
        (
            {"x": torch.ones(0, 4), "targets": torch.ones(0, 2)},
            ValueError,
            "nothing to solve: there are no rows",
        ),
        (
            {"x": 1e25 * torch.ones(5, 4)},
            ValueError,
            "x is so large that sums of its squares overflow torch.float32",
        ),
        (
            {"x": torch.ones(5, 4).to_sparse()},
            TypeError,
            r"x is torch.sparse_coo; convert it with .to_dense\(\)",
        ),
        (
            {"targets": torch.ones(5, 0)},
            ValueError,
            "targets has no columns|out_features must be a positive integer",
        ),
        ({"sample_weight": torch.zeros(5)}, ValueError, "all sample weights are zero"),
        ({"sample_weight": [1.0] * 5}, TypeError, "sample_weight must be a torch tensor, got list"),
        ({"alpha": None}, ValueError, "alpha must be 'mean', a non-negative number"),
    ],
)
def test_every_solver_rejects_the_same_arguments(solver, change, error, message):
    arguments = {
        "x": torch.ones(5, 4),
        "targets": torch.ones(5, 2),
        "gate_weights": [torch.ones(3, 4)],
        "alpha": 1.0,
        **change,
    }
    options = {"sample_weight": arguments.pop("sample_weight", None)}
    run = streaming_single if solver is streaming else solver
    with pytest.raises(error, match=message):
        run(*arguments.values(), **options)


def streaming_single(x, targets, gate_weights, alpha, *, sample_weight):
    return (
        RidgeStatistics(gate_weights, targets.shape[1])
        .update(x, targets, sample_weight)
        .solve(alpha)
    )


def test_conjugate_gradients_on_a_singular_system():
    x = torch.randn(10, 5)
    solution = solve_matrix_free(
        torch.cat([x, x], 1), torch.randn(10, 1), [torch.randn(10, 10)], 0.0, tol=1e-3
    )
    assert solution.weight.isfinite().all()


def test_a_solution_has_iterations_and_residual():
    x, targets, gate_weights, _ = problem((5,))
    solution = solve_matrix_free(x, targets, gate_weights, tol=1e-6)
    assert isinstance(solution, Solution)
    assert 0 < solution.iterations < 100
    assert solution.residual <= 1e-6


@pytest.mark.parametrize(("offset", "alpha"), [(1e6, 1.0), (1e4, 1e-3)])
def test_an_ill_conditioned_kernel_matrix_raises(offset, alpha):
    x, targets, gate_weights, _ = problem((12,), 200, 6)
    with pytest.raises(
        ValueError, match=r"too ill-conditioned for alpha .* centre and scale x|singular"
    ):
        solve_dual(x + offset, targets, gate_weights, alpha)
    assert solve_dual(x, targets, gate_weights, alpha).weight.isfinite().all()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"x": torch.full((20, 4), 1e15), "sample_weight": torch.full((20,), 1e10)},
            "squares with these sample weights overflow",
        ),
        ({"targets": torch.full((20, 1), 1e19)}, "targets is so large"),
        ({"sample_weight": torch.full((20,), 1e30)}, "sample_weight is so large"),
        ({"x": torch.full((20, 4), 1.49e18)}, "added to the previous sums, overflow"),
        ({"x": torch.full((20, 4), 1e-25)}, None),
    ],
)
def test_sums_stay_in_the_range_of_their_type(tmp_path, change, message):
    statistics = RidgeStatistics([torch.ones(3, 4)], 1)
    statistics.update(torch.full((20, 4), 1.55e18), torch.ones(20, 1))
    before = statistics.gram.clone()
    arguments = {"x": torch.ones(20, 4), "targets": torch.ones(20, 1), **change}
    if message is None:  # negligible next to the previous sums, so underflow is harmless
        statistics.update(**arguments)
    else:
        with pytest.raises(ValueError, match=message):
            statistics.update(**arguments)
        assert torch.equal(statistics.gram, before)
    statistics.save(tmp_path / "sums")
    assert torch.equal(RidgeStatistics.load(tmp_path / "sums").gram, statistics.gram)


def test_sums_that_would_underflow_raise():
    statistics = RidgeStatistics([torch.ones(3, 4)], 1)
    with pytest.raises(
        ValueError, match=r"x is so small that its squares.* underflow torch.float32"
    ):
        statistics.update(torch.full((20, 4), 1e-25), torch.ones(20, 1))
    assert statistics.rows == 0
    RidgeStatistics([torch.ones(3, 4).double()], 1, dtype=torch.float64).update(
        torch.full((20, 4), 1e-25).double(), torch.ones(20, 1).double()
    )


def test_merged_sums_stay_in_the_range_of_their_type():
    parts = [RidgeStatistics([torch.ones(3, 4)], 1) for _ in range(2)]
    for part in parts:
        part.update(torch.full((20, 4), 1.55e18), torch.ones(20, 1))
    before = parts[0].gram.clone()
    with pytest.raises(ValueError, match="overflow"):
        parts[0].merge(parts[1])
    assert torch.equal(parts[0].gram, before)
    assert parts[0].rows == 20


@pytest.mark.parametrize("solver", [matrix_free, solve_dual])
@pytest.mark.parametrize(
    ("of_x", "of_weights"), [(1e-25, 1.0), (1.0, 1e-30), (1e12, 1e-20), (1e15, 1.0)]
)
def test_the_scale_of_rows_and_weights_does_not_matter(solver, of_x, of_weights):
    x, targets, gate_weights, weight = (
        [w.float() for w in part] if isinstance(part, list) else part.float()
        for part in problem((5, 3))
    )
    expected = solver(x, targets, gate_weights, sample_weight=weight)
    found = solver(of_x * x, targets, gate_weights, sample_weight=of_weights * weight)
    assert found.alpha == pytest.approx(expected.alpha * of_x**2 * of_weights, rel=1e-4)
    assert_close(found.weight * of_x, expected.weight, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("solver", [streaming, matrix_free, solve_dual])
def test_arguments_are_not_modified(solver):
    x, targets, gate_weights, weight = problem((5,))
    copies = [x.clone(), targets.clone(), weight.clone(), gate_weights[0].clone()]
    solver(x, targets, gate_weights, [0.1, 1.0], sample_weight=weight)
    for given, copied in zip([x, targets, weight, gate_weights[0]], copies, strict=True):
        assert torch.equal(given, copied)


@pytest.mark.parametrize("solver", [streaming, matrix_free, solve_dual])
@pytest.mark.parametrize("gates", [(6,), (6, 4)])
def test_maxout_gates_are_those_of_the_network(solver, gates, tmp_path):
    network = TensorSwitching(4, gates, 2, bias=False, switch=Maxout(2), dtype=torch.float64)
    x, targets = torch.randn(60, 4, dtype=torch.float64), torch.randn(60, 2, dtype=torch.float64)
    weights = [w.detach() for w in network.gate_weights]
    z = combine_gates(deep_gates(x, weights, Maxout(2)))[:, :, None] * x[:, None, :]
    z = z.flatten(1)
    expected = torch.linalg.solve(z.T @ z + 0.3 * torch.eye(z.shape[1]), z.T @ targets)
    solution = solver(x, targets, weights, 0.3, switch=Maxout(2))
    assert_close(solution.weight.flatten(0, -2), expected)
    with torch.no_grad():
        network.weight.copy_(solution.weight)
    assert_close(apply_readout(x, weights, solution.weight, Maxout(2)), network(x).detach())
    statistics = RidgeStatistics(weights, 2, dtype=torch.float64, switch=Maxout(2)).update(
        x, targets
    )
    statistics.save(tmp_path / "s")
    assert RidgeStatistics.load(tmp_path / "s").switch == Maxout(2)
