"""Factorise the largest matrices that fit in memory, in a child process that may crash."""

import subprocess
import sys

import pytest

from tensorswitch._memory import available_memory

pytestmark = pytest.mark.slow

PROGRAM = """
import sys, torch
from tensorswitch.linear._cholesky import SymmetricPanels
order, dtype = int(sys.argv[1]), getattr(torch, sys.argv[2])
# I + 11ᵀ / order, whose inverse is known and whose condition number is 2 at any order
rows = lambda a, b: torch.full((b - a, order), 1 / order, dtype=dtype).index_put_(
    (torch.arange(b - a), torch.arange(a, b)), torch.tensor(1 + 1 / order, dtype=dtype))
factor = SymmetricPanels.from_rows(order, rows, torch.empty(0, dtype=dtype)).cholesky()
x = factor.solve(torch.ones(order, 1, dtype=dtype))
assert torch.allclose(x, torch.full_like(x, 0.5), rtol=1e-4), x[:3]
"""


@pytest.mark.parametrize(
    ("order", "dtype"),
    [(16_384, "float32"), (32_768, "float32"), (40_000, "float32"), (24_000, "float64")],
)
def test_a_factorisation_of_any_order(order, dtype):
    size = 4 if dtype == "float32" else 8
    needed = size * order * (order / 2 + 3 * 1024) + 2**30
    if needed > available_memory():
        pytest.skip(f"needs {needed / 2**30:.0f} GB")
    command = [sys.executable, "-c", PROGRAM, str(order), dtype]
    child = subprocess.run(command, capture_output=True, text=True, check=False)
    assert child.returncode == 0, child.stderr[-2000:]
