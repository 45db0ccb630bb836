"""Everything public is documented in numpydoc: parameters with types, returns, no strangers."""

import importlib
import inspect
import pkgutil

import pytest
from numpydoc.validate import validate

import tensorswitch

# See numpydoc's documentation: no docstring, no summary, parameters missing, unknown, without a
# type or without a description.
CHECKS = {"GL08", "SS01", "PR01", "PR02", "PR04", "PR07"}
HIDDEN = ("tensorswitch.__main__",)


def public():
    """Qualified names of what the modules without an underscore export."""
    names = {}
    for info in pkgutil.walk_packages(tensorswitch.__path__, "tensorswitch."):
        if any(part.startswith("_") for part in info.name.split(".")) or info.name in HIDDEN:
            continue
        module = importlib.import_module(info.name)
        for name in getattr(module, "__all__", []):
            item = getattr(module, name)
            if not (inspect.isclass(item) or inspect.isfunction(item)):
                continue
            if not item.__module__.startswith("tensorswitch"):
                continue
            names[f"{item.__module__}.{item.__qualname__}"] = item
            if inspect.isclass(item):
                for member, value in vars(item).items():
                    if inspect.isfunction(value) and not member.startswith("_"):
                        names[f"{item.__module__}.{item.__qualname__}.{member}"] = value
    return sorted(names)


@pytest.mark.parametrize("name", public())
def test_docstring(name):
    errors = [f"{code} {text}" for code, text in validate(name)["errors"] if code in CHECKS]
    assert not errors
