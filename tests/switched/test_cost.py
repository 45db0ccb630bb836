import torch

from tensorswitch import switched_linear
from tensorswitch.switched import _choice, choose_group


def test_the_cost_rule_prefers_dense_for_small_and_larger_groups_for_more_rows():
    assert choose_group(16, 8, 8, 8, 0.5) == 0
    chosen = [choose_group(rows, 128, 128, 128, 0.5) for rows in (128, 1024, 8192, 65536)]
    assert chosen[0] == 1
    assert chosen == sorted(chosen)
    assert chosen[-1] >= 4


def test_prediction_chooses_by_the_forward_cost(monkeypatch):
    x, gates = torch.randn(200, 64), torch.rand(200, 40) < 0.5
    weight = torch.randn(40, 64, 64, requires_grad=True)
    seen = []
    rule = _choice.cheapest_group
    monkeypatch.setattr(_choice, "cheapest_group", lambda *a: seen.append(a[-1]) or rule(*a))
    switched_linear(x, gates, weight)
    with torch.no_grad():
        switched_linear(x, gates, weight)
    assert seen == [True, False]
