"""Prepare docstrings for reStructuredText.

Formulas in docstrings are indented paragraphs of plain text, below a line that is not indented. In
reStructuredText they would be quotations, in which ``|f|`` and ``W*`` have a meaning; here they
become literal blocks.
"""

from __future__ import annotations

import re
from typing import Any

INDENT = "    "
UNDERLINE = re.compile("-{3,}")
FIELD = "Alias for field number"  # what named tuples say of their fields


def mark_formulas(lines: list[str]) -> list[str]:
    """Return the lines with ``::`` before each indented paragraph that follows a plain one."""
    found: list[str] = []
    last = ""  # the last line that is not empty
    for line in lines:
        formula = line.startswith(INDENT) and found and not found[-1].strip()
        if formula and last and not last.startswith(" ") and not last.endswith("::"):
            found += ["::", ""]
        found.append(line)
        last = line if line.strip() else last
    return found


def without_sections(lines: list[str]) -> list[str]:
    """Return the lines with rubrics for sections, which would divide the page of a module."""
    found: list[str] = []
    for line in lines:
        if UNDERLINE.fullmatch(line) and found and len(found[-1]) == len(line):
            found[-1] = f".. rubric:: {found[-1]}"
            line = ""
        found.append(line)
    return found


def process(app: Any, what: str, name: str, item: Any, options: Any, lines: list[str]) -> None:
    """Change a docstring in place (``autodoc-process-docstring``)."""
    lines[:] = mark_formulas(lines)
    if what == "module":
        lines[:] = without_sections(lines)


def skip(app: Any, what: str, name: str, item: Any, skipped: bool, options: Any) -> bool | None:
    """Leave out what torch, scikit-learn and tuples ask for (``autodoc-skip-member``)."""
    added = name == "extra_repr" or (name.startswith("set_") and name.endswith("_request"))
    return True if added or (getattr(item, "__doc__", None) or "").startswith(FIELD) else None
