"""Check that the examples of README run and that links lead somewhere."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

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
