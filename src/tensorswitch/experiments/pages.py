"""Self-contained HTML pages, made from the templates beside this file."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from tensorswitch._files import write_text

__all__ = ["FigurePart", "render", "write_page"]


class FigurePart(NamedTuple):
    """A figure of a page."""

    title: str
    image: Markup
    caption: str


def render(template: str, **values: Any) -> Markup:
    """Return the HTML of a template. Values are escaped unless they are markup already."""
    return Markup(_environment().get_template(template).render(**values))


def write_page(path: Path, template: str, **values: Any) -> None:
    """Write the HTML of a template to a file."""
    write_text(path, render(template, **values))


@cache
def _environment() -> Environment:
    return Environment(
        loader=PackageLoader("tensorswitch.experiments"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=StrictUndefined,
    )
