"""The solvers agree with each other, with the dense solution and with the original."""

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from tensorswitch import TensorSwitching
from tensorswitch.linear import Copies, Solution, Sums, solve, solve_dual, solve_matrix_free
from tensorswitch.switches import Maxout, combine_gates, deep_gates
from tests.linear.problems import DEPTHS, dense, matrix_free, problem, streaming


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
    copies, weight = Copies(list(network.gate_weights)), network.weight.detach()
    assert_close(Solution(weight, 0.0).outputs(copies, copies.rows(x)), network(x).detach())


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
    copies = Copies([gate_weight])
    sums = Sums(copies, 10).update(rows, targets)
    gram = copies.packing.product(sums.gram, torch.eye(30)).float()
    assert_golden(gram.triu(), data["SII_upper"].triu())
    assert_golden(sums.cross, data["SIO"])
    for solution in (
        sums.solve(),
        solve_matrix_free(rows, targets, [gate_weight], tol=1e-7),
        solve_dual(rows, targets, [gate_weight]),
    ):
        assert solution.alpha == pytest.approx(float(data["lam"]), rel=1e-5)
        assert_golden(solution.weight.flatten(0, 1), data["W_Z"])
        assert_golden(solution.outputs(copies, copies.rows(rows)), data["scores"])


def assert_golden(actual, expected):
    assert_close(actual, expected.view_as(actual), rtol=0, atol=1e-5 * expected.abs().max().item())


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
        Sums(Copies(gate_weights), targets.shape[1]).update(x, targets, sample_weight).solve(alpha)
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
    copies = Copies(weights, Maxout(2))
    assert_close(solution.outputs(copies, copies.rows(x)), network(x).detach())
    Sums(copies, 2, dtype=torch.float64).update(x, targets).save(tmp_path / "s")
    assert Sums.load(tmp_path / "s").representation.switch == Maxout(2)


@pytest.mark.parametrize("solver", ["streaming", "matrix-free", "dual"])
def test_an_offset_of_the_targets_only_moves_the_intercept(solver):
    x, _, gate_weights, weight = problem((8,), rows=2000)
    x, weight, gate_weights = x.float(), weight.float(), [w.float() for w in gate_weights]
    y = x.abs().sum(1, keepdim=True)
    options = {"solver": solver, "fit_intercept": True, "sample_weight": weight, "tol": 1e-6}
    plain = solve(x, y, gate_weights, 1.0, **options)
    moved = solve(x, y + 1000, gate_weights, 1.0, **options)
    assert_close(moved.weight, plain.weight, rtol=0, atol=1e-3)
    assert_close(moved.intercept, plain.intercept + 1000, rtol=0, atol=1e-3)


@pytest.mark.parametrize(
    ("start", "error", "message"),
    [
        (torch.zeros(5, 4, 1, dtype=torch.float64), ValueError, "start has size 1 on axis 2"),
        (torch.zeros(5, 4, 2), TypeError, "start is torch.float32"),
    ],
)
def test_a_wrong_start_is_named(start, error, message):
    x, targets, gate_weights, _ = problem((5,))
    with pytest.raises(error, match=message):
        solve_matrix_free(x, targets, gate_weights, start=start)
