"""Threads, random numbers, interrupts and instructions of a process are left as they were."""

import signal
import subprocess
import sys
import threading

import pytest
import torch
from threadpoolctl import threadpool_info

from tensorswitch import _process
from tensorswitch._process import deferring_interrupts, seeded, threads
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


def counts():
    blas = {lib["filepath"]: lib["num_threads"] for lib in threadpool_info()}
    return torch.get_num_threads(), blas


def test_threads_are_limited_and_restored():
    before = counts()
    with threads(1):
        limited = counts()
        assert limited[0] == 1
        blas = [lib["num_threads"] for lib in threadpool_info() if lib["user_api"] == "blas"]
        assert set(blas) <= {1}
        with threads(2):
            assert torch.get_num_threads() == 2
        assert counts() == limited
    assert counts() == before


def test_the_interrupt_comes_at_the_end():
    done = []

    def work():
        with deferring_interrupts():
            signal.raise_signal(signal.SIGINT)
            done.append("import")

    with pytest.raises(KeyboardInterrupt):
        work()
    assert done == ["import"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_nothing_is_deferred_without_one_or_in_another_thread():
    before = signal.getsignal(signal.SIGINT)
    with deferring_interrupts():
        pass
    inside = []

    def work():
        with deferring_interrupts():
            inside.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert inside == [before]


def test_errors_pass():
    with pytest.raises(ValueError, match="wrong"), deferring_interrupts():
        raise ValueError("wrong")
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_an_error_does_not_swallow_the_interrupt():
    def work():
        with deferring_interrupts():
            signal.raise_signal(signal.SIGINT)
            raise ValueError("wrong")

    with pytest.raises(KeyboardInterrupt) as caught:
        work()
    assert isinstance(caught.value.__context__, ValueError)


@pytest.fixture
def probe(monkeypatch):
    """Let the child process run other code."""

    def replace(code):
        monkeypatch.setattr(_process, "PROBE", code)
        _process.bfloat16_problem.cache_clear()

    yield replace
    monkeypatch.undo()
    _process.bfloat16_problem.cache_clear()


def test_the_probe_is_a_program_that_runs():
    child = subprocess.run([sys.executable, "-c", _process.PROBE], capture_output=True, text=True)
    assert child.returncode in (0, -signal.SIGILL), child.stderr


def test_a_probe_that_lives_finds_no_problem(probe):
    probe("")
    assert _process.bfloat16_problem() is None


def test_a_probe_that_dies_names_the_signal_and_the_remedy(probe):
    probe("import os, signal; os.kill(os.getpid(), signal.SIGILL)")
    problem = _process.bfloat16_problem()
    assert "died with SIGILL" in problem
    assert "ONEDNN_MAX_CPU_ISA=AVX512_CORE_BF16" in problem
    probe("raise RuntimeError")
    assert "ended with 1" in _process.bfloat16_problem()


def test_a_learner_refuses_what_the_machine_cannot_do(probe):
    probe("import os, signal; os.kill(os.getpid(), signal.SIGILL)")
    with pytest.raises(
        ValueError, match=r"precision 'bf16': products in bfloat16 do not work .* ONEDNN_MAX"
    ):
        Learner(mlp(4, 2, kind="ss", depth=1, width=3), precision="bf16")
