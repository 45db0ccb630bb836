import gc
import weakref

import pytest
import torch
from torch.testing import assert_close

from tensorswitch import SwitchedLinear, switched_linear
from tensorswitch._memory import LARGE, _spare, available_memory, empty_gradient
from tensorswitch.kernels import ss_kernel, ts_kernel


def test_available_memory_is_that_of_this_machine():
    assert 2**26 < available_memory() < 2**50


def test_a_default_device_in_force_during_a_call_changes_nothing():
    """Neither the result nor the scratch buffers that later calls use."""
    x, gates = torch.randn(53, 7), torch.rand(53, 11) < 0.5
    weight = torch.randn(11, 7, 13, requires_grad=True)
    layer = SwitchedLinear(7, 11, 13)

    def everything():
        maps = [switched_linear(x, gates, weight, group=group) for group in (0, 1, 3)]
        grads = [torch.autograd.grad(y.sum(), weight)[0] for y in maps]
        return [*maps, *grads, layer(x), ss_kernel(x, depth=2), ts_kernel(x, depth=2)]

    with torch.device("meta"):
        inside = everything()
    for a, b in zip(inside, everything(), strict=True):
        assert a.device.type == "cpu"
        assert_close(a, b)


@pytest.fixture
def weight():
    return torch.zeros(LARGE // 4 // 64, 64, requires_grad=True)


def new_gradient(weight, value=0.0):
    return empty_gradient(weight, torch.float32, weight.device).fill_(value)


def test_a_gradient_takes_the_memory_of_the_last_one(weight):
    place = new_gradient(weight).data_ptr()
    if weight not in _spare:
        pytest.skip("no huge pages on this system")
    assert new_gradient(weight).data_ptr() == place


def test_gradients_in_use_keep_their_memory(weight):
    first = new_gradient(weight, 1.0)
    view = new_gradient(weight, 2.0)[3:5]
    new_gradient(weight, 3.0)
    last = new_gradient(weight, 4.0)
    for tensor, value in ((first, 1), (view, 2), (last, 4)):
        assert (tensor == value).all()


def test_a_gradient_of_another_dtype_is_as_large_as_it_must_be(weight):
    new_gradient(weight)
    double = empty_gradient(weight, torch.float64, weight.device)
    assert (double.shape, double.dtype) == (weight.shape, torch.float64)


def test_spare_memory_goes_with_the_weight():
    weight = torch.zeros(LARGE // 4)
    new_gradient(weight)
    if weight not in _spare:
        pytest.skip("no huge pages on this system")
    memory = weakref.ref(_spare[weight][0])
    assert memory() is not None
    del weight
    gc.collect()
    assert memory() is None
