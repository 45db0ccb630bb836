"""The GPU kernels in Triton's interpreter, in a process of its own: it is chosen on import."""

import os
import subprocess
import sys

import pytest

SCRIPT = """
import torch
from torch.testing import assert_close
from tensorswitch.switched import _compute, _triton

torch.manual_seed(0)
for rows, n_in, units, n_out in [(5, 3, 4, 2), (70, 40, 3, 66), (64, 32, 2, 64), (0, 3, 4, 2)]:
    for dtype, tolerance in [
        (torch.float32, 1e-5), (torch.float16, 3e-3), (torch.bfloat16, 3e-2)
    ]:
        x, weight = torch.randn(rows, n_in), torch.randn(units, n_in, n_out)
        errors, gates = torch.randn(rows, n_out), torch.rand(rows, units) < 0.5
        x, weight, errors = (t.to(dtype) for t in (x, weight, errors))
        full = [t.double() for t in (x, weight, errors)]
        def check(found, expected):
            assert found.dtype == dtype
            assert_close(found.double(), expected, rtol=tolerance, atol=10 * tolerance)
        check(_triton.map_rows(x, gates, weight), _compute.map_rows(full[0], gates, full[1], 0))
        grad_x, grad_weight = _compute.gradients(full[2], full[0], gates, full[1], 0)
        check(_triton.map_rows(errors, gates, weight.mT), grad_x)
        check(_triton.outer(x, gates, errors), grad_weight)
        strided = gates.t().contiguous().t()
        check(_triton.outer(x.t().contiguous().t(), strided, errors), grad_weight)
print("the kernels agree")
"""


def test_kernels_agree_with_the_dense_strategy():
    pytest.importorskip("triton")
    environment = {**os.environ, "TRITON_INTERPRET": "1"}
    result = subprocess.run(
        [sys.executable, "-c", SCRIPT], env=environment, capture_output=True, text=True, timeout=300
    )
    assert result.stdout.strip() == "the kernels agree", result.stderr[-2000:]
