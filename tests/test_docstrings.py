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


def ours(item):
    return item.__module__.startswith("tensorswitch")


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
            if not ours(item):
                continue
            names[f"{item.__module__}.{item.__qualname__}"] = item
            if inspect.isclass(item):
                above = [vars(base) for base in item.__mro__[1:] if ours(base)]
                for member, value in vars(item).items():
                    overrides = any(member in inherited for inherited in above)
                    if inspect.isfunction(value) and not member.startswith("_") and not overrides:
                        names[f"{item.__module__}.{item.__qualname__}.{member}"] = value
    return sorted(names)


@pytest.mark.parametrize("name", public())
def test_docstring(name):
    errors = [f"{code} {text}" for code, text in validate(name)["errors"] if code in CHECKS]
    assert not errors
