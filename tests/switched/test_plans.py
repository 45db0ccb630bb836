import torch

from tensorswitch.switched import MAX_GROUP
from tensorswitch.switched._plans import make_plan


def test_a_plan_has_every_open_gate_once():
    gates = torch.rand(70, 11) < 0.4
    for group in range(1, MAX_GROUP + 1):
        seen = torch.zeros_like(gates)
        for chunk in make_plan(gates, group, 4, 4, 0.4):
            patterns = 2**group - 1
            for segment, rows in enumerate(chunk.index.split(chunk.lengths)):
                for j in range(group):
                    unit = chunk.units.start + segment // patterns * group + j
                    if (segment % patterns + 1) >> j & 1 and unit < 11:
                        assert not seen[rows[rows < 70], unit].any()
                        seen[rows[rows < 70], unit] = True
        assert torch.equal(seen, gates)
