"""The sums of the paper's one-pass ridge regression under their own name."""

import pytest
import torch
from torch.testing import assert_close

from tensorswitch.linear import Copies, Sums
from tensorswitch.ridge import RidgeStatistics, deep_gates, draw_gates, fold_of_rows, solve_dual
from tensorswitch.switches import Maxout


def problem():
    generator = torch.Generator().manual_seed(0)
    x, targets = (torch.randn(60, n, generator=generator, dtype=torch.float64) for n in (4, 2))
    gate_weights = draw_gates(4, [6, 4], generator, switch=Maxout(2))
    return x, targets, [w.double() for w in gate_weights]


def test_they_are_the_sums_of_copies(tmp_path):
    x, targets, gate_weights = problem()
    options = {"dtype": torch.float64, "folds": 5}
    ours = RidgeStatistics(gate_weights, 2, switch="maxout:2", **options).update(x, targets)
    sums = Sums(Copies(gate_weights, "maxout:2"), 2, **options).update(x, targets)
    assert (ours.units, ours.in_features, ours.switch) == (24, 4, Maxout(2))
    assert ours.cross.shape == (24, 4, 2)
    assert torch.equal(ours.gram, sums.gram)
    assert torch.equal(ours.cross.flatten(0, 1), sums.cross)
    ours.save(tmp_path / "sums")
    loaded = RidgeStatistics.load(tmp_path / "sums")
    assert isinstance(loaded, RidgeStatistics)
    for mine, given in zip(loaded.gate_weights, gate_weights, strict=True):
        assert torch.equal(mine, given)
    loaded = loaded.merge(ours.copy()).remove(x, targets)
    solution, expected = loaded.solve("cv"), sums.solve("cv")
    assert solution.alpha == pytest.approx(expected.alpha)
    assert_close(solution.weight, expected.weight)
    assert_close(loaded.empty().update(x, targets).gram, ours.gram)
    assert loaded.retarget([1], [2.0], [1.0]).cross.shape == (24, 4, 1)


def test_gates_folds_and_solvers_have_their_names_here():
    x, targets, gate_weights = problem()
    assert [h.shape for h in deep_gates(x, gate_weights, Maxout(2))] == [(60, 6), (60, 4)]
    assert torch.equal(fold_of_rows(x, 5), fold_of_rows(x.clone(), 5))
    statistics = RidgeStatistics(gate_weights, 2, switch="maxout:2", dtype=torch.float64)
    weight = statistics.update(x, targets).solve(0.3).weight
    assert_close(weight, solve_dual(x, targets, gate_weights, 0.3, switch="maxout:2").weight)
