"""What packages export is documented in numpydoc: parameters with types, returns, no strangers."""

import importlib
import inspect
import pkgutil

import pytest
from numpydoc.validate import validate

import tensorswitch

# See numpydoc's documentation: no docstring, no summary, parameters missing, unknown, without a
# type or without a description.
CHECKS = {"GL08", "SS01", "PR01", "PR02", "PR04", "PR07"}


def ours(item):
    return item.__module__.startswith("tensorswitch")


def public():
    """Qualified names of what the packages and the modules beside them export."""
    names = {}
    for info in pkgutil.iter_modules(tensorswitch.__path__, "tensorswitch."):
        if info.name.split(".")[1].startswith("_"):
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
                    method = (
                        inspect.isfunction(value) and value.__name__ == member
                    )  # no default of a field
                    if method and not member.startswith("_") and not overrides:
                        names[f"{item.__module__}.{item.__qualname__}.{member}"] = value
    return sorted(names)


@pytest.mark.parametrize("name", public())
def test_docstring(name):
    errors = [f"{code} {text}" for code, text in validate(name)["errors"] if code in CHECKS]
    assert not errors
