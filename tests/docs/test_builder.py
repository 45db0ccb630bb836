"""The reference has everything public, and docstrings and links are prepared for it."""

import importlib
import zlib

import pytest

from docs.builder import docstrings, inventories, public, reference


@pytest.fixture(scope="module")
def pages():
    return reference.pages()


def test_every_public_name_has_one_home():
    homes = public.homes()
    for module in public.modules():
        for name in getattr(module, "__all__", []):
            item = getattr(module, name)
            if not isinstance(item, type(public)):  # packages are not names of a package
                where, _, last = homes[f"{module.__name__}.{name}"].rpartition(".")
                assert getattr(importlib.import_module(where), last) is item


def test_nothing_public_is_missing_in_the_reference(pages):
    for home in set(public.homes().values()):
        module, _, name = home.rpartition(".")
        text = pages[public.part_of(module)]
        assert f".. currentmodule:: {module}\n" in text
        assert f"   {name}\n" in text or f".. py:data:: {name}\n" in text


def test_names_are_documented_where_they_are_defined():
    homes = public.homes()
    assert homes["tensorswitch.SwitchedLinear"] == "tensorswitch.nn.SwitchedLinear"
    assert homes["tensorswitch.ridge.draw_gates"] == "tensorswitch.switches.draw_gates"
    assert homes["tensorswitch.models.mlp"] == "tensorswitch.models.mlp"


def test_types_in_docstrings_lead_to_classes():
    assert public.class_names()["Explanation"] == "tensorswitch.explain.Explanation"


def test_every_part_is_in_the_index(pages):
    assert {*pages} - {"index"} == {p for p in pages if f"   {p}\n" in pages["index"]}


def test_formulas_become_literal_blocks():
    lines = ["Sum.", "", "    y = |x| W*", "", "Text:", "", "x : int", "    One.", "", "    Two."]
    assert docstrings.mark_formulas(lines) == [*lines[:2], "::", "", *lines[2:]]


def test_blocks_that_are_literal_already_stay():
    lines = ["Run it::", "", "    python x.py"]
    assert docstrings.mark_formulas(lines) == lines


def test_sections_of_modules_become_rubrics():
    lines = ["Text", "", "References", "----------", "One."]
    assert docstrings.without_sections(lines)[2:4] == [".. rubric:: References", ""]


def test_other_projects_have_what_is_linked_to():
    for project, (address, pages) in inventories.PROJECTS.items():
        assert address.startswith("https://")
        assert address.endswith("/")
        packed = inventories.inventory(project, pages).split(b"zlib.\n", 1)[1]
        assert zlib.decompress(packed).count(b"\n") == sum(map(len, pages.values()))
        for kind, name in (entry.split() for names in pages.values() for entry in names):
            if kind.startswith("py:") and "." in name:
                module, _, last = name.rpartition(".")
                assert hasattr(importlib.import_module(module), last), name
