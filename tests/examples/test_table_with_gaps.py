import re
import runpy
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parents[2] / "examples" / "table_with_gaps.py"


def test_a_table_as_it_is(capsys):
    pytest.importorskip("skrub")
    runpy.run_path(str(EXAMPLE), run_name="__main__")
    score, left_out = map(float, re.findall(r"0\.\d+", capsys.readouterr().out))
    assert score > 0.75
    assert left_out == pytest.approx(score, abs=0.15)
