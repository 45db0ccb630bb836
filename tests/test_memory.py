import torch
from torch.testing import assert_close

from tensorswitch import SwitchedLinear, switched_linear
from tensorswitch._memory import available_memory
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
