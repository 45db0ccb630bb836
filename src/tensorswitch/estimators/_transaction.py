"""Fits that leave the estimator unchanged if they fail."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

Method = TypeVar("Method", bound=Callable[..., Any])


def unchanged_on_error(method: Method) -> Method:
    """Decorate ``fit`` or ``partial_fit`` so that all attributes are restored if it raises.

    Attributes are restored by reference. An estimator that modifies objects in place must return
    copies of them, by attribute name, from a method ``_before_fit``.
    """

    @wraps(method)
    def wrapped(self: Any, *args: Any, **kwargs: Any) -> Any:
        before = dict(self.__dict__)
        if hasattr(self, "_before_fit"):
            before.update(self._before_fit())
        try:
            return method(self, *args, **kwargs)
        except BaseException:
            self.__dict__.clear()
            self.__dict__.update(before)
            raise

    return wrapped  # type: ignore[return-value]
