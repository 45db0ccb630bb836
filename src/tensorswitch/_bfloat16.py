"""Check whether products in bfloat16 work on this machine."""

from __future__ import annotations

import functools
import signal
import subprocess
import sys

# Every kind of product that training needs, large enough for torch to call oneDNN.
PROBE = """
import torch
a = torch.ones(64, 64, dtype=torch.bfloat16, requires_grad=True)
images, kernels = a.reshape(1, 16, 16, 16), a.reshape(16, 16, 4, 4)
outputs = torch.nn.functional.linear(a, a) + torch.bmm(a[None], a[None])[0]
(outputs.sum() + torch.nn.functional.conv2d(images, kernels).sum()).backward()
"""
REMEDY = (
    "use float32, or set the environment variable "
    "ONEDNN_MAX_CPU_ISA=AVX512_CORE_BF16 before starting Python"
)


@functools.cache
def bfloat16_problem() -> str | None:
    """Return why products in bfloat16 fail on the CPU, or None if they work.

    They are tried in a child process: if a hypervisor forbids instructions that the processor
    advertises (AMX), the first such product kills the process with SIGILL.
    """
    child = subprocess.run([sys.executable, "-c", PROBE], capture_output=True, check=False)
    if child.returncode == 0:
        return None
    code = -child.returncode
    known = code in {s.value for s in signal.Signals}
    how = f"died with {signal.Signals(code).name}" if known else f"ended with {child.returncode}"
    return (
        "products in bfloat16 do not work on this machine "
        f"(a process that tried one {how}); {REMEDY}"
    )
