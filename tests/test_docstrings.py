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
                    own = inspect.isfunction(value) and value.__name__ == member  # no default
                    if own and not member.startswith("_") and not overrides:
                        names[f"{item.__module__}.{item.__qualname__}.{member}"] = value
    return names


def needs_no_list(item):
    """Methods with at most one argument may say in a sentence what it is."""
    method = inspect.isfunction(item) and "." in item.__qualname__
    few = method and len(inspect.signature(item).parameters) <= 2
    return few and "Parameters\n" not in item.__doc__


PUBLIC = public()


@pytest.mark.parametrize("name", sorted(PUBLIC))
def test_docstring(name):
    checks = CHECKS - {"PR01"} if needs_no_list(PUBLIC[name]) else CHECKS
    errors = [f"{code} {text}" for code, text in validate(name)["errors"] if code in checks]
    assert not errors
