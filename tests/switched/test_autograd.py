import threading

import pytest
import torch
from torch.testing import assert_close
from torch.utils._python_dispatch import TorchDispatchMode

from tensorswitch import switched_linear
from tensorswitch.switched import MAX_GROUP, switched_outer

GROUPS = range(MAX_GROUP + 1)
MANY = 20_000  # rows, more than are processed at a time


def example(rows, n_in, units, n_out, dtype=torch.float64):
    x = torch.randn(rows, n_in, dtype=dtype, requires_grad=True)
    weight = torch.randn(units, n_in, n_out, dtype=dtype, requires_grad=True)
    return x, torch.rand(rows, units) < 0.5, weight


class Sizes(TorchDispatchMode):
    """Records the sizes of the results of the operators."""

    def __init__(self):
        super().__init__()
        self.found = {}

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        if "tensorswitch.switched_gradients" in str(function):
            self.found["gradients"] = [len(part) for part in result]
        return result


@pytest.mark.parametrize("which", ["x", "weight"])
@pytest.mark.parametrize("group", [0, 1, 3])
def test_a_gradient_that_nobody_needs_is_not_computed(naive, which, group):
    x, gates, weight = example(20, 4, 6, 3)
    (x if which == "weight" else weight).requires_grad_(False)
    needed = x if which == "x" else weight
    y = switched_linear(x, gates, weight, group=group)
    with Sizes() as sizes:
        (found,) = torch.autograd.grad(y.sum(), needed)
    assert sizes.found["gradients"] == ([20, 0] if which == "x" else [0, 6])
    assert_close(found, torch.autograd.grad(naive(x, gates, weight).sum(), needed)[0])


@pytest.mark.parametrize("group", [None, 0, 1, 3])
def test_gradgradcheck(group):
    x, gates, weight = example(6, 3, 5, 2)
    bias = torch.randn(2, dtype=torch.float64, requires_grad=True)
    function = lambda x, w, b: switched_linear(x, gates, w, b, group=group)  # noqa: E731
    assert torch.autograd.gradgradcheck(function, (x, weight, bias))


@pytest.mark.parametrize("group", [None, 0, 1, 3])
def test_the_outer_sum_is_differentiable_twice(group):
    x, gates, _ = example(6, 3, 5, 2)
    errors = torch.randn(6, 2, dtype=torch.float64, requires_grad=True)
    function = lambda x, e: switched_outer(x, gates, e, group=group)  # noqa: E731
    assert torch.autograd.gradcheck(function, (x, errors))
    assert torch.autograd.gradgradcheck(function, (x, errors))


@pytest.mark.parametrize("group", GROUPS)
def test_a_gradient_penalty_has_the_gradient_of_the_expanded_tensor(naive, group):
    x, gates, weight = example(40, 4, 6, 3)

    def penalty(y):
        (grad,) = torch.autograd.grad(y.square().sum(), x, create_graph=True)
        return torch.autograd.grad(grad.square().sum(), (x, weight))

    fast, slow = (
        penalty(switched_linear(x, gates, weight, group=group)),
        penalty(naive(x, gates, weight)),
    )
    for a, b in zip(fast, slow, strict=True):
        assert_close(a, b)


@pytest.mark.parametrize("group", [0, 1, 3])
def test_a_second_backward_of_the_same_graph(group):
    x, gates, weight = example(30, 4, 6, 3)
    y = switched_linear(x, gates, weight, group=group)
    y.sum().backward(retain_graph=True)
    first = weight.grad.clone()
    y.sum().backward()
    assert_close(weight.grad, 2 * first)


@pytest.mark.parametrize("group", [0, 1, 3])
def test_threads_may_share_a_graph(group):
    x, gates, weight = example(MANY, 3, 8, 2)
    y = switched_linear(x, gates, weight, group=group)
    error = torch.randn_like(y)
    expected = torch.autograd.grad(
        switched_linear(x, gates, weight, group=group), (x, weight), error
    )
    start, results = threading.Barrier(4), []

    def work():
        start.wait()
        results.append(torch.autograd.grad(y, (x, weight), error, retain_graph=True))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 4
    for found in results:
        for a, b in zip(found, expected, strict=True):
            assert_close(a, b)


@pytest.mark.usefixtures("bfloat16")
@pytest.mark.parametrize("group", [0, 1, 3, 6])
@pytest.mark.parametrize("n_out", [4, 12])
def test_weight_gradients_in_bfloat16_are_summed_in_float32(group, n_out):
    """They are as good as those of a linear layer, which only rounds the result."""
    x, gates, _ = example(8000, 8, 16, n_out, dtype=torch.float32)
    x, error = x.detach().bfloat16(), torch.randn(8000, n_out).bfloat16()
    weight = torch.randn(16, 8, n_out).bfloat16().requires_grad_()
    exact = switched_outer(x.double(), gates, error.double())
    found = torch.autograd.grad(switched_linear(x, gates, weight, group=group), weight, error)[0]
    assert (found.double() - exact).norm() <= 3e-3 * exact.norm()
