"""Write the pages of the reference: one for each part of the library, from ``__all__``."""

from __future__ import annotations

import importlib
import reprlib
from collections.abc import Iterator
from pathlib import Path

from docs.builder.public import Module, documented, homes, part_of

# In the order of the reference. What is not named here follows in alphabetical order.
PARTS = {
    "For tables, streams and images": ("estimators", "features", "explain", "datasets", "tables"),
    "To compare and predict": ("compare", "data", "persistence"),
    "For networks": ("nn", "switched", "switches", "inverted", "models", "training"),
    "Mathematics": ("algebra", "kernels", "kernel_ridge", "ridge"),
}
HEAD = """\
Reference
=========

Everything public, from the ``__all__`` of the modules. Names that a package exports are documented
there; the modules below it are listed with what only they have.
"""


def write_reference(folder: Path) -> None:
    """Write ``index.rst`` and a page for each part; pages that have not changed keep their time."""
    folder.mkdir(exist_ok=True)
    for name, text in pages().items():
        path = folder / f"{name}.rst"
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")


def pages() -> dict[str, str]:
    """Return the text of each page."""
    modules = documented()
    parts = sorted({part_of(name) for name in modules if name != "tensorswitch"})
    named = [f"tensorswitch.{part}" for group in PARTS.values() for part in group]
    groups = {title: [f"tensorswitch.{part}" for part in group] for title, group in PARTS.items()}
    if rest := [part for part in parts if part not in named]:
        groups["Other"] = rest
    index = [HEAD]
    for title, group in groups.items():
        index += [_heading(title, "-"), _summary(group)]
        index.append(".. toctree::\n   :hidden:\n\n   " + "\n   ".join(group) + "\n")
    index += [_heading("tensorswitch", "-"), *_aliases("tensorswitch")]
    found = {"index": "\n".join(index)}
    for part in parts:
        inside = [m for name, m in modules.items() if part_of(name) == part]
        found[part] = "\n".join(_page(part, inside))
    return found


def _page(part: str, modules: list[Module]) -> Iterator[str]:
    """Yield the text of a part: its docstring, its names, and those of its modules."""
    yield _heading(part, "=")
    yield f".. automodule:: {part}\n   :no-members:\n"
    for module in sorted(modules, key=lambda m: m.name):
        if module.name != part:
            yield _heading(module.name, "-")
            yield f".. automodule:: {module.name}\n   :no-members:\n"
        yield from _tables(module)
    yield from _aliases(part)


def _tables(module: Module) -> Iterator[str]:
    for title, names in (("Classes", module.classes), ("Functions", module.functions)):
        if names:
            yield f".. rubric:: {title}\n"
            yield f".. currentmodule:: {module.name}\n"
            rows = "\n   ".join(names)
            yield f".. autosummary::\n   :toctree: generated\n   :nosignatures:\n\n   {rows}\n"
    if module.constants:
        yield f".. rubric:: Constants\n\n.. currentmodule:: {module.name}\n"
    for name in module.constants:
        value = reprlib.repr(getattr(importlib.import_module(module.name), name))
        yield f".. py:data:: {name}\n   :value: {value}\n"


def _aliases(part: str) -> Iterator[str]:
    """Yield a list of what a part exports and another one documents."""
    others = [
        f"- :py:obj:`~{home}` as ``{name}``"
        for name, home in sorted(homes().items())
        if name.rpartition(".")[0] == part and part_of(home) != part_of(name)
    ]
    if others:
        yield ".. rubric:: Also exported\n"
        yield "\n".join(others) + "\n"


def _summary(names: list[str]) -> str:
    rows = []
    for name in names:
        first = (importlib.import_module(name).__doc__ or "").split("\n\n")[0]
        rows.append(f"   * - :doc:`{name}`\n     - {' '.join(first.split())}")
    return ".. list-table::\n   :widths: 30 70\n\n" + "\n".join(rows) + "\n"


def _heading(text: str, line: str) -> str:
    return f"{text}\n{line * len(text)}\n"
