import pytest
import torch

from tensorswitch.switched import MAX_GROUP
from tensorswitch.switched._cost import BLOCKS
from tensorswitch.switched._plans import make_plan


def test_a_plan_has_every_open_gate_once():
    gates = torch.rand(70, 11) < 0.4
    for group in range(1, MAX_GROUP + 1):
        seen = torch.zeros_like(gates)
        for chunk in make_plan(gates, group, 4, 4):
            patterns = 2**group - 1
            for segment, rows in enumerate(chunk.index.split(chunk.lengths)):
                for j in range(group):
                    unit = chunk.units.start + segment // patterns * group + j
                    if (segment % patterns + 1) >> j & 1 and unit < 11:
                        assert not seen[rows[rows < 70], unit].any()
                        seen[rows[rows < 70], unit] = True
        assert torch.equal(seen, gates)


@pytest.mark.parametrize("group", [1, 5])
def test_units_that_are_always_open_do_not_make_chunks_large(group):
    gates = torch.rand(4096, 300) < 0.002
    gates[:, [0, 170]] = True
    plan = make_plan(gates, group, 8, 8)
    for chunk in plan:
        used = len(chunk.bag)
        slots = len(chunk.index)
        assert 4 * 16 * slots <= 2 * BLOCKS.chunk_bytes or slots <= 1.25 * used
    if group == 1:  # two on their own, and those between and after them, padded or not
        assert [chunk.units for chunk in plan] == [
            slice(0, 1),
            slice(1, 170),
            slice(170, 171),
            slice(171, 300),
        ]


def test_the_fewer_gates_are_open_the_more_units_are_in_a_chunk():
    counts = [len(make_plan(torch.rand(2000, 64) < p, 1, 64, 64)) for p in (0.5, 0.05)]
    assert counts[0] > 4 * counts[1]
