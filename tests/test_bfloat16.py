import signal
import subprocess
import sys

import pytest

from tensorswitch import _bfloat16
from tensorswitch.models import mlp
from tensorswitch.training import Learner


@pytest.fixture
def probe(monkeypatch):
    """Let the child process run other code."""

    def replace(code):
        monkeypatch.setattr(_bfloat16, "PROBE", code)
        _bfloat16.bfloat16_problem.cache_clear()

    yield replace
    monkeypatch.undo()
    _bfloat16.bfloat16_problem.cache_clear()


def test_the_probe_is_a_program_that_runs():
    child = subprocess.run([sys.executable, "-c", _bfloat16.PROBE], capture_output=True, text=True)
    assert child.returncode in (0, -signal.SIGILL), child.stderr


def test_a_probe_that_lives_finds_no_problem(probe):
    probe("")
    assert _bfloat16.bfloat16_problem() is None


def test_a_probe_that_dies_names_the_signal_and_the_remedy(probe):
    probe("import os, signal; os.kill(os.getpid(), signal.SIGILL)")
    problem = _bfloat16.bfloat16_problem()
    assert "died with SIGILL" in problem
    assert "ONEDNN_MAX_CPU_ISA=AVX512_CORE_BF16" in problem
    probe("raise RuntimeError")
    assert "ended with 1" in _bfloat16.bfloat16_problem()


def test_a_learner_refuses_what_the_machine_cannot_do(probe):
    probe("import os, signal; os.kill(os.getpid(), signal.SIGILL)")
    with pytest.raises(
        ValueError, match=r"precision 'bf16': products in bfloat16 do not work .* ONEDNN_MAX"
    ):
        Learner(mlp(4, 2, kind="ss", depth=1, width=3), precision="bf16")
