"""Configuration of the documentation: ``make docs`` builds it, without network."""

from __future__ import annotations

import logging
import os
import sys
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parent
ROOT = DOCS.parent
sys.path.insert(0, str(ROOT))
os.environ.setdefault("MPLBACKEND", "Agg")
logging.getLogger("tensorswitch").setLevel(logging.WARNING)

import tensorswitch  # noqa: E402
from docs.builder import docstrings, pages, public, reference  # noqa: E402
from docs.builder.inventories import ALIASES, write_inventories  # noqa: E402

project = "tensorswitch"
author = "The tensorswitch developers"
project_copyright = author
version = release = tensorswitch.__version__

extensions = [
    "myst_parser",
    "numpydoc",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.intersphinx",
    "sphinx.ext.viewcode",
    "sphinx_gallery.gen_gallery",
]
templates_path = ["_templates"]
exclude_patterns = ["_build", "_templates", "builder", "results/table1.md"]
nitpick_ignore_regex: list[tuple[str, str]] = []

# Markdown
myst_enable_extensions = ["colon_fence", "deflist", "fieldlist"]
myst_heading_anchors = 3

# Reference
autosummary_generate = True
autodoc_typehints = "none"
autodoc_member_order = "groupwise"
numpydoc_show_class_members = False  # the class template lists them
numpydoc_xref_param_type = True
numpydoc_xref_aliases = {**public.class_names(), **ALIASES}
numpydoc_xref_ignore = "all"
intersphinx_mapping = write_inventories(DOCS / "_build" / "inventories")

# Gallery
sphinx_gallery_conf = {
    "examples_dirs": "../examples",
    "gallery_dirs": "gallery",
    "filename_pattern": r"/plot_",
    "ignore_pattern": r"/_",
    "within_subsection_order": "FileNameSortKey",
    "backreferences_dir": "gallery/backreferences",
    "doc_module": ("tensorswitch",),
    "reference_url": {"tensorswitch": None},
    "reset_modules": ("matplotlib", "docs.builder.look.reset"),
    "default_thumb_file": str(DOCS / "method.png"),  # of programs that are not run
    "abort_on_example_error": True,
    "download_all_examples": False,
    "show_signature": False,
    "write_computation_times": False,  # their page needs the network
    "show_memory": False,
    "min_reported_time": 10**6,
    "plot_gallery": True,
    "capture_repr": (),
    "nested_sections": False,
}

# Pages
html_theme = "furo"
pygments_style = "a11y-light"
pygments_dark_style = "a11y-dark"
html_title = "tensorswitch"
html_static_path = ["_static"]
html_css_files = ["style.css"]
html_copy_source = False
html_show_sphinx = False


def setup(app: Any) -> None:
    """Connect what the builder modules do."""
    reference.write_reference(DOCS / "api")
    app.connect("autodoc-process-docstring", docstrings.process, priority=400)  # before numpydoc
    app.connect("autodoc-skip-member", docstrings.skip)
    app.connect("source-read", pages.read)
    app.connect("missing-reference", pages.resolve)
    app.connect("html-page-context", pages.collapse, priority=400)  # before the theme
    app.connect("env-check-consistency", pages.check_everything_is_documented)
