"""Seeds of layers leave torch's global generators as they were."""

import torch

from tensorswitch._random import seeded
from tensorswitch.models import mlp
from tensorswitch.training import Learner, Rows


def test_numbers_depend_on_the_seed_and_the_generator_is_restored():
    before = torch.get_rng_state()
    draws = []
    for seed in (1, 2, 1):
        with seeded(seed):
            draws.append(torch.rand(4))
    assert torch.equal(draws[0], draws[2])
    assert not torch.equal(draws[0], draws[1])
    torch.manual_seed(1)
    assert torch.equal(torch.rand(4), draws[0])
    torch.set_rng_state(before)


def test_nothing_reseeds_other_devices(monkeypatch):
    def fail(seed):
        raise AssertionError("seeded all GPUs")

    monkeypatch.setattr(torch.cuda, "manual_seed_all", fail)
    before = torch.get_rng_state()
    learner = Learner(mlp(4, 2, depth=1, width=3))
    torch.set_rng_state(before)
    learner.epoch(Rows(torch.ones(6, 4), torch.tensor([0, 1] * 3)))
    assert torch.equal(torch.get_rng_state(), before)
