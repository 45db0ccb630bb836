from itertools import combinations_with_replacement

import pytest

from tensorswitch.linear._packed import pair_cover


@pytest.mark.parametrize("size", [2, 3, 4, 7, 8])
@pytest.mark.parametrize("units", [1, 2, 5, 8, 9, 16, 33, 64, 72, 100, 130])
def test_every_pair_is_covered_once(units, size):
    pairs = []
    for block, new in pair_cover(units, size):
        assert len(set(block)) == len(block) <= size
        pairs += [(block[i], block[j]) for i, j in new]
    assert sorted(pairs) == list(combinations_with_replacement(range(units), 2))


@pytest.mark.parametrize(
    ("units", "size", "blocks"), [(64, 8, 72), (16, 4, 20), (128, 8, 304), (16, 8, 6)]
)
def test_the_number_of_blocks(units, size, blocks):
    """Schönheim's lower bound is reached."""
    assert len(pair_cover(units, size)) == blocks
    assert blocks == -(-units * -(-(units - 1) // (size - 1)) // size)
