"""Layers in DistributedDataParallel and FSDP, with gates that do not learn and gates that do."""

import subprocess
import sys

import pytest

SCRIPT = """
import sys
import torch
from torch import distributed, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.testing import assert_close
from tensorswitch import SwitchedLinear

rank, folder, learn_gates = int(sys.argv[1]), sys.argv[2], sys.argv[3] or None

def network():
    torch.manual_seed(0)
    first = SwitchedLinear(6, 8, 5, gate_bias=True, learn_gates=learn_gates)
    return nn.Sequential(first, SwitchedLinear(5, 4, 3, learn_gates=learn_gates))

def step(model, x):
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.1)
    model(x).square().mean().backward()
    optimizer.step()

distributed.init_process_group(
    "gloo", init_method=f"file://{folder}/rendezvous", rank=rank, world_size=2
)
x = torch.linspace(-1, 1, 8 * 6).view(8, 6).sin()
single = network()
step(single, x)
parallel = nn.parallel.DistributedDataParallel(network())
step(parallel, x[rank::2])
for a, b in zip(parallel.parameters(), single.parameters(), strict=True):
    assert_close(a, b)
sharded, mesh = network(), init_device_mesh("cpu", (2,))
for layer in sharded:
    fully_shard(layer, mesh=mesh)
step(fully_shard(sharded, mesh=mesh), x[rank::2])
for a, b in zip(sharded.parameters(), single.parameters(), strict=True):
    assert_close(a.full_tensor(), b)
distributed.destroy_process_group()
print("equal")
"""


@pytest.mark.slow
@pytest.mark.parametrize("learn_gates", ["", "ibp"])
def test_a_step_on_two_ranks_is_a_step_on_the_whole_batch(learn_gates, tmp_path):
    ranks = [
        subprocess.Popen(
            [sys.executable, "-c", SCRIPT, str(rank), str(tmp_path), learn_gates],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    for process in ranks:
        printed, problems = process.communicate(timeout=240)
        assert printed.strip() == "equal", problems[-2000:]
