"""Check that the examples of README run and that its table matches the results."""

import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

from tensorswitch.experiments.grid import experiments_from_toml
from tensorswitch.paper import rendering, table1
from tensorswitch.paper._reproduce import PARTS, finished, measured_times, of_the_table, plans

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"```python\n(.*?)```", README, re.S)


@pytest.mark.parametrize("number", range(len(EXAMPLES)))
def test_examples_run(number):
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", EXAMPLES[number]],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    if "print" in EXAMPLES[number]:
        assert float(done.stdout) > 0.9


def test_the_grid_is_one(tmp_path):
    (text,) = re.findall(r"```toml\n(.*?)```", README, re.S)
    (tmp_path / "grid.toml").write_text(text)
    assert len(experiments_from_toml(tmp_path / "grid.toml")) == 18


def test_the_table_is_made_from_the_results():
    results = ROOT / "docs" / "results"
    # In the order of the plan, which decides between equal validation errors.
    records = of_the_table(finished(plans(PARTS, "small").experiments, results))
    table = rendering.as_markdown(table1.rows(records, measured_times(results)))
    fill = runpy.run_path(str(ROOT / "docs" / "fill_readme.py"))
    assert fill["like_for_like"](table) in README
    assert fill["best_of_this_library"](ROOT / "benchmarks" / "results") in README
    assert table == (results / "table1.md").read_text(encoding="utf-8")
    # The text and the table quote the same run.
    (error,) = re.findall(r"kernel ridge, no settings \| ([\d.]+) \|", README)
    assert f"with {error} % errors" in README


def test_links_lead_somewhere():
    for page_path in (
        ROOT / "README.md",
        ROOT / "docs" / "measured.md",
        ROOT / "docs" / "results" / "README.md",
    ):
        for link in re.findall(r"\]\(([^)#]+)\)", page_path.read_text(encoding="utf-8")):
            assert link.startswith("http") or (page_path.parent / link).exists(), (
                f"{page_path.name}: {link}"
            )


def test_cells_of_fewer_epochs_are_shown_with_them_and_others_with_remarks_are_not():
    fill = runpy.run_path(str(ROOT / "docs" / "fill_readme.py"))
    table = (
        "| method | A | B | time |\n| --- | --- | --- | --- |\n"
        "| CNN | 1.0<sup>3+1 b</sup> | 2.0<sup>1 a</sup> | 1.0 |\n\n"
        "<sup>a</sup> without extra images  \n<sup>b</sup> 60 epochs  \n"
    )
    assert fill["like_for_like"](table) == (
        "| method | A | time |\n| --- | --- | --- |\n| CNN | 1.0<sup>3+1, 60 epochs</sup> | 1.0 |\n"
    )
