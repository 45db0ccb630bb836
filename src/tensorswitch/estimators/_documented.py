"""Docstrings with parts that several classes share."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

__all__ = ["with_shared"]

T = TypeVar("T", bound=type)


def with_shared(parts: dict[str, str]) -> Callable[[T], T]:
    """Return a decorator that replaces ``{name}`` in the docstring of a class by a part.

    Parameters
    ----------
    parts : dict of str to str
        What takes the place of each name.

    Returns
    -------
    callable
        The decorator of a class.
    """

    def documented(cls: T) -> T:
        for name, text in parts.items():
            cls.__doc__ = (cls.__doc__ or "").replace(f"{{{name}}}", text.rstrip())
        return cls

    return documented
