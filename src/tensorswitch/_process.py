"""What a process has once for all its code: threads, random numbers, Ctrl-C and instructions."""

import functools
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from threadpoolctl import ThreadpoolController

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


@contextmanager
def threads(count: int) -> Iterator[None]:
    """Let torch and BLAS use so many threads; one is best for many small steps, which else wait."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        with _libraries().limit(limits=count, user_api="blas"):
            yield
    finally:
        torch.set_num_threads(before)


@functools.cache
def _libraries() -> ThreadpoolController:
    import scipy.linalg  # noqa: F401  (only libraries that are loaded are found)

    return ThreadpoolController()


@contextmanager
def seeded(seed: int, device: torch.device | None = None) -> Iterator[None]:
    """Seed torch's generators of the CPU and of ``device`` alone, and restore them afterwards."""
    gpu = [device] if device is not None and device.type == "cuda" else []
    with torch.random.fork_rng(devices=gpu):
        torch.default_generator.manual_seed(seed)
        if gpu:
            with torch.cuda.device(device):
                torch.cuda.manual_seed(seed)
        yield


@contextmanager
def deferring_interrupts() -> Iterator[None]:
    """Defer Ctrl-C to the end of the block, because a large import that it interrupts may abort."""
    main = threading.current_thread() is threading.main_thread()  # others are not interrupted
    if not main or signal.getsignal(signal.SIGINT) is None:
        yield
        return
    pressed = []
    before = signal.signal(signal.SIGINT, lambda *_: pressed.append(True))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
        if pressed:
            signal.raise_signal(signal.SIGINT)


@functools.cache
def bfloat16_problem() -> str | None:
    """Return why products in bfloat16 fail on the CPU, or None if they work."""
    # Where a hypervisor forbids instructions that the processor advertises, they end the process.
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
