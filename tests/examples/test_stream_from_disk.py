import re
import runpy
import sys
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parents[2] / "examples" / "stream_from_disk.py"


def test_both_files_give_one_model(monkeypatch, capsys):
    pytest.importorskip("pyarrow")
    monkeypatch.setattr(sys, "argv", [str(EXAMPLE), "45000"])
    runpy.run_path(str(EXAMPLE), run_name="__main__")
    printed = capsys.readouterr().out
    errors = re.findall(r"test error ([\d.]+) %", printed)
    assert len(errors) == 2
    assert errors[0] == errors[1]
    assert float(errors[0]) < 15  # a linear model is at 44
