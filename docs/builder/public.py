"""Find everything public, and the one name under which each thing is documented.

A name is public if a module without a leading underscore lists it in ``__all__``. Many are exported
twice, by the module that defines them and by its package. They are documented once, under the
shortest name in the part of the library where they are defined.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

import tensorswitch

HIDDEN = ("tensorswitch.__main__", "tensorswitch.cli")  # the command line has its own page
ROOT = "tensorswitch"


@dataclass
class Module:
    """A public module with the names that are documented under it, by kind."""

    name: str
    classes: list[str] = field(default_factory=list)
    functions: list[str] = field(default_factory=list)
    constants: list[str] = field(default_factory=list)


def modules() -> list[ModuleType]:
    """Import the public modules, packages before what is in them."""
    found = [tensorswitch]
    for info in pkgutil.walk_packages(tensorswitch.__path__, f"{ROOT}."):
        private = any(part.startswith("_") for part in info.name.split("."))
        if not private and not info.name.startswith(HIDDEN):
            found.append(importlib.import_module(info.name))
    return sorted(found, key=lambda module: (module.__name__.count("."), module.__name__))


def part_of(name: str) -> str:
    """Return the part of the library that a dotted name is in: ``tensorswitch.nn``."""
    return ".".join(name.split(".")[:2])


def homes() -> dict[str, str]:
    """Return for each public dotted name the one under which it is documented."""
    exports: dict[tuple[int, str], list[str]] = {}
    items: dict[str, Any] = {}
    for module in modules():
        for name in getattr(module, "__all__", []):
            item = getattr(module, name)
            if inspect.ismodule(item):
                continue
            path = f"{module.__name__}.{name}"
            items[path] = item
            # Constants are the same if they have the same name and value in the same part.
            key = (id(item), "" if defined_in(item) else f"{part_of(module.__name__)} {name}")
            exports.setdefault(key, []).append(path)
    found = {}
    for paths in exports.values():
        where = defined_in(items[paths[0]])
        own = [p for p in paths if where is None or part_of(p) == part_of(where)]
        home = min(own or paths, key=lambda p: p.count("."))
        found.update(dict.fromkeys(paths, home))
    return found


def defined_in(item: Any) -> str | None:
    """Return the module that defines a class or a function of this library."""
    if not (inspect.isclass(item) or inspect.isroutine(item)):
        return None
    where: str | None = getattr(item, "__module__", None)
    return where if where is not None and where.split(".")[0] == ROOT else None


def class_names() -> dict[str, str]:
    """Return for the short name of each class the one under which it is documented."""
    return {name: f"{m.name}.{name}" for m in documented().values() for name in m.classes}


def documented() -> dict[str, Module]:
    """Return the public modules with the names that are documented under them."""
    found: dict[str, Module] = {}
    for home in sorted(set(homes().values())):
        where, _, name = home.rpartition(".")
        module = found.setdefault(where, Module(where))
        item = getattr(importlib.import_module(where), name)
        if inspect.isclass(item):
            module.classes.append(name)
        elif inspect.isroutine(item):
            module.functions.append(name)
        else:
            module.constants.append(name)
    return found
