"""Render the HTML templates of this package."""

from __future__ import annotations

from functools import cache
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup


def render(template: str, **values: Any) -> Markup:
    """Render a template; values are escaped unless they are markup already."""
    return Markup(_environment().get_template(template).render(**values))


@cache
def _environment() -> Environment:
    """Return the template environment, which fails on undefined variables."""
    return Environment(
        loader=PackageLoader("reproduction"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=StrictUndefined,
    )
