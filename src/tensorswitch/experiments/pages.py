"""Render self-contained HTML pages from the templates in this package."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from tensorswitch._files import write_text

__all__ = ["FigurePart", "render", "write_page"]


class FigurePart(NamedTuple):
    """A figure on a page.

    Parameters
    ----------
    title : str
        Heading above the figure.
    image : Markup
        The image as HTML.
    caption : str
        Text below the figure.
    """

    title: str
    image: Markup
    caption: str


def render(template: str, **values: Any) -> Markup:
    """Render a template to HTML.

    Parameters
    ----------
    template : str
        File name of the template.
    **values
        Values of its variables. They are escaped unless they are markup already.

    Returns
    -------
    Markup
        The HTML.
    """
    return Markup(_environment().get_template(template).render(**values))


def write_page(path: Path, template: str, **values: Any) -> None:
    """Render a template and write it to a file.

    Parameters
    ----------
    path : Path
        The file to write.
    template : str
        File name of the template.
    **values
        Values of its variables, as in :func:`render`.
    """
    write_text(path, render(template, **values))


@cache
def _environment() -> Environment:
    """Return the template environment, which fails on undefined variables."""
    return Environment(
        loader=PackageLoader("tensorswitch.experiments"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=StrictUndefined,
    )
