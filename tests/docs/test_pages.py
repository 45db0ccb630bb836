"""What pages say of the code is true: names exist, lists are complete, programs run."""

import importlib
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.test_architecture import LAYERS

DOCS = Path(__file__).parents[2] / "docs"
PAGES = sorted(DOCS.glob("*.md"))
ROLE = re.compile(r"\{py:(\w+)\}`~?([\w.]+)`")


def item_of(name):
    """Import what a dotted name stands for."""
    parts = name.split(".")
    for count in range(len(parts), 0, -1):
        try:
            item = importlib.import_module(".".join(parts[:count]))
        except ModuleNotFoundError:
            continue
        for part in parts[count:]:
            item = getattr(item, part)
        return item
    raise AssertionError(name)


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_names_on_a_page_exist(path):
    for role, name in ROLE.findall(path.read_text(encoding="utf-8")):
        item = item_of(name)
        assert (role == "mod") == isinstance(item, type(importlib)), name
        assert (role == "class") == isinstance(item, type), name


def test_the_paper_is_complete():
    text = (DOCS / "paper.md").read_text(encoding="utf-8").replace("\N{NO-BREAK SPACE}", " ")
    for number in range(1, 9):
        assert f"\n| ({number}) |" in text
    for what in (*(f"Figure {number}" for number in range(1, 6)), "Table 1"):
        assert f"\n| {what} |" in text
    assert len(ROLE.findall(text)) > 40


def test_the_architecture_lists_the_layers_in_their_order():
    text = (DOCS / "architecture.md").read_text(encoding="utf-8")
    table = text.split("## Where things live")[1].split("## ")[0]
    listed = re.findall(r"^\| .*?`tensorswitch\.(\w+)` \|", table, re.M)
    assert listed == [layer for layer in LAYERS if not layer.startswith("_")]


def test_the_files_of_formulas_exist():
    text = (DOCS / "architecture.md").read_text(encoding="utf-8")
    table = text.split("## Where each formula is")[1].split("## ")[0]
    files, package = re.findall(r"`([\w/]+\.py)`", table), "."
    assert len(files) > 30
    for file in files:  # of several in one folder, the first names it
        package = file.rpartition("/")[0] if "/" in file or not file.startswith("_") else package
        assert (DOCS.parent / "src/tensorswitch" / package / file.rpartition("/")[2]).is_file(), (
            file
        )


def programs(page):
    """The programs of a page, but those that need a file of the reader's."""
    text = (DOCS / page).read_text(encoding="utf-8")
    found = re.findall(r"```python\n(.*?)```", text, re.S)
    return [program for program in found if 'load("run")' not in program]


@pytest.mark.parametrize("number", [0, 1])
def test_the_programs_of_services_run(tmp_path, number):
    stream, switch = programs("service.md")
    (tmp_path / "program.py").write_text((stream, switch)[number], encoding="utf-8")
    command = [sys.executable, "-W", "error", "program.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert float(done.stdout) > 0.9


def test_the_first_steps_run(tmp_path):
    (program,) = programs("install.md")
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert float(done.stdout.split()[0]) > 0.9


def test_commands_are_listed_with_their_options():
    commands = pytest.importorskip("docs.builder.commands")
    text = commands.sections()
    assert "\n## tensorswitch compare\n" in text
    assert "| `--data` `-d` |" in text
    assert "Default: `0`" in text
