"""Whether products in bfloat16 work on this machine."""

from __future__ import annotations

import functools
import signal
import subprocess
import sys

# Every kind of product that training needs, at a size where torch hands them to oneDNN.
PROBE = """
import torch
a = torch.ones(64, 64, dtype=torch.bfloat16, requires_grad=True)
(torch.nn.functional.linear(a, a) + torch.bmm(a[None], a[None])[0]).sum().backward()
"""
REMEDY = "use float32, or set the environment variable ONEDNN_MAX_CPU_ISA=AVX512_CORE_BF16 before starting Python"


@functools.cache
def bfloat16_problem() -> str | None:
    """Say what is wrong with products in bfloat16 on the CPU, None if they work.

    They are tried in a child process: where a hypervisor forbids instructions that the processor
    advertises (AMX), the first such product ends the process with SIGILL.
    """
    child = subprocess.run([sys.executable, "-c", PROBE], capture_output=True, check=False)
    if child.returncode == 0:
        return None
    code = -child.returncode
    known = code in {s.value for s in signal.Signals}
    how = f"died with {signal.Signals(code).name}" if known else f"ended with {child.returncode}"
    return f"products in bfloat16 do not work on this machine (a process that tried one {how}); {REMEDY}"
