import torch

from tensorswitch import switched_linear
from tensorswitch.switched import MAX_GROUP, choose_group


def test_the_cost_rule_prefers_dense_for_small_and_larger_groups_for_more_rows():
    assert choose_group(16, 8, 8, 8, 0.5) == 0
    chosen = [choose_group(rows, 128, 128, 128, 0.5) for rows in (128, 1024, 8192, 65536)]
    assert chosen == sorted(chosen)
    assert chosen[-1] > chosen[0]
    assert all(0 <= group <= MAX_GROUP for group in chosen)


def test_equal_calls_have_equal_bits():
    x, gates, weight = torch.randn(300, 32), torch.rand(300, 32) < 0.5, torch.randn(32, 32, 32)
    results = [switched_linear(x, gates.clone(), weight) for _ in range(30)]
    assert all(torch.equal(y, results[0]) for y in results)
