"""Which modules examples are taken from, and how they are run."""

from importlib.util import find_spec

import pytest

# They have no examples, and their optional requirements may not be installed.
OPTIONAL = {
    "src/tensorswitch/switched/_triton.py": "triton",
    "apps/teach/guard.py": "starlette",
    "apps/teach/server.py": "starlette",
}
collect_ignore = [path for path, package in OPTIONAL.items() if not find_spec(package)]


def pytest_itemcollected(item: pytest.Item) -> None:
    """Run examples as a reader pastes them, without the names of the module they are in."""
    if isinstance(item, pytest.DoctestItem) and item.dtest is not None:
        item.dtest.globs = {"__name__": "__main__"}
