"""A fit that fails leaves the estimator as it was."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

Method = TypeVar("Method", bound=Callable[..., Any])


def unchanged_on_error(method: Method) -> Method:
    """Decorate ``fit`` or ``partial_fit``: if it raises, every attribute is set back.

    Only the attributes themselves are restored. What a method changes in place it must copy first,
    in ``_before_fit``, whose result replaces attributes of the same name.
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
