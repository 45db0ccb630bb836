"""Progress bars, made only when wanted."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

Item = TypeVar("Item")


def track(items: Iterable[Item], total: int, description: str, unit: str, show: bool) -> Iterable[Item]:
    """The items themselves, with a bar if it is to be shown."""
    if not show:
        return items
    from tqdm.auto import tqdm

    return tqdm(items, total=total, desc=description, unit=unit)  # type: ignore[no-any-return]
