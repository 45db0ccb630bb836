"""Links to the documentation of other projects, without network.

Intersphinx reads inventories: lists of names with their addresses. Those of other projects are
large and on the network. The names that this project links to are few, so they stand here.
"""

from __future__ import annotations

import zlib
from pathlib import Path

BUILT_IN = ("py:class str", "py:class dict", "py:class list", "py:class tuple")
TERMS = ("std:term iterable", "std:term sequence", "std:term generator")
# By project: the address of its documentation, and for each kind of page the names on it. Among
# them are those that numpydoc links to by itself.
PROJECTS: dict[str, tuple[str, dict[str, tuple[str, ...]]]] = {
    "numpy": (
        "https://numpy.org/doc/stable/",
        {
            "reference/generated/$.html#$": ("py:class numpy.ndarray", "py:class numpy.dtype"),
            "reference/random/legacy.html#$": ("py:class numpy.random.RandomState",),
            "reference/arrays.scalars.html#$": ("std:label arrays.scalars",),
            "glossary.html#term-$": ("std:term array_like",),
        },
    ),
    "torch": (
        "https://docs.pytorch.org/docs/stable/",
        {
            "tensors.html#$": ("py:class torch.Tensor",),
            "tensor_attributes.html#$": ("py:class torch.dtype", "py:class torch.device"),
            "generated/$.html#$": (
                "py:class torch.Generator",
                "py:class torch.nn.Linear",
                "py:class torch.nn.Module",
                "py:class torch.nn.Sequential",
                "py:function torch.compile",
            ),
        },
    ),
    "sklearn": (
        "https://scikit-learn.org/stable/",
        {
            "modules/generated/$.html#$": (
                "py:class sklearn.base.BaseEstimator",
                "py:class sklearn.gaussian_process.GaussianProcessRegressor",
                "py:class sklearn.linear_model.Ridge",
                "py:class sklearn.svm.SVC",
            )
        },
    ),
    "python": (
        "https://docs.python.org/3/",
        {
            "library/pathlib.html#$": ("py:class pathlib.Path",),
            "library/exceptions.html#$": ("py:exception ValueError", "py:exception TypeError"),
            "library/constants.html#$": ("py:data None", "py:data True", "py:data False"),
            "library/functions.html#$": ("py:class int", "py:class float", "py:function callable"),
            "library/stdtypes.html#$": BUILT_IN,
            "library/stdtypes.html#boolean-type-bool": ("std:label bltin-boolean-values",),
            "library/contextlib.html#$": ("py:function contextlib.contextmanager",),
            "library/collections.html#$": ("py:function collections.namedtuple",),
            "glossary.html#term-$": TERMS,
        },
    ),
}
# How docstrings call them. Only these and the classes of this library are linked.
ALIASES = {
    "torch.device": ":obj:`torch.device`",
    "torch.dtype": ":obj:`torch.dtype`",
    "torch.nn.Linear": ":obj:`torch.nn.Linear`",
    "torch.nn.Module": ":obj:`torch.nn.Module`",
    "Tensor": "torch.Tensor",
    "ndarray": "numpy.ndarray",
    "Path": "pathlib.Path",
    "Generator": "torch.Generator",
}


def write_inventories(folder: Path) -> dict[str, tuple[str, str]]:
    """Write an inventory for each project; return what ``intersphinx_mapping`` needs."""
    folder.mkdir(parents=True, exist_ok=True)
    mapping = {}
    for project, (address, pages) in PROJECTS.items():
        path = folder / f"{project}.inv"
        path.write_bytes(inventory(project, pages))
        mapping[project] = (address, str(path))
    return mapping


def inventory(project: str, pages: dict[str, tuple[str, ...]]) -> bytes:
    """Return an inventory in version 2 of Sphinx's format."""
    head = f"# Sphinx inventory version 2\n# Project: {project}\n# Version: \n"
    head += "# The remainder of this file is compressed using zlib.\n"
    lines = []
    for page, names in pages.items():
        for kind, name in (entry.split() for entry in names):
            lines.append(f"{name} {kind} 1 {page.replace('$', name)} -\n")
    return head.encode() + zlib.compress("".join(lines).encode())
