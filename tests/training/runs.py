"""Data and small networks for the tests of training."""

import torch

from tensorswitch.data import load
from tensorswitch.models import mlp
from tensorswitch.training import Learner, Rows


def digits(rows=300):
    split = load("digits").protocol(16)
    parts = (
        (split.train, split.train_labels),
        (split.validation, split.validation_labels),
        (split.test, split.test_labels),
    )
    return [Rows(torch.from_numpy(x[:rows]), torch.from_numpy(y[:rows])) for x, y in parts]


def learner(kind="ts-ibp-lrc", **options):
    torch.manual_seed(0)
    return Learner(
        mlp(16, 10, kind=kind, depth=2, width=8), **{"lr": 0.05, "batch_size": 32, **options}
    )


def weights(learner):
    return torch.cat([p.detach().flatten() for p in learner.network.parameters()])


def naive(network, rows, epochs, seed=0):
    """The loop as written by hand."""
    optimizer = torch.optim.SGD(
        [p for p in network.parameters() if p.requires_grad],
        lr=0.05,
        momentum=0.9,
        weight_decay=1e-3,
    )
    generator = torch.Generator().manual_seed(seed)
    for _ in range(epochs):
        for batch in torch.randperm(len(rows.x), generator=generator).split(32):
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(network(rows.x[batch]), rows.y[batch]).backward()
            optimizer.step()
