import re
import runpy
from pathlib import Path

EXAMPLE = Path(__file__).parents[2] / "examples" / "learn_and_forget.py"


def test_every_way_gives_the_same_model(capsys):
    runpy.run_path(str(EXAMPLE), run_name="__main__")
    printed = capsys.readouterr().out
    assert float(re.search(r"([\d.]+) % right", printed)[1]) > 95
    differences = re.findall(r"differ by (\S+)", printed)
    assert len(differences) == 3
    assert max(map(float, differences)) < 1e-7
