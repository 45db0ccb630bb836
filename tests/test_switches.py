from dataclasses import dataclass

import numpy as np
import pytest
import torch
from torch.nn import functional as F
from torch.testing import assert_close

from tensorswitch import Routes, SwitchedLinear, persistence, switched_linear
from tensorswitch.estimators import TSRidgeRegressor, load_estimator, save_estimator
from tensorswitch.persistence import saved_as
from tensorswitch.switches import (
    AllOpen,
    Maxout,
    MaxPool2d,
    ReLU,
    Switch,
    as_switch,
    combine_gates,
    deep_gates,
    draw_gates,
    switch_name,
)


def test_relu_opens_strictly_positive_units():
    scores = torch.tensor([[-1.0, 0.0, 1e-30, torch.inf, torch.nan]])
    assert ReLU()(scores).gates.tolist() == [[False, False, True, True, False]]


def test_maxout_opens_the_first_of_the_best_pieces():
    scores = torch.tensor([[1.0, 3.0, 2.0, -5.0, -5.0, -6.0]])
    assert Maxout(3)(scores).gates.tolist() == [[False, True, False, True, False, False]]


def test_maxout_passes_over_nan():
    scores = torch.tensor([[torch.nan, 1.0, torch.nan, torch.nan]])
    assert Maxout(2)(scores).gates.tolist() == [[False, True, False, False]]


def test_contracting_the_maxout_copies_gives_maxout():
    scores = torch.randn(7, 12)
    gates = Maxout(4)(scores).gates
    assert_close((scores * gates).view(7, 3, 4).sum(2), scores.view(7, 3, 4).amax(2))


@pytest.mark.parametrize(("kernel", "stride"), [(2, 2), (3, 3), ((2, 3), (1, 2)), (3, 1), (4, 4)])
def test_contracting_the_pooled_copies_gives_max_pooling(kernel, stride):
    scores = torch.randn(3, 5, 7, 8)
    routes = MaxPool2d(kernel, stride)(scores)
    values = scores.permute(0, 2, 3, 1).reshape(-1, 5)[routes.source] * routes.gates
    pooled = torch.zeros(routes.rows, 5).index_add_(0, routes.target, values)
    expected = F.max_pool2d(scores, kernel, stride)
    assert_close(pooled.view(3, *expected.shape[2:], 5).permute(0, 3, 1, 2), expected)


def test_every_window_opens_each_unit_once():
    scores = torch.randint(0, 2, (2, 4, 6, 6)).float()  # full of ties
    routes = MaxPool2d(2)(scores)
    counts = torch.zeros(routes.rows, 4).index_add_(0, routes.target, routes.gates.float())
    assert (counts == 1).all()


def test_ties_go_to_the_first_position_in_row_major_order():
    routes = MaxPool2d(2)(torch.tensor([[[[0.0, 1.0], [1.0, 1.0]]]]))
    assert routes.gates[:, 0].tolist() == [False, True, False, False]


def test_pooling_passes_over_nan():
    routes = MaxPool2d(2)(
        torch.tensor([[[[torch.nan, 1.0], [2.0, torch.nan]]], [[[torch.nan] * 2] * 2]])
    )
    assert routes.gates[:, 0].tolist() == [False, False, True, False] + [False] * 4


@pytest.mark.parametrize("switch", ["relu", "maxout", "maxout:3", "none"])
def test_a_switch_with_pooling_is_the_pooled_activity(switch):
    scores = torch.randn(2, 6, 4, 4)
    pieces = as_switch(switch).pieces
    routes = MaxPool2d(2, switch=as_switch(switch))(scores)
    values = scores.permute(0, 2, 3, 1).reshape(-1, 6)[routes.source] * routes.gates
    activity = (
        torch.zeros(routes.rows, 6)
        .index_add_(0, routes.target, values)
        .view(-1, 6 // pieces, pieces)
        .sum(2)
    )
    units = scores.unflatten(1, (-1, pieces)).amax(2)
    expected = (
        F.max_pool2d(units.relu() if switch == "relu" else units, 2)
        .permute(0, 2, 3, 1)
        .reshape(-1, 6 // pieces)
    )
    assert_close(activity, expected)


def test_no_switch_opens_everything_but_nan():
    assert AllOpen()(torch.tensor([[-1.0, torch.nan]])).gates.tolist() == [[True, False]]


@pytest.mark.parametrize(
    ("build", "error", "message"),
    [
        (
            lambda: Routes(torch.ones(2, 3)),
            TypeError,
            r"gates must be a boolean tensor, got torch.float32",
        ),
        (lambda: Routes([[True]]), TypeError, r"gates must be a boolean tensor, got list"),
        (
            lambda: Routes(torch.ones(3, dtype=torch.bool)),
            ValueError,
            r"gates must have 2 axes \(rows, gates\), got shape \(3,\)",
        ),
        (
            lambda: Routes(torch.ones(2, 3, dtype=torch.bool), source=torch.zeros(2)),
            TypeError,
            "source must be an int64",
        ),
        (
            lambda: Routes(torch.ones(2, 3, dtype=torch.bool), source=torch.zeros(3).long()),
            ValueError,
            r"size 3 on axis 0 \(pairs\), expected 2",
        ),
        (
            lambda: Routes(torch.ones(2, 3, dtype=torch.bool), target=torch.zeros(2).long()),
            ValueError,
            "target and rows go together",
        ),
        (
            lambda: ReLU()(torch.ones(2, 3, dtype=torch.int64)),
            TypeError,
            "scores must be a floating-point tensor, got torch.int64",
        ),
        (
            lambda: Maxout(2)(torch.ones(2, 5)),
            ValueError,
            r"multiple of the 2 pieces of Maxout\(pieces=2\), got 5",
        ),
        (lambda: Maxout(0), ValueError, "pieces must be a positive integer, got 0"),
        (
            lambda: MaxPool2d(3)(torch.ones(1, 1, 2, 2)),
            ValueError,
            "3×3 pooling window with stride 3×3 does not fit in scores of 2×2",
        ),
        (lambda: as_switch("tanh"), ValueError, "switch must be a Switch, 'relu', 'maxout'"),
        (lambda: as_switch("relu:2"), ValueError, "switch must be"),
        (lambda: as_switch("maxout:0"), ValueError, "switch must be"),
    ],
)
def test_wrong_arguments_are_named(build, error, message):
    with pytest.raises(error, match=message):
        build()


@pytest.mark.parametrize("switch", [ReLU(), AllOpen(), Maxout(), Maxout(3)])
def test_a_switch_is_made_again_from_its_name(switch):
    assert as_switch(switch_name(switch)) == switch
    assert as_switch(switch) is switch


@pytest.mark.parametrize("switch", [ReLU(), AllOpen(), Maxout(2), Maxout(3)])
def test_deep_gates_follow_the_scalar_network(switch):
    x = torch.randn(20, 5)
    weights = draw_gates(5, (6, 12), torch.Generator().manual_seed(0), switch=switch)
    first, second = deep_gates(x, weights, switch)
    scores = x @ weights[0].t()
    copies = (first * scores).view(20, -1, switch.pieces).sum(2)  # contracted
    assert_close(copies, switch.units(scores))
    assert torch.equal(second, switch.open(copies @ weights[1].t()))
    assert torch.equal(
        combine_gates([first, second]), torch.einsum("bj,bi->bji", second, first).flatten(1)
    )


def test_the_expanded_tensor_is_what_the_operator_applies_weights_to():
    routes = MaxPool2d(2, 1)(torch.randn(2, 5, 4, 4))
    x, weight = torch.randn(32, 3), torch.randn(5, 3, 2)
    expected = torch.einsum("tji,jio->to", routes.expand(x), weight)
    assert_close(switched_linear(x, routes, weight), expected)


def test_aligned_rows_and_gates_expand_to_the_same_tensor():
    gates = torch.tensor([[True, False], [False, False], [True, True], [False, True]])
    source, target = torch.tensor([4, 0, 1, 4]), torch.tensor([2, 2, 0, 3])  # row 1 has no copy
    routes, x = Routes(gates, source, target, 4), torch.randn(5, 3)
    rows, own = routes.aligned(x)
    assert_close(own[:, :, None] * rows[:, None, :], routes.expand(x))
    assert own.tolist() == [[True, True], [False, False], [True, False], [False, True]]


def test_rows_that_add_up_cannot_be_aligned():
    routes = Routes(torch.ones(2, 1, dtype=torch.bool), target=torch.tensor([1, 1]), rows=2)
    with pytest.raises(ValueError, match="several input rows add to output row 1"):
        routes.aligned(torch.randn(2, 3))


@saved_as("strongest")
@dataclass(frozen=True)
class Strongest(Switch):
    """The gates of the highest positive scores."""

    count: int = 2

    def open(self, scores):
        return (scores >= scores.topk(self.count).values[:, -1:]) & (scores > 0)


def test_a_switch_of_ones_own_is_a_method(tmp_path):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 4))
    model = TSRidgeRegressor(8, switch=Strongest(3), random_state=0).fit(X, X[:, 0])
    save_estimator(model, tmp_path / "model")
    loaded = load_estimator(tmp_path / "model")
    assert loaded.switch == Strongest(3)
    np.testing.assert_array_equal(loaded.predict(X), model.predict(X))
    layer = SwitchedLinear(4, 8, 2, switch=Strongest(1))
    assert layer(torch.randn(3, 4)).shape == (3, 2)
    scores = torch.tensor([[1.0, 3.0, 2.0, -1.0]])
    assert Strongest(2).units(scores).tolist() == [[0, 3, 2, 0]]


def test_models_with_a_switch_that_is_not_known_are_refused(tmp_path, monkeypatch):
    model = TSRidgeRegressor(8, switch=Strongest(), random_state=0)
    save_estimator(model.fit(np.eye(9), np.arange(9.0)), tmp_path / "model")
    monkeypatch.delitem(persistence._kinds, "strongest")
    with pytest.raises(ValueError, match="unknown kind 'strongest'; import the module that defin"):
        load_estimator(tmp_path / "model")


def test_a_switch_without_a_rule_says_what_is_missing():
    class Empty(Switch):
        pass

    with pytest.raises(NotImplementedError, match=r"Empty does not define open\(scores\)"):
        TSRidgeRegressor(8, switch=Empty()).fit(np.eye(9), np.arange(9.0))
