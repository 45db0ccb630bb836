"""Layers in DistributedDataParallel and FSDP, with gates that do not learn and gates that do."""

import copy

import pytest
import torch
from torch import distributed, multiprocessing, nn
from torch.testing import assert_close

from tensorswitch import SwitchedLinear

RANKS = 2


def network(learn_gates):
    torch.manual_seed(0)
    first = SwitchedLinear(6, 8, 5, gate_bias=True, learn_gates=learn_gates)
    return nn.Sequential(first, SwitchedLinear(5, 4, 3, learn_gates=learn_gates))


def step(model, x):
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.1)
    model(x).square().mean().backward()
    optimizer.step()


def work(rank, folder, learn_gates):
    distributed.init_process_group(
        "gloo", init_method=f"file://{folder}/rendezvous", rank=rank, world_size=RANKS
    )
    x = torch.linspace(-1, 1, 8 * 6).view(8, 6).sin()
    single = network(learn_gates)
    step(single, x)
    parallel = nn.parallel.DistributedDataParallel(network(learn_gates))
    step(parallel, x[rank::RANKS])
    for a, b in zip(parallel.parameters(), single.parameters(), strict=True):
        assert_close(a, b)
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    sharded = copy.deepcopy(network(learn_gates))
    mesh = init_device_mesh("cpu", (RANKS,))
    for layer in sharded:
        fully_shard(layer, mesh=mesh)
    step(fully_shard(sharded, mesh=mesh), x[rank::RANKS])
    for a, b in zip(sharded.parameters(), single.parameters(), strict=True):
        assert_close(a.full_tensor(), b)
    distributed.destroy_process_group()


@pytest.mark.slow
@pytest.mark.parametrize("learn_gates", [None, "ibp"])
def test_a_step_on_two_ranks_is_a_step_on_the_whole_batch(learn_gates, tmp_path):
    multiprocessing.spawn(work, (str(tmp_path), learn_gates), nprocs=RANKS)
