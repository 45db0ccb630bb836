import pytest
import torch

from tensorswitch import switched_linear
from tensorswitch.switched import MAX_GROUP, choose_group


@pytest.mark.parametrize("share", [0.0, 0.05, 0.5, 0.95, 1.0])
def test_any_strategy_that_the_rule_chooses_gives_the_same_map(share):
    for rows, width in ((1, 4), (700, 24), (3000, 32)):
        group = choose_group(
            rows, width, width, width, min(share, 1 - share), float(share > 0.5), False
        )
        assert group in range(MAX_GROUP + 1)
        x, weight = torch.randn(rows, width).double(), torch.randn(width, width, width).double()
        gates = torch.rand(rows, width) < share
        expected = switched_linear(x, gates, weight, group=0)
        torch.testing.assert_close(switched_linear(x, gates, weight, group=group), expected)
        torch.testing.assert_close(switched_linear(x, gates, weight), expected)


def test_equal_calls_have_equal_bits():
    x, gates, weight = torch.randn(300, 32), torch.rand(300, 32) < 0.5, torch.randn(32, 32, 32)
    results = [switched_linear(x, gates.clone(), weight) for _ in range(30)]
    assert all(torch.equal(y, results[0]) for y in results)
