"""Modules know only modules above them, and nothing outside the library uses private modules."""

import ast
import importlib
import subprocess
import sys
from pathlib import Path

import pytest

import tensorswitch

ROOT = Path(tensorswitch.__file__).parent
REPOSITORY = Path(__file__).parents[1]
# From the top: a layer may import those before it. Helpers at the root start with an underscore;
# the first ones know nothing but torch and NumPy.
LAYERS = [
    "_checks",
    "_memory",
    "_process",
    "_files",
    "_progress",
    "persistence",
    "preprocessing",
    "algebra",
    "switches",
    "switched",
    "inverted",
    "nn",
    "explain",
    "kernels",
    "linear",
    "ridge",
    "kernel_ridge",
    "features",
    "models",
    "training",
    "estimators",
    "datasets",
    "tables",
    "compare",
    "data",
    "cli",
    "__main__",
]
# The numerical core, which must work without these.
CORE = LAYERS[LAYERS.index("algebra") : LAYERS.index("kernel_ridge")]
FRONT = {"sklearn", "pandas", "rich", "typer", "jinja2", "matplotlib"}
SOURCES = sorted(ROOT.rglob("*.py"))
PUBLIC = {name for name in LAYERS if not name.startswith("_")} - {"cli"}
# Folders beside the library that use it as anybody could.
REPOSITORY = Path(__file__).parents[1]
OUTSIDE = ["apps", "reproduction"]


def module_of(path):
    parts = path.relative_to(ROOT.parent).with_suffix("").parts
    return parts[:-1] if parts[-1] == "__init__" else parts


def imports_of(path):
    """Yield what a file imports, as tuples of names: ("torch", "nn"), for example."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (tuple(name.name.split(".")) for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{path} has a relative import"
            for name in node.names:
                yield (*node.module.split("."), name.name)


def ours(path):
    return [i for i in imports_of(path) if i[0] == "tensorswitch" and len(i) > 1]


def layer(module):
    return module[1] if len(module) > 1 else None


@pytest.mark.parametrize("path", SOURCES, ids=lambda p: str(p.relative_to(ROOT)))
def test_a_module_knows_only_modules_above_it(path):
    here = layer(module_of(path))
    if here is None:  # the package itself, which exports names of many layers
        return
    allowed = {*LAYERS[: LAYERS.index(here) + 1]}
    strangers = {layer(i) for i in ours(path)} - allowed
    assert not strangers, f"{here} must not import {strangers}"


@pytest.mark.parametrize("path", SOURCES, ids=lambda p: str(p.relative_to(ROOT)))
def test_no_private_name_is_imported_from_another_package(path):
    here = layer(module_of(path))
    private = {".".join(i) for i in ours(path) if layer(i) != here and i[-1].startswith("_")}
    assert not private - {f"tensorswitch.{name}" for name in LAYERS}


@pytest.mark.parametrize("path", SOURCES, ids=lambda p: str(p.relative_to(ROOT)))
def test_the_core_knows_nothing_of_estimators_files_or_the_terminal(path):
    if layer(module_of(path)) in CORE:
        assert not {i[0] for i in imports_of(path)} & FRONT


def test_every_module_has_a_layer():
    assert {layer(module_of(path)) for path in SOURCES} - {None} <= {*LAYERS}


def is_public(name):
    """Whether ``tensorswitch.name`` or ``tensorswitch.package.name`` is exported."""
    if len(name) == 2:
        return name[1] in PUBLIC or name[1] in tensorswitch.__all__
    *home, last = name
    return home[1] in PUBLIC and last in importlib.import_module(".".join(home)).__all__


@pytest.mark.parametrize("folder", OUTSIDE)
def test_what_is_outside_the_library_imports_public_names_only(folder):
    paths = sorted((REPOSITORY / folder).rglob("*.py"))
    assert paths
    private = {
        f"{path.relative_to(REPOSITORY)}: {'.'.join(name)}"
        for path in paths
        for name in ours(path)
        if not is_public(name)
    }
    assert not private


@pytest.mark.parametrize(
    ("imported", "absent"),
    [
        ("tensorswitch", {"torch", "scipy"}),
        ("tensorswitch.nn, tensorswitch.kernels, tensorswitch.explain", {"scipy"}),
    ],
)
def test_imports_bring_no_more_than_they_need(imported, absent):
    strangers = absent | FRONT
    code = f"import sys, {imported}\nassert not {strangers!r} & {{*sys.modules}}"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_packages_are_attributes_once_the_library_is_imported():
    code = "import tensorswitch\n" + "\n".join(
        f"assert tensorswitch.{name}.__name__ == 'tensorswitch.{name}'" for name in sorted(PUBLIC)
    )
    subprocess.run([sys.executable, "-c", code], check=True)
    assert set(dir(tensorswitch)) >= PUBLIC
    with pytest.raises(AttributeError, match="has no attribute 'estimator'"):
        _ = tensorswitch.estimator
