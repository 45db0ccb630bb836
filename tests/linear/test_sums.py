"""Sums of rows: exact, mergeable, and unharmed by what goes wrong."""

import pytest
import torch
from torch import multiprocessing
from torch.testing import assert_close

from tensorswitch import algebra
from tensorswitch.linear import Copies, Sums, solve_dual, solve_matrix_free
from tensorswitch.switches import Switch
from tests.linear.problems import problem, streaming


def sums_of(gate_weights, out=1, **options):
    return Sums(Copies(gate_weights), out, **options)


@pytest.mark.parametrize("rows", [3, 50, 700])
@pytest.mark.parametrize("units", [1, 7, 10])
def test_the_structured_sums_are_those_of_the_representation(rows, units):
    x, targets, gate_weights, weight = problem((units,), rows)
    z = algebra.expand(x, gate_weights[0]).flatten(1)
    statistics = sums_of(gate_weights, 2, dtype=torch.float64).update(x, targets, weight)
    copies, eye = statistics.representation, torch.eye(z.shape[1], dtype=torch.float64)
    whole = z.T @ (weight[:, None] * z)
    assert_close(copies.packing.product(statistics.gram, eye), whole)
    assert_close(copies.packing.diagonal(statistics.gram), whole.diagonal())
    assert_close(statistics.cross, z.T @ (weight[:, None] * targets))
    assert statistics.mean_diagonal() == pytest.approx(float(whole.diagonal().mean()))
    assert copies.mean_square(copies.rows(x), weight) == pytest.approx(statistics.mean_diagonal())


def test_float32_sums_are_good_to_one_in_ten_thousand():
    x, targets, gate_weights, _ = problem((12,), 3000, 8)
    single = sums_of([w.float() for w in gate_weights], 2)
    double = sums_of(gate_weights, 2, dtype=torch.float64)
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
            sums_of(gate_weights, 2, dtype=torch.float64).update(
                x[rows], targets[rows], weight[rows]
            )
        )
    merged = parts[2].merge(parts[0]).merge(parts[3].merge(parts[1]))
    assert merged.rows == pytest.approx(float(weight.sum()))
    assert_close(merged.solve().weight, whole.weight)


def test_statistics_of_a_switch_without_a_name_are_not_saved(tmp_path):
    class Above(Switch):
        def open(self, scores):
            return scores > 1

        def units(self, scores):
            return scores.relu()

    statistics = Sums(Copies([torch.randn(8, 4)], Above()), 1)
    with pytest.raises(TypeError, match="Above has no name, so what uses it cannot be saved"):
        statistics.save(tmp_path / "sums")
    assert not list(tmp_path.iterdir())


def test_forgetting_weighs_old_rows_less():
    x, targets, gate_weights, _ = problem((5,))
    statistics = sums_of(gate_weights, 2, dtype=torch.float64, forgetting=0.5)
    for rows in torch.arange(60).split(20):
        statistics.update(x[rows], targets[rows])
    weight = torch.tensor([0.25, 0.5, 1.0], dtype=torch.float64).repeat_interleave(20)
    assert_close(
        statistics.solve(0.1).weight,
        streaming(x, targets, gate_weights, 0.1, sample_weight=weight).weight,
    )


def test_loaded_statistics_can_be_updated(tmp_path):
    x, targets, gate_weights, _ = problem((4, 3))
    statistics = sums_of(gate_weights, 2, dtype=torch.float64, forgetting=0.9).update(
        x[:30], targets[:30]
    )
    path = tmp_path / "sums.safetensors"
    statistics.save(path)
    assert [p.name for p in tmp_path.iterdir()] == [path.name]
    loaded = Sums.load(path)
    assert torch.equal(
        loaded.update(x[30:], targets[30:]).solve().weight,
        statistics.update(x[30:], targets[30:]).solve().weight,
    )
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(ValueError, match=r"sums\.safetensors is damaged or not a safetensors"):
        Sums.load(path)
    from safetensors.torch import save_file

    save_file({"a": torch.ones(1)}, path)
    with pytest.raises(ValueError, match="was not written by tensorswitch"):
        Sums.load(path)


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
    statistics = sums_of([torch.randn(6, 4)], 1).update(torch.randn(20, 4), torch.randn(20, 1))
    before = [total.clone() for total in (statistics.gram, statistics.cross)]
    with pytest.raises(error, match=message):
        statistics.update(**{"x": torch.ones(3, 4), "targets": torch.ones(3, 1), **change})
    assert all(
        torch.equal(a, b) for a, b in zip(before, (statistics.gram, statistics.cross), strict=True)
    )
    assert statistics.rows == 20


def test_an_interrupted_update_is_noticed(monkeypatch):
    statistics = sums_of([torch.randn(6, 4)]).update(torch.randn(20, 4), torch.randn(20, 1))

    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(statistics.representation, "accumulate", interrupt)
    with pytest.raises(KeyboardInterrupt):
        statistics.update(torch.randn(3, 4), torch.randn(3, 1))
    with pytest.raises(RuntimeError, match="an update was interrupted"):
        statistics.solve()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda s: s.solve(-1.0),
            "alpha must be 'mean', a non-negative number, a multiple such as .* got -1.0",
        ),
        (lambda s: s.solve("best"), "alpha must be 'mean'"),
        (lambda s: s.solve(0.0), "singular to working precision; use a larger alpha"),
        (lambda s: Sums(s.representation, 1).solve(), "nothing to solve: there are no rows"),
        (lambda s: s.merge(sums_of([torch.ones(6, 4)], 1)), "different gate weights"),
        (lambda s: s.merge(Sums(s.representation, 2)), "out_features differ: 1 and 2"),
        (lambda s: sums_of([torch.ones(6, 4), torch.ones(2, 5)], 1), "expected 6"),
        (lambda s: Sums(s.representation, 1, forgetting=0), "forgetting must be in"),
        (lambda s: sums_of([], 1), "gate_weights must be a non-empty list"),
    ],
)
def test_wrong_arguments_are_named(call, message):
    statistics = sums_of([torch.randn(6, 4)], 1).update(torch.randn(3, 4), torch.randn(3, 1))
    with pytest.raises(ValueError, match=message):
        call(statistics)


def rank_job(rank, address, results):
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo", init_method=address, rank=rank, world_size=2)
    torch.manual_seed(0)
    x, targets, gate_weights, _ = problem((4, 3))
    mine = slice(rank, None, 2)
    exact = (
        sums_of(gate_weights, 2, dtype=torch.float64)
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
    statistics = sums_of([torch.ones(3, 4)], 1)
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
    assert torch.equal(Sums.load(tmp_path / "sums").gram, statistics.gram)


def test_sums_that_would_underflow_raise():
    statistics = sums_of([torch.ones(3, 4)], 1)
    with pytest.raises(
        ValueError, match=r"x is so small that its squares.* underflow torch.float32"
    ):
        statistics.update(torch.full((20, 4), 1e-25), torch.ones(20, 1))
    assert statistics.rows == 0
    sums_of([torch.ones(3, 4).double()], 1, dtype=torch.float64).update(
        torch.full((20, 4), 1e-25).double(), torch.ones(20, 1).double()
    )


def test_merged_sums_stay_in_the_range_of_their_type():
    parts = [sums_of([torch.ones(3, 4)], 1) for _ in range(2)]
    for part in parts:
        part.update(torch.full((20, 4), 1.55e18), torch.ones(20, 1))
    before = parts[0].gram.clone()
    with pytest.raises(ValueError, match="overflow"):
        parts[0].merge(parts[1])
    assert torch.equal(parts[0].gram, before)
    assert parts[0].rows == 20


def test_sums_of_float32_rows_are_exact_in_float64():
    """After 19,950 of 20,000 rows are removed, those of the other 50 are left."""
    generator = torch.Generator().manual_seed(0)
    gate_weights = [torch.randn(8, 5, generator=generator)]
    x, y = (torch.randn(20_000, n, generator=generator) for n in (5, 1))
    statistics = sums_of(gate_weights, 1, dtype=torch.float64).update(x, y)
    for start in range(50, len(x), 1330):
        statistics.remove(x[start : start + 1330], y[start : start + 1330])
    expected = sums_of(gate_weights, 1, dtype=torch.float64).update(x[:50], y[:50])
    assert_close(statistics.gram, expected.gram, rtol=0, atol=1e-9)
    assert_close(statistics.cross, expected.cross, rtol=0, atol=1e-9)


def test_without_processes_the_sums_stay_whole():
    statistics = sums_of([torch.randn(3, 4)], 1).update(torch.randn(9, 4), torch.ones(9, 1))
    with pytest.raises(ValueError, match="no process group"):
        statistics.all_reduce()
    assert statistics.solve(1.0).weight.isfinite().all()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_narrow_types_are_refused(dtype):
    with pytest.raises(TypeError, match=r"gate_weights\[0\] is .* sums over rows need"):
        sums_of([torch.randn(3, 4, dtype=dtype)], 1)


@pytest.mark.parametrize(
    ("fold", "message"),
    [([0, 1, 1], "got list"), (torch.tensor([0.0, 1.0, 1.5]), "got torch.float32")],
)
def test_folds_are_integers(fold, message):
    statistics = sums_of([torch.randn(3, 4)], 1, folds=2)
    with pytest.raises(TypeError, match=f"fold must be a tensor of integers, {message}"):
        statistics.update(torch.randn(3, 4), torch.ones(3, 1), fold=fold)
    assert statistics.rows == 0
