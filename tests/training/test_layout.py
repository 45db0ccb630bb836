import math

import pytest
import torch
from torch.testing import assert_close

from tensorswitch.models import cnn
from tensorswitch.training import Learner, train
from tests.training.runs import digits, naive, weights


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_convolutions_in_another_memory_format_learn_the_same(tmp_path, optimizer):
    def network():
        torch.manual_seed(0)
        return cnn(1, 4, 10, channels=(3, 5), width=8)

    rows = digits()[0]
    rows.x = rows.x.view(-1, 1, 4, 4)
    options = {"optimizer": optimizer, "lr": 0.05, "batch_size": 32}
    whole = Learner(network(), **options)
    formats, outputs = [], []
    whole.network[0].register_forward_hook(
        lambda *arguments: outputs.append(arguments[-1].stride())
    )
    weight = next(p for p in whole.network.parameters() if p.shape == (5, 3, 3, 3))
    memory = weight.data_ptr()
    for _ in range(3):
        whole.epoch(rows, watch=lambda: formats.append(weight.is_contiguous()))
        assert weight.is_contiguous()
        assert weight.data_ptr() == memory
        assert all(t.is_contiguous() for t in whole.optimizer.state[weight].values())
    assert not any(formats)
    assert all(stride[1] == 1 for stride in outputs)  # although the images have a single channel
    train(Learner(network(), **options), rows, epochs=1, folder=tmp_path)
    second = Learner(network(), **options)
    train(second, rows, epochs=3, folder=tmp_path)
    assert torch.equal(weights(second), weights(whole))
    if optimizer == "sgd":
        plain = network()
        naive(plain, rows, 3)
        expected = torch.cat([p.detach().flatten() for p in plain.parameters()])
        assert_close(weights(whole), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("channels", [1, 3])
def test_images_are_evaluated_in_channels_last_format(channels):
    network = cnn(channels, 8, 10, channels=(4,), width=8)
    strides = []
    network[0].register_forward_hook(lambda *arguments: strides.append(arguments[-1].stride()))
    images = torch.randn(300, channels, 8, 8)
    outputs = Learner(network).outputs(images)
    assert len(strides) == 2
    assert all(stride[1] == 1 for stride in strides)
    assert_close(outputs, network(images))


def test_networks_of_users_keep_their_memory_format():
    class Views(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.convolution = torch.nn.Conv2d(1, 4, 3, padding=1)
            self.readout = torch.nn.Linear(64, 10)

        def forward(self, x):
            return self.readout(self.convolution(x).view(len(x), -1))

    rows = digits()[0]
    rows.x = rows.x.view(-1, 1, 4, 4)
    loss, _ = Learner(Views(), batch_size=32).epoch(rows)
    assert math.isfinite(loss)
