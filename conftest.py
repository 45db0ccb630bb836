"""Which modules examples are taken from, and how they are run."""

from importlib.util import find_spec

import pytest

# It has no examples, and its optional requirement may not be installed.
collect_ignore = [] if find_spec("triton") else ["src/tensorswitch/switched/_triton.py"]


def pytest_itemcollected(item: pytest.Item) -> None:
    """Run examples as a reader pastes them, without the names of the module they are in."""
    if isinstance(item, pytest.DoctestItem) and item.dtest is not None:
        item.dtest.globs = {"__name__": "__main__"}
